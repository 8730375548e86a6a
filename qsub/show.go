package main

import "paddock/qsub/internal/option"

// showCommands are the commands of this package.
var showCommands = table{
	option.Qstat:   qstat,
	option.Qhost:   qhost,
	option.Qselect: qselect,
	option.Qtop:    qtop,
}
