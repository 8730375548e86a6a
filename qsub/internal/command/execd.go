package command

import (
	"context"
	"errors"
	"fmt"

	"paddock/execd/api"
)

// CallFailed gives an error of execd's, or of reaching it, the form in which
// Grid Engine's commands say it.
func (inv *Invocation) CallFailed(err error) error {
	if errors.Is(err, api.ErrUnreachable) {
		return Failf("error: %s%s", api.Visible(err.Error()), inv.StartIt(err))
	}
	return err
}

// StartIt tells how to start an execd where nobody listens, in a line of its own.
func (inv *Invocation) StartIt(err error) string {
	switch {
	case !errors.Is(err, api.ErrNotSent):
		return ""
	case inv.Places.Dev:
		return "\nIs it not running? Start it: execd -dev " + api.Visible(inv.Places.State) + " &"
	case inv.Places == api.RootPlaces():
		return "\nIs it not running? Start it, as root: systemctl start execd"
	}
	return "\nIs it not running? Start one of your own: execd &"
}

// Host asks for the host and its queues.
func (inv *Invocation) Host(ctx context.Context, request *api.HostRequest) (*api.HostReply, error) {
	var reply api.HostReply
	err := inv.Client.Call(ctx, api.VerbHost, request, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeInternal {
		return nil, Failf("error: %s", api.Visible(e.Text)) // what was asked for is not known here
	}
	if err != nil {
		return nil, inv.CallFailed(err)
	}
	return &reply, nil
}

// Report prints the lines of a reply. The error is a failure with the exit
// status of the first line that tells of one.
func (inv *Invocation) Report(lines []api.Line, exit func(api.Code) int) error {
	var failed error
	for _, line := range lines {
		fmt.Fprintln(inv.Out, api.Visible(line.Text))
		if line.Failed && failed == nil {
			failed = &Failure{Exit: exit(line.Code)}
		}
	}
	return failed
}
