package main

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// watchCommands are the commands of this package.
var watchCommands = command.Table{
	option.Qwait: qwait,
	option.Qlog:  qlog,
}
