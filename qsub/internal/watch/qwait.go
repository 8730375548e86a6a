package watch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qrsh/client"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// exitTimeout is the exit status of qwait when its time is over, as timeout(1)'s.
const exitTimeout = 124

// qwait waits for the end of jobs and exits as they did.
func qwait(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	var jobs argument.Jobs
	var timeout time.Duration
	asJSON := false
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil:
			if err := jobs.Add(o.Value()); err != nil {
				return command.Failf("error: %s", err)
			}
		case o.Name == "-json":
			asJSON = true
		case o.Name == "-timeout":
			if timeout, err = argument.Duration(o); err != nil {
				return err
			}
		}
	}
	if len(jobs.Words) == 0 {
		return inv.NoArguments()
	}
	w := &waitSet{inv: inv, json: asJSON}
	if err := w.find(ctx, jobs.Words); err != nil {
		return err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err = command.Interruptible(ctx, func(ctx context.Context) error {
		w.line = inv.Progress(ctx, w.words(), w.total)
		return w.wait(ctx)
	}, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	w.line.End()
	if err != nil {
		return w.givenUp(err)
	}
	return w.verdict()
}

// waitSet is the jobs that are waited for.
type waitSet struct {
	inv   *command.Invocation
	json  bool
	jobs  []*waitedJob // in the order of the command line
	from  string       // cursor of the first wait: where in the accounting file their ends begin
	total int          // tasks of all of them
	line  *command.StatusLine

	// told, if not nil, receives the tasks that end, for qlog. With skip those
	// of the first reply, which had ended before, are left out.
	told chan<- int
	skip bool
}

// waitedJob is one of these jobs, or some of its tasks.
type waitedJob struct {
	api.Waited
	count int // of its tasks; 0: the job is over, and the number is not known
	ends  taskEnds
	stuck *api.Stuck // why it does not end by itself
	over  bool
}

func (j *waitedJob) String() string {
	if t := j.Tasks; t.IsArray() {
		text := strconv.Itoa(t.First)
		if t.Last != t.First {
			text = t.String()
		}
		return strconv.Itoa(j.Job) + "." + text
	}
	return strconv.Itoa(j.Job)
}

// find looks up the jobs that the words name. A word that names none is an error at
// once: if the others were waited for first, the user would learn of it late.
func (w *waitSet) find(ctx context.Context, words []string) error {
	var reply api.FindReply
	if err := w.inv.Client.Call(ctx, api.VerbFind, &api.FindRequest{Jobs: words}, &reply); err != nil {
		return w.inv.CallFailed(err)
	}
	w.from = reply.Cursor
	for _, f := range reply.Found {
		w.jobs = append(w.jobs, &waitedJob{Waited: api.Waited{Job: f.Job, Tasks: f.Tasks}, count: f.Count})
		w.total += f.Count
	}
	for _, word := range reply.Missing {
		j, err := w.finished(word, &reply)
		if err != nil {
			return err
		}
		w.jobs = append(w.jobs, j)
		w.total++
		w.from = "" // from the beginning of the file
	}
	if len(w.jobs) > api.MaxWaited {
		return fmt.Errorf("more than %d jobs are too many to wait for at once", api.MaxWaited)
	}
	return nil
}

// finished returns the finished job that a word names, when no unfinished job
// has that name.
func (w *waitSet) finished(word string, reply *api.FindReply) (*waitedJob, error) {
	name, tasks := word, api.Tasks{}
	var err error
	if dot := strings.LastIndexByte(word, '.'); dot >= 0 && argument.IsRange(word[dot+1:]) {
		name = word[:dot]
		if tasks, err = api.ParseTasks(word[dot+1:]); err != nil {
			return nil, command.Failf("denied: job \"%s\" does not exist", api.Visible(word))
		}
	}
	if argument.IsNumber(name) {
		n, err := strconv.Atoi(name)
		if err != nil || n < 1 || n > reply.Last {
			return nil, command.Failf("denied: job \"%s\" does not exist", api.Visible(name))
		}
		return &waitedJob{Waited: api.Waited{Job: n, Tasks: tasks}}, nil
	}
	n, err := w.lastNamed(name, reply.User)
	if err == nil && n == 0 {
		err = command.Failf("The job %s of user(s) %s does not exist", api.Visible(name), api.Visible(reply.User))
	}
	return &waitedJob{Waited: api.Waited{Job: n, Tasks: tasks}}, err
}

// lastNamed returns the number of the user's job of a name that was accounted
// last; 0 if there is none. A pattern names unfinished jobs only: there may be
// very many finished ones.
func (w *waitSet) lastNamed(name, user string) (number int, err error) {
	if strings.ContainsAny(name, `*?[\`) {
		return 0, nil
	}
	file := w.inv.Places.Accounting
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return 0, nil // the file is made when the first job ends
	}
	if err != nil {
		return 0, fmt.Errorf("cannot open accounting file %s: %s", file, command.ErrorText(err))
	}
	defer f.Close()
	err = accounting.Each(f, func(lines []byte) (last int) {
		for line := range bytes.Lines(lines) {
			if string(accounting.Field(line, accounting.FieldJobName)) != name {
				continue
			}
			// A broken line is left out.
			if r, err := accounting.Parse(bytes.TrimSuffix(line, []byte("\n"))); err == nil && r.JobName == name && r.Owner == user {
				last = r.JobNumber
			}
		}
		return last
	}, func(last int) error {
		number = cmp.Or(last, number)
		return nil
	})
	return number, err
}

// words returns the jobs as words for a request.
func (w *waitSet) words() []string {
	words := make([]string, len(w.jobs))
	for i, j := range w.jobs {
		words[i] = j.String()
	}
	return words
}

// wait returns when all jobs are over, or those that are left wait for somebody.
func (w *waitSet) wait(ctx context.Context) error {
	cursor := w.from
	for {
		var request api.EndsRequest
		var left []*waitedJob
		for _, j := range w.jobs {
			if !j.over && j.stuck == nil {
				left = append(left, j)
				request.Jobs = append(request.Jobs, j.Waited)
			}
		}
		if len(left) == 0 {
			return nil
		}
		request.Cursor = cursor
		var reply api.EndsReply
		if err := w.inv.Patiently(ctx, w.line, api.VerbEnds, &request, &reply); err != nil {
			return err
		}
		cursor = reply.Cursor
		for i := range reply.Ended {
			for _, j := range left {
				j.ends.add(&j.Waited, &reply.Ended[i], w.json)
			}
		}
		if err := w.tell(ctx, reply.Ended); err != nil {
			return err
		}
		for _, i := range reply.Over {
			if i >= 0 && i < len(left) {
				left[i].over = true
			}
		}
		for _, stuck := range reply.Stuck {
			if i := stuck.Place; i >= 0 && i < len(left) {
				left[i].stuck = &stuck
			}
		}
	}
}

// tell sends the tasks that have ended to w.told.
func (w *waitSet) tell(ctx context.Context, ended []api.TaskEnd) error {
	skip := w.skip
	w.skip = false
	if w.told == nil || skip {
		return nil
	}
	for i := range ended {
		select {
		case w.told <- ended[i].Task:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// givenUp returns the failure of a wait that has ended before the jobs.
func (w *waitSet) givenUp(err error) error {
	var left []string
	for _, j := range w.jobs {
		if !j.over && j.stuck == nil {
			left = append(left, j.String())
		}
	}
	goOn := "job " + strings.Join(left, ", ") + " goes on"
	if len(left) != 1 {
		goOn = fmt.Sprintf("%d jobs go on", len(left))
	}
	var by client.Signaled
	switch {
	case errors.As(err, &by):
		return command.FailWith(by.Exit(), "qwait: interrupted; %s", goOn)
	case errors.Is(err, context.DeadlineExceeded):
		return command.FailWith(exitTimeout, "qwait: the time of -timeout is over; %s", goOn)
	}
	return w.inv.CallFailed(err)
}

// taskSet is a set of numbers of tasks, with a bit for each.
type taskSet struct {
	bits  []uint64
	count int // of those that are in it
}

func (s *taskSet) add(number int) {
	for len(s.bits) <= number/64 {
		s.bits = append(s.bits, 0)
	}
	if s.bits[number/64]&(1<<(number%64)) == 0 {
		s.bits[number/64] |= 1 << (number % 64)
		s.count++
	}
}

// taskEnds are the last ends of tasks of one job.
type taskEnds struct {
	taskSet
	bad map[int]api.TaskEnd // those with an exit status that is not 0
	all map[int]api.TaskEnd // all of them, when they are to be printed
}

// add records the end of a task, if the task is waited for. A task that ran
// again has more than one end; the last one counts.
func (t *taskEnds) add(of *api.Waited, e *api.TaskEnd, all bool) {
	number := max(e.Task, 1) // a job that is not an array has one task
	if e.Job != of.Job || e.Failed == accounting.FailedMigrating || e.Failed == accounting.FailedRescheduling || number > api.MaxTask {
		return
	}
	if of.Tasks.IsArray() && !of.Tasks.Has(number) {
		return
	}
	t.taskSet.add(number)
	if t.bad == nil {
		t.bad, t.all = map[int]api.TaskEnd{}, map[int]api.TaskEnd{}
	}
	if all {
		t.all[number] = *e
	}
	if exitOf(e) == 0 {
		delete(t.bad, number)
	} else {
		t.bad[number] = *e
	}
}

// exitOf returns the exit status for the end of a task: that of the job, or 128 and
// the number of the signal that ended it, or 1 if it did not run or failed otherwise.
func exitOf(e *api.TaskEnd) int {
	switch {
	case e.Ran && e.Signal != "" && e.Exit > client.ExitSignaled && e.Exit < 256:
		return e.Exit
	case !e.Ran, e.Failed != 0 && e.Exit == 0, e.Failed == accounting.FailedNoStatus:
		return option.ExitFailed
	case e.Exit != 0 && e.Exit&0xff == 0: // its low byte would read as success
		return option.ExitFailed
	}
	return e.Exit & 0xff
}

// maxTold bounds the lines about tasks that failed.
const maxTold = 20

// verdict says what failed, and returns the exit status of the first that did,
// in the order of the command line and of the tasks.
func (w *waitSet) verdict() error {
	first := 0
	fails := func(exit int) {
		if first == 0 {
			first = exit
		}
	}
	for _, j := range w.jobs {
		for k, number := range slices.Sorted(maps.Keys(j.ends.bad)) {
			e := j.ends.bad[number]
			fails(exitOf(&e))
			if k < maxTold {
				tellEnd(w.inv, j.Job, &e)
			}
		}
		if more := len(j.ends.bad) - maxTold; more > 0 {
			fmt.Fprintf(w.inv.Err, "And %d tasks more of job %d failed.\n", more, j.Job)
		}
		if lost := j.lost(); lost != "" {
			fails(option.ExitFailed)
			fmt.Fprintln(w.inv.Err, lost)
		}
	}
	if w.json {
		if err := w.print(first); err != nil {
			return err
		}
	}
	if first == 0 {
		return nil
	}
	return &command.Failure{Exit: first}
}

// lost returns a line about what is not known of a job; "" if all is known.
func (j *waitedJob) lost() string {
	switch left := j.count - j.ends.count; {
	case j.stuck != nil:
		return stuckText(j, j.stuck)
	case j.count == 0 && j.ends.count == 0:
		return fmt.Sprintf("Job %v is over, and there is no accounting record of it: it was deleted before it started, or the accounting file is a new one.", j)
	case j.count == 0 || left <= 0:
		return ""
	case j.ends.count == 0:
		return fmt.Sprintf("Job %v was deleted before it started.", j)
	default:
		return fmt.Sprintf("Job %v: there is no accounting record of %d tasks: they were deleted before they started, or the accounting file is a new one.", j, left)
	}
}

// tellEnd says how a task failed, in the words of qsub -sync.
func tellEnd(inv *command.Invocation, job int, e *api.TaskEnd) {
	id := strconv.Itoa(job)
	if e.Task > 0 {
		id += "." + strconv.Itoa(e.Task)
	}
	if text := endText(id, e); text != "" {
		fmt.Fprintln(inv.Err, text)
	}
	if e.Failed != 0 && e.Reason != "" {
		fmt.Fprintf(inv.Err, "Job %s failed: %s\n", id, api.Visible(e.Reason))
	}
}

// waitResult is what qwait -json prints.
type waitResult struct {
	Exit int         `json:"exit"`
	Jobs []jobResult `json:"jobs"`
}

type jobResult struct {
	Job     int          `json:"job"`
	Missing string       `json:"missing,omitempty"` // what is not known, and why
	Tasks   []taskResult `json:"tasks"`
}

// taskResult is the end of a task as execd tells it, with the exit status of exitOf.
type taskResult struct {
	api.TaskEnd
	Status int `json:"status"`
}

func (w *waitSet) print(exit int) error {
	result := waitResult{Exit: exit, Jobs: []jobResult{}}
	for _, j := range w.jobs {
		r := jobResult{Job: j.Job, Missing: j.lost(), Tasks: []taskResult{}}
		for _, number := range slices.Sorted(maps.Keys(j.ends.all)) {
			e := j.ends.all[number]
			r.Tasks = append(r.Tasks, taskResult{e, exitOf(&e)})
		}
		result.Jobs = append(result.Jobs, r)
	}
	return w.inv.PrintJSON(&result)
}
