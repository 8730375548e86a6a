// Package journal tells the event logs of jobs, and the files for their last
// ads, what package stage tells it: it knows which job has one, whose it is, and
// what an event of a run is in the words of package eventlog. The daemon makes
// it for stage; nobody else imports it.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/eventlog"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/stage/jobhook"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Options is the knob that says how logs are written: see
// eventlog.ParseOptions. A job that asks for XML gets it, whatever it says.
const Options = "DEFAULT_USERLOG_FORMAT_OPTIONS"

// maxTries is how often something is tried to be written that may be written in a moment,
// as on a full disk. What fails is most likely the user's own doing, and his job must not
// wait for it for ever.
const maxTries = 5

// Journal is a notice.Journal. The exported fields are set before first use.
type Journal struct {
	Log   *eventlog.Writer
	Store interface {
		Request(j *job.Job) (*api.SubmitRequest, error)
	}
	Users interface {
		ByID(ctx context.Context, uid int) (*user.User, error)
	}
	Config func() *conf.Config
	Host   string
	Err    *slog.Logger // hears what is given up

	mu   sync.Mutex
	runs map[string]*run // guarded by mu; by activation

	queues   queues
	backlogs backlogs
}

var _ notice.Journal = (*Journal)(nil)

// run is what is known of a run that is told of.
type run struct {
	begun bool           // in this life of execd
	tries map[string]int // that failed, by what was tried
	lost  bool           // something was given up: all else is tried once
}

// target is where a job's events and its ad go.
type target struct {
	owner         *user.User
	extras        ad.Extras
	cluster, proc int
	host, slot    string
}

// Wants reports whether a job has a log or a file for its ad.
func (j *Journal) Wants(t *job.Task) bool {
	if !t.Job.UnderClaim() && len(t.Needs.Attributes()) == 0 {
		return false
	}
	to, err := j.target(t, "")
	return err != nil || to.extras.UserLog != "" || to.extras.OutputAd != ""
}

// target finds out where the events of a task go that has, or had, a scratch directory.
func (j *Journal) target(t *job.Task, scratch string) (*target, error) {
	request, err := j.Store.Request(t.Job)
	if err != nil {
		return nil, err
	}
	to := &target{cluster: t.Job.Number, proc: t.Number, host: t.On(j.Host)}
	if to.owner, err = j.Users.ByID(context.Background(), t.Job.UID); err != nil {
		return nil, err
	}
	if request.Work == nil {
		to.extras, err = jobhook.OwnExtras(t, request, to.owner, j.Host)
		return to, err
	}
	base, _ := classad.ParseOldLenient(request.Work.Ad) // read strictly when it came
	if to.extras, err = ad.ExtrasOf(base, ad.RequestOptions{Scratch: scratch, Now: time.Now(), Config: j.Config()}); err != nil {
		return nil, err
	}
	env := classad.Env{My: base}
	for name, number := range map[string]*int{"ClusterId": &to.cluster, "ProcId": &to.proc} {
		if i, ok := env.Attr(name).Int(); ok && i >= 0 {
			*number = int(i)
		}
	}
	to.slot = fmt.Sprintf("slot%s@%s", request.Work.Slot, j.Host)
	return to, nil
}

// activation names a run among all that may write to a log.
func (j *Journal) activation(t *job.Task) string {
	return fmt.Sprintf("%s/%d.%d.%d", j.Host, t.Job.Number, t.Number, t.Run)
}

// Record writes an event. What happens once in a run has an id without a number
// of its own; what may happen again is told apart by when it did. What an execd
// before this one may have told is looked for.
func (j *Journal) Record(e notice.Event) error {
	activation := j.activation(e.Task)
	r := j.run(activation)
	if e.Kind == notice.Executing {
		j.mu.Lock()
		r.begun = true
		j.mu.Unlock()
	}
	if e.Kind == notice.Executing || e.Kind == notice.Travels {
		j.queues.flush(e.Task.Job.Number) // first what came before
	}
	err := j.try(r, e, string(e.Kind), func(to *target) error {
		entry := j.entry(to)
		entry.Activation, entry.Proc, entry.Time = activation, to.proc, e.Time
		entry.Again = !r.begun && e.Kind != notice.Travels // each attempt is told of once
		if e.Kind != notice.Executing && e.Kind != notice.Over {
			entry.Seq = int(e.Time.UnixMicro()) // a transfer may take less than a millisecond
		}
		return j.Log.Write(context.Background(), entry, body(e, to))
	})
	if e.Kind == notice.Held || e.Kind == notice.Postponed {
		j.forget(activation) // it never ran
	}
	return err
}

// entry is what all records of a log have in common.
func (j *Journal) entry(to *target) eventlog.Entry {
	options, _ := j.Config().Knobs.Lookup(Options)
	form, times, err := eventlog.ParseOptions(options)
	if err != nil {
		j.Err.Warn("event log: " + err.Error())
	}
	if to.extras.UserLogXML {
		form = eventlog.XML
	}
	return eventlog.Entry{Owner: to.owner, Path: to.extras.UserLog, Form: form, Times: times, Cluster: to.cluster}
}

// Notice writes what happens to tasks of a job of qsub that wait. It returns at once;
// what cannot be written is not tried again.
func (j *Journal) Notice(of *job.Job, request *api.SubmitRequest, n job.Notice) {
	now := time.Now()
	failed := func(err error) { j.Err.Warn(fmt.Sprintf("job %d: event log: %v", of.Number, err)) }
	out, err := j.backlogs.enter(of.UID)
	if err != nil {
		failed(err)
		return
	}
	ok := j.queues.add(of.Number, func() {
		defer out()
		owner, err := j.Users.ByID(context.Background(), of.UID)
		if err != nil {
			failed(err)
			return
		}
		to := &target{owner: owner, cluster: of.Number, host: j.Host}
		task := 0
		if !of.Tasks.IsArray() {
			task = 1
		}
		if to.extras, err = jobhook.JobExtras(of, task, request, owner, j.Host); err != nil {
			failed(err)
			return
		}
		entry := j.entry(to)
		entry.Time = now
		if err := j.Log.WriteEach(context.Background(), entry, n.Tasks.All, j.noticed(n)); err != nil {
			failed(err)
		}
	})
	if !ok {
		out()
		failed(fmt.Errorf("%s is left out: %d events wait to be written", n.Kind, maxWaiting))
	}
}

// noticed is what happens to a task that waits in a log.
func (j *Journal) noticed(n job.Notice) eventlog.Body {
	switch n.Kind {
	case job.NoticeSubmitted:
		return eventlog.Submitted{Host: j.Host}
	case job.NoticeHeld:
		return eventlog.Held{Reason: n.Reason, Code: exit.HoldByUser}
	case job.NoticeReleased:
		return eventlog.Released{Reason: n.Reason}
	}
	return eventlog.Aborted{Reason: n.Reason}
}

// WriteAd writes the ad of a run that is over, the last that is told of it.
func (j *Journal) WriteAd(e notice.Event) error {
	activation := j.activation(e.Task)
	err := j.try(j.run(activation), e, "ad", func(to *target) error {
		if e.Ad == nil {
			return nil
		}
		return j.Log.OutputAd(context.Background(), to.owner, to.extras.OutputAd, ad.Public(e.Ad))
	})
	if err == nil {
		j.forget(activation)
	}
	return err
}

func (j *Journal) run(activation string) *run {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.runs == nil {
		j.runs = make(map[string]*run)
	}
	r := j.runs[activation]
	if r == nil {
		r = &run{tries: make(map[string]int)}
		j.runs[activation] = r
	}
	return r
}

func (j *Journal) forget(activation string) {
	j.Log.Forget(activation)
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.runs, activation)
}

// try does something for a run, or gives it up. The end of a run is waited with;
// all else is tried once, since stage does no more.
func (j *Journal) try(r *run, e notice.Event, what string, do func(*target) error) error {
	leave, err := j.backlogs.enter(e.Task.Job.UID)
	if err == nil {
		defer leave()
		var to *target
		if to, err = j.target(e.Task, e.Scratch); err == nil {
			for _, path := range []*string{&to.extras.UserLog, &to.extras.OutputAd} {
				if !filepath.IsAbs(*path) { // it went with the scratch directory
					*path = ""
				}
			}
			err = do(to)
		}
	}
	if err == nil || e.Kind != notice.Over {
		return err
	}
	final := errors.Is(err, asuser.ErrRefused) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errBacklog)
	j.mu.Lock()
	r.tries[what]++
	tries := r.tries[what]
	if tries < maxTries && !r.lost && !final {
		j.mu.Unlock()
		return err
	}
	r.lost = true
	j.mu.Unlock()
	j.Err.Error(fmt.Sprintf("job %v: event log: given up (try %d): %v", e.Task, tries, err))
	return nil
}

// body is what an event is in a log.
func body(e notice.Event, to *target) eventlog.Body {
	switch e.Kind {
	case notice.Executing:
		return eventlog.Executing{Host: to.host, Slot: to.slot}
	case notice.Suspended:
		return eventlog.Suspended{Processes: int(number(e.Ad, "NumPids"))}
	case notice.Resumed:
		return eventlog.Resumed{}
	case notice.Warned:
		return eventlog.RemoteError{Host: cmp.Or(to.slot, to.host), Text: e.Text, Warning: true}
	case notice.Postponed:
		return eventlog.RemoteError{Host: cmp.Or(to.slot, to.host), Text: e.Text, Code: e.Code, Subcode: e.Subcode}
	case notice.Grown:
		rss := int64(number(e.Ad, "ResidentSetSize"))
		return eventlog.ImageSize{Size: int64(number(e.Ad, "ImageSize")), Memory: (rss + 1023) / 1024, RSS: rss, PSS: -1}
	case notice.Travels:
		return travels(e.Travel, to)
	case notice.Held:
		return eventlog.Held{Reason: e.Text, Code: e.Code, Subcode: e.Subcode}
	case notice.Disconnected:
		return eventlog.Disconnected{Host: to.host, Reason: e.Text}
	case notice.Reconnected:
		return eventlog.Reconnected{Host: to.host}
	case notice.ReconnectFailed:
		return eventlog.ReconnectFailed{Host: to.host, Reason: e.Text}
	case notice.Over:
		return over(e)
	}
	return eventlog.Generic{Text: string(e.Kind) + ": " + e.Text}
}

// travels is the event of files that travel.
func travels(x notice.Travel, to *target) eventlog.Body {
	b := eventlog.FileTransfer{Output: x.Output, Waited: x.Waited}
	switch x.Phase {
	case notice.Queued:
		b.Phase = eventlog.TransferQueued
	case notice.Began:
		b.Phase = eventlog.TransferStarted
		if !x.Output {
			b.Host = to.host
		}
	case notice.Arrived:
		b.Phase = eventlog.TransferFinished
	}
	return b
}

// requeueCode is the code of what goes back to its queue.
const requeueCode = int(slot.ReasonRequeue)

// over is the event of an end: it depends on what becomes of the job.
func over(e notice.Event) eventlog.Body {
	reason := cmp.Or(e.Text, e.End.Reason)
	used := eventlog.CPU{
		User: time.Duration(number(e.Ad, "RemoteUserCpu") * float64(time.Second)), System: time.Duration(number(e.Ad, "RemoteSysCpu") * float64(time.Second)),
	}
	again := e.End.Fate == job.FateRequeue
	switch {
	case e.Exit == exit.Hold, again && e.End.Cause == spool.CauseHeld: // and its queue keeps it
		return eventlog.Held{Reason: reason, Code: e.Code, Subcode: e.Subcode}
	case again, e.Exit == exit.Requeue, e.Code != 0: // the last is on hold, and nobody keeps it
		return eventlog.Evicted{
			Checkpointed: e.End.Checkpoint, Run: used, Reason: reason, Code: cmp.Or(e.Code, requeueCode), Subcode: e.Subcode, Resources: resources(e.Ad),
		}
	case e.Exit == exit.Killed, e.Exit == exit.NotStarted:
		return eventlog.Aborted{Reason: reason}
	}
	ended := eventlog.Terminated{
		Signal: e.Status.Signal, ReturnValue: e.Status.Code, Run: used, Total: used, Resources: resources(e.Ad),
	}
	if e.Status.Core && e.Ad != nil {
		pattern, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
		dir, _ := (&classad.Env{My: e.Ad}).Attr("Iwd").Str()
		ended.CoreFile = coreIn(string(pattern), dir)
	}
	if e.End.Cause == spool.CauseLimit { // not of its own accord, even if it had warning
		ended.By, ended.Reason = daemon, reason
	}
	return ended
}

// coreIn returns the directory to which the kernel has written the core of a program
// that worked in dir, after core(5); "" where a program has taken it.
func coreIn(pattern, dir string) string {
	switch {
	case strings.HasPrefix(pattern, "|"):
		return ""
	case filepath.IsAbs(pattern):
		return filepath.Dir(pattern)
	}
	return filepath.Join(dir, filepath.Dir(pattern))
}

// daemon is who ends jobs that exceed a limit.
const daemon = "execd"

// resources is the table of a job that has ended, from its ad.
func resources(a *classad.Ad) []eventlog.Resource {
	if a == nil {
		return nil
	}
	const unknown = -1
	value := func(name string) float64 {
		if v, ok := (&classad.Env{My: a}).Attr(name).Number(); ok && v >= 0 {
			return v
		}
		return unknown
	}
	cpus, memory := float64(unknown), value("ResidentSetSize")
	if wall := number(a, "JobDuration"); wall > 0 {
		cpus = (number(a, "RemoteUserCpu") + number(a, "RemoteSysCpu")) / wall
	}
	if memory > 0 {
		memory = float64(int64(memory+1023) / 1024)
	}
	return []eventlog.Resource{
		{Name: "Cpus", Usage: cpus, Request: value("RequestCpus"), Allocated: value("RequestCpus")},
		{Name: "Disk", Unit: "KB", Usage: unknown, Request: value("RequestDisk"), Allocated: unknown},
		{Name: "Memory", Unit: "MB", Usage: memory, Request: value("RequestMemory"), Allocated: unknown},
	}
}

// number is an attribute of an ad; 0 where it is none, or there is no ad.
func number(a *classad.Ad, name string) float64 {
	if a == nil {
		return 0
	}
	v, _ := (&classad.Env{My: a}).Attr(name).Number()
	return v
}
