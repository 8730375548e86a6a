package stage

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
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
	"paddock/spool"
)

// Input takes the files of a job to where it runs, before it does.
type Input interface {
	// Wants reports whether a run has files to be transferred.
	Wants(t *job.Task) bool
	// Fetch begins to and returns at once; it calls done, once, at the end.
	Fetch(t *job.Task, done func(error))
}

// The steps of the stage prepare, as the file hooks has them.
const (
	prepareStep = "prepare: "

	stepActivate = prepareStep + "begin"
	stepBefore   = prepareStep + "before transfer"
	stepInput    = prepareStep + "input"
	stepPrepare  = prepareStep + "prepare"
	stepPre      = prepareStep + "pre script"
)

// prepare does what is to be done before the job: hooks, transfer of its files, its
// own script. Each is noted when it is done, so that an execd that is started
// meanwhile goes on behind it.
func (r *Runner) prepare(l *life) error {
	x := l.extra
	if x == nil {
		return nil
	}
	if x.refused != nil { // and that could not be recorded
		return r.unprepared(l, x.refused)
	}
	result, err := x.prep.Run([]exit.Step{
		{Name: stepActivate, Do: func() (exit.Result, error) { return r.activate(l) }},
		{Name: stepBefore, Do: func() (exit.Result, error) { return r.prepareBy(l, x.before, stepBefore) }},
		{Name: stepInput, Do: func() (exit.Result, error) { return r.fetch(l) }},
		{Name: stepPrepare, Do: func() (exit.Result, error) { return r.prepareBy(l, x.prepare, stepPrepare) }},
		{Name: stepPre, Do: func() (exit.Result, error) { return r.runPre(l) }},
	})
	var not *unprepared
	switch {
	case errors.As(err, &not):
		return r.unprepared(l, not)
	case err != nil:
		return err
	case !result.Over():
		return errWait
	}
	return nil
}

// activate brings the directory of the run to where hooks work on it.
func (r *Runner) activate(l *life) (exit.Result, error) {
	if r.Store.Want(l.task) != nil {
		return exit.Failed, &unprepared{verdict: goesBack}
	}
	if err := r.Launcher.Activate(l.task.RunID()); err != nil {
		return exit.Failed, err
	}
	if err := r.lend(l); err != nil {
		return exit.Failed, err
	}
	return exit.Done, nil
}

// verdict is what becomes of a job by what prepares it.
type verdict int

const (
	goesOn   verdict = iota
	goesBack         // it is tried again, later
	isHeld           // it waits for somebody to look
)

// unprepared is the error of a job that is not started.
type unprepared struct {
	verdict verdict
	late    bool // it took too long
	code    int  // of a hold
	subcode int
	text    string
	told    bool // in the log, and to who sent the job
}

func (u *unprepared) Error() string { return u.text }

// judge says what becomes of a job by the end of a prepare hook and by what it has
// printed, as far as that could be read.
func judge(res *hook.Result, m *ad.Merged, unreadable error) (u *unprepared, warning string) {
	name := fmt.Sprintf("hook %s of %s", res.Hook, res.Keyword)
	hold := func(status int, why string) *unprepared {
		return &unprepared{verdict: isHeld, code: exit.HoldHook, subcode: status, text: name + ": " + why}
	}
	switch {
	case res.TimedOut:
		return &unprepared{verdict: goesBack, late: true, text: fmt.Sprintf("%s: %v", name, res)}, ""
	case scarce(res.Err):
		return &unprepared{verdict: goesBack, text: name + ": " + res.Err.Error()}, ""
	case res.Err != nil:
		return hold(0, res.Err.Error()), ""
	case res.TooLong:
		return hold(0, res.String()), ""
	case res.Status < 0:
		return &unprepared{verdict: goesBack, text: fmt.Sprintf("%s: %v", name, res)}, ""
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
		return &unprepared{verdict: goesBack, subcode: status, text: name + ": " + text}, ""
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

// lastLine is the last line of a text, as far as it fits into a reason. A hook has
// the job's environment, so that what it says may be the user's words: they are no
// commands to the terminal of who reads them.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	text = text[strings.LastIndexByte(text, '\n')+1:]
	return api.Visible(strings.ToValidUTF8(text[:min(len(text), 300)], "?"))
}

// prepareBy runs a prepare hook for a step and lays what it printed over the job.
func (r *Runner) prepareBy(l *life, h *hook.Hook, step string) (exit.Result, error) {
	if h == nil {
		return exit.Nothing, nil
	}
	if r.Store.Want(l.task) != nil {
		return exit.Failed, &unprepared{verdict: goesBack}
	}
	res, err := r.await(l, h, nil, func() ([]byte, error) {
		a, err := r.jobAd(l)
		if err != nil {
			return nil, err
		}
		if l.extra.slotAd {
			return ad.Stdin(a, r.slotAd(l)), nil
		}
		return ad.Stdin(a, nil), nil
	})
	if err != nil {
		return exit.Failed, err
	}
	if res == nil {
		return exit.InProgress, nil
	}
	u, err := r.take(l, h, step, res)
	if err != nil {
		return exit.Failed, err // a full disk: the hook itself is not run again
	}
	l.extra.called()
	if u != nil {
		return exit.Failed, u
	}
	return exit.Nothing, nil // it is noted
}

// take takes over the result of a prepare hook. By one line it is noted how the hook
// has ended and that its step is done: who is killed between two would call it again.
func (r *Runner) take(l *life, h *hook.Hook, step string, res *hook.Result) (*unprepared, error) {
	if res.Err != nil && r.Store.Want(l.task) != nil { // it was ended by that
		return &unprepared{verdict: goesBack}, nil
	}
	before, err := r.jobAd(l)
	if err != nil {
		return nil, err
	}
	m, unreadable := ad.Merge(before, res.Stdout)
	u, warning := judge(res, &m, unreadable)
	if u == nil && len(m.Changed) > 0 {
		if err := r.change(l, &m); err != nil {
			if _, unfit := errors.AsType[*launch.Unfit](err); !unfit {
				return nil, err
			}
			u = &unprepared{verdict: isHeld, code: exit.HoldHook, text: fmt.Sprintf("hook %s of %s: %v", h.Name, h.Keyword, err)}
		}
	}
	line := HookRun{Result: res}
	if u == nil {
		line.Step, line.Changed = step, m.Changed
	}
	if u != nil {
		line.Verdict = u.text
		r.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s took=%.3fs result=%q", l.task, h.Keyword, h.Name, res.Took.Seconds(), u.text))
	}
	if warning != "" {
		line.Verdict = "exit status 0: " + warning
		r.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s took=%.3fs message=%q", l.task, h.Keyword, h.Name, res.Took.Seconds(), warning))
		l.notices.Happened(notice.Event{Kind: notice.Warned, Text: fmt.Sprintf("hook %s of %s: %s", h.Name, h.Keyword, warning), Ad: m.Ad})
	}
	if err := r.note(l, line); err != nil {
		return nil, err
	}
	l.extra.changed = append(l.extra.changed, line.Changed...)
	return u, nil
}

// change makes a job what a hook has made of its ad. A *launch.Unfit is the hook's
// mistake.
func (r *Runner) change(l *life, m *ad.Merged) error {
	request, err := r.Store.Request(l.task.Job)
	if err != nil {
		return err
	}
	// What the first hook has changed counts for the second, too.
	all := *m
	all.Changed = slices.Concat(l.extra.changed, m.Changed)
	to, err := ad.Relaunch(request, &all, ad.RequestOptions{Scratch: r.Launcher.Scratch(l.task.RunID()), Now: time.Now(), Config: r.Config()})
	if err != nil {
		return &launch.Unfit{Reason: err.Error()}
	}
	run := l.task.RunID()
	d := r.Launcher.Root.Active(run.ID())
	if to != request {
		o, err := r.orderFor(l.task, to)
		if err != nil {
			return err
		}
		if to.Command != request.Command || to.Binary != request.Binary {
			o.Script = ""
		}
		if err := r.Launcher.Rebuild(o); err != nil {
			return err
		}
	}
	if err := d.Write(spool.FileJobAd, []byte(m.Ad.OldString())); err != nil {
		return err
	}
	return r.lend(l)
}

// fetch transfers the files of the job to where it runs.
func (r *Runner) fetch(l *life) (exit.Result, error) {
	x := l.extra
	if !x.stageIn {
		return exit.Nothing, nil
	}
	if r.Store.Want(l.task) != nil {
		return exit.Failed, &unprepared{verdict: goesBack}
	}
	if x.input == nil {
		x.input = r.transfer(l, "input", exit.HoldInput, func(done func(error)) { r.Input.Fetch(l.task, done) })
	}
	result := step(x.input)
	if g := x.input.GivenUp(); g != nil {
		u := &unprepared{verdict: goesBack, text: "input transfer: " + g.Reason}
		if g.Hold {
			u.verdict, u.code, u.subcode = isHeld, g.Code, g.Subcode
		}
		return exit.Failed, u
	}
	return result, nil
}

// runPre runs the script that the job wants to be run before it.
func (r *Runner) runPre(l *life) (exit.Result, error) {
	h := l.extra.pre
	if h == nil {
		return exit.Nothing, nil
	}
	if r.Store.Want(l.task) != nil {
		return exit.Failed, &unprepared{verdict: goesBack}
	}
	res, err := r.await(l, h, nil, func() ([]byte, error) { return nil, nil })
	if err != nil {
		return exit.Failed, err
	}
	if res == nil {
		return exit.InProgress, nil
	}
	status, line := statusOf(res), HookRun{Result: res}
	if status.OK() {
		line.Step = stepPre
	}
	if err := r.note(l, line); err != nil {
		return exit.Failed, err
	}
	l.extra.called()
	l.flow.Reap(childPre, status)
	if !status.OK() {
		return exit.Failed, &unprepared{verdict: isHeld, code: exit.HoldPreScript, subcode: status.Code, text: fmt.Sprintf("script before the job failed: %v", res)}
	}
	return exit.Nothing, nil // it is noted
}

// unprepared ends the life of a run that is not started.
func (r *Runner) unprepared(l *life, u *unprepared) error {
	t := l.task
	l.extra.refused = u
	if err := r.Launcher.Discard(t.RunID()); err != nil {
		return err
	}
	if u.late && u.verdict == goesBack && r.Store.Late(t) > 0 {
		u.verdict, u.code = isHeld, exit.HoldHook
		u.text += " (for the second time on this host)"
	}
	a := notice.Event{Kind: notice.Held, Text: u.text, Code: u.code, Subcode: u.subcode}
	var err error
	switch {
	case r.Store.Unwanted(t):
		err = r.Store.Withdraw(t)
		r.Log.Info(fmt.Sprintf("job %v: deleted while it was prepared", t))
	case r.Store.Want(t) != nil: // it is to begin anew
		err = r.Store.Withdraw(t)
	case !r.from(t).Requeues():
		// Nobody would start it again.
		if !u.told {
			a.Kind = notice.Postponed // it has no queue in which it would be held
			l.notices.Happened(a)
			r.from(t).Abandoned(t.Job, slot.Hold{Code: u.code, Subcode: u.subcode, Text: u.text})
			r.Log.Error(fmt.Sprintf("job %v: not started: %s", t, u.text))
		}
		u.told = true // on a full disk this is entered again
		err = r.Store.Abandon(t)
	case u.verdict == isHeld:
		if !u.told {
			l.notices.Happened(a)
			r.Log.Error(fmt.Sprintf("job %v: cannot start: %s", t, u.text))
		}
		u.told = true
		err = r.Store.Fail(t, u.text)
	default:
		var until time.Time
		if until, err = r.Store.Postpone(t, u.text, u.late); err == nil && !until.IsZero() {
			a.Kind = notice.Postponed
			l.notices.Happened(a)
			r.Log.Error(fmt.Sprintf("job %v: cannot start: %s (tried again in %v)", t, u.text, time.Until(until).Round(time.Second)))
		}
	}
	if err != nil {
		return fmt.Errorf("cannot give it back: %w", err)
	}
	r.giveBack(l)
	return errOver
}
