package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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
		return failf("error: %q is no slot", api.Visible(name))
	}
	a.request.Slot = api.SlotID(m[1])
	return nil
}

// slots prints the slots of the host, as a table or as their ads.
func (s *session) slots(ctx context.Context, a *slotsAsked, asJSON bool) error {
	var reply api.SlotsReply
	err := s.client.Call(ctx, api.VerbSlots, &a.request, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeNotFound {
		return failf("error: %s", api.Visible(e.Text))
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

// slotLines prints the table of slots, no wider than what is in it. What others have
// that are carved is shown only where there are such slots.
func (s *session) slotLines(slots []api.SlotStatus) {
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
	s.table(rows, "CPUS", "MEMORY")
}

// longestCell is how much of a cell a table shows, but for the last of a line.
const longestCell = 20

// table prints rows as columns, the first row as their heads. Those of numbers are
// aligned to the right.
func (s *session) table(rows [][]string, numbers ...string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], min(utf8.RuneCountInString(api.Visible(cell)), longestCell))
		}
	}
	total := len(widths) - 1
	for _, w := range widths {
		total += w
	}
	last := len(widths) - 1
	for n, row := range rows {
		var text strings.Builder
		for i, cell := range row[:last] {
			if slices.Contains(numbers, rows[0][i]) {
				fmt.Fprintf(&text, "%*s ", widths[i], cell)
			} else {
				text.WriteString(column(cell, widths[i]) + " ")
			}
		}
		fmt.Fprintln(s.out, strings.TrimRight(text.String()+api.Visible(row[last]), " "))
		if n == 0 {
			fmt.Fprintln(s.out, strings.Repeat("-", total))
		}
	}
}
