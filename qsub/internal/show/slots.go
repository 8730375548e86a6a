package show

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// slotsAsked is the request of qhost -slots and -slotad.
type slotsAsked struct {
	set     bool
	request api.SlotsRequest
}

// add reads one of the options; name is the argument of -slotad.
func (a *slotsAsked) add(ads bool, name string) error {
	a.set = true
	a.request.Ads = a.request.Ads || ads
	if name == "" {
		return nil
	}
	// A slot is 3, slot3, 1_2 or slot1_2, and may have @host behind it.
	slotName := regexp.MustCompile(`^(?:slot)?([1-9][0-9]{0,8}(?:_[1-9][0-9]{0,8})?)(?:@.*)?$`)
	m := slotName.FindStringSubmatch(name)
	if m == nil {
		return command.Failf("error: %q is no slot", api.Visible(name))
	}
	a.request.Slot = api.SlotID(m[1])
	return nil
}

// showSlots prints the slots of the host, as a table, as JSON or as their ads.
func showSlots(ctx context.Context, inv *command.Invocation, a *slotsAsked, asJSON bool) error {
	var reply api.SlotsReply
	err := inv.Client.Call(ctx, api.VerbSlots, &a.request, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeNotFound {
		return command.Failf("error: %s", api.Visible(e.Text))
	}
	switch {
	case err != nil:
		return inv.CallFailed(err)
	case asJSON:
		return inv.PrintJSON(&reply)
	case a.request.Ads:
		for i := range reply.Slots {
			if i > 0 {
				fmt.Fprintln(inv.Out)
			}
			for line := range strings.Lines(reply.Slots[i].Ad) {
				fmt.Fprintln(inv.Out, api.Visible(strings.TrimSuffix(line, "\n")))
			}
		}
		return nil
	}
	slotLines(inv, reply.Slots)
	return nil
}

// slotLines prints the table of slots. The columns of partitionable and dynamic
// slots are left out where there are none.
func slotLines(inv *command.Invocation, slots []api.SlotStatus) {
	rows := [][]string{{"SLOT", "QUEUE", "STATE", "ACTIVITY", "HOLDER", "TYPE", "CPUS", "MEMORY", "JOB"}}
	const kind, job = 5, 8
	for i := range slots {
		t := &slots[i]
		row := []string{string(t.Slot), t.Queue, t.State, t.Activity, t.Holder, "Static", "", "", t.Job}
		if t.Type != "" {
			copy(row[kind:], []string{t.Type, strconv.FormatInt(t.Cpus, 10), strconv.FormatInt(t.Memory, 10) + "M"})
		}
		rows = append(rows, row)
	}
	if !slices.ContainsFunc(slots, func(t api.SlotStatus) bool { return t.Type != "" }) {
		for i, row := range rows {
			rows[i] = slices.Delete(row, kind, job)
		}
	}
	output.Table(inv.Out, rows, "CPUS", "MEMORY")
}
