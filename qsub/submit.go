package main

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// submitCommands are the commands of this package.
var submitCommands = command.Table{
	option.Qsub:   qsub,
	option.Qalter: qalter,
	option.Qresub: qresub,
	option.Qrsh:   qrsh,
	option.Qlogin: qrsh,
	option.Qsh:    qsh,
}
