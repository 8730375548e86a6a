package main

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// showCommands are the commands of this package.
var showCommands = command.Table{
	option.Qstat:   qstat,
	option.Qhost:   qhost,
	option.Qselect: qselect,
	option.Qtop:    qtop,
}
