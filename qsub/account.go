package main

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// accountCommands are the commands of this package.
var accountCommands = command.Table{
	option.Qacct: qacct,
}
