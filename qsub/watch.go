package main

import "paddock/qsub/internal/option"

// watchCommands are the commands of this package.
var watchCommands = table{
	option.Qwait: qwait,
	option.Qlog:  qlog,
}
