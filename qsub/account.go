package main

import "paddock/qsub/internal/option"

// accountCommands are the commands of this package.
var accountCommands = table{
	option.Qacct: qacct,
}
