// Package show is the commands that look and change nothing: qstat, qhost, qselect
// and qtop. The program imports it, and package submit for Job.
package show

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Commands are the commands of this package.
var Commands = command.Table{
	option.Qstat:   qstat,
	option.Qhost:   qhost,
	option.Qselect: qselect,
	option.Qtop:    qtop,
}
