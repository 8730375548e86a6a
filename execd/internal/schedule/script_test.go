package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// The scripts in testdata tell of a host and its jobs. Each case begins with
// "== name". Lines that describe the configuration may stand anywhere, and
// count from the first other line or the next "reload":
//
//	attr NAME KIND RELOP REQUESTABLE CONSUMABLE DEFAULT URGENCY
//	queue NAME slots=N seq=N h_rt=SECONDS type=BI pe=A,B ckpt=A users=L xusers=L
//	      with=ATTR:VALUE,... limit=h_vmem:4G alarm=ATTR:VALUE suspend=ATTR:VALUE
//	      nsuspend=N interval=SECONDS over=QUEUE:SLOTS
//	drop QUEUE
//	pe NAME slots=N rule=N users=L xusers=L urgency=min
//	ckpt NAME
//	list NAME ENTRY... (dept NAME ENTRY... for one that is no ACL)
//	host ATTR=VALUE..., global ATTR=VALUE..., scaling ATTR=FACTOR...
//	cluster users=L xusers=L (of the host: access users=L xusers=L)
//	elsewhere QUEUE...
//	groups @NAME...
//	sched maxujobs=N reservations=N default=SECONDS half=SECONDS priority=W
//	      ticket=W urgency=W waiting=W cpu=W mem=W io=W formula=F seqno=1
//
// The rest is what happens, and what must come of it; lines that begin with
// ">" are the lines that the command before them must print.
//
//	at SECONDS                           the clock
//	submit JOB USER OPTION...            as qsub; -t N: so many tasks, -g GROUP
//	reject USER OPTION... => TEXT        qsub must be refused so
//	possible USER OPTION... => TEXT      -w v; no TEXT: it is
//	starts JOB@QUEUE=SLOTS,...{ID,...}   what Next starts, in order
//	take JOB, giveback JOB               Next, which must return JOB; GiveBack
//	end TASK cpu=N                       TASK: JOB or JOB.TASK
//	again TASK                           Started, once more
//	remove JOB
//	load ATTR=VALUE..., close QUEUE WHY..., open QUEUE, reload, restart
//	why JOB, queues, values QUEUE, suspensions, prior JOB, parts JOB,
//	contributions OPTION...
//	select -l ATTR=VALUE,... -pe PE,... -U USER,...   as qselect
//	suits QUEUE,... OPTION...            whether such a job might run there
//	has ATTR=VALUE...                    whether the host has it
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		line := 0
		var w *world
		for text := range strings.Lines(string(data)) {
			line++
			text = strings.TrimSpace(text)
			switch name, isCase := strings.CutPrefix(text, "== "); {
			case isCase:
				w.finish(t)
				w = newWorld(fmt.Sprintf("%s:%d: %s", filepath.Base(file), line, name))
			case text != "" && !strings.HasPrefix(text, "#"):
				w.steps = append(w.steps, step{line, text})
			}
		}
		w.finish(t)
	}
}

type step struct {
	line int
	text string
}

// world is a host on which a script is played.
type world struct {
	name  string
	steps []step
	c     *conf.Config
	dirty bool
	s     *Scheduler
	now   time.Time
	jobs  map[int]Job
	runs  map[TaskID]Running
	taken map[int]*Grant
	next  map[int]int // number of the next task
}

var epoch = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

func newWorld(name string) *world {
	w := &world{
		name: name, now: epoch, jobs: map[int]Job{}, runs: map[TaskID]Running{},
		taken: map[int]*Grant{}, next: map[int]int{}, dirty: true,
		c: &conf.Config{
			Hostname: "node.example.org", PEs: map[string]*conf.PE{}, Checkpoints: map[string]*conf.Checkpoint{},
			UserLists: map[string]*conf.UserList{}, Host: conf.Values{}, AnyHost: conf.Values{}, LoadScaling: map[string]float64{},
		},
	}
	w.c.Scheduling.WeightPriority = 1
	for _, a := range []string{
		"slots INT <= YES YES 1 0", "h_rt TIME <= YES NO 0 0", "s_rt TIME <= YES NO 0 0", "h_vmem MEMORY <= YES NO 0 0",
		"qname STRING == YES NO NONE 0", "hostname HOST == YES NO NONE 0", "rerun BOOL == NO NO 0 0",
		"np_load_avg DOUBLE >= YES NO 0 0", "mem_free MEMORY <= YES NO 0 0", "arch STRING == YES NO NONE 0",
		"num_proc INT <= YES NO 0 0",
	} {
		w.configure(strings.Fields("attr " + a))
	}
	return w
}

func (w *world) finish(t *testing.T) {
	if w == nil {
		return
	}
	t.Run(w.name, func(t *testing.T) {
		for i := 0; i < len(w.steps); i++ {
			st := w.steps[i]
			var want []string
			for i+1 < len(w.steps) && strings.HasPrefix(w.steps[i+1].text, ">") {
				i++
				want = append(want, strings.TrimSpace(w.steps[i].text[1:]))
			}
			fields := strings.Fields(st.text)
			if w.configure(fields) {
				w.dirty = true
				continue
			}
			if w.s == nil || fields[0] == "reload" {
				slices.SortFunc(w.c.Complex, func(a, b conf.Attribute) int { return cmp.Compare(a.Name, b.Name) })
				slices.SortFunc(w.c.Queues, func(a, b conf.Queue) int {
					return cmp.Or(cmp.Compare(a.SeqNo, b.SeqNo), cmp.Compare(a.Name, b.Name))
				})
				c := *w.c
				c.Queues, c.Complex = slices.Clone(c.Queues), slices.Clone(c.Complex)
				c.Host, c.AnyHost = maps.Clone(c.Host), maps.Clone(c.AnyHost)
				if w.s == nil {
					w.s = New(&c)
				} else {
					w.s.Configure(&c)
				}
			}
			got, err := w.do(fields, st.text)
			if err != nil {
				t.Fatalf("line %d: %s: %v", st.line, st.text, err)
			}
			if !slices.Equal(got, want) && len(got)+len(want) > 0 {
				t.Fatalf("line %d: %s: got\n> %s\nwant\n> %s", st.line, st.text, strings.Join(got, "\n> "), strings.Join(want, "\n> "))
			}
			if err := w.s.check(); err != nil {
				t.Fatalf("line %d: %s: %v", st.line, st.text, err)
			}
		}
	})
}

// pairs calls set for each word NAME=VALUE.
func pairs(words []string, set func(name, value string)) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		set(name, value)
	}
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func atof(s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return f
}

func seconds(s string) time.Duration { return time.Duration(atoi(s)) * time.Second }

func (w *world) attribute(name string) *conf.Attribute {
	i := slices.IndexFunc(w.c.Complex, func(a conf.Attribute) bool { return a.Name == name })
	if i < 0 {
		panic("no attribute " + name)
	}
	a := w.c.Complex[i]
	return &a
}

// value reads a value; of a RSMAP it is NUMBER(ID+ID).
func (w *world) value(name, text string) conf.Value {
	number, ids, isMap := strings.Cut(text, "(")
	v, err := conf.ParseValue(w.attribute(name).Kind, number)
	if err != nil {
		panic(err)
	}
	if isMap {
		v.IDs = strings.Split(strings.TrimSuffix(ids, ")"), "+")
	}
	return v
}

func (w *world) thresholds(text string) []conf.Threshold {
	var list []conf.Threshold
	for word := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(word, ":")
		list = append(list, conf.Threshold{Attribute: w.attribute(name), Value: w.value(name, value)})
	}
	return list
}

// configure reads a line of the configuration.
func (w *world) configure(f []string) bool {
	words := func(v string) []string { return strings.Split(v, ",") }
	switch f[0] {
	case "attr":
		w.c.Complex = slices.DeleteFunc(w.c.Complex, func(a conf.Attribute) bool { return a.Name == f[1] })
		w.c.Complex = append(w.c.Complex, conf.Attribute{
			Name: f[1], Shortcut: "s_" + f[1], Kind: conf.Kind(f[2]), Relop: f[3], Requestable: conf.Requestable(f[4]),
			Consumable: conf.Consumable(f[5]), Default: f[6], Urgency: atof(f[7]),
		})
	case "queue":
		w.c.Queues = slices.DeleteFunc(w.c.Queues, func(q conf.Queue) bool { return q.Name == f[1] })
		q := conf.Queue{Name: f[1], Slots: 1, Batch: true, Interactive: true, Complex: conf.Values{}}
		pairs(f[2:], func(name, v string) {
			switch name {
			case "slots":
				q.Slots = atoi(v)
			case "seq":
				q.SeqNo = atoi(v)
			case "h_rt":
				q.HRT = seconds(v)
			case "type":
				q.Batch, q.Interactive = strings.Contains(v, "B"), strings.Contains(v, "I")
			case "pe":
				q.PEs = words(v)
			case "ckpt":
				q.Checkpoints = words(v)
			case "users":
				q.UserLists = words(v)
			case "xusers":
				q.XUserLists = words(v)
			case "with":
				for _, p := range words(v) {
					attribute, value, _ := strings.Cut(p, ":")
					q.Complex[attribute] = w.value(attribute, value)
				}
			case "limit":
				key, value, _ := strings.Cut(v, ":")
				q.Limits = append(q.Limits, conf.Limit{Key: key, Value: value})
			case "alarm":
				q.LoadThresholds = w.thresholds(v)
			case "suspend":
				q.SuspendThresholds = w.thresholds(v)
			case "nsuspend":
				q.Suspend = atoi(v)
			case "interval":
				q.SuspendInterval = seconds(v)
			case "over":
				queue, n, _ := strings.Cut(v, ":")
				q.Subordinates = append(q.Subordinates, conf.Subordinate{Queue: queue, Slots: atoi(n)})
			default:
				panic(name)
			}
		})
		w.c.Queues = append(w.c.Queues, q)
	case "drop":
		w.c.Queues = slices.DeleteFunc(w.c.Queues, func(q conf.Queue) bool { return q.Name == f[1] })
	case "pe":
		pe := &conf.PE{Name: f[1], Slots: 999, UrgencySlots: "min"}
		pairs(f[2:], func(name, v string) {
			switch name {
			case "slots":
				pe.Slots = atoi(v)
			case "rule":
				pe.AllocationRule = atoi(v)
			case "users":
				pe.UserLists = words(v)
			case "xusers":
				pe.XUserLists = words(v)
			case "urgency":
				pe.UrgencySlots = v
			default:
				panic(name)
			}
		})
		w.c.PEs[f[1]] = pe
	case "ckpt":
		w.c.Checkpoints[f[1]] = &conf.Checkpoint{Name: f[1]}
	case "list", "dept":
		w.c.UserLists[f[1]] = &conf.UserList{Name: f[1], ACL: f[0] == "list", Entries: f[2:]}
	case "host", "global":
		values := w.c.Host
		if f[0] == "global" {
			values = w.c.AnyHost
		}
		pairs(f[1:], func(name, v string) { values[name] = w.value(name, v) })
	case "scaling":
		pairs(f[1:], func(name, v string) { w.c.LoadScaling[name] = atof(v) })
	case "cluster":
		pairs(f[1:], func(name, v string) {
			if name == "users" {
				w.c.Global.UserLists = words(v)
			} else {
				w.c.Global.XUserLists = words(v)
			}
		})
	case "access":
		pairs(f[1:], func(name, v string) {
			a := conf.Access{Allowed: words(v)}
			if name == "xusers" {
				a = conf.Access{Denied: words(v)}
			}
			w.c.Access = append(w.c.Access, a)
		})
	case "elsewhere":
		w.c.Elsewhere = f[1:]
	case "groups":
		w.c.HostGroups = f[1:]
	case "sched":
		sc := &w.c.Scheduling
		pairs(f[1:], func(name, v string) {
			switch name {
			case "maxujobs":
				sc.MaxUserRunning = atoi(v)
			case "reservations":
				sc.MaxReservation = atoi(v)
			case "default":
				sc.DefaultDuration = seconds(v)
			case "half":
				sc.HalfTime = seconds(v)
			case "priority":
				sc.WeightPriority = atof(v)
			case "ticket":
				sc.WeightTicket = atof(v)
			case "urgency":
				sc.WeightUrgency = atof(v)
			case "waiting":
				sc.WeightWaiting = atof(v)
			case "cpu":
				sc.UsageWeights.CPU = atof(v)
			case "mem":
				sc.UsageWeights.Mem = atof(v)
			case "io":
				sc.UsageWeights.IO = atof(v)
			case "formula":
				sc.LoadFormula = v
			case "seqno":
				sc.SortBySeqNo = v == "1"
			default:
				panic(name)
			}
		})
	default:
		return false
	}
	return true
}

// options reads options of qsub.
func options(f []string) (r *api.SubmitRequest, groups []string, tasks int) {
	r, tasks = &api.SubmitRequest{}, 1
	soft := false
	for i := 0; i < len(f); i++ {
		arg := func() string { i++; return f[i] }
		switch f[i] {
		case "-soft", "-hard":
			soft = f[i] == "-soft"
		case "-l":
			pairs(strings.Split(arg(), ","), func(name, v string) {
				if soft {
					r.Soft = append(r.Soft, api.Resource{Name: name, Value: v})
				} else {
					r.Hard = append(r.Hard, api.Resource{Name: name, Value: v})
				}
			})
		case "-q":
			if soft {
				r.SoftQueues = append(r.SoftQueues, strings.Split(arg(), ",")...)
			} else {
				r.Queues = append(r.Queues, strings.Split(arg(), ",")...)
			}
		case "-masterq":
			r.MasterQueues = strings.Split(arg(), ",")
		case "-pe":
			r.PE = arg()
			for word := range strings.SplitSeq(arg(), ",") {
				bounds, step, stepped := strings.Cut(word, ":")
				low, high, isRange := strings.Cut(bounds, "-")
				n := api.Slots{Min: atoi(low), Max: atoi(low), Step: 1}
				if isRange {
					n.Max = api.MaxSlots
				}
				if high != "" {
					n.Max = atoi(high)
				}
				if stepped {
					n.Step = atoi(step)
				}
				r.Slots = append(r.Slots, n)
			}
		case "-R":
			r.Reserve = arg() == "y"
		case "-now":
			r.Now = arg() == "y"
		case "-p":
			r.Priority = atoi(arg())
		case "-ckpt":
			r.Checkpoint = arg()
		case "-t":
			tasks = atoi(arg())
		case "-g":
			groups = append(groups, arg())
		default:
			panic(f[i])
		}
	}
	return r, groups, tasks
}

// taskID reads JOB or JOB.TASK.
func taskID(s string) TaskID {
	job, task, isTask := strings.Cut(s, ".")
	if !isTask {
		task = "1"
	}
	return TaskID{atoi(job), atoi(task)}
}

func (w *world) resolve(user string, f []string) (Job, int, error) {
	r, groups, tasks := options(f)
	j, err := Resolve(w.s.host.conf, r, user, groups, nil)
	return j, tasks, err
}

func (w *world) do(f []string, text string) ([]string, error) {
	switch f[0] {
	case "reload":
	case "at":
		w.now = epoch.Add(seconds(f[1]))
	case "submit":
		j, tasks, err := w.resolve(f[2], f[3:])
		if err != nil {
			return nil, err
		}
		j.Number, j.Submitted, j.Tasks = atoi(f[1]), w.now, tasks
		w.jobs[j.Number] = j
		w.s.Add(j)
	case "reject", "possible":
		words, want, _ := strings.Cut(text, "=>")
		f = strings.Fields(words)
		want = strings.TrimSpace(want)
		j, _, err := w.resolve(f[1], f[2:])
		if f[0] == "possible" {
			if err != nil {
				return nil, err
			}
			err = w.s.Possible(&j, time.Time{})
		}
		got := ""
		if err != nil {
			got = strings.ReplaceAll(err.Error(), "\n", " / ")
		}
		if got != want {
			return nil, fmt.Errorf("got %q", got)
		}
	case "starts":
		var got []string
		for {
			job, g, ok := w.s.Next(w.now)
			if !ok {
				break
			}
			w.started(job, g)
			got = append(got, describe(job, g))
		}
		if !slices.Equal(got, f[1:]) {
			return nil, fmt.Errorf("got %q", got)
		}
	case "take":
		job, g, ok := w.s.Next(w.now)
		if !ok || job != atoi(f[1]) {
			return nil, fmt.Errorf("got %d, %v", job, ok)
		}
		w.taken[job] = g
	case "giveback":
		job := atoi(f[1])
		w.s.GiveBack(job, w.taken[job])
	case "again":
		w.s.Started(w.runs[taskID(f[1])])
	case "end":
		id := taskID(f[1])
		var used Used
		pairs(f[2:], func(name, v string) {
			switch name {
			case "cpu":
				used.CPU = atof(v)
			case "mem":
				used.Mem = atof(v)
			case "io":
				used.IO = atof(v)
			}
		})
		if _, ok := w.runs[id]; !ok {
			return nil, errors.New("it does not run")
		}
		delete(w.runs, id)
		w.s.Ended(id.Job, id.Task, used, w.now)
	case "remove":
		delete(w.jobs, atoi(f[1]))
		w.s.Remove(atoi(f[1]))
	case "load":
		load := map[string]conf.Value{}
		pairs(f[1:], func(name, v string) { load[name] = w.value(name, v) })
		w.s.SetLoad(load)
	case "close":
		w.s.SetClosed(f[1], strings.Join(f[2:], " "))
	case "open":
		w.s.SetClosed(f[1], "")
	case "restart":
		return nil, w.restart()
	case "why":
		return w.s.Reasons(atoi(f[1]), w.now), nil
	case "prior":
		var p Parts
		switch id := taskID(f[1]); {
		case strings.Contains(f[1], "."):
			p, _ = w.s.RunningParts(id, w.now)
		case len(f) > 2: // as if it waited
			p = w.s.PartsIf(&Job{User: f[2], Submitted: w.now}, w.now)
		default:
			p = w.s.Parts(id.Job, w.now)
		}
		return []string{fmt.Sprintf("%.5f", w.s.Priority(p))}, nil
	case "parts":
		p := w.s.Parts(atoi(f[1]), w.now)
		return []string{fmt.Sprintf("%.5f %.5f %.5f %g %g", p.Priority, p.Urgency, p.Share, p.Resources, p.Waiting)}, nil
	case "contributions":
		r, _, _ := options(f[1:])
		return []string{strings.Trim(fmt.Sprint(w.s.Contributions(r)), "[]")}, nil
	case "select":
		var hard []api.Resource
		var pes []string
		var users []Account
		for i := 1; i+1 < len(f); i += 2 {
			for word := range strings.SplitSeq(f[i+1], ",") {
				name, value, _ := strings.Cut(word, "=")
				switch f[i] {
				case "-l":
					hard = append(hard, api.Resource{Name: name, Value: value})
				case "-pe":
					pes = append(pes, word)
				case "-U":
					users = append(users, Account{User: word})
				}
			}
		}
		names, err := w.s.Select(hard, pes, users)
		if err != nil {
			return []string{err.Error()}, nil
		}
		return []string{strings.Join(names, " ")}, nil
	case "suits":
		r, _, _ := options(f[2:])
		return []string{strconv.FormatBool(w.s.Suits(r, strings.Split(f[1], ",")))}, nil
	case "has":
		var list []api.Resource
		pairs(f[1:], func(name, value string) { list = append(list, api.Resource{Name: name, Value: value}) })
		here, err := w.s.HostHas(list)
		if err != nil {
			return []string{err.Error()}, nil
		}
		return []string{strconv.FormatBool(here)}, nil
	case "queues":
		var lines []string
		for _, q := range w.s.Queues(w.now) {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d/%d/%d %s", q.Name, q.Reserved, q.Used, q.Total, q.Letters)))
			lines = append(lines, q.Reasons...)
		}
		return lines, nil
	case "values":
		var lines []string
		for _, v := range w.s.Values(f[1]) {
			if slices.Contains(f[2:], v.Name) {
				lines = append(lines, fmt.Sprintf("%s:%s=%s", v.Source, v.Name, v.Value))
			}
		}
		return lines, nil
	case "suspensions":
		suspend, resume, next := w.s.Suspensions(w.now)
		var lines []string
		for _, x := range suspend {
			lines = append(lines, fmt.Sprintf("suspend %d.%d", x.Job, x.Task))
		}
		for _, id := range resume {
			lines = append(lines, fmt.Sprintf("resume %d.%d", id.Job, id.Task))
		}
		if !next.IsZero() {
			lines = append(lines, fmt.Sprintf("next %d", int(next.Sub(epoch).Seconds())))
		}
		return lines, nil
	default:
		return nil, errors.New("no such command")
	}
	return nil, nil
}

func (w *world) started(job int, g *Grant) {
	j := w.jobs[job]
	w.next[job]++
	j.Tasks--
	w.jobs[job] = j
	d := Requested(&j)
	if q := w.s.host.byName[g.Queues[0].Queue]; d == 0 {
		d = q.HRT
	}
	r := Running{Job: job, Task: w.next[job], User: j.User, Started: w.now, Duration: d, Grant: g}
	r.Standing = &Standing{j.Priority, j.Submitted, w.s.Granted(g, w.now).Resources}
	w.runs[TaskID{r.Job, r.Task}] = r
	w.s.Started(r)
}

// restart makes another scheduler of what a daemon would find on disk. The
// books must be the same.
func (w *world) restart() error {
	old := w.s
	w.s = New(old.host.conf)
	w.s.SetShares(old.Shares())
	w.s.SetLoad(old.loaded)
	for q, why := range old.shut {
		w.s.SetClosed(q, why)
	}
	for _, r := range w.runs {
		g := *r.Grant // as read from disk
		r.Grant = &g
		w.s.Started(r)
	}
	for _, j := range w.jobs {
		w.s.Add(j)
	}
	if !slices.Equal(old.used, w.s.used) || !maps.Equal(old.taken, w.s.taken) || !maps.Equal(old.gone, w.s.gone) {
		return fmt.Errorf("the books have %v %v %v, and had %v %v %v", w.s.used, w.s.taken, w.s.gone, old.used, old.taken, old.gone)
	}
	return nil
}

// describe writes a grant as scripts do.
func describe(job int, g *Grant) string {
	var b strings.Builder
	fmt.Fprint(&b, job)
	for i, q := range g.Queues {
		fmt.Fprintf(&b, "%c%s", "@,"[min(i, 1)], q.Queue)
		if g.PE != "" {
			fmt.Fprintf(&b, "=%d", q.Slots)
		}
	}
	for _, d := range g.Debits {
		if len(d.IDs) > 0 && d.Queue == "" {
			fmt.Fprintf(&b, "{%s}", strings.Join(d.IDs, ","))
		}
	}
	return b.String()
}

// check looks whether what the scheduler has stored several times agrees.
func (s *Scheduler) check() error {
	used := make(ledger, len(s.host.accounts))
	running := map[*user]int{}
	for _, r := range s.holders() {
		used.debit(s.host.usesOf(r.Grant))
		running[r.owner]++
	}
	for i := range used {
		if d := used[i] - s.used[i]; d > 1e-6 || d < -1e-6 {
			return fmt.Errorf("account %d has %v, and %v run", i, s.used[i], used[i])
		}
	}
	inLine := 0
	for _, u := range s.users {
		if u.running != running[u] {
			return fmt.Errorf("user %s has %d tasks, and %d run", u.name, u.running, running[u])
		}
		if !slices.IsSortedFunc(u.line, compareTurns) {
			return fmt.Errorf("the line of %s is not sorted", u.name)
		}
		for _, turn := range u.line {
			inLine += len(turn.bucket.jobs)
			if !slices.IsSortedFunc(turn.bucket.jobs, compareEntries) {
				return errors.New("a bucket is not sorted")
			}
		}
	}
	if inLine != len(s.jobs) {
		return fmt.Errorf("%d jobs in lines, %d known", inLine, len(s.jobs))
	}
	return nil
}
