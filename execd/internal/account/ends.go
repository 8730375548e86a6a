package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/job"
	"paddock/spool"
)

// Ends returns how tasks of some jobs ended, by the lines of the accounting file from a
// place on, and the place behind what was read. A waiting client gets this: it also
// holds for a job that is long over, or whose execd was restarted, and costs no memory
// for finished tasks.
//
// Of very many it returns only the first, and more is true. The error is that of ctx.
func (b *Book) Ends(ctx context.Context, from job.Place, numbers ...int) (ends []api.TaskEnd, behind job.Place, more bool, err error) {
	return b.ends(ctx, from, accounting.None, numbers...)
}

// SubtaskEnd returns how what was started in a task of a job ended, by the lines of the
// accounting file from a place on; nil when it has no line there. The task of a job that
// is no array is 1. The error is that of ctx.
func (b *Book) SubtaskEnd(ctx context.Context, from job.Place, number, task int, name string) (*api.TaskEnd, error) {
	ends, _, _, err := b.ends(ctx, from, name, number)
	if i := slices.IndexFunc(ends, func(e api.TaskEnd) bool { return max(e.Task, 1) == task }); i >= 0 {
		return &ends[i], nil
	}
	return nil, err
}

// ends is Ends of tasks, with the name None, or of what was started in them.
func (b *Book) ends(ctx context.Context, from job.Place, name string, numbers ...int) (ends []api.TaskEnd, behind job.Place, more bool, err error) {
	wanted := make(map[string]bool, len(numbers))
	for _, number := range numbers {
		wanted[strconv.Itoa(number)] = true
	}
	for _, path := range b.files(from.Inode) {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, from, false, fmt.Errorf("cannot read accounting file: %w", err)
		}
		if inode(info) != from.Inode || from.Offset > info.Size() {
			from = job.Place{Inode: inode(info)}
		}
		seen := 0
		from.Offset, err = eachLine(path, from.Offset, func(line []byte) bool {
			if seen++; seen%1024 == 0 && ctx.Err() != nil {
				return false
			}
			// Most lines are of other jobs, and are not parsed.
			if !wanted[string(accounting.Field(line, accounting.FieldJobNumber))] {
				return true
			}
			if r, err := accounting.Parse(line); err == nil && r.PETaskID == name {
				ends = append(ends, taskEnd(&r))
			}
			return len(ends) < maxEnds
		})
		switch {
		case err != nil:
			return nil, from, false, fmt.Errorf("cannot read accounting file: %w", err)
		case ctx.Err() != nil:
			return nil, from, false, ctx.Err()
		case len(ends) == maxEnds:
			return ends, from, true, nil
		}
	}
	return ends, from, false, nil
}

// maxEnds bounds the ends that are returned at once: there may be millions.
const maxEnds = 10_000

// ParseCursor reads what FormatCursor wrote; an empty text is the zero Place.
func ParseCursor(text string) (job.Place, error) {
	if text == "" {
		return job.Place{}, nil
	}
	ino, offset, ok := strings.Cut(text, ":")
	i, err1 := strconv.ParseUint(ino, 10, 64)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if !ok || err1 != nil || err2 != nil || o < 0 {
		return job.Place{}, fmt.Errorf("%q is not a cursor", text)
	}
	return job.Place{Inode: i, Offset: o}, nil
}

// FormatCursor writes a place as a text that a client gives back.
func FormatCursor(p job.Place) string {
	return strconv.FormatUint(p.Inode, 10) + ":" + strconv.FormatInt(p.Offset, 10)
}

// taskEnd returns what a waiting client is told of an accounting line.
func taskEnd(r *accounting.Record) api.TaskEnd {
	e := api.TaskEnd{Job: r.JobNumber, Task: r.TaskNumber, Failed: r.Failed, Exit: r.ExitStatus, Ran: r.StartTime > 0}
	if (r.Failed == spool.FailedAfterJob || r.Failed == spool.FailedEnforcedLimit) && r.ExitStatus > 128 {
		e.Signal = "SIG" + spool.SignalName(r.ExitStatus-128)
	}
	if r.Failed != 0 {
		e.Reason = cmp.Or(r.Reason, accounting.FailedText(r.Failed))
	}
	return e
}
