// Package submit is the commands that submit jobs, change their requests or
// submit them again: qsub, qrsh, qlogin, qsh, qalter and qresub. The program
// alone imports it.
package submit

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Commands are the commands of this package.
var Commands = command.Table{
	option.Qsub:   qsub,
	option.Qalter: qalter,
	option.Qresub: qresub,
	option.Qrsh:   qrsh,
	option.Qlogin: qrsh,
	option.Qsh:    qsh,
}
