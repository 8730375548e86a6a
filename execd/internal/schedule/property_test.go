package schedule

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/test/harness"
)

// A game plays a random day on a random host, and keeps its own books by what
// jobs asked for.
type game struct {
	t       *testing.T
	r       *rand.Rand
	c       *conf.Config
	s       *Scheduler
	now     time.Time
	last    int
	waiting map[int]*wish
	running map[TaskID]*playing
	granted map[*Grant]*playing
	shut    map[string]string
	late    bool // in the day: nothing is given back any more
}

// wish is a job, in the words of its user.
type wish struct {
	user    string
	api     api.SubmitRequest
	mem     float64 // for each slot; the default when it did not ask
	lic     float64 // for the job
	gpu     int     // for each slot
	alone   bool
	tasks   int
	started int
	job     Job
}

type playing struct {
	id    TaskID
	wish  *wish
	grant *Grant
	from  time.Time
}

func (g *game) config() *conf.Config {
	r := g.r
	requestable := func(name string, kind conf.Kind, relop string, consumable conf.Consumable, def string) conf.Attribute {
		return conf.Attribute{Name: name, Kind: kind, Relop: relop, Requestable: conf.RequestableYes, Consumable: consumable, Default: def}
	}
	number := func(n int) conf.Value { return conf.Value{Number: float64(n)} }
	c := &conf.Config{
		Hostname: "node",
		Complex: []conf.Attribute{
			requestable("excl", conf.KindBool, "EXCL", conf.ConsumableYes, "0"),
			requestable("gpu", conf.KindRSMap, "<=", conf.ConsumableYes, "0"),
			requestable("h_rt", conf.KindTime, "<=", conf.ConsumableNo, "0"),
			requestable("lic", conf.KindInt, "<=", conf.ConsumableJob, "0"),
			requestable("mem", conf.KindDouble, "<=", conf.ConsumableYes, "0.3"),
		},
		Host:    conf.Values{"mem": number(2 + r.IntN(10)), "lic": number(r.IntN(5)), "slots": number(3 + r.IntN(10)), "excl": number(1)},
		AnyHost: conf.Values{"mem": number(2 + r.IntN(10))},
		PEs: map[string]*conf.PE{
			"p1": {Name: "p1", Slots: 1 + r.IntN(12)},
			"p2": {Name: "p2", Slots: 1 + r.IntN(12), AllocationRule: r.IntN(3)},
		},
	}
	gpus := conf.Value{}
	for i := range r.IntN(5) {
		gpus.IDs = append(gpus.IDs, fmt.Sprint("g", i))
		gpus.Number++
	}
	c.Host["gpu"] = gpus
	for i := range 1 + r.IntN(4) {
		q := conf.Queue{Name: fmt.Sprint("q", i), SeqNo: i, Slots: r.IntN(6), Batch: true, Complex: conf.Values{}}
		q.PEs = [][]string{nil, {"p1"}, {"p2"}, {"p1", "p2"}}[r.IntN(4)]
		q.HRT = time.Duration(r.IntN(3)*300) * time.Second
		if r.IntN(3) == 0 {
			q.Complex["mem"] = number(1 + r.IntN(6))
		}
		if r.IntN(4) == 0 {
			q.Complex["lic"] = number(r.IntN(3))
		}
		if n := len(gpus.IDs); n > 0 && r.IntN(3) == 0 {
			some := gpus.IDs[r.IntN(n):]
			q.Complex["gpu"] = conf.Value{Number: float64(len(some)), IDs: some}
		}
		c.Queues = append(c.Queues, q)
	}
	c.Scheduling.WeightPriority = 1
	c.Scheduling.MaxReservation = r.IntN(4)
	c.Scheduling.DefaultDuration = time.Duration(r.IntN(2)*200) * time.Second
	return c
}

func (g *game) submit() {
	r := g.r
	w := &wish{user: fmt.Sprint("user", r.IntN(3)), mem: 0.3, tasks: 1 + r.IntN(2)*r.IntN(4)}
	ask := func(name, value string) {
		w.api.Hard = append(w.api.Hard, api.Resource{Name: name, Value: value})
	}
	if r.IntN(2) == 0 {
		w.mem = []float64{0.1, 0.7, 1, 2}[r.IntN(4)]
		ask("mem", fmt.Sprint(w.mem))
	}
	if r.IntN(4) == 0 {
		w.lic = float64(1 + r.IntN(2))
		ask("lic", fmt.Sprint(w.lic))
	}
	if r.IntN(4) == 0 {
		w.gpu = 1 + r.IntN(2)
		ask("gpu", fmt.Sprint(w.gpu))
	}
	if r.IntN(2) == 0 {
		ask("h_rt", fmt.Sprint(60*(1+r.IntN(10))))
	}
	if r.IntN(12) == 0 {
		w.alone = true
		ask("excl", "1")
	}
	if r.IntN(3) == 0 {
		w.api.PE = []string{"p1", "p2", "p*"}[r.IntN(3)]
		low := 1 + r.IntN(5)
		w.api.Slots = []api.Slots{{Min: low, Max: low + r.IntN(4), Step: 1 + r.IntN(2)}}
	}
	if r.IntN(4) == 0 {
		w.api.Queues = []string{g.c.Queues[r.IntN(len(g.c.Queues))].Name}
	}
	w.api.Reserve, w.api.Priority = r.IntN(3) == 0, 5*r.IntN(2)
	j, err := Resolve(g.c, &w.api, w.user, nil, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.last++
	j.Number, j.Submitted, j.Tasks = g.last, g.now, w.tasks
	w.job = j
	g.waiting[g.last] = w
	g.s.Add(j)
}

// start takes all that Next gives, and sometimes gives it back.
func (g *game) start() {
	for range 1000 {
		job, grant, ok := g.s.Next(g.now)
		if !ok {
			return
		}
		w := g.waiting[job]
		if w == nil {
			g.t.Fatalf("job %d starts, and does not wait", job)
		}
		g.fits(job, w, grant)
		g.firstOfItsKind(job, w)
		p := &playing{wish: w, grant: grant, from: g.now}
		g.granted[grant] = p
		g.balance()
		if !g.late && g.r.IntN(20) == 0 {
			delete(g.granted, grant)
			g.s.GiveBack(job, grant)
			return
		}
		delete(g.granted, grant)
		w.started++
		w.tasks--
		p.id = TaskID{job, w.started}
		if w.tasks == 0 {
			delete(g.waiting, job)
		}
		g.running[p.id] = p
		g.s.Started(g.task(p))
	}
	g.t.Fatal("there is no end of starting")
}

func (g *game) task(p *playing) Running {
	grant := *p.grant
	r := Running{Job: p.id.Job, Task: p.id.Task, User: p.wish.user, Started: p.from, Duration: Requested(&p.wish.job), Grant: p.grant}
	if _, mine := g.s.granted[p.grant]; !mine {
		r.Grant = &grant
	}
	return r
}

// fits checks a grant against what was asked for.
func (g *game) fits(job int, w *wish, grant *Grant) {
	fail := func(format string, args ...any) {
		g.t.Helper()
		g.t.Fatalf("job %d (%+v) gets %+v: %s", job, w.api, *grant, fmt.Sprintf(format, args...))
	}
	n := grant.Slots()
	if w.api.PE == "" {
		if n != 1 || grant.PE != "" {
			fail("a serial job needs a slot")
		}
	} else {
		s := w.api.Slots[0]
		if n < s.Min || n > s.Max || (n-s.Min)%s.Step != 0 {
			fail("so many slots were not asked for")
		}
		if w.api.PE != "p*" && grant.PE != w.api.PE {
			fail("another PE")
		}
		if rule := g.c.PEs[grant.PE].AllocationRule; rule > 0 && n != rule {
			fail("the PE gives %d", rule)
		}
	}
	for _, qs := range grant.Queues {
		q := g.queue(qs.Queue)
		switch {
		case len(w.api.Queues) > 0 && w.api.Queues[0] != q.Name:
			fail("queue %s was not asked for", q.Name)
		case grant.PE != "" && !slices.Contains(q.PEs, grant.PE):
			fail("queue %s does not have the PE", q.Name)
		case g.shut[q.Name] != "":
			fail("queue %s is closed", q.Name)
		case q.HRT > 0 && Requested(&w.job) > q.HRT:
			fail("queue %s does not run jobs so long", q.Name)
		}
	}
	amount := map[string]float64{}
	for _, d := range grant.Debits {
		if d.Queue == "" {
			amount[d.Name] += d.Amount
			if d.Name == "gpu" && len(d.IDs) != int(d.Amount) {
				fail("%d units are named", len(d.IDs))
			}
		}
	}
	want := map[string]float64{"mem": w.mem * float64(n)}
	if w.lic > 0 {
		want["lic"] = w.lic
	}
	if w.gpu > 0 {
		want["gpu"] = float64(w.gpu * n)
	}
	if w.alone {
		want["excl"] = 1
	}
	if !maps.Equal(amount, want) {
		fail("it is debited %v; want %v", amount, want)
	}
}

// firstOfItsKind checks that no job with the same requests came before.
func (g *game) firstOfItsKind(job int, w *wish) {
	for number, other := range g.waiting {
		if number < job && other.tasks > 0 && same(other, w) {
			g.t.Fatalf("job %d starts before %d, which asks for the same", job, number)
		}
	}
}

func same(a, b *wish) bool {
	x, y := a.api, b.api
	x.Reserve, y.Reserve = false, false
	return reflect.DeepEqual(x, y)
}

func (g *game) queue(name string) *conf.Queue {
	return &g.c.Queues[slices.IndexFunc(g.c.Queues, func(q conf.Queue) bool { return q.Name == name })]
}

// balance checks that nothing is given out twice.
func (g *game) balance() {
	g.t.Helper()
	used := map[string]float64{}
	units := map[string]bool{}
	tasks, alone := 0, false
	for _, p := range g.all() {
		w := p.wish
		tasks++
		alone = alone || w.alone
		n := float64(p.grant.Slots())
		used["slots"] += n
		used["pe "+p.grant.PE] += n
		used["mem"] += w.mem * n
		used["lic"] += w.lic
		used["gpu"] += n * float64(w.gpu)
		for i, qs := range p.grant.Queues {
			used["slots "+qs.Queue] += float64(qs.Slots)
			used["mem "+qs.Queue] += w.mem * float64(qs.Slots)
			used["gpu "+qs.Queue] += float64(w.gpu * qs.Slots)
			if i == 0 {
				used["lic "+qs.Queue] += w.lic
			}
		}
		for _, d := range p.grant.Debits {
			for _, id := range d.IDs {
				if d.Queue != "" {
					if !slices.Contains(g.queue(d.Queue).Complex["gpu"].IDs, id) {
						g.t.Fatalf("unit %s is none of queue %s", id, d.Queue)
					}
					continue
				}
				if units[id] {
					g.t.Fatalf("unit %s is given out twice", id)
				}
				units[id] = true
			}
		}
	}
	limit := func(what string, most float64) {
		g.t.Helper()
		if used[what] > most+1e-9 {
			g.t.Fatalf("%s: %v in use of %v", what, used[what], most)
		}
	}
	for _, name := range []string{"slots", "mem", "lic", "gpu"} {
		limit(name, g.c.Host[name].Number)
		if v, ok := g.c.AnyHost[name]; ok {
			limit(name, v.Number)
		}
	}
	for name, pe := range g.c.PEs {
		limit("pe "+name, float64(pe.Slots))
	}
	for _, q := range g.c.Queues {
		limit("slots "+q.Name, float64(q.Slots))
		for name, v := range q.Complex {
			limit(name+" "+q.Name, v.Number)
		}
	}
	if alone && tasks > 1 {
		g.t.Fatalf("a task that is exclusive runs with %d others", tasks-1)
	}
	if err := g.s.check(); err != nil {
		g.t.Fatal(err)
	}
}

func (g *game) all() []*playing {
	return append(slices.Collect(maps.Values(g.running)), slices.Collect(maps.Values(g.granted))...)
}

func (g *game) end(id TaskID) {
	delete(g.running, id)
	g.s.Ended(id.Job, id.Task, Used{CPU: 1}, g.now)
}

func (g *game) any() TaskID {
	ids := slices.SortedFunc(maps.Keys(g.running), func(a, b TaskID) int { return a.Job*1000 + a.Task - b.Job*1000 - b.Task })
	return ids[g.r.IntN(len(ids))]
}

// again makes a scheduler as after a restart. It must have the same books, and
// find no more to start than the other did.
func (g *game) again(exhausted bool) {
	old := g.s
	g.s = New(g.c)
	for q, why := range g.shut {
		g.s.SetClosed(q, why)
	}
	for _, p := range g.running {
		g.s.Started(g.task(p))
	}
	for _, w := range g.waiting {
		j := w.job
		j.Tasks = w.tasks
		g.s.Add(j)
	}
	for i := range old.used {
		if d := old.used[i] - g.s.used[i]; d > 1e-9 || d < -1e-9 {
			g.t.Fatalf("account %d has %v after a restart, and had %v", i, g.s.used[i], old.used[i])
		}
	}
	if !maps.Equal(old.taken, g.s.taken) {
		g.t.Fatalf("units %v are taken after a restart, and %v were", g.s.taken, old.taken)
	}
	if exhausted {
		if job, grant, ok := g.s.Next(g.now); ok {
			g.t.Fatalf("job %d could have started before the restart, on %+v", job, *grant)
		}
	}
}

func TestRandomDays(t *testing.T) {
	days := 100
	switch {
	case testing.Short():
		days = 30
	case harness.Soak:
		days = 300
	}
	for day := range days {
		t.Run(fmt.Sprint(day), func(t *testing.T) {
			g := &game{
				t: t, r: rand.New(rand.NewPCG(7, uint64(day))), now: epoch,
				waiting: map[int]*wish{}, running: map[TaskID]*playing{}, granted: map[*Grant]*playing{}, shut: map[string]string{},
			}
			g.c = g.config()
			g.s = New(g.c)
			for range 150 {
				g.now = g.now.Add(time.Duration(g.r.IntN(60)) * time.Second)
				switch g.r.IntN(12) {
				case 0, 1, 2, 3, 4:
					g.submit()
				case 5, 6, 7:
					if len(g.running) > 0 {
						g.end(g.any())
					}
				case 8:
					g.s.Configure(g.c)
				case 9:
					g.again(false)
				case 10:
					q := g.c.Queues[g.r.IntN(len(g.c.Queues))].Name
					g.shut[q] = []string{"", "disabled"}[g.r.IntN(2)]
					g.s.SetClosed(q, g.shut[q])
				case 11:
					if g.r.IntN(3) == 0 && len(g.waiting) > 0 {
						job := slices.Min(slices.Collect(maps.Keys(g.waiting)))
						delete(g.waiting, job)
						g.s.Remove(job)
					}
				}
				g.start()
				g.balance()
			}
			for _, q := range g.c.Queues {
				delete(g.shut, q.Name)
				g.s.SetClosed(q.Name, "")
			}
			for _, job := range slices.Sorted(maps.Keys(g.waiting)) {
				if w := g.waiting[job]; g.s.Possible(&w.job, time.Time{}) != nil {
					delete(g.waiting, job)
					g.s.Remove(job)
				}
			}
			// What is possible runs sooner or later.
			g.late = true
			for g.start(); len(g.running) > 0; g.start() {
				g.now = g.now.Add(time.Minute)
				g.end(g.any())
			}
			if len(g.waiting) > 0 {
				job := slices.Min(slices.Collect(maps.Keys(g.waiting)))
				t.Fatalf("nothing runs, and job %d waits: %q", job, g.s.Reasons(job, g.now))
			}
			if len(g.s.jobs)+len(g.s.classes)+len(g.s.buckets) > 0 {
				t.Errorf("%d jobs, %d classes, %d buckets are left", len(g.s.jobs), len(g.s.classes), len(g.s.buckets))
			}
			for i, n := range g.s.used {
				if n != 0 {
					t.Errorf("account %d has %v when nothing runs", i, n)
				}
			}
			if len(g.s.taken) > 0 {
				t.Errorf("units %v are taken when nothing runs", g.s.taken)
			}
		})
	}
}

// TestNothingIsForgotten looks whether what a pass goes by would have fitted:
// a scheduler that starts from nothing finds no more.
func TestNothingIsForgotten(t *testing.T) {
	for day := range 200 {
		g := &game{
			t: t, r: rand.New(rand.NewPCG(11, uint64(day))), now: epoch,
			waiting: map[int]*wish{}, running: map[TaskID]*playing{}, granted: map[*Grant]*playing{}, shut: map[string]string{},
		}
		g.c = g.config()
		g.c.Scheduling.MaxReservation = 0 // they depend on when they are made
		g.s = New(g.c)
		for range 60 {
			g.now = g.now.Add(time.Second)
			if g.r.IntN(2) == 0 || len(g.running) == 0 {
				g.submit()
			} else {
				g.end(g.any())
			}
			for len(g.s.granted) == 0 {
				job, grant, ok := g.s.Next(g.now)
				if !ok {
					break
				}
				w := g.waiting[job]
				w.started++
				if w.tasks--; w.tasks == 0 {
					delete(g.waiting, job)
				}
				p := &playing{id: TaskID{job, w.started}, wish: w, grant: grant, from: g.now}
				g.running[p.id] = p
				g.s.Started(g.task(p))
			}
			kept := g.s
			g.again(true)
			g.s = kept
		}
	}
}

// TestWideJobGetsItsTurn keeps a host full with narrow jobs: a wide one with a
// reservation starts when what ran before it is over at the latest.
func TestWideJobGetsItsTurn(t *testing.T) {
	const width, longest = 8, 10 * time.Minute
	for day := range 100 {
		r := rand.New(rand.NewPCG(5, uint64(day)))
		c := &conf.Config{
			Complex: []conf.Attribute{{Name: "h_rt", Kind: conf.KindTime, Relop: "<=", Requestable: conf.RequestableYes}},
			PEs:     map[string]*conf.PE{"p": {Name: "p", Slots: 99}},
			Queues:  []conf.Queue{{Name: "q", Slots: width, Batch: true, PEs: []string{"p"}}},
		}
		c.Scheduling.WeightPriority, c.Scheduling.MaxReservation = 1, 1
		s := New(c)
		now, last, wide := epoch, 0, 0
		var asked, started time.Time
		ends := map[int]time.Time{}
		for started.IsZero() {
			now = now.Add(10 * time.Second)
			if wide > 0 && now.Sub(asked) > longest+20*time.Second {
				t.Fatalf("day %d: the wide job waits after %v: %q", day, now.Sub(asked), s.Reasons(wide, now))
			}
			for job, end := range ends {
				if !end.After(now) {
					delete(ends, job)
					s.Ended(job, 1, Used{}, now)
				}
			}
			for range 3 {
				last++
				j := Job{Number: last, User: fmt.Sprint(r.IntN(3)), Submitted: now, Tasks: 1}
				seconds := float64(10 + r.IntN(int(longest.Seconds())-10))
				j.Hard = []Request{{"h_rt", conf.Value{Number: seconds}}}
				s.Add(j)
			}
			if wide == 0 && len(ends) == width {
				last++
				wide, asked = last, now
				// It comes before all that waits.
				s.Add(Job{Number: wide, User: "wide", Priority: 1, Submitted: now, Tasks: 1, Reserve: true, PE: "p", Slots: []Range{{width, width, 1}}})
			}
			for {
				job, g, ok := s.Next(now)
				if !ok {
					break
				}
				if job == wide {
					started = now
				}
				// It asked for so much, and may end sooner.
				length := s.granted[g].Duration
				s.Started(Running{Job: job, Task: 1, Started: now, Duration: length, Grant: g})
				ends[job] = now.Add(length - time.Duration(r.Int64N(int64(length/2+1))))
			}
		}
	}
}
