package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"paddock/execd/api"
)

// slotsAsked is what qhost -slots and -slotad ask for.
type slotsAsked struct {
	set     bool
	request api.SlotsRequest
}

// add reads one of the options; number is the argument of -slotad.
func (a *slotsAsked) add(ads bool, number string) error {
	a.set = true
	a.request.Ads = a.request.Ads || ads
	if number == "" {
		return nil
	}
	if n, err := strconv.Atoi(number); err != nil || n < 1 {
		return &failure{exitFailed, fmt.Sprintf("error: %q is no number of a slot", api.Visible(number))}
	}
	a.request.Slot = api.SlotID(number)
	return nil
}

// slots prints the slots of the host, as a table or as their ads.
func (s *session) slots(ctx context.Context, a *slotsAsked, asJSON bool) error {
	var reply api.SlotsReply
	err := s.client.Call(ctx, api.VerbSlots, &a.request, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeNotFound {
		return &failure{exitFailed, "error: " + api.Visible(e.Text)}
	}
	switch {
	case err != nil:
		return s.callFailed(err)
	case asJSON:
		return s.printJSON(&reply)
	case a.request.Ads:
		for i := range reply.Slots {
			if i > 0 {
				fmt.Fprintln(s.out)
			}
			for line := range strings.Lines(reply.Slots[i].Ad) {
				fmt.Fprintln(s.out, api.Visible(strings.TrimSuffix(line, "\n")))
			}
		}
		return nil
	}
	line := func(cells ...string) {
		fmt.Fprintln(s.out, strings.TrimRight(fmt.Sprintf("%s %s %s %s %s %s",
			column(cells[0], 5), column(cells[1], 20), column(cells[2], 10), column(cells[3], 12), column(cells[4], 16), cells[5]), " "))
	}
	line("SLOT", "QUEUE", "STATE", "ACTIVITY", "HOLDER", "JOB")
	fmt.Fprintln(s.out, strings.Repeat("-", 75))
	for i := range reply.Slots {
		t := &reply.Slots[i]
		line(string(t.Slot), t.Queue, t.State, t.Activity, t.Holder, t.Job)
	}
	return nil
}
