// Package watch is the commands that stay until jobs end: qwait, qlog, and what
// qsub -sync does. The program imports it, and package submit for Wait.
package watch

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Commands are the commands of this package.
var Commands = command.Table{
	option.Qwait: qwait,
	option.Qlog:  qlog,
}
