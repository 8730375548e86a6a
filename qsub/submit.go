package main

import "paddock/qsub/internal/option"

// submitCommands are the commands of this package.
var submitCommands = table{
	option.Qsub:   qsub,
	option.Qalter: qalter,
	option.Qresub: qresub,
	option.Qrsh:   qrsh,
	option.Qlogin: qrsh,
	option.Qsh:    qsh,
}
