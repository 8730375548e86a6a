// Command qsub is all client commands in one binary: qsub, qstat, qdel, qhold,
// qrls, qmod, qhost, qselect, qconf, qacct, qalter, qresub, qwait, qlog, qtop,
// qrsh, qlogin and qsh. The name it is called by says which of them it is. The
// commands speak to execd through execd/api and never read its spool; qacct
// reads the accounting file itself. Each group of commands has a package below
// internal, which hands the program a table of them.
package main

import (
	"context"
	"os"

	"paddock/qsub/internal/account"
	"paddock/qsub/internal/admin"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/show"
	"paddock/qsub/internal/submit"
	"paddock/qsub/internal/watch"
)

// version is set by the linker.
var version = "0.1.0-dev"

var program = command.Program{
	Version: version,
	Tables:  []command.Table{submit.Commands, show.Commands, watch.Commands, account.Commands, admin.Commands},
}

func main() {
	os.Exit(program.Run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
}
