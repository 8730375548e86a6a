package main

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// adminCommands are the commands of this package.
var adminCommands = command.Table{
	option.Qdel:  qdel,
	option.Qhold: qhold,
	option.Qrls:  qhold,
	option.Qmod:  qmod,
	option.Qconf: qconf,
}
