package main

import (
	"context"
	"errors"
	"fmt"

	"paddock/execd/api"
)

// callFailed gives an error of execd's, or of reaching it, the form in which
// Grid Engine's commands say it.
func (inv *invocation) callFailed(err error) error {
	if errors.Is(err, api.ErrUnreachable) {
		return failf("error: %s%s", api.Visible(err.Error()), inv.startIt(err))
	}
	return err
}

// startIt tells how to start an execd where nobody listens, in a line of its own.
func (inv *invocation) startIt(err error) string {
	switch {
	case !errors.Is(err, api.ErrNotSent):
		return ""
	case inv.places.Dev:
		return "\nIs it not running? Start it: execd -dev " + api.Visible(inv.places.State) + " &"
	case inv.places == api.RootPlaces():
		return "\nIs it not running? Start it, as root: systemctl start execd"
	}
	return "\nIs it not running? Start one of your own: execd &"
}

// host asks for the host and its queues.
func (inv *invocation) host(ctx context.Context, request *api.HostRequest) (*api.HostReply, error) {
	var reply api.HostReply
	err := inv.client.Call(ctx, api.VerbHost, request, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeInternal {
		return nil, failf("error: %s", api.Visible(e.Text)) // what was asked for is not known here
	}
	if err != nil {
		return nil, inv.callFailed(err)
	}
	return &reply, nil
}

// printJSON prints a reply as it is sent, for programs.
func (inv *invocation) printJSON(reply any) error {
	text, err := api.Document(reply)
	if err == nil {
		_, err = inv.out.Write(text)
	}
	return err
}

// report prints the lines of a reply. The error is a failure with the exit
// status of the first line that tells of one.
func (inv *invocation) report(lines []api.Line, exit func(api.Code) int) error {
	var failed error
	for _, line := range lines {
		fmt.Fprintln(inv.out, api.Visible(line.Text))
		if line.Failed && failed == nil {
			failed = &failure{exit: exit(line.Code)}
		}
	}
	return failed
}
