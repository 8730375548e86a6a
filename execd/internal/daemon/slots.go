package daemon

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/slot"
	"paddock/internal/proc"
	"paddock/spool"
)

// slotAds writes the ads of slots. It is called with the queue's lock held, so it takes
// the figures of the host that were read last.
type slotAds struct {
	d        *daemon
	platform ad.Platform
	address  string
}

// policies are the expressions that the ad of a slot has.
var policies = []slot.Expression{
	slot.Start, slot.Rank, slot.IsOwner, slot.WantSuspend, slot.SuspendWhen, slot.ContinueWhen, slot.PreemptWhen, slot.KillWhen,
	slot.WantVacate, slot.MaxJobRetirementTime, slot.MachineMaxVacateTime,
}

// names are the names in ads of expressions that have others.
var names = map[slot.Expression]string{slot.Start: "Start", slot.Rank: "Rank", slot.IsOwner: "IsOwner"}

// of returns the ad of a slot.
func (a *slotAds) of(in *claim.Info) *classad.Ad {
	config := a.d.config.Current()
	host := a.d.gauge.Last()
	memory, detected := a.memory(config), host.Memory>>20
	slots := max(in.Slots, config.Slots(), 1)
	room := a.disk()
	of := room.of(slots, 1)
	info := ad.SlotInfo{
		ID: in.Slot.Number, Dynamic: in.Slot.Dynamic, Host: a.d.host, Domain: a.d.domain(), Queue: in.Queue, Address: a.address, Platform: a.platform, Version: a.d.opts.Version,
		Started: a.d.began, Now: in.Now, State: slot.Claimed.String(), Activity: slot.Idle.String(),
		Cpus: 1, TotalSlotCpus: 1, TotalCpus: runtime.NumCPU(), DetectedCpus: runtime.NumCPU(),
		Memory: memory / int64(slots), TotalSlotMemory: memory / int64(slots), TotalMemory: memory, DetectedMemory: detected,
		Disk: room.left(of, in.Leaving), TotalSlotDisk: of, TotalDisk: room.free + room.leaving,
		TotalSlots: slots, RetirementTimeRemaining: -1, Methods: a.d.sandboxes.Methods(),
		Load: ad.SlotLoad{
			LoadAvg: host.Load, OwnLoadAvg: min(a.d.usage.Cores(), host.Load), VirtualMemory: host.Swap >> 10, KeyboardIdle: host.Keyboard, ConsoleIdle: host.Console,
		},
	}
	dropped := a.d.counts.Dropped
	info.Dropped = ad.Dropped{Updates: dropped(metrics.ToSlot), History: dropped(metrics.ToHistory), Startd: dropped(metrics.ToStartd), Log: dropped(metrics.ToLog)}
	if in.Type != claim.Static {
		cut(&info, in, room)
	}
	if in.Task != "" {
		if j := a.jobOf(in.Task); j != nil && a.d.followed.Disconnected(j.Activation) {
			info.Extra = append(info.Extra, classad.Attr{Name: "STARTER_DISCONNECTED_FROM_SUBMIT_NODE", Expr: classad.Bool(true).Expr()})
		}
		info.Activity = slot.Busy.String()
		info.Job = &ad.SlotJob{ID: in.Task, GlobalID: a.globalID(in), Universe: 5}
		a.measured(&info, in.Task)
	}
	for _, l := range in.Leaving {
		info.Pending = append(info.Pending, ad.Pending{ID: l.ID, KiB: l.KiB})
	}
	for _, x := range policies {
		name, ok := names[x]
		if !ok {
			name = x.String()
		}
		info.Policy = append(info.Policy, classad.Attr{Name: name, Expr: in.Policy.Expr(x)})
	}
	if m := in.Machine; m != nil {
		p := m.Place()
		info.State, info.Activity = p.State.String(), p.Activity.String()
		info.EnteredState, info.EnteredActivity = m.EnteredState(), m.EnteredActivity()
		for p, d := range m.Spent(in.Now) {
			info.Spent = append(info.Spent, ad.Spent{State: p.State.String(), Activity: p.Activity.String(), Time: d})
		}
		_, info.Draining = m.Draining()
		info.BrokenReason = m.Broken()
		cur := m.Current()
		info.CurrentRank = cur.Rank
		run := m.Run(in.Now)
		if in.Holder != "" {
			c := &ad.Claim{Owner: in.User, User: in.User, Holder: in.Holder, Run: run.Claim, Suspended: run.Stopped}
			if !in.ID.Zero() {
				c.Public, c.Secret = in.ID.String(), in.ID.Reveal()
			}
			info.Claim = c
		}
		if info.Job != nil {
			info.Job.Started, info.Job.Run, info.Job.Suspended = run.Begun, run.Job, run.Suspended
		}
	}
	for _, name := range config.Knobs.Words("STARTD_ATTRS") {
		if e, ok := config.Knobs.Expr(name); ok {
			info.Extra = append(info.Extra, classad.Attr{Name: name, Expr: e})
		}
	}
	if list := config.Knobs.Words("STARTD_JOB_ATTRS"); len(list) > 0 && in.Task != "" && in.Job != nil {
		info.Extra = append(info.Extra, ad.JobAttrs(in.Job.Ad(), list)...)
	}
	if list := config.Knobs.Words("STARTD_SLOT_ATTRS"); len(list) > 0 {
		info.Extra = append(info.Extra, shared(list, in.All())...)
	}
	info.Extra = append(info.Extra, a.d.fetch.Attributes(in.Slot)...)
	return ad.Slot(info)
}

// measured adds the last known usage of a running task.
func (a *slotAds) measured(info *ad.SlotInfo, task string) {
	id, err := spool.ParseID(task)
	if err != nil {
		return
	}
	if u, ok := a.d.usage.Seen(id); ok {
		j := info.Job
		info.Load.CpusUsage = u.Cores
		j.Processes, j.ImageSize, j.ResidentSetSize = u.PIDs, int64(u.VMem/1024), int64(u.RSS/1024)
	}
}

// shared returns the attributes of STARTD_SLOT_ATTRS of all slots.
func shared(list []string, slots []claim.Neighbour) []classad.Attr {
	var attrs []classad.Attr
	for _, n := range slots {
		for _, name := range list {
			v := classad.Undefined()
			switch strings.ToLower(name) {
			case "state":
				v = classad.String(n.State)
			case "activity":
				v = classad.String(n.Activity)
			case "enteredcurrentstate":
				v = entered(n.EnteredState)
			case "enteredcurrentactivity":
				v = entered(n.EnteredActivity)
			case "remoteuser":
				v = someone(n.User)
			case "jobid":
				v = someone(n.Task)
			}
			if v.Kind() != classad.UndefinedKind {
				attrs = append(attrs, classad.Attr{Name: n.Slot.Name() + "_" + name, Expr: v.Expr()})
			}
		}
	}
	return attrs
}

func entered(t time.Time) classad.Value {
	if t.IsZero() {
		return classad.Undefined()
	}
	return classad.Int(t.Unix())
}

func someone(s string) classad.Value {
	if s == "" {
		return classad.Undefined()
	}
	return classad.String(s)
}

// cut adds to the ad of a slot that was carved out of another, or that others are
// carved out of, what the slot has.
func cut(info *ad.SlotInfo, in *claim.Info, room disk) {
	info.Partitionable = in.Type == claim.Partitionable
	info.Cpus, info.Memory, info.Disk, info.GPUs = int(in.Has.Cpus), in.Has.Memory, in.Has.Disk, int(in.Has.GPUs)
	info.TotalSlotCpus, info.TotalSlotMemory = int(in.Total.Cpus), in.Total.Memory
	switch {
	case info.Partitionable: // what leaves it is taken off already
		info.Disk = min(info.Disk, room.free)
	case len(in.Leaving) > 0:
		info.Disk = room.left(info.Disk, in.Leaving)
	}
	info.TotalSlotDisk, info.TotalSlotGPUs = in.Total.Disk, int(in.Total.GPUs)
	for _, c := range in.Children {
		info.Children = append(info.Children, ad.Child{
			Dynamic: c.Slot.Dynamic, State: c.State, Cpus: int(c.Has.Cpus), Memory: c.Has.Memory, Disk: c.Has.Disk, GPUs: int(c.Has.GPUs),
		})
	}
}

// share returns the resources of so many slots of a queue together.
func (a *slotAds) share(queue string, slots int) slot.Resources {
	config := a.d.config.Current()
	n, all := int64(slots), int64(max(config.Slots(), slots, 1))
	return slot.Resources{Cpus: n, Memory: a.memory(config) / all * n, Disk: a.disk().of(int(all), n), GPUs: gpus(config, queue)}
}

// memory returns how many MiB all slots have together.
func (a *slotAds) memory(c *conf.Config) int64 {
	memory := a.d.gauge.Last().Memory >> 20
	if most := int64(c.Knobs.Int("MEMORY", 0)); most > 0 {
		return min(memory, most)
	}
	return memory
}

// gpus returns how many GPUs a queue has, where the site counts them as a resource:
// those of the queue, else those of the host. It does not subtract those in use, which
// the scheduler knows.
func gpus(c *conf.Config, queue string) int64 {
	lists := []conf.Values{c.Host, c.AnyHost}
	if q := c.Queue(queue); q != nil {
		lists = append([]conf.Values{q.Complex}, lists...)
	}
	for _, list := range lists {
		for name, v := range list {
			if strings.EqualFold(name, "gpus") {
				return int64(min(v.Number, 1<<40))
			}
		}
	}
	return 0
}

// jobAd returns the ad of a job as slots see it, from what is in memory, which lacks
// the command and the environment of a job that waits. Of a job of qsub it has only the
// attributes with these names; nil: all.
func (a *slotAds) jobAd(j *job.Job, t *job.Task, names []string) *classad.Ad {
	info := a.jobInfo(j, t, names)
	whole := ad.Job(info)
	if t != nil && (info.Transfer == nil || !info.Transfer.Output) {
		if s := a.d.stages.Reported(t.RunID()); s != nil {
			whole = ad.Running(whole, *s)
		}
	}
	return whole
}

// waitingAd returns the ad of what does not run of a job, for its policy.
func (a *slotAds) waitingAd(j *job.Job, w *job.Waiting) *classad.Ad {
	info := a.jobInfo(j, nil, nil)
	info.EnteredStatus, info.Starts, info.Task = w.Since, w.Starts, max(w.Task, 1)
	if w.Held {
		info.Status, info.Hold = ad.StatusHeld, &ad.Forced{Reason: w.Reason}
		if w.Why != nil {
			info.Hold.Code, info.Hold.Subcode = w.Why.Code, w.Why.Subcode
		}
	}
	whole := ad.Job(info)
	if w.Task == 0 { // what depends on the task is nothing
		whole = whole.Without("ProcId", "JobId", "GlobalJobId")
	}
	return whole
}

// jobInfo gathers what the ad of a job says, of a task that was taken or nil.
func (a *slotAds) jobInfo(j *job.Job, t *job.Task, names []string) ad.JobInfo {
	terms := j.Terms()
	request := *terms.Needs.Request()
	request.Name, request.Account, request.Priority = terms.Name, terms.Account, terms.Priority
	request.StageIn = nil // it is not known what is brought, but for schemes
	info := ad.JobInfo{
		Number: j.Number, Task: 1, Host: a.d.host, Owner: j.Owner, Group: j.Group, Submitted: j.Submitted, Request: &request,
		Status: ad.StatusIdle, Slots: 1, Only: names,
	}
	if len(request.Attributes) > 0 {
		info.Only, names = nil, nil // attributes of the user may refer to any other
		if t != nil {
			info.Request = ad.Expanded(&request, t.Needs.Attributes(), a.d.store.Matched(t))
		}
	}
	if ad.AboutResources(names) {
		info.Resources = ad.AskedIn(a.d.config.Current(), request.Hard)
	}
	if j.UnderClaim() {
		request.Work = a.d.fetch.Work(j.Number)
	}
	if t != nil {
		info.Task, info.Status, info.Started, info.Starts, info.Queue = t.Number, ad.StatusRunning, t.Started, t.Run+1, t.Start.Queue
		info.Transfer = a.d.stages.Transfer(t.RunID())
	}
	return info
}

// taskAd returns the ad of the job of a task that was taken.
func (d *daemon) taskAd(t *job.Task) *classad.Ad { return d.slotAds.jobAd(t.Job, t, nil) }

// globalID is the name of a slot's job that is unique everywhere: that of the work it
// came from, else execd's own.
func (a *slotAds) globalID(in *claim.Info) string {
	if in.Work != nil {
		env := classad.Env{My: in.Work, Now: in.Now}
		if id, ok := env.Attr("GlobalJobId").Str(); ok {
			return id
		}
	}
	if j := a.jobOf(in.Task); j != nil {
		return ad.GlobalID(a.d.host, in.Task, j.Submitted)
	}
	return ""
}

// jobOf returns the job of a task, or nil.
func (a *slotAds) jobOf(task string) *job.Job {
	number, _, _ := strings.Cut(task, ".")
	n, _ := strconv.Atoi(number)
	return a.d.store.Get(n)
}

// osRelease returns the host's description of its system.
func osRelease() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return ""
	}
	return string(text)
}

// manageSlots prepares the slots that others than the queue use.
func (d *daemon) manageSlots(table *claim.Table, boot string) error {
	err := table.Manage(claim.Options{
		Host: d.host, Boot: d.began, BootID: boot, Store: claim.NewStore(d.root), Log: d.log, Ad: d.slotAds.of,
		JobOf:  func(task string) slot.Job { return d.queue.JobOf(task) },
		Share:  d.slotAds.share,
		Closed: d.states.Closed, Idled: d.counts.Idle,
		Leaving: d.sandboxes.Leaving, Most: d.sandboxes.Most, Room: func() int64 { return d.slotAds.disk().free },
	})
	if err != nil {
		return err
	}
	d.setPolicy(d.config.Current())
	return nil
}

// setPolicy takes the knobs of a configuration for the slots.
func (d *daemon) setPolicy(c *conf.Config) {
	hooks := d.hooks.Load()
	var hooked func(slot.ID) bool
	if hooks.Any() {
		hooked = func(id slot.ID) bool { return hooks.SlotKeyword(id.String()) != "" }
	}
	d.gauge.WatchTerminals(aboutTerminals(c))
	d.gauge.Look()
	d.queue.Policy(slot.NewPolicy(c.Knobs), hooked)
	d.stages.Watch()
}

// aboutTerminals reports whether an expression of hooks.conf refers to the idle time of
// terminals.
func aboutTerminals(c *conf.Config) bool {
	for _, k := range c.Knobs.All() {
		e, ok := c.Knobs.Expr(k.Name)
		if !ok {
			continue
		}
		if r := e.References(nil, nil); r.Has("KeyboardIdle") || r.Has("ConsoleIdle") {
			return true
		}
	}
	return false
}

// evict has a task leave its slot, as gently as the effect asks. A kill that a user has
// asked for before is carried out. A task that may be rerun is, unless no claimant would start
// it.
func (d *daemon) evict(t *job.Task, e claim.Effect, hold *claim.Effect) {
	signal := syscall.SIGKILL
	if e.Do == claim.Stop {
		signal = syscall.SIGTERM
	}
	want := job.Want{
		Signal: int(signal), By: fmt.Sprintf("%s (%s)", e.Slot.Name(), e.Text),
		Requeue: !t.Job.Interactive && d.sources.Of(t.Job.Source).Queued() && (hold != nil || e.Requeue && d.stages.Rerunnable(t)),
		Slot:    e.Reason != slot.ReasonRemoved, Code: int(e.Reason), Cause: e.Text, Vacate: int(e.Reason), Until: e.Until,
	}
	if !e.Until.IsZero() {
		want.UntilUp = proc.Uptime() + time.Until(e.Until)
	}
	if hold != nil {
		want.Error, want.Code, want.Subcode, want.Cause = hold.Text, slot.HoldByPolicy, hold.Subcode, hold.Text
	}
	if _, err := d.store.Evict(t, want); err != nil {
		d.log.Error(fmt.Sprintf("job %v: %v", t, err)) // the task is ended all the same
	}
	if e.Do != claim.Stop {
		d.stages.Kill(t)
		return
	}
	if !d.stages.AtRest(t) {
		return // the stage that prepares it ends it
	}
	if err := d.launch.Signal(t.RunID(), d.stages.EndSignal(t)); err != nil {
		d.log.Debug(err.Error()) // the shepherd has gone, and its end is being handled
	}
}

// slotOf returns what finds the slot of a task for its hooks.
func (d *daemon) slotOf(table *claim.Table) func(t *job.Task, ads bool) (slot.ID, *classad.Ad) {
	return func(t *job.Task, ads bool) (slot.ID, *classad.Ad) {
		if ads {
			d.gauge.Look()
		}
		v, _ := table.Of(t.String(), ads)
		return v.Slot, v.Ad
	}
}
