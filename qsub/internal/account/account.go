// Package account is qacct, which reads what finished jobs used from the accounting
// file. The program alone imports it.
package account

import (
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// Commands are the commands of this package.
var Commands = command.Table{
	option.Qacct: qacct,
}
