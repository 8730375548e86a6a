package job

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
)

// Hooks are what Modify needs of those who have the running tasks.
type Hooks struct {
	Kill       func(*Task)      // its Want says why
	AtRest     func(*Task) bool // returns when nobody is about to start it any more: it has a shepherd, is prepared, or is over
	Changed    func(*Task)      // it was suspended or resumed, or its output is to be tried again
	Rerunnable func(*Task) bool // it may be started again
	Host       string
}

// maxTold bounds the lines that are said of one array.
const maxTold = 1000

// Modify is qhold, qrls and qmod on jobs.
func (s *Store) Modify(ctx context.Context, req *api.ModifyRequest, caller Caller, hooks Hooks) (api.ModifyReply, error) {
	m := &modification{Store: s, req: req, caller: caller, hooks: hooks}
	if err := m.check(); err != nil {
		return api.ModifyReply{}, err
	}
	words := req.Jobs
	if len(words) == 0 && len(req.Users) > 0 {
		words = []string{"*"}
	}
	q := s.search(ctx, ofUsers(req.Users, caller))
	for _, word := range words {
		name, tasks := parseTarget(word)
		found, meant, err := q.find(name, tasks)
		if err != nil {
			return m.reply(), err
		}
		if !meant {
			m.missing(name)
		}
		err = m.lines.each(ctx, found, func(j *Job, told *lines) error {
			one := modification{Store: s, req: req, caller: caller, hooks: hooks}
			defer func() { *told = one.lines }()
			if !one.allowed(j) {
				return nil
			}
			return one.job(j, tasks)
		})
		if err != nil {
			return m.reply(), err
		}
	}
	return m.reply(), nil
}

// ofUsers keeps the jobs of users that were named; none named: all.
func ofUsers(users []string, caller Caller) func(*Job, bool) bool {
	if len(users) == 0 {
		return nil
	}
	wanted := owners(users, caller)
	return func(j *Job, _ bool) bool { return wanted(j.Owner, j.UID) }
}

type modification struct {
	*Store
	lines
	req    *api.ModifyRequest
	caller Caller
	hooks  Hooks
}

func (m *modification) reply() api.ModifyReply { return api.ModifyReply{Lines: m.lines.all()} }

func (m *modification) holding() bool {
	return m.req.Action == api.ActionHold || m.req.Action == api.ActionRelease
}

// check refuses what makes no sense for any job, or is not the caller's to do.
func (m *modification) check() error {
	if !m.holding() {
		return nil
	}
	if strings.Trim(m.req.Hold, Holds) != "" {
		return api.Errorf(api.CodeBadRequest, "Unknown hold list %q specified to -h option", m.req.Hold)
	}
	return nil
}

// MayHold refuses holds that are not the caller's to set or to remove, which do says.
func MayHold(c Caller, letters, do string) error {
	switch {
	case strings.Contains(letters, "s") && !c.Manager:
		return api.Errorf(api.CodeDenied, "denied: %q must be manager to %s manager hold", c.Name, do)
	case strings.Contains(letters, "o") && !c.Operator && !c.Manager:
		return api.Errorf(api.CodeDenied, "denied: %q must be operator to %s operator hold", c.Name, do)
	}
	return nil
}

func (m *modification) missing(name string) {
	switch {
	case len(m.req.Users) > 0:
		m.fail(api.CodeNotFound, "The job %s of user(s) %s does not exist", name, strings.Join(m.req.Users, ","))
	case m.holding():
		m.fail(api.CodeNotFound, "denied: job %q does not exist", name)
	default:
		m.fail(api.CodeNotFound, "invalid queue or job %q", name)
	}
}

func (m *modification) allowed(j *Job) bool {
	switch {
	case m.caller.UID == j.UID, m.caller.Manager, m.caller.Operator:
		return true
	case m.holding():
		m.fail(api.CodeForeign, "denied: %q must be at least owner of job %d to change job attributes", m.caller.Name, j.Number)
	default:
		m.fail(api.CodeDenied, "%s - you have no permission to modify job \"%d\"", m.caller.Name, j.Number)
	}
	return false
}

// job does it to one job, or to the tasks of it that are named.
func (m *modification) job(j *Job, tasks api.Tasks) error {
	switch m.req.Action {
	case api.ActionHold, api.ActionRelease:
		return m.hold(j, tasks)
	case api.ActionClear:
		return m.clear(j, tasks)
	case api.ActionSuspend, api.ActionResume:
		return m.suspend(j, tasks)
	case api.ActionReschedule:
		return m.reschedule(j, tasks)
	}
	return api.Errorf(api.CodeBadRequest, "%q is no action on jobs", m.req.Action)
}

// hold sets or takes away holds of the tasks that are not finished.
func (m *modification) hold(j *Job, tasks api.Tasks) error {
	on := m.req.Action == api.ActionHold
	m.mu.Lock()
	set := j.unfinished()
	if tasks.IsArray() {
		set = set.Cut(tasks)
	}
	changed, letters := j.holdChanges(&set, m.req.Hold, on)
	m.mu.Unlock()
	if changed.Len() == 0 {
		return nil
	}
	event, do := EventReleased, "remove"
	if on {
		event, do = EventHeld, "set"
	}
	if err := MayHold(m.caller, letters, do); err != nil {
		m.fail(api.CodeDenied, "%v", err)
		return nil
	}
	// Not the other letters: somebody else may set them meanwhile.
	if err := m.commit(j, durable, nil, &line{Event: event, Tasks: set.format(), Time: time.Now(), Hold: letters}); err != nil {
		return err
	}
	m.hint(j)
	m.tellEach(j, &changed, "modified hold of %s %s")
	return nil
}

// tellEach says a line for each task; for very many one for all of them.
func (m *modification) tellEach(j *Job, tasks *Tasks, format string) {
	switch {
	case !j.Tasks.IsArray():
		m.say(format, "job", strconv.Itoa(j.Number))
	case tasks.Len() > maxTold:
		m.say(format, "job-array tasks", strconv.Itoa(j.Number)+"."+tasks.format())
	default:
		for number := range tasks.All {
			m.say(format, "job-array task", fmt.Sprintf("%d.%d", j.Number, number))
		}
	}
}

// named returns the active tasks that are named, in order.
func (m *modification) named(j *Job, tasks api.Tasks) []*Task {
	list := j.tasksInOrder()
	if !tasks.IsArray() {
		return list
	}
	return slices.DeleteFunc(list, func(t *Task) bool { return !tasks.Has(t.Number) })
}

// what names a task in messages.
func what(t *Task) string {
	if t.Job.Tasks.IsArray() {
		return fmt.Sprintf("job-array task %v", t)
	}
	return fmt.Sprintf("job %d", t.Job.Number)
}

// pending says that a job has no task to which it could be done. Grid Engine
// does not call that a failure, and a single job the task of an array.
func (m *modification) pending(j *Job) {
	name := fmt.Sprintf("job-array task %d.1", j.Number)
	if j.Tasks.IsArray() {
		name = fmt.Sprintf("job %d", j.Number)
	}
	m.say("Modify operation can not be applied on %s in pending/hold state", name)
}

// clear takes tasks out of the error state: they may start again, or, where only their
// output could not be delivered, have it tried again.
func (m *modification) clear(j *Job, tasks api.Tasks) error {
	errored, cleared := NoTasks(j.Tasks), NoTasks(j.Tasks)
	var stuck []*Task
	m.mu.Lock()
	list := m.named(j, tasks)
	for _, t := range list {
		switch {
		case t.State == Errored:
			errored.Add(t.Number)
		case t.Stuck != nil:
			stuck = append(stuck, t)
		default:
			continue
		}
		cleared.Add(t.Number)
	}
	m.mu.Unlock()
	for _, t := range list {
		if !cleared.Has(t.Number) {
			text := what(t)
			m.fail(api.CodeRejected, "%s is not in error state", strings.ToUpper(text[:1])+text[1:])
		}
	}
	if cleared.Len() == 0 {
		if len(list) == 0 {
			m.pending(j)
		}
		return nil
	}
	if errored.Len() > 0 {
		if err := m.commit(j, durable, nil, &line{Event: EventCleared, Tasks: errored.format(), Time: time.Now()}); err != nil {
			return err
		}
		m.hint(j)
	}
	for _, t := range stuck {
		if err := m.Unstick(t); err != nil {
			return err
		}
		m.hooks.Changed(t)
	}
	m.tellEach(j, &cleared, m.caller.Name+"@"+m.hooks.Host+" cleared error state of %s %s")
	return nil
}

// suspend stops running tasks, or lets them go on.
func (m *modification) suspend(j *Job, tasks api.Tasks) error {
	on, event, done := true, EventSuspended, "suspended"
	if m.req.Action == api.ActionResume {
		on, event, done = false, EventResumed, "unsuspended"
	}
	set := NoTasks(j.Tasks)
	var changed, running, over []*Task
	m.mu.Lock()
	for _, t := range m.named(j, tasks) {
		if t.State == Over {
			over = append(over, t)
		}
		if t.State != Started {
			continue
		}
		running = append(running, t)
		if t.Suspended != on {
			changed = append(changed, t)
			set.Add(t.Number)
		}
	}
	m.mu.Unlock()
	for _, t := range over {
		m.say("%s has ended, and its output is on its way: there is nothing to be %s", what(t), done)
	}
	if len(running) == 0 {
		if len(over) == 0 {
			m.pending(j)
		}
		return nil
	}
	for _, t := range changed {
		<-t.begun // what is recorded of it must stand behind its start
		// One that is neither prepared nor has a shepherd would be given back by
		// the next execd, and start again as if nobody had stopped it.
		m.hooks.AtRest(t)
	}
	if set.Len() > 0 {
		if err := m.commit(j, durable, nil, &line{Event: event, Tasks: set.format(), Time: time.Now()}); err != nil {
			return err
		}
	}
	for _, t := range running {
		if !set.Has(t.Number) {
			m.say("%s - %s is already %s", m.caller.Name, what(t), done)
			continue
		}
		m.say("%s - %s %s", m.caller.Name, done, what(t))
		m.hooks.Changed(t)
	}
	return nil
}

// reschedule ends running tasks so that they run again.
func (m *modification) reschedule(j *Job, tasks api.Tasks) error {
	m.mu.Lock()
	var list []*Task
	for _, t := range m.named(j, tasks) {
		if t.State == Started {
			list = append(list, t)
		}
	}
	m.mu.Unlock()
	if len(list) == 0 {
		m.pending(j)
	}
	for _, t := range list {
		if !m.req.Force && !m.hooks.Rerunnable(t) {
			// It is no failure to Grid Engine.
			if j.Terms().Rerun == api.RerunNo {
				m.say("The %s is not restartable", what(t))
			} else {
				m.say("The %s is running in queue %s where jobs are not rerunable.", what(t), t.Start.Queue)
			}
			continue
		}
		<-t.begun
		want := &Want{Signal: sigkill, By: m.caller.Name, Requeue: true}
		if err := m.commit(j, durable, nil, &line{Event: EventWant, Tasks: strconv.Itoa(t.Number), Time: time.Now(), Run: t.Run, Want: want}); err != nil {
			return err
		}
		m.hooks.Kill(t)
		how := "Pushed"
		if m.req.Force {
			how = "Forced"
		}
		m.say("%s rescheduling of %s on host %s", how, what(t), m.hooks.Host)
	}
	return nil
}
