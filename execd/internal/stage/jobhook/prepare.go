package jobhook

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
	"paddock/spool"
)

// Unprepared is the error of a job that is not started.
type Unprepared struct {
	Hold    bool // it waits for somebody to look; else it is tried again, later
	Late    bool // it took too long
	Host    bool // is to blame: the job is tried again as soon as the host starts any
	Code    int  // of the hold
	Subcode int
	Text    string
	Told    bool // in the log, and to who sent the job
}

func (u *Unprepared) Error() string { return u.Text }

// judge says what becomes of a job by the end of a prepare hook and by what it has
// printed, as far as that could be read.
func judge(res *hook.Result, m *ad.Merged, unreadable error) (u *Unprepared, warning string) {
	name := fmt.Sprintf("hook %s of %s", res.Hook, res.Keyword)
	hold := func(status int, why string) *Unprepared {
		return &Unprepared{Hold: true, Code: exit.HoldHook, Subcode: status, Text: name + ": " + why}
	}
	switch {
	case res.TimedOut:
		return &Unprepared{Late: true, Text: fmt.Sprintf("%s: %v", name, res)}, ""
	case scarce(res.Err):
		return &Unprepared{Text: name + ": " + res.Err.Error()}, ""
	case res.Err != nil:
		return hold(0, res.Err.Error()), ""
	case res.TooLong:
		return hold(0, res.String()), ""
	case res.Status < 0:
		return &Unprepared{Text: fmt.Sprintf("%s: %v", name, res)}, ""
	}
	status, message := res.Status, ""
	if unreadable == nil {
		message = m.Message
		if m.Status != nil {
			status = *m.Status
		}
	}
	why := cmp.Or(message, lastLine(res.Stderr))
	text := fmt.Sprintf("status %d", status)
	if why != "" {
		text += ": " + why
	}
	switch {
	case status >= firstRequeue:
		return &Unprepared{Subcode: status, Text: name + ": " + text}, ""
	case status != 0:
		return hold(status, text), ""
	case unreadable != nil:
		return hold(0, unreadable.Error()), ""
	}
	return nil, message
}

// scarce reports whether a hook could not be started since execd had no descriptors,
// processes or memory left: neither job nor hook is to blame, and it passes.
func scarce(err error) bool {
	for _, errno := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.EAGAIN, unix.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// firstRequeue is the first HookStatusCode by which a hook asks that the job is
// tried again.
const firstRequeue = 300

// lastLine returns the last line of a text, as far as it fits into a reason. A hook has
// the job's environment, so that what it says may be the user's words: they must not act as
// commands to the terminal of a reader.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return api.Visible(strings.ToValidUTF8(text[:min(len(text), 300)], "?"))
}

// PrepareBy runs a prepare hook for a step and lays what it printed over the job.
func (x *Hooks) PrepareBy(h *hook.Hook, step string) (exit.Result, error) {
	res, err := x.await(h, false, nil, func() ([]byte, error) {
		a, err := x.JobAd()
		if err != nil {
			return nil, err
		}
		if x.SlotAd {
			return ad.Stdin(a, x.AdOfSlot()), nil
		}
		return ad.Stdin(a, nil), nil
	})
	if err != nil {
		return exit.Failed, err
	}
	if res == nil {
		return exit.InProgress, nil
	}
	u, err := x.take(h, step, res)
	if err != nil {
		return exit.Failed, err // a full disk: the hook itself is not run again
	}
	x.called()
	if u != nil {
		return exit.Failed, u
	}
	return exit.Nothing, nil // it is noted
}

// take takes over the result of a prepare hook. One line records how the hook has ended and
// that its step is done: an execd that was killed between two lines would call it again.
func (x *Hooks) take(h *hook.Hook, step string, res *hook.Result) (*Unprepared, error) {
	if res.Err != nil && x.host.Store.Want(x.of) != nil { // it was ended by that
		return &Unprepared{}, nil
	}
	before, err := x.JobAd()
	if err != nil {
		return nil, err
	}
	m, unreadable := ad.Merge(before, res.Stdout)
	u, warning := judge(res, &m, unreadable)
	if u == nil && len(m.Changed) > 0 {
		if err := x.change(&m); err != nil {
			if _, unfit := errors.AsType[*launch.Unfit](err); !unfit {
				return nil, err
			}
			u = &Unprepared{Hold: true, Code: exit.HoldHook, Text: fmt.Sprintf("hook %s of %s: %v", h.Name, h.Keyword, err)}
		}
	}
	line := HookRun{Result: res}
	if u == nil {
		line.Step, line.Changed = step, m.Changed
	}
	if u != nil {
		line.Verdict = u.Text
		x.host.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s took=%.3fs result=%q", x.of, h.Keyword, h.Name, res.Took.Seconds(), u.Text))
	}
	if warning != "" {
		line.Verdict = "exit status 0: " + warning
		x.host.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s took=%.3fs message=%q", x.of, h.Keyword, h.Name, res.Took.Seconds(), warning))
		x.notices.Happened(notice.Event{Kind: notice.Warned, Text: fmt.Sprintf("hook %s of %s: %s", h.Name, h.Keyword, warning), Ad: m.Ad})
	}
	if err := x.Note(line); err != nil {
		return nil, err
	}
	x.changed = append(x.changed, line.Changed...)
	return u, nil
}

// change makes a job what a hook has made of its ad. A *launch.Unfit is the hook's
// mistake.
func (x *Hooks) change(m *ad.Merged) error {
	request, err := x.host.Store.Request(x.of.Job)
	if err != nil {
		return err
	}
	request = ad.Expanded(request, x.of.Needs.Attributes(), x.of.Start.MatchExp)
	// The second hook gets what the first has changed.
	all := *m
	all.Changed = slices.Concat(x.changed, m.Changed)
	to, err := ad.Relaunch(request, &all, ad.RequestOptions{Scratch: x.host.Launcher.Scratch(x.of.RunID()), Now: time.Now(), Config: x.host.Config()})
	if err != nil {
		return &launch.Unfit{Reason: err.Error()}
	}
	run := x.of.RunID()
	d := x.host.Launcher.Root.Active(run.ID())
	if to != request {
		o, err := x.host.Order(x.of, to)
		if err != nil {
			return err
		}
		if to.Command != request.Command || to.Binary != request.Binary {
			o.Script = ""
		}
		if err := x.host.Launcher.Rebuild(o); err != nil {
			return err
		}
	}
	if err := d.Write(spool.FileJobAd, []byte(m.Ad.OldString())); err != nil {
		return err
	}
	return x.Lend()
}

// RunPre runs the script that the job wants to be run before it, for a step. Over is told
// how it has ended.
func (x *Hooks) RunPre(step string, over func(exit.Status)) (exit.Result, error) {
	res, err := x.await(x.Pre, false, nil, func() ([]byte, error) { return nil, nil })
	if err != nil {
		return exit.Failed, err
	}
	if res == nil {
		return exit.InProgress, nil
	}
	status, line := statusOf(res), HookRun{Result: res}
	if status.OK() {
		line.Step = step
	}
	if err := x.Note(line); err != nil {
		return exit.Failed, err
	}
	x.called()
	over(status)
	if !status.OK() {
		return exit.Failed, &Unprepared{Hold: true, Code: exit.HoldPreScript, Subcode: status.Code, Text: fmt.Sprintf("script before the job failed: %v", res)}
	}
	return exit.Nothing, nil // it is noted
}
