// Package jobhook has what a run has beside its job: the job hooks of the site, the scripts
// that the ad of a job names, and the file in which the steps of the run are noted. It runs
// each for the step that waits for it, says what becomes of a job by what its hooks answer,
// and keeps the beat of UPDATE_JOB_INFO. Package stage uses it, and journal for the
// attributes of qsub -attr.
package jobhook

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
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/policy"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/timeline"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// The names of what the site's hooks.conf does not say and is run like a hook: the
// scripts that the ad of a job names.
const (
	PreScript  hook.Name = "PreCmd"
	PostScript hook.Name = "PostCmd"
)

// scriptLimit is how long the scripts of a job may take. They are the owner's, and
// a slot waits for them.
const scriptLimit = time.Hour

// Plan is what a run has beside its job, which asks for more than to be started. Most have
// nothing.
type Plan struct {
	Keyword string
	SlotAd  bool // the prepare hooks get the ad of the slot as well

	Before, Prepare, Update, Exit, Output *hook.Hook // nil: none
	Pre, Post                             *hook.Hook // scripts of the job
	StageIn                               bool       // its files are to be transferred
	OnSlot                                bool       // the job did not come by qsub, and reads its ad and the slot's

	Owner *user.User // guarded by Hooks.mu; nil: to be asked for
	Slot  slot.ID    // that it was started on; none: see FindSlot
}

// Any reports whether there is anything at all.
func (p *Plan) Any() bool { return p.StageIn || p.readsAds() }

// readsAds reports whether anybody reads the ads of the job and its slot: a hook, or the
// job on a slot.
func (p *Plan) readsAds() bool {
	return p.Before != nil || p.Prepare != nil || p.Update != nil || p.Exit != nil || p.Output != nil || p.Pre != nil || p.Post != nil || p.OnSlot
}

// Hooks are those of one run.
type Hooks struct {
	Plan
	Found      bool        // an earlier execd has begun the run, and perhaps a hook of it
	PostStatus exit.Status // of the script after the job
	// Policy is that of the job, which is looked at with each update; nil: it has none.
	Policy *policy.Watch

	host    *base.Host
	of      *job.Task
	notices *notice.Notices
	event   func(func()) // has something happen to the run, and leads it on

	call      *call    // guarded by mu; the one that is waited for; nil: none
	exitTries int      // how often the present hook for its end could not be started
	changed   []string // attributes of the job's ad that hooks have changed
	updates   updates

	mu   sync.Mutex
	runs []HookRun // guarded by mu; those that have ended, of which the file tells
}

// Init makes them those of a run. Event has something happen to it, and leads it on.
func (x *Hooks) Init(h *base.Host, of *job.Task, n *notice.Notices, event func(func())) {
	x.host, x.of, x.notices, x.event = h, of, n, event
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
	Count   int          `json:"count,omitempty"`   // of UPDATE_JOB_INFO: how often it ran; Result is the last of them
	Skipped int          `json:"skipped,omitempty"` // and how often it did not, since it still ran
	Output  *Output      `json:"output,omitempty"`  // how the transfer of its output stands; the last line counts
}

// Output is what is known of the transfer of a run's output.
type Output struct {
	Failing time.Time `json:"failing,omitzero"` // since when it has failed; zero: it has not
	Bytes   int64     `json:"bytes,omitempty"`  // that have arrived, when it has
	Files   int       `json:"files,omitempty"`
	Left    string    `json:"left,omitempty"` // what was left out, as api.Transfer has it
}

// Find finds what a run has beside its job, by what its request says, and StageIn if it has
// files to be transferred. The error is the job's, or that of a hook that must not be run.
func (x *Hooks) Find(request *api.SubmitRequest, owner *user.User, stageIn bool) error {
	h, work := x.host, request.Work
	var table *hook.Table
	if h.Hooks != nil && h.HookTable != nil {
		table = h.HookTable()
	}
	if !table.Any() && work == nil && !stageIn {
		return nil
	}
	p := Plan{Owner: owner, StageIn: stageIn, OnSlot: work != nil}
	word := ""
	if work == nil && h.Hooks != nil {
		own, err := OwnExtras(x.of, request, owner, h.Name)
		if err != nil {
			return err
		}
		word = own.HookKeyword
	}
	if work != nil && h.Hooks != nil {
		p.Slot, _ = slot.ParseID(string(work.Slot)) // execd has written it
		base, _ := classad.ParseOldLenient(work.Ad)
		extras, err := ad.ExtrasOf(base, ad.RequestOptions{Now: time.Now(), Config: h.Config()})
		if err != nil {
			return err
		}
		word = extras.HookKeyword
		p.Pre, p.Post = script(PreScript, extras.Pre), script(PostScript, extras.Post)
	}
	keyword, note := table.JobKeyword(word)
	if note != "" {
		h.Log.Warn(fmt.Sprintf("job %v: hooks: %s", x.of, note))
	}
	if keyword != "" {
		p.Keyword, p.SlotAd = keyword, table.SlotAd(keyword)
		p.Before, p.Prepare = table.Hook(keyword, hook.PrepareJobBeforeTransfer), table.Hook(keyword, hook.PrepareJob)
		p.Update, p.Exit = table.Hook(keyword, hook.UpdateJobInfo), table.Hook(keyword, hook.JobExit)
		if x.of.Start.Sandbox != nil {
			p.Output = table.Hook(keyword, hook.OutputDone)
		}
	}
	for _, h := range []*hook.Hook{p.Before, p.Prepare, p.Update, p.Exit, p.Output} {
		if h == nil {
			continue
		}
		// A hook that must not be run refuses the job, whichever it is: half of a
		// set of hooks is none.
		if err := h.Check(); err != nil {
			return err
		}
	}
	if p.Any() {
		x.Plan = p
	}
	return nil
}

// OwnExtras returns what the attributes of qsub -attr, as they were when a task was
// started, say that execd acts on.
func OwnExtras(t *job.Task, request *api.SubmitRequest, owner *user.User, host string) (ad.Extras, error) {
	return JobExtras(t.Job, t.Number, asStarted(t, request), owner, host)
}

// asStarted is the request of a job with the attributes that a task was started with, and
// what references to its slot were expanded to: an alteration counts from the next run on.
func asStarted(t *job.Task, request *api.SubmitRequest) *api.SubmitRequest {
	own := *request
	own.Attributes = t.Needs.Attributes()
	return ad.Expanded(&own, own.Attributes, t.Start.MatchExp)
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
// call after that gets the result. Over says that the job is.
func (x *Hooks) await(h *hook.Hook, over bool, args []string, stdin func() ([]byte, error)) (*hook.Result, error) {
	if x.call != nil && x.call.hook == h {
		return x.call.result, nil
	}
	in, err := stdin()
	if err != nil {
		return nil, err
	}
	c, err := x.hookCall(h, args, in, over)
	if err != nil {
		return nil, err
	}
	if x.Found {
		// A hook that a dead execd began has three seconds to end, and must not undo
		// what this one does.
		c.Behind, x.Found = hook.JobMark(c.Env), false
	}
	ctx, cancel := context.WithCancel(context.Background())
	running := &call{hook: h, cancel: cancel, began: time.Now()}
	x.mu.Lock()
	x.call = running
	x.mu.Unlock()
	if !over && x.host.Store.Want(x.of) != nil || h == x.Post && x.Unwelcome() {
		cancel() // who wished it was too early to find the hook
	}
	go func() {
		defer cancel()
		x.host.Timeline.Note(x.of.RunID(), timeline.Span{Kind: timeline.Hook, Begin: running.began})
		result := x.host.Hooks.Run(ctx, c)
		x.host.Timeline.Note(x.of.RunID(), timeline.Span{Kind: timeline.Hook, End: time.Now(), Failed: result.Err != nil || result.Status != 0})
		// When execd stops meanwhile nothing is told: the next one runs it again.
		x.event(func() { running.result = &result })
	}()
	return nil, nil
}

// Unwelcome reports whether the script after the job is not to be run: the job's end was
// asked for, and not by a limit.
func (x *Hooks) Unwelcome() bool {
	want := x.host.Store.Want(x.of)
	return want != nil && want.Reason == ""
}

// called forgets the run of a hook that has ended and was dealt with.
func (x *Hooks) called() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.call = nil
}

// Cancel ends the hook that is waited for, since the run is not wanted any more. It spares
// the hooks which report the end of the job and of its output, and the script after the
// job unless that is unwelcome.
func (x *Hooks) Cancel() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.call == nil || x.call.hook == x.Exit || x.call.hook == x.Output || x.call.hook == x.Post && !x.Unwelcome() {
		return
	}
	x.call.cancel()
}

// hookCall is how a hook of a run is called: as the owner of the job, in its scratch
// directory, with its environment. Scripts of the job run where it does. Over says
// that the job is.
func (x *Hooks) hookCall(h *hook.Hook, args []string, stdin []byte, over bool) (hook.Call, error) {
	run := x.of.RunID()
	owner, err := x.ownerOf()
	if err != nil {
		return hook.Call{}, err
	}
	d, _, err := x.host.Launcher.Find(run)
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
		Env: env, Scratch: scratch, Iwd: iwd, Slot: x.slotName(), Bin: x.host.Launcher.BinDir, Threads: x.of.Slots(), Starter: os.Getpid(),
		JobAd: d.Path(spool.FileHookJobAd), MachineAd: d.Path(spool.FileHookSlotAd),
	}
	if pid, err := d.JobPID(); err == nil {
		j.PIDs = []int{pid}
	}
	dir := scratch
	if h.Name == PreScript || h.Name == PostScript {
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
		Hook: h, As: owner, Stdin: stdin, Args: args, Dir: dir, Env: hook.JobEnvironment(owner, x.host.Name, &j),
		Group: launch.HookGroup(config, over), Label: "job " + x.of.String(),
	}, nil
}

// ownerOf returns whose rights the hooks of a run have. A *exit.Retry says that nobody could
// tell, when execd had found the run again, and still cannot.
func (x *Hooks) ownerOf() (*user.User, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.Owner != nil {
		return x.Owner, nil
	}
	var err error
	x.Owner, err = x.host.Owner(x.of)
	return x.Owner, err
}

// slotName is the name of the slot that a run has, the first where it has several.
func (x *Hooks) slotName() string {
	if x.Slot.IsZero() {
		return ""
	}
	return x.Slot.Name()
}

// FindSlot sets the slot of a run, the first if it has several.
func (x *Hooks) FindSlot() {
	if x.Any() && x.Slot.IsZero() {
		x.Slot, _ = x.host.SlotOf(x.of, false)
	}
}

// JobAd returns the ad of a job as its hooks get it. What a prepare hook has made of
// it counts.
func (x *Hooks) JobAd() (*classad.Ad, error) {
	t := x.of
	request, err := x.host.Store.Request(t.Job)
	if err != nil {
		return nil, err
	}
	d, _, err := x.host.Launcher.Find(t.RunID())
	if err != nil {
		return nil, err
	}
	home := t.Home()
	in := ad.JobInfo{
		Number: home.Job, Task: home.Task, Host: cmp.Or(home.Host, x.host.Name), Owner: t.Job.Owner, Group: t.Job.Group, Submitted: t.Job.Submitted,
		Request: asStarted(t, request), Status: ad.StatusRunning, EnteredStatus: t.Started, Starts: home.Run + 1, Started: t.Started,
		Queue: t.Start.Queue, Slots: t.Slots(), Slot: x.slotName(), SlotID: x.Slot.Number,
		Resources: ad.AskedIn(x.host.Config(), request.Hard), Environment: true,
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
		if x.Keyword != "" {
			whole = whole.With(classad.Attr{Name: "HookKeyword", Expr: classad.String(x.Keyword).Expr()})
		}
		return whole, nil
	case err != nil:
		return nil, err
	}
	return classad.ParseOld(string(merged))
}

// AdOfSlot returns the ad of the slot of a run.
func (x *Hooks) AdOfSlot() *classad.Ad {
	if _, a := x.host.SlotOf(x.of, true); a != nil {
		return a
	}
	return ad.Slot(ad.SlotInfo{
		ID: x.Slot.Number, Dynamic: x.Slot.Dynamic, Host: x.host.Name, Queue: x.of.Start.Queue, Now: time.Now(),
		State: "Claimed", Activity: "Busy", EnteredState: x.of.Started, EnteredActivity: x.of.Started,
		Cpus: x.of.Slots(),
	})
}

// Lend writes the ads of job and slot where hooks find them, and the job on a slot, if
// there are any.
func (x *Hooks) Lend() error {
	if !x.readsAds() {
		return nil
	}
	a, err := x.JobAd()
	if err != nil {
		return err
	}
	o, err := x.ownerOf()
	if err != nil {
		return err
	}
	if err := x.host.Launcher.Lend(x.of.RunID(), spool.FileHookJobAd, ad.Stdin(a, nil), o); err != nil {
		return err
	}
	return x.host.Launcher.Lend(x.of.RunID(), spool.FileHookSlotAd, ad.Stdin(nil, x.AdOfSlot()), o)
}

// Note adds a line to the file hooks of a run, and to what people are shown.
func (x *Hooks) Note(h HookRun) error {
	b, err := json.Marshal(&h)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode a hook of job %v: %w", x.of, err)
	}
	d, _, err := x.host.Launcher.Find(x.of.RunID())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody has removed the directory: there is nothing to be remembered by
	}
	if err == nil {
		err = d.Append(spool.FileHooks, append(b, '\n'))
	}
	if err != nil {
		return err
	}
	if h.Result != nil {
		x.mu.Lock()
		x.runs = append(x.runs, h)
		x.mu.Unlock()
	}
	return nil
}

// Read reads the file hooks of a run: what an earlier execd has done. A line
// that was cut short says nothing, and what is appended stands on a line of its own.
func Read(d spool.Dir) ([]HookRun, error) {
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

// Recall takes over what an earlier execd has noted. StepPost is the step of the script
// after the job.
func (x *Hooks) Recall(h *HookRun, stepPost string) {
	x.changed = append(x.changed, h.Changed...)
	if h.Result == nil {
		return
	}
	x.runs = append(x.runs, *h)
	if h.Step == stepPost {
		x.PostStatus = statusOf(h.Result)
	}
}

// Runs returns the hooks of a run, those that have ended and the one that runs.
func (x *Hooks) Runs() []api.HookRun {
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
		return exit.Status{Signal: int(unix.SIGKILL)}
	case r.Status < 0:
		return exit.Status{Signal: -r.Status}
	}
	return exit.Status{Code: r.Status}
}
