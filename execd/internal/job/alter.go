package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
)

// change is an alteration of a job, in its record.
type change struct {
	Fields []api.Field        `json:"fields,omitempty"`
	To     *api.SubmitRequest `json:"to,omitempty"` // has the new values of the fields
	links                     // as in the header, those of the fields
	// Hold and Release are the holds that are set and taken away of the tasks
	// of the line: letters of u, o, s.
	Hold    string `json:"hold,omitempty"`
	Release string `json:"release,omitempty"`
}

// check refuses a change that execd itself would not have written.
func (c *change) check() error {
	switch {
	case c == nil:
		return errors.New("an alteration without its particulars")
	case len(c.Fields) > 0 && c.To == nil:
		return errors.New("an alteration without its values")
	case strings.Trim(c.Hold+c.Release, Holds) != "":
		return fmt.Errorf("there is no hold %q", c.Hold+c.Release)
	}
	for _, f := range c.Fields {
		if api.AlterableBy(f) == nil {
			return fmt.Errorf("there is no field %q", f)
		}
	}
	return nil
}

// apply puts the new values into a request.
func (c *change) apply(r *api.SubmitRequest) {
	for _, f := range c.Fields {
		api.AlterableBy(f).Copy(r, c.To)
	}
}

// present returns the header of a record as it is after all alterations.
func present(data []byte) (*header, error) {
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	h, err := decodeHeader(first)
	if err != nil {
		return nil, err
	}
	for n := 2; ; n++ {
		text, more, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			return h, nil
		}
		rest = more
		var l struct {
			Event  Event   `json:"event"`
			Change *change `json:"change"`
		}
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d is not an event: %v", n, err)
		}
		if l.Event != EventAltered {
			continue
		}
		if err := l.Change.check(); err != nil {
			return nil, fmt.Errorf("line %d: %v", n, err)
		}
		l.Change.apply(&h.Request)
		h.links.alter(l.Change.Fields, &l.Change.links)
	}
}

// alter applies an alteration to the job in memory.
func (j *Job) alter(l *line) error {
	c := l.Change
	if err := c.check(); err != nil {
		return err
	}
	if c.Hold+c.Release != "" {
		set, ok := parseTasks(l.Tasks, j.Tasks)
		if !ok {
			return fmt.Errorf("tasks %q are none of the job's", l.Tasks)
		}
		// The letters are checked.
		_ = j.hold(&set, c.Hold, true)
		_ = j.hold(&set, c.Release, false)
	}
	r := j.Terms().request()
	c.apply(r)
	j.terms.Store(keptOf(r).terms().common())
	if relinks(c.Fields) {
		l := j.links
		l.alter(c.Fields, &c.links)
		if err := j.waitFor(l); err != nil {
			return err
		}
	}
	j.alterations++
	j.stale, j.request = true, nil
	return nil
}

// AlterHooks are what Alter needs of those who know the configuration.
type AlterHooks struct {
	// Check refuses what a job cannot become, of which the fields are new. With
	// Verify it looks whether the job could run, and returns what it has found
	// and whether that was all that was wanted.
	Check func(j *Job, fields []api.Field, to *api.SubmitRequest) (lines []api.Line, only bool, err error)
	// Changed is told of each task that runs while the attributes of its job are altered.
	Changed func(*Task)
	Host    string
}

// Alter is qalter.
func (s *Store) Alter(ctx context.Context, req *api.AlterRequest, caller Caller, hooks AlterHooks) (api.AlterReply, error) {
	a := &alteration{Store: s, req: req, caller: caller, hooks: hooks, meant: map[int][]meaning{}}
	if err := a.check(); err != nil {
		return api.AlterReply{}, err
	}
	words := req.Jobs
	if len(words) == 0 && len(req.Users) > 0 {
		words = []string{"*"}
	}
	err := a.jobs(ctx, words)
	return api.AlterReply{Lines: a.lines.all()}, err
}

// jobs alters the jobs that words mean, as long as somebody waits for the answer.
func (a *alteration) jobs(ctx context.Context, words []string) error {
	q := a.search(ctx, ofUsers(a.req.Users, a.caller))
	for _, word := range words {
		name, tasks := parseTarget(word)
		if tasks.IsArray() && !a.onlyHolds() {
			return ErrNotTasks
		}
		found, meant, err := q.find(name, tasks)
		if err != nil {
			return err
		}
		err = a.lines.each(ctx, a.allowed(name, found, meant), func(j *Job, told *lines) (err error) {
			told.list, err = a.job(j, tasks)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrNotTasks refuses to alter or to copy single tasks.
var ErrNotTasks = api.Errorf(api.CodeBadRequest, "denied: the selected option works only on jobs and not on tasks")

type alteration struct {
	*Store
	req    *api.AlterRequest
	caller Caller
	hooks  AlterHooks
	lines  lines
	// meant is what the words of the new predecessors mean, to each owner. It is guarded by
	// the Store's predecessors.
	meant map[int][]meaning
}

// check refuses what makes no sense for any job, or is not the caller's to do.
func (a *alteration) check() error {
	for i, f := range a.req.Fields {
		if api.AlterableBy(f) == nil || f == api.FieldContext || slices.Contains(a.req.Fields[:i], f) {
			return api.Errorf(api.CodeBadRequest, "cannot alter %q", f)
		}
	}
	if strings.Trim(a.req.Hold, api.HoldLetters) != "" {
		return api.Errorf(api.CodeBadRequest, "Unknown hold list %q specified to -h option", a.req.Hold)
	}
	if a.req.Hold == "n" {
		// Grid Engine refuses it also where there is nothing to take away.
		return MayHold(a.caller, Holds, "remove")
	}
	return nil
}

// onlyHolds reports whether nothing is altered but holds, which single tasks
// have too.
func (a *alteration) onlyHolds() bool {
	return len(a.req.Fields)+len(a.req.Context) == 0 && a.req.To.Verify == ""
}

// allowed returns those of the jobs that the caller may alter. Of many that he
// may not it tells once.
func (a *alteration) allowed(name string, found []*Job, meant bool) []*Job {
	switch {
	case meant:
	case len(a.req.Users) > 0:
		a.lines.fail(api.CodeNotFound, "The job %s of user(s) %s does not exist", name, strings.Join(a.req.Users, ","))
	default:
		a.lines.fail(api.CodeNotFound, "denied: job %q does not exist", name)
	}
	var denied *Job
	found = slices.DeleteFunc(found, func(j *Job) bool {
		if a.caller.UID == j.UID || a.caller.Manager || a.caller.Operator {
			return false
		}
		if denied == nil {
			denied = j
		}
		return true
	})
	if denied != nil {
		a.lines.fail(api.CodeDenied, "denied: %q must be at least owner of job %d to change job attributes", a.caller.Name, denied.Number)
	}
	return found
}

// job alters one job. What is refused is told in a line.
func (a *alteration) job(j *Job, tasks api.Tasks) ([]api.Line, error) {
	if relinks(a.req.Fields) {
		// Two that are altered to wait for each other must not both pass.
		a.predecessors.Lock()
		defer a.predecessors.Unlock()
	}
	defer a.Forget(j)
	for {
		lines, done, err := a.try(j, tasks)
		if refused, ok := errors.AsType[*api.Error](err); ok {
			for text := range strings.SplitSeq(refused.Text, "\n") {
				lines = append(lines, api.Line{Text: text, Failed: true, Code: refused.Code})
			}
			return lines, nil
		}
		if done || err != nil {
			return lines, err
		}
		// Somebody else has altered it meanwhile.
	}
}

// try works out an alteration and records it, unless the job was altered
// between the two.
func (a *alteration) try(j *Job, tasks api.Tasks) (lines []api.Line, done bool, err error) {
	over := api.Errorf(api.CodeNotFound, "denied: job \"%d\" does not exist", j.Number)
	was, version, err := a.request(j)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, over
	case err != nil:
		return nil, false, err
	}
	c := &change{Fields: slices.Clone(a.req.Fields), To: &a.req.To}
	to := *was
	a.req.Apply(&to)
	if len(a.req.Context) > 0 {
		c.Fields = append(c.Fields, api.FieldContext)
	}
	if err := a.mayAlter(j, was, &to); err != nil {
		return nil, false, err
	}
	meant, err := a.waits(j, c)
	if err != nil {
		return nil, false, err
	}
	set, changed, idle, err := a.holds(j, tasks, c)
	if err != nil {
		return nil, false, err
	}
	verify := a.req.To.Verify
	if verify == "n" {
		verify = ""
	}
	if idle {
		to.Verify = verify
	}
	found, only, err := a.hooks.Check(j, c.Fields, &to)
	if err != nil {
		return nil, false, err
	}
	if a.req.Dry {
		return nil, true, nil
	}
	if verify != "" && !idle {
		found, only = []api.Line{{Text: "verification: job is already running or is held"}}, verify == "v" || verify == "p"
	}
	if only || len(c.Fields) == 0 && c.Hold+c.Release == "" {
		return found, true, nil
	}
	c.To = onlyFields(c.Fields, &to)
	l := &line{Event: EventAltered, Time: time.Now(), Change: c}
	if c.Hold+c.Release != "" {
		l.Tasks = set.format()
	}
	a.mu.Lock()
	before := j.predecessors()
	a.mu.Unlock()
	var gone []dependency
	may := func() bool { return j.alterations == version && (!was.Settles(c.Fields) || !j.sandboxed()) }
	err = a.commitIf(j, may, durable, func() {
		done = true
		a.graph.relink(j, before)
		gone = a.graph.endedMeanwhile(j, c.Success)
		if relinks(c.Fields) {
			a.graph.changeVain(j)
		}
	}, l)
	if err == nil {
		err = a.outcome(j, gone)
	}
	switch {
	case err != nil:
		return nil, false, err
	case !done && a.Get(j.Number) != j:
		return nil, false, over
	case !done:
		return nil, false, nil
	}
	a.hint(j)
	if slices.Contains(c.Fields, api.FieldAttributes) {
		a.eachRunning(j, a.hooks.Changed)
	}
	m := modification{Store: a.Store}
	if changed.Len() > 0 {
		m.tellEach(j, &changed, "modified hold of %s %s")
	}
	for _, al := range api.Alterables {
		if slices.Contains(c.Fields, al.Field) {
			a.tell(&m, j, al, &to, meant)
		}
	}
	if relinks(c.Fields) {
		a.mu.Lock()
		texts := a.graph.inVain(j).texts
		a.mu.Unlock()
		for _, text := range texts {
			m.say("%s", text)
		}
	}
	return append(m.lines.all(), found...), true, nil
}

// eachRunning calls f for each task of a job that has a slot.
func (s *jobSet) eachRunning(j *Job, f func(*Task)) {
	var tasks []*Task
	s.mu.Lock()
	for _, t := range j.active {
		if t.State == Started {
			tasks = append(tasks, t)
		}
	}
	s.mu.Unlock()
	for _, t := range tasks {
		f(t)
	}
}

// SetAttributes gives a job that runs for another host the attributes that it has there, and
// tells of its task as AlterHooks do.
func (s *Store) SetAttributes(j *Job, to []string, changed func(*Task)) error {
	defer s.Forget(j)
	for {
		was, version, err := s.request(j)
		if err != nil || slices.Equal(was.Attributes, to) {
			return err
		}
		c := &change{Fields: []api.Field{api.FieldAttributes}, To: &api.SubmitRequest{Attributes: to}}
		done := false
		err = s.commitIf(j, func() bool { return j.alterations == version }, durable, func() { done = true }, &line{Event: EventAltered, Time: time.Now(), Change: c})
		if err != nil || s.Get(j.Number) != j {
			return err
		}
		if done {
			s.eachRunning(j, changed)
			return nil
		}
	}
}

// onlyFields returns a request that has nothing but these fields of another.
func onlyFields(fields []api.Field, r *api.SubmitRequest) *api.SubmitRequest {
	if len(fields) == 0 {
		return nil
	}
	out := &api.SubmitRequest{}
	(&change{Fields: fields, To: r}).apply(out)
	return out
}

// sandboxed reports whether a task of the job is begun, whose files travel as the job
// has said until then. Store.mu is held.
func (j *Job) sandboxed() bool {
	for _, t := range j.active {
		if t.State != Errored {
			return true
		}
	}
	return false
}

// mayAlter refuses what is not the caller's to ask for, or not such a job's to
// have.
func (a *alteration) mayAlter(j *Job, was, to *api.SubmitRequest) error {
	switch {
	case to.Priority > was.Priority && !a.caller.Operator && !a.caller.Manager:
		return api.Errorf(api.CodeDenied, "denied: %q must be operator to increase job priority", a.caller.Name)
	case to.MaxRun != was.MaxRun && !j.Tasks.IsArray():
		return api.Errorf(api.CodeRejected, "invalid option argument \"task concurrency\"")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if was.Settles(a.req.Fields) && j.sandboxed() {
		return api.Errorf(api.CodeRejected, "denied: job %d has its sandbox, which cannot be altered any more, nor where its output goes", j.Number)
	}
	return nil
}

// waits works out the predecessors of an alteration.
func (a *alteration) waits(j *Job, c *change) ([]meaning, error) {
	if !relinks(c.Fields) {
		return nil, nil
	}
	meant, ok := a.meant[j.UID]
	if !ok {
		meant = a.meanings(&a.req.To, c.Fields, j.UID)
		a.meant[j.UID] = meant
	}
	a.mu.Lock()
	waitsForIt := a.graph.allFollowers(j)
	a.mu.Unlock()
	for _, m := range meant {
		for i, other := range m.jobs {
			switch {
			case other == j:
				return nil, api.Errorf(api.CodeRejected, "denied: job %q may not be its own jobnet predecessor", m.words[i])
			case waitsForIt[other.Number]:
				return nil, api.Errorf(api.CodeRejected, "job %d dependency change would generate a dependency cycle with job %d", j.Number, other.Number)
			}
		}
		if !j.Tasks.IsArray() && (m.field == api.FieldHoldArray || m.field == api.FieldHoldArrayOK) {
			return nil, ErrNoArray
		}
	}
	var err error
	if c.links, err = a.links(j, meant); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return meant, a.graph.mayWait(j.Owner, j.UID, j.Tasks, &c.links)
}

// predecessors returns the jobs that a job waits for. The Store's mutex is held.
func (j *Job) predecessors() []int {
	numbers := slices.Clone(j.waitsForTasks)
	for number := range j.waitsFor {
		numbers = append(numbers, number)
	}
	return numbers
}

// holds puts into the change what it does to the holds of tasks, and refuses what
// is not the caller's to change. It returns the tasks that are meant, those of
// which a hold changes, and whether the job waits with nothing to hold it back.
func (a *alteration) holds(j *Job, tasks api.Tasks, c *change) (set, changed Tasks, idle bool, err error) {
	hold, release := api.SplitHold(a.req.Hold)
	a.mu.Lock()
	defer a.mu.Unlock()
	set = j.unfinished()
	if tasks.IsArray() {
		set = set.Cut(tasks)
	}
	changed, c.Hold = j.holdChanges(&set, hold, true)
	if err := MayHold(a.caller, c.Hold, "set"); err != nil {
		return set, changed, false, err
	}
	released, letters := j.holdChanges(&set, release, false)
	c.Release = letters
	changed.AddAll(&released)
	free := a.graph.free(j)
	return set, changed, j.started == 0 && free.Len() > 0, MayHold(a.caller, letters, "remove")
}

// tell says what was altered, in Grid Engine's words.
func (a *alteration) tell(m *modification, j *Job, al api.Alterable, to *api.SubmitRequest, meant []meaning) {
	switch {
	case al.Field == api.FieldPriority:
		m.say("%s@%s sets scheduling priority of job %d to %d", a.caller.Name, a.hooks.Host, j.Number, to.Priority)
	case al.What != "":
		m.say("modified %s of job %d", al.What, j.Number)
	}
	switch al.Field {
	case api.FieldPE:
		m.say("modified slot range of job %d", j.Number)
	default:
		i := slices.IndexFunc(meant, func(m meaning) bool { return m.field == al.Field })
		if i < 0 {
			return
		}
		blocking, exited := "NONE", "NONE"
		if len(meant[i].jobs) > 0 {
			blocking = strings.Join(strings.Fields(strings.Trim(fmt.Sprint(meant[i].numbers()), "[]")), ",")
		}
		if len(meant[i].over) > 0 {
			exited = strings.Join(meant[i].over, ",")
		}
		m.say("   blocking jobs: %s", blocking)
		m.say("   exited jobs:   %s", exited)
	}
}

// Copyable returns the jobs with these numbers, in their order, each once, those
// that have ended as far as they are kept. The caller must be allowed to submit copies of all of them.
func (s *Store) Copyable(words []string, caller Caller, host string) ([]*Job, error) {
	if len(words) > api.MaxWords {
		return nil, api.Errorf(api.CodeRejected, "%d jobs are too many, at most %d are possible", len(words), api.MaxWords)
	}
	found := map[int]*Job{}
	for _, word := range words {
		if _, tasks := parseTarget(word); tasks.IsArray() {
			return nil, ErrNotTasks
		}
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, api.Errorf(api.CodeNotFound, "job %q does not exist", word)
		}
		j := s.Get(number)
		if j == nil {
			if j, err = s.ended.get(number); err != nil {
				return nil, err
			}
		}
		switch {
		case j == nil && number > 0 && number <= s.Last():
			return nil, api.Errorf(api.CodeNotFound, "job \"%d\" has ended and is not kept any more", number)
		case j == nil:
			return nil, api.Errorf(api.CodeNotFound, "job %q does not exist", word)
		case caller.UID != j.UID && !caller.Manager:
			return nil, api.Errorf(api.CodeDenied, "job rejected: %s@%s is not allowed to resubmit jobs of user %s", caller.Name, host, j.Owner)
		}
		found[number] = j
	}
	return slices.SortedFunc(maps.Values(found), byNumber), nil
}
