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
	w := &jobsWait{inv: inv, json: asJSON}
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

// jobsWait waits for jobs.
type jobsWait struct {
	inv   *command.Invocation
	json  bool
	jobs  []*jobWait // in the order of the command line
	from  string     // where their ends begin
	total int        // tasks of all of them
	line  *command.StatusLine

	// told gets the tasks that end, for qlog; nil: nobody does. skip leaves out
	// those of the first reply, which ended before.
	told chan<- int
	skip bool
}

// jobWait is one job of them, or some of its tasks.
type jobWait struct {
	api.Waited
	count int // of its tasks; 0: it is over, and nobody knows
	ends  taskEnds
	stuck *api.Stuck // why it does not end by itself
	over  bool
}

func (j *jobWait) String() string {
	if t := j.Tasks; t.IsArray() {
		text := strconv.Itoa(t.First)
		if t.Last != t.First {
			text = t.String()
		}
		return strconv.Itoa(j.Job) + "." + text
	}
	return strconv.Itoa(j.Job)
}

// find looks up what the words mean. A word that means nothing ends all: to wait
// for the rest would hide it for long.
func (w *jobsWait) find(ctx context.Context, words []string) error {
	var reply api.FindReply
	if err := w.inv.Client.Call(ctx, api.VerbFind, &api.FindRequest{Jobs: words}, &reply); err != nil {
		return w.inv.CallFailed(err)
	}
	w.from = reply.Cursor
	for _, f := range reply.Found {
		w.jobs = append(w.jobs, &jobWait{Waited: api.Waited{Job: f.Job, Tasks: f.Tasks}, count: f.Count})
		w.total += f.Count
	}
	for _, word := range reply.Missing {
		j, err := w.finished(word, &reply)
		if err != nil {
			return err
		}
		w.jobs = append(w.jobs, j)
		w.total++
		w.from = "" // somewhere in the file
	}
	if len(w.jobs) > api.MaxWaited {
		return fmt.Errorf("more than %d jobs are too many to wait for at once", api.MaxWaited)
	}
	return nil
}

// finished returns what a word means that means no unfinished job: one that is
// over.
func (w *jobsWait) finished(word string, reply *api.FindReply) (*jobWait, error) {
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
		return &jobWait{Waited: api.Waited{Job: n, Tasks: tasks}}, nil
	}
	n, err := w.lastNamed(name, reply.User)
	if err == nil && n == 0 {
		err = command.Failf("The job %s of user(s) %s does not exist", api.Visible(name), api.Visible(reply.User))
	}
	return &jobWait{Waited: api.Waited{Job: n, Tasks: tasks}}, err
}

// lastNamed returns the job of a name that a user had and that was accounted
// last; 0: there is none. A pattern means unfinished jobs only: of what has ever
// run it would mean too much.
func (w *jobsWait) lastNamed(name, user string) (number int, err error) {
	if strings.ContainsAny(name, `*?[\`) {
		return 0, nil
	}
	file := w.inv.Places.Accounting
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return 0, nil // written with the first job that ends
	}
	if err != nil {
		return 0, fmt.Errorf("cannot open accounting file %s: %s", file, command.Cause(err))
	}
	defer f.Close()
	err = accounting.Each(f, func(lines []byte) (last int) {
		for line := range bytes.Lines(lines) {
			if string(accounting.Field(line, accounting.FieldJobName)) != name {
				continue
			}
			// A broken line is no job's.
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

// words are the jobs as execd takes them.
func (w *jobsWait) words() []string {
	words := make([]string, len(w.jobs))
	for i, j := range w.jobs {
		words[i] = j.String()
	}
	return words
}

// wait returns when all jobs are over, or those that are left wait for somebody.
func (w *jobsWait) wait(ctx context.Context) error {
	cursor := w.from
	for {
		var request api.EndsRequest
		var left []*jobWait
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

// tell passes on which tasks have ended.
func (w *jobsWait) tell(ctx context.Context, ended []api.TaskEnd) error {
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

// givenUp is the end of a wait that is not that of the jobs.
func (w *jobsWait) givenUp(err error) error {
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
	var by command.Interrupted
	switch {
	case errors.As(err, &by):
		return command.FailWith(by.Exit(), "qwait: interrupted; %s", goOn)
	case errors.Is(err, context.DeadlineExceeded):
		return command.FailWith(exitTimeout, "qwait: the time of -timeout is over; %s", goOn)
	}
	return w.inv.CallFailed(err)
}

// taskEnds are the last ends of tasks of one job.
type taskEnds struct {
	seen  []uint64 // a bit for each task
	count int
	bad   map[int]api.TaskEnd // those with an exit status that is not 0
	all   map[int]api.TaskEnd // all of them, when they are to be printed
}

// add notes an end, if it is one of those that are waited for. What was run
// again has another one, which replaces it.
func (t *taskEnds) add(of *api.Waited, e *api.TaskEnd, all bool) {
	number := max(e.Task, 1) // a job that is no array has one task
	if e.Job != of.Job || e.Failed == failedMigrating || e.Failed == failedRescheduling || number > api.MaxTask {
		return
	}
	if w := of.Tasks; w.IsArray() && (number < w.First || number > w.Last || (number-w.First)%w.Step != 0) {
		return
	}
	for len(t.seen) <= number/64 {
		t.seen = append(t.seen, 0)
	}
	if t.seen[number/64]&(1<<(number%64)) == 0 {
		t.seen[number/64] |= 1 << (number % 64)
		t.count++
	}
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

// exitOf is the exit status that stands for an end: the job's, 128 and the signal
// that ended it, or 1 if it did not run, or failed otherwise.
func exitOf(e *api.TaskEnd) int {
	switch {
	case e.Ran && e.Signal != "" && e.Exit > command.ExitInterrupted && e.Exit < 256:
		return e.Exit
	case !e.Ran, e.Failed != 0 && e.Exit == 0, e.Failed == failedNoStatus:
		return option.ExitFailed
	case e.Exit != 0 && e.Exit&0xff == 0: // would be taken for success
		return option.ExitFailed
	}
	return e.Exit & 0xff
}

// maxTold bounds the lines about tasks that failed.
const maxTold = 20

// verdict says what failed, and returns the exit status of the first that did,
// in the order of the command line and of the tasks.
func (w *jobsWait) verdict() error {
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

// lost says what is missing of a job; "": nothing.
func (j *jobWait) lost() string {
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

// taskResult is an end as execd tells it, with the exit status that stands for
// it.
type taskResult struct {
	api.TaskEnd
	Status int `json:"status"`
}

func (w *jobsWait) print(exit int) error {
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
