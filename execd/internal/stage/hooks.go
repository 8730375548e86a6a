package stage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Caller runs hooks; a *hook.Runner does.
type Caller interface {
	Run(ctx context.Context, c hook.Call) hook.Result
}

// Names of what the site's hooks.conf does not say and is run like a hook: the
// scripts that the ad of a job names.
const (
	preScript  hook.Name = "PreCmd"
	postScript hook.Name = "PostCmd"
)

// scriptLimit is how long the scripts of a job may take. They are the owner's, and
// a slot waits for them.
const scriptLimit = time.Hour

// extra is what a run has whose job asks for more than to be started: hooks,
// scripts, or files of its own. Most have none.
type extra struct {
	keyword string
	slotAd  bool // the prepare hooks get the ad of the slot as well

	before, prepare, update, exit *hook.Hook // nil: none
	pre, post                     *hook.Hook
	stageIn                       bool
	onSlot                        bool // the job did not come by qsub, and reads its ad and the slot's

	slot slot.ID // that it was started on; none: as its claims say

	call    *call          // the one that is waited for; nil: none
	prep    exit.Marks     // of the stage prepare
	refused *unprepared    // by it; nil: it was not
	changed []string       // attributes of the job's ad that hooks have changed
	input   *exit.Transfer // nil: not begun
	updates updates

	mu    sync.Mutex
	owner *user.User // guarded by mu; nil: to be asked for
	runs  []HookRun  // guarded by mu; those that have ended, of which the file tells
}

// call is one run of a hook that a stage waits for.
type call struct {
	hook   *hook.Hook
	cancel context.CancelFunc
	result *hook.Result // nil: it runs
	began  time.Time
}

// HookRun is a line of the file hooks in the directory of a run: a step that is
// done, how a hook has ended, or both.
type HookRun struct {
	Step    string       `json:"step,omitempty"`
	Result  *hook.Result `json:"result,omitempty"`
	Verdict string       `json:"verdict,omitempty"` // what became of the job by it
	Changed []string     `json:"changed,omitempty"` // attributes of the job's ad
	// GivenUp is, of a step that transfers, why it has not succeeded.
	GivenUp *exit.GivenUp `json:"given_up,omitempty"`
	Count   int           `json:"count,omitempty"`   // of UPDATE_JOB_INFO: how often it ran; Result is the last of them
	Skipped int           `json:"skipped,omitempty"` // and how often it did not, since it still ran
}

// any reports whether there is anything at all.
func (x *extra) any() bool {
	return x.before != nil || x.prepare != nil || x.update != nil || x.exit != nil || x.pre != nil || x.post != nil || x.stageIn || x.onSlot
}

// findExtra finds what a run has beside its job, by what its request says. The
// error is the job's, or that of a hook that must not be run.
func (r *Runner) findExtra(l *life, request *api.SubmitRequest, owner *user.User) error {
	l.notices.Find()
	var table *hook.Table
	if r.Hooks != nil && r.HookTable != nil {
		table = r.HookTable()
	}
	stageIn := r.Input != nil && r.Input.Wants(l.task)
	if !table.Any() && request.Work == nil && !stageIn {
		return nil
	}
	x := &extra{owner: owner, stageIn: stageIn, onSlot: request.Work != nil}
	word := ""
	if request.Work == nil && r.Hooks != nil {
		own, err := OwnExtras(l.task, request, owner, r.Host)
		if err != nil {
			return err
		}
		word = own.HookKeyword
	}
	if w := request.Work; w != nil && r.Hooks != nil {
		x.slot, _ = slot.ParseID(string(w.Slot)) // execd has written it
		base, _ := classad.ParseOldLenient(w.Ad)
		extras, err := ad.ExtrasOf(base, ad.RequestOptions{Now: time.Now(), Config: r.Config()})
		if err != nil {
			return err
		}
		word = extras.HookKeyword
		x.pre, x.post = script(preScript, extras.Pre), script(postScript, extras.Post)
	}
	keyword, note := table.JobKeyword(word)
	if note != "" {
		r.Log.Warn(fmt.Sprintf("job %v: hooks: %s", l.task, note))
	}
	if keyword != "" {
		x.keyword, x.slotAd = keyword, table.SlotAd(keyword)
		x.before, x.prepare = table.Hook(keyword, hook.PrepareJobBeforeTransfer), table.Hook(keyword, hook.PrepareJob)
		x.update, x.exit = table.Hook(keyword, hook.UpdateJobInfo), table.Hook(keyword, hook.JobExit)
	}
	if !x.any() {
		return nil
	}
	for _, h := range []*hook.Hook{x.before, x.prepare, x.update, x.exit} {
		if h == nil {
			continue
		}
		// One that must not be run refuses the job, whichever it is: half of a
		// set of hooks is none.
		if err := h.Check(); err != nil {
			return err
		}
	}
	x.prep.Keep = func(step string) error { return r.note(l, HookRun{Step: step}) }
	l.steer.mu.Lock() // others look at it
	defer l.steer.mu.Unlock()
	l.extra = x
	return nil
}

// OwnExtras returns what the attributes of qsub -attr, as they were when a task was
// started, say that execd acts on.
func OwnExtras(t *job.Task, request *api.SubmitRequest, owner *user.User, host string) (ad.Extras, error) {
	return JobExtras(t.Job, t.Number, asStarted(t, request), owner, host)
}

// asStarted is the request of a job with the attributes that a task was started with:
// an alteration counts from the next run on.
func asStarted(t *job.Task, request *api.SubmitRequest) *api.SubmitRequest {
	own := *request
	own.Attributes = t.Needs.Attributes()
	return &own
}

// JobExtras is OwnExtras for a task that does not run; 0: for all tasks of an array,
// where what depends on the task is nothing.
func JobExtras(j *job.Job, task int, request *api.SubmitRequest, owner *user.User, host string) (ad.Extras, error) {
	if len(request.Attributes) == 0 {
		return ad.Extras{}, nil
	}
	streams := launch.StreamsOf(j.Number, request, owner)
	whole := ad.Job(ad.JobInfo{
		Number: j.Number, Task: task, Host: host, Owner: j.Owner, Group: j.Group, Submitted: j.Submitted, Request: request,
		Status: ad.StatusIdle, Iwd: streams.Dir(host, task),
	})
	if task == 0 {
		whole = whole.Without("ProcId", "JobId", "GlobalJobId")
	}
	return ad.OwnExtras(whole, time.Now())
}

// script makes a hook of a script of the job's.
func script(name hook.Name, c *ad.Command) *hook.Hook {
	if c == nil {
		return nil
	}
	return &hook.Hook{
		Keyword: "job", Name: name, Path: c.Path, Args: c.Args, Limit: scriptLimit,
		MaxOutput: hook.DefaultMaxOutput, MaxProcesses: hook.DefaultMaxProcesses, Own: true,
	}
}

// await runs a hook for a stage, once: the first call starts it and returns nil, as
// does every one while it runs; its end enters the list of stages again, and the
// call after that gets the result. l.mu is held.
func (r *Runner) await(l *life, h *hook.Hook, args []string, stdin func() ([]byte, error)) (*hook.Result, error) {
	x := l.extra
	if x.call != nil && x.call.hook == h {
		return x.call.result, nil
	}
	in, err := stdin()
	if err != nil {
		return nil, err
	}
	c, err := r.hookCall(l, h, args, in, l.exited)
	if err != nil {
		return nil, err
	}
	if l.found {
		// One that an execd began which is dead has three seconds to end, and must not
		// undo what this one does.
		c.Behind, l.found = hook.JobMark(c.Env), false
	}
	ctx, cancel := context.WithCancel(context.Background())
	running := &call{hook: h, cancel: cancel, began: time.Now()}
	x.mu.Lock()
	x.call = running
	x.mu.Unlock()
	if !l.exited && r.Store.Want(l.task) != nil || h == x.post && r.unwelcome(l.task) {
		cancel() // who wished it was too early to find the hook
	}
	go func() {
		defer cancel()
		result := r.Hooks.Run(ctx, c)
		// When execd stops meanwhile nothing is told: the next one runs it again.
		l.event(func() { running.result = &result })
	}()
	return nil, nil
}

// called forgets the run of a hook that has ended and was dealt with.
func (x *extra) called() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.call = nil
}

// cancelCall ends the hook that is waited for, since the run is not wanted any more,
// unless it tells of the end of the job. Unwelcome says that no script is to follow that.
func (x *extra) cancelCall(unwelcome bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.call == nil || x.call.hook == x.exit || x.call.hook == x.post && !unwelcome {
		return
	}
	x.call.cancel()
}

// hookCall is how a hook of a run is called: as the owner of the job, in its scratch
// directory, with its environment. Scripts of the job run where it does. Over says
// that the job is.
func (r *Runner) hookCall(l *life, h *hook.Hook, args []string, stdin []byte, over bool) (hook.Call, error) {
	run := l.task.RunID()
	owner, err := r.ownerOf(l)
	if err != nil {
		return hook.Call{}, err
	}
	d, _, err := r.Launcher.Find(run)
	if err != nil {
		return hook.Call{}, err
	}
	config, err := d.Config()
	if err != nil {
		return hook.Call{}, err
	}
	env, err := d.Environment()
	if err != nil {
		return hook.Call{}, err
	}
	scratch, _ := config.Lookup(spool.KeyTmpdir)
	iwd, _ := config.Lookup(spool.KeyCwd)
	j := hook.Job{
		Env: env, Scratch: scratch, Iwd: iwd, Slot: l.slotName(), Bin: r.Launcher.BinDir, Threads: l.task.Slots(), Starter: os.Getpid(),
		JobAd: d.Path(spool.FileHookJobAd), MachineAd: d.Path(spool.FileHookSlotAd),
	}
	if pid, err := d.JobPID(); err == nil {
		j.PIDs = []int{pid}
	}
	dir := scratch
	if h.Name == preScript || h.Name == postScript {
		dir = iwd // they are the job's own, and find its files as it does
		if !filepath.IsAbs(h.Path) {
			own := *h
			own.Path = filepath.Join(iwd, h.Path)
			h = &own
		}
	} else if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		dir = "" // its owner has removed it, or put a link there: no reason not to tell of the end
	}
	return hook.Call{
		Hook: h, As: owner, Stdin: stdin, Args: args, Dir: dir, Env: hook.JobEnvironment(owner, r.Host, &j),
		Group: launch.HookGroup(config, over), Label: "job " + l.task.String(),
	}, nil
}

// ownerOf returns whose rights the hooks of a run have. A *exit.Retry says that nobody could
// tell, when execd had found the run again, and still cannot.
func (r *Runner) ownerOf(l *life) (*user.User, error) {
	x := l.extra
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.owner != nil {
		return x.owner, nil
	}
	owner, err := r.Users.ByID(context.Background(), l.task.Job.UID)
	if err != nil && !errors.Is(err, user.ErrUnknown) {
		return nil, &exit.Retry{Err: err}
	}
	x.owner = owner
	return owner, err
}

// slotName is the name of the slot that a run has, the first where it has several.
func (l *life) slotName() string {
	if id := l.slotID(); !id.IsZero() {
		return id.Name()
	}
	return ""
}

// slotID is the slot itself; none: not known.
func (l *life) slotID() slot.ID {
	if l.extra == nil {
		return slot.ID{}
	}
	return l.extra.slot
}

// findSlot finds out on which slot a run is, the first where it has several.
func (r *Runner) findSlot(l *life) {
	switch x := l.extra; {
	case x == nil || !x.slot.IsZero():
	case r.SlotOf != nil:
		x.slot, _ = r.SlotOf(l.task, false)
	default:
		for _, c := range l.claims {
			x.slot = cmp.Or(x.slot, slot.ID{Number: c.Slot, Dynamic: c.Dynamic})
		}
	}
}

// jobAd returns the ad of a job as its hooks get it. What a prepare hook has made of
// it counts.
func (r *Runner) jobAd(l *life) (*classad.Ad, error) {
	t := l.task
	request, err := r.Store.Request(t.Job)
	if err != nil {
		return nil, err
	}
	d, _, err := r.Launcher.Find(t.RunID())
	if err != nil {
		return nil, err
	}
	in := ad.JobInfo{
		Number: t.Job.Number, Task: t.Number, Host: r.Host, Owner: t.Job.Owner, Group: t.Job.Group, Submitted: t.Job.Submitted,
		Request: asStarted(t, request), Status: ad.StatusRunning, EnteredStatus: t.Started, Starts: t.Run + 1, Started: t.Started,
		Queue: t.Start.Queue, Slots: t.Slots(), Slot: l.slotName(), SlotID: l.slotID().Number,
		Resources: ad.AskedIn(r.Config(), request.Hard), Environment: true,
	}
	if g := t.Start.Grant; g != nil {
		in.PE = g.PE
	}
	if config, err := d.Config(); err == nil {
		in.Iwd, _ = config.Lookup(spool.KeyCwd)
		in.In, _ = config.Lookup(spool.KeyStdinPath)
		in.Out, _ = config.Lookup(spool.KeyStdoutPath)
		in.Err, _ = config.Lookup(spool.KeyStderrPath)
	}
	whole := ad.Job(in)
	merged, err := d.Read(spool.FileJobAd)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if l.extra != nil && l.extra.keyword != "" {
			whole = whole.With(classad.Attr{Name: "HookKeyword", Expr: classad.String(l.extra.keyword).Expr()})
		}
		return whole, nil
	case err != nil:
		return nil, err
	}
	return classad.ParseOld(string(merged))
}

// slotAd returns the ad of the slot of a run.
func (r *Runner) slotAd(l *life) *classad.Ad {
	if r.SlotOf != nil {
		if _, a := r.SlotOf(l.task, true); a != nil {
			return a
		}
	}
	return ad.Slot(ad.SlotInfo{
		ID: l.slotID().Number, Dynamic: l.slotID().Dynamic, Host: r.Host, Queue: l.task.Start.Queue, Now: time.Now(),
		State: "Claimed", Activity: "Busy", EnteredState: l.task.Started, EnteredActivity: l.task.Started,
		Cpus: l.task.Slots(),
	})
}

// lend writes the ads of job and slot where hooks find them, and the job on a slot.
func (r *Runner) lend(l *life) error {
	a, err := r.jobAd(l)
	if err != nil {
		return err
	}
	o, err := r.ownerOf(l)
	if err != nil {
		return err
	}
	if err := r.Launcher.Lend(l.task.RunID(), spool.FileHookJobAd, ad.Stdin(a, nil), o); err != nil {
		return err
	}
	return r.Launcher.Lend(l.task.RunID(), spool.FileHookSlotAd, ad.Stdin(nil, r.slotAd(l)), o)
}

// note adds a line to the file hooks of a run, and to what people are shown.
func (r *Runner) note(l *life, h HookRun) error {
	b, err := json.Marshal(&h)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode a hook of job %v: %w", l.task, err)
	}
	d, _, err := r.Launcher.Find(l.task.RunID())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody has removed the directory: there is nothing to be remembered by
	}
	if err == nil {
		err = d.Append(spool.FileHooks, append(b, '\n'))
	}
	if err != nil {
		return err
	}
	if x := l.extra; x != nil && h.Result != nil {
		x.mu.Lock()
		x.runs = append(x.runs, h)
		x.mu.Unlock()
	}
	return nil
}

// readHooks reads the file hooks of a run: what an earlier execd has done. A line
// that was cut short says nothing, and what is appended stands on a line of its own.
func readHooks(d spool.Dir) ([]HookRun, error) {
	b, err := d.Read(spool.FileHooks)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []HookRun
	for line := range bytes.Lines(b) {
		var h HookRun
		if json.Unmarshal(line, &h) != nil {
			continue
		}
		list = append(list, h)
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		return list, d.Append(spool.FileHooks, []byte{'\n'})
	}
	return list, nil
}

// recall takes over what an earlier execd has noted of a run.
func (l *life) recall(list []HookRun) {
	for _, h := range list {
		switch step, ok := strings.CutPrefix(h.Step, prepareStep); {
		case h.Step == "":
		case ok && l.extra != nil:
			l.extra.prep.Set(prepareStep + step)
		case h.Step == stepRecord, h.Step == stepAd, h.Step == stepMail:
			l.tail.Set(h.Step)
		default:
			l.flow.Set(h.Step)
		}
		if l.extra != nil {
			l.extra.changed = append(l.extra.changed, h.Changed...)
		}
		if h.Step == stepPost && h.Result != nil {
			l.postStatus = statusOf(h.Result)
		}
		if h.Step == exit.StepTransfer {
			l.undelivered = h.GivenUp
		}
		if l.extra != nil && h.Result != nil {
			l.extra.runs = append(l.extra.runs, h)
		}
	}
}

// HookRuns returns the hooks of a run, those that have ended and the one that runs.
func (r *Runner) HookRuns(run spool.RunID) []api.HookRun {
	l := r.life(run)
	if l == nil {
		return nil
	}
	x := l.beside()
	if x == nil {
		return nil
	}
	x.mu.Lock()
	var list []api.HookRun
	for i := range x.runs {
		list = append(list, shown(&x.runs[i]))
	}
	if c := x.call; c != nil {
		list = append(list, api.HookRun{Keyword: c.hook.Keyword, Hook: string(c.hook.Name), Started: c.began, Took: time.Since(c.began).Seconds(), Running: true})
	}
	x.mu.Unlock()
	if u := x.updates.shown(); u != nil {
		list = append(list, shown(u))
	}
	return list
}

// beside returns what a run has beside its job, for who has not l.mu.
func (l *life) beside() *extra {
	l.steer.mu.Lock()
	defer l.steer.mu.Unlock()
	return l.extra
}

func shown(h *HookRun) api.HookRun {
	text := h.Verdict
	if text == "" {
		text = h.Result.String()
	}
	return api.HookRun{
		Keyword: h.Result.Keyword, Hook: string(h.Result.Hook), Started: h.Result.Started, Took: h.Result.Took.Seconds(),
		Result: text, Count: h.Count, Skipped: h.Skipped,
	}
}

// statusOf is how the process of a script has ended.
func statusOf(r *hook.Result) exit.Status {
	switch {
	case r.Err != nil || r.TimedOut || r.TooLong:
		return exit.Status{Signal: int(sigkill)}
	case r.Status < 0:
		return exit.Status{Signal: -r.Status}
	}
	return exit.Status{Code: r.Status}
}

// SlotOf finds the slot that a task runs on, the first where it has several: its
// number, 0 if it is not known, and with ads its ad.
type SlotOf func(t *job.Task, ads bool) (id slot.ID, ad *classad.Ad)
