package job

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
)

// parseTarget splits "42", "42.3", "42.3-7:2", "name", "name.3".
func parseTarget(word string) (name string, tasks api.Tasks) {
	dot := strings.LastIndexByte(word, '.') // a job's name may have some
	if dot < 0 {
		return word, api.Tasks{}
	}
	tasks, err := api.ParseTasks(word[dot+1:])
	if err != nil {
		return word, api.Tasks{}
	}
	return word[:dot], tasks
}

// Delete is qdel: it deletes what is pending or in error, and records the wish
// to kill what runs, which kill then carries out, once for each time that
// somebody asks. Forced, what runs is treated
// the same: its shepherd is there to answer.
func (s *Store) Delete(ctx context.Context, req *api.DeleteRequest, caller Caller, kill func(*Task)) (reply api.DeleteReply, err error) {
	var told lines
	defer func() { reply.Lines = told.all() }()
	words := req.Jobs
	if len(words) == 0 && len(req.Users) > 0 {
		words = []string{"*"}
	}
	wanted := owners(req.Users, caller)
	q := s.search(ctx, func(j *Job, number bool) bool {
		// A name is one of the caller's jobs, as long as nobody else is named.
		return len(req.Users) == 0 && number || wanted(j.Owner, j.UID)
	})
	for _, word := range words {
		name, tasks := parseTarget(word)
		found, meant, err := q.find(name, tasks)
		if err != nil {
			return reply, err
		}
		if !meant {
			number, task, _ := strings.Cut(name, ".")
			n, _ := strconv.Atoi(number)
			switch {
			case isNumber(number) && isNumber(task) && s.Get(n) != nil:
				told.fail("", "job %q task %q does not exist", number, task) // there is no task 0
			case len(req.Jobs) == 0:
				told.fail("", "There is no job registered for the following users: %s", strings.Join(req.Users, ", "))
			case isNumber(name) && len(req.Users) == 0:
				told.fail("", "denied: job %q does not exist", name)
			case len(req.Users) > 0:
				told.fail("", "The job %s of user(s) %s does not exist", name, strings.Join(req.Users, ", "))
			default:
				told.fail("", "The job %s of user(s) %s does not exist", name, caller.Name)
			}
			continue
		}
		err = told.each(ctx, found, func(j *Job, told *lines) error {
			if caller.UID != j.UID && !caller.Manager && !caller.Operator {
				told.fail("", "%s - you do not have the necessary privileges to delete the job \"%d\"", caller.Name, j.Number)
				return nil
			}
			d := s.deletion(j, tasks, caller, kill)
			d.byNumber = isNumber(name)
			return d.run(told)
		})
		if err != nil {
			return reply, err
		}
	}
	return reply, nil
}

// deletion is what qdel does to one job, or to the tasks of it that were named.
type deletion struct {
	*Store
	job    *Job
	tasks  api.Tasks // zero: all of them
	caller Caller
	kill   func(*Task)
	// byNumber says that the job was named by its number, and not by a name, a
	// pattern or its user.
	byNumber bool
	// policy is why a policy deletes what waits, and not what runs; empty: somebody deletes.
	policy string

	gone    Tasks   // taken out of the queue, or out of error
	errored []*Task // those of gone that were in error
	kills   []*Task // run, and are to be killed; or have ended to run again
	already []*Task // run, and are being killed: they are told again
}

func (s *Store) deletion(j *Job, tasks api.Tasks, caller Caller, kill func(*Task)) *deletion {
	return &deletion{Store: s, job: j, tasks: tasks, caller: caller, kill: kill, gone: NoTasks(j.Tasks)}
}

// run deletes them, and tells it.
func (d *deletion) run(told *lines) error {
	j := d.job
	if !d.pick() {
		// What ended since a name or a user was looked up is as it was asked to be.
		if d.byNumber {
			told.fail("", "denied: job \"%d\" does not exist", j.Number)
		}
		return nil
	}
	now := time.Now()
	var record []*line
	if d.gone.Len() > 0 {
		record = append(record, &line{Event: EventDeleted, Tasks: d.gone.format(), Time: now, Reason: d.policy})
	}
	if len(d.kills) > 0 {
		set := NoTasks(j.Tasks)
		for _, task := range d.kills {
			set.Add(task.Number)
		}
		record = append(record, &line{
			Event: EventWant, Tasks: set.format(), Time: now, Want: &Want{Signal: sigkill, By: d.caller.Name},
		})
	}
	over, left := false, nobody
	if len(record) > 0 {
		undo := d.deleting()
		if d.gone.Len() > 0 {
			left = d.leaving(j)
		}
		err := d.commit(j, durable, func() {
			d.recorded()
			j.deleted += d.gone.Len()
			for number := range d.gone.All {
				j.fail(number, deletedBeforeRun)
				j.forgetRuns(number)
			}
			d.finished.deleted(j, &d.gone)
			j.wakeWaiting()
			if over = j.over() && d.jobs[j.Number] == j; over {
				d.drop(j)
			}
		}, record...)
		if err != nil {
			if d.Get(j.Number) == j {
				undo() // else it may be on disk
			}
			d.putBack()
			return err
		}
		left(d.gone, "deleted by "+d.caller.Name)
	}
	if over {
		d.remove(j)
	}
	if d.gone.Len() > 0 { // others count on its turn, or keep a slot for it
		d.hint(j)
	}
	var back []int
	for _, task := range d.kills {
		if d.isWaiting(task) {
			// It ended before it could be told, and was to run again, or is in
			// error now.
			back = append(back, task.Number)
			continue
		}
		d.kill(task)
	}
	for _, task := range d.already {
		d.kill(task) // if it has ended there is nobody to be told
	}
	for _, number := range back {
		one := d.deletion(j, api.Tasks{First: number, Last: number, Step: 1}, d.caller, d.kill)
		if err := one.run(&lines{}); err != nil {
			return err
		}
	}
	d.tell(told)
	return nil
}

// Drop deletes a job that waits, since nobody will start it.
func (s *Store) Drop(j *Job) error {
	return s.deletion(j, api.Tasks{}, Caller{Name: "execd", Manager: true}, func(*Task) {}).run(&lines{})
}

// OnDelete has somebody told before the record says that a job, or tasks of it, are
// deleted that wait. Nobody can start them by then. What he returns is called if they
// stay after all, because that could not be recorded.
func (s *Store) OnDelete(before func(*Job) (undo func())) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onDelete = before
}

// OnLeave has somebody told before the record says that tasks of a job are gone which did not
// run; what he returns is called when it does. He may block, and call back into the Store.
func (s *Store) OnLeave(before func(*Job) (left func(tasks Tasks, why string))) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onLeave = before
}

// nobody is told that tasks have left.
func nobody(Tasks, string) {}

// leaving tells him.
func (s *Store) leaving(j *Job) (left func(tasks Tasks, why string)) {
	s.mu.Lock()
	before := s.onLeave
	s.mu.Unlock()
	if before == nil {
		return nobody
	}
	return before(j)
}

// deleting tells who is told of deletions; it returns what takes that back.
func (d *deletion) deleting() (undo func()) {
	d.mu.Lock()
	before := d.onDelete
	d.mu.Unlock()
	if before == nil || d.gone.Len() == 0 {
		return func() {}
	}
	return before(d.job)
}

// pick takes what waits of the tasks that were named out of the job, before the
// record says so, so that the queue cannot start it meanwhile; and finds what
// runs. A task whose start is being recorded is waited for: its want must
// stand behind its start. It reports whether there is anything to do.
func (d *deletion) pick() bool {
	j, named := d.job, d.tasks.IsArray()
	for {
		d.mu.Lock()
		if d.jobs[j.Number] != j {
			d.mu.Unlock()
			return d.gone.Len() > 0
		}
		waiting := j.pending
		if named {
			waiting = j.pending.Cut(d.tasks)
		} else {
			j.pending = NoTasks(j.Tasks)
		}
		d.gone.AddAll(&waiting)
		d.kills, d.already = nil, nil
		var starting *Task
		for _, task := range j.tasksInOrder() {
			switch {
			case named && !d.tasks.Has(task.Number), d.policy != "" && (task.State != Errored || !named):
			case task.State == Errored:
				d.errored = append(d.errored, task)
				d.gone.Add(task.Number)
				delete(j.active, task.Number)
			case task.Want != nil && !task.Want.Requeue:
				d.already = append(d.already, task)
			case task.State == Started, task.State == Over, task.State == Ended && task.End.Fate != FateDone:
				// Also what leaves its slot to run again.
				d.kills = append(d.kills, task)
				select {
				case <-task.begun:
				default:
					starting = task
				}
			case task.Want != nil:
				d.already = append(d.already, task)
			}
		}
		if d.gone.Len() > 0 && !slices.Contains(j.deletions, d) {
			j.own().deletions = append(j.deletions, d)
		}
		d.mu.Unlock()
		if starting == nil {
			return true
		}
		<-starting.begun
	}
}

// recorded is called with mu held when the record of the job says what was picked, or none
// of it is deleted.
func (d *deletion) recorded() {
	if j := d.job; len(j.deletions) > 0 {
		j.own().deletions = slices.DeleteFunc(j.deletions, func(other *deletion) bool { return other == d })
	}
}

// putBack undoes pick.
func (d *deletion) putBack() {
	d.mu.Lock()
	d.recorded()
	for _, task := range d.errored {
		d.gone.Remove(task.Number)
		d.job.activate(task)
	}
	d.job.pending.AddAll(&d.gone)
	d.mu.Unlock()
	d.hint(d.job)
}

// isWaiting reports whether a task that ran is pending again or in error.
func (s *jobSet) isWaiting(t *Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Job.pending.Has(t.Number) || t.State == Errored && t.Job.active[t.Number] == t
}

const sigkill = 9

// tell says what was deleted in Grid Engine's words.
func (d *deletion) tell(told *lines) {
	j := d.job
	if !j.Tasks.IsArray() {
		switch {
		case d.gone.Len() > 0:
			told.say("%s has deleted job %d", d.caller.Name, j.Number)
		case len(d.kills) > 0:
			told.say("%s has registered the job %d for deletion", d.caller.Name, j.Number)
		case len(d.already) > 0:
			told.say("job %d is already in deletion", j.Number)
		default:
			told.fail("", "denied: job \"%d\" does not exist", j.Number)
		}
		return
	}
	for _, task := range d.kills {
		told.say("%s has registered the job-array task %d.%d for deletion", d.caller.Name, j.Number, task.Number)
	}
	for _, task := range d.already {
		told.say("job-array task %d.%d is already in deletion", j.Number, task.Number)
	}
	switch n := d.gone.Len(); {
	case n == 1:
		told.say("%s has deleted job-array task %d.%d", d.caller.Name, j.Number, d.gone.Min())
	case n > 1 && (!d.tasks.IsArray() || n == j.count()):
		told.say("%s has deleted job %d", d.caller.Name, j.Number)
	case n > 1:
		told.say("%s has deleted job-array tasks %s of job %d", d.caller.Name, d.gone.format(), j.Number)
	case len(d.kills) == 0 && len(d.already) == 0:
		told.fail("", "job \"%d\" task \"%s\" does not exist", j.Number, spanOf(d.tasks))
	}
}

// isNumber reports whether a word is the number of a job.
func isNumber(word string) bool { return word != "" && strings.Trim(word, "0123456789") == "" }

// spanOf writes a range as people type it.
func spanOf(t api.Tasks) string {
	if t.First == t.Last {
		return strconv.Itoa(t.First)
	}
	return strings.TrimSuffix(t.String(), ":1")
}
