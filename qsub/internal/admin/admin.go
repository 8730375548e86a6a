// Package admin is the commands that change jobs, queues and the configuration:
// qdel, qhold, qrls, qmod and qconf. The program alone imports it.
package admin

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Commands are the commands of this package.
var Commands = command.Table{
	option.Qdel:  qdel,
	option.Qhold: qhold,
	option.Qrls:  qhold,
	option.Qmod:  qmod,
	option.Qconf: qconf,
}
