package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
)

// slotsAsked is what qhost -slots and -slotad ask for.
type slotsAsked struct {
	set     bool
	request api.SlotsRequest
}

// slotName is what a slot may be called: 3, slot3, 1_2, slot1_2, and with the host
// behind it.
var slotName = regexp.MustCompile(`^(?:slot)?([1-9][0-9]{0,8}(?:_[1-9][0-9]{0,8})?)(?:@.*)?$`)

// add reads one of the options; name is the argument of -slotad.
func (a *slotsAsked) add(ads bool, name string) error {
	a.set = true
	a.request.Ads = a.request.Ads || ads
	if name == "" {
		return nil
	}
	m := slotName.FindStringSubmatch(name)
	if m == nil {
		return &failure{exitFailed, fmt.Sprintf("error: %q is no slot", api.Visible(name))}
	}
	a.request.Slot = api.SlotID(m[1])
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
	s.slotLines(reply.Slots)
	return nil
}

// slotLines prints the table of slots. What others have that are carved is shown only
// where there are such slots.
func (s *session) slotLines(slots []api.SlotStatus) {
	carved := slices.ContainsFunc(slots, func(t api.SlotStatus) bool { return t.Type != "" })
	line := func(cells ...string) {
		text := fmt.Sprintf("%s %s %s %s %s ", column(cells[0], 5), column(cells[1], 20), column(cells[2], 10), column(cells[3], 12), column(cells[4], 16))
		if carved {
			text += fmt.Sprintf("%-14s %5s %7s ", cells[6], cells[7], cells[8])
		}
		fmt.Fprintln(s.out, strings.TrimRight(text+cells[5], " "))
	}
	line("SLOT", "QUEUE", "STATE", "ACTIVITY", "HOLDER", "JOB", "TYPE", "CPUS", "MEMORY")
	width := 75
	if carved {
		width = 104
	}
	fmt.Fprintln(s.out, strings.Repeat("-", width))
	for i := range slots {
		t := &slots[i]
		kind, cpus, memory := "Static", "", ""
		if t.Type != "" {
			kind, cpus, memory = t.Type, strconv.FormatInt(t.Cpus, 10), strconv.FormatInt(t.Memory, 10)+"M"
		}
		line(string(t.Slot), t.Queue, t.State, t.Activity, t.Holder, t.Job, kind, cpus, memory)
	}
}
