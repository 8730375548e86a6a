package submit

import (
	"fmt"
	"strings"

	"paddock/execd/api"
	"paddock/qrsh/client"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// connection returns how the client of a job that is a daemon connects to it.
func connection(inv *command.Invocation, j *job, number int, program string) *client.Program {
	say := func(format string, args ...any) {
		if j.verbose || inv.Command == option.Qlogin {
			fmt.Fprintln(inv.Err, api.Visible(fmt.Sprintf(format, args...)))
		}
	}
	return &client.Program{
		Words: strings.Fields(program), PortLast: inv.Command == option.Qlogin, NoStdin: j.noStdin,
		Establishing: func(name, host string) {
			say("Your interactive job %d has been successfully scheduled.", number)
			say("Establishing %s session to host %s ...", name, host)
		},
		Ended: func(name string, status int, err error) {
			if err != nil {
				fmt.Fprintf(inv.Err, "%s: %s\n", inv.Command, api.Visible(err.Error()))
			}
			say("%s exited with exit code %d", name, status)
		},
		Told: func(status int) { say("reading exit code from shepherd ... %d", status) },
	}
}
