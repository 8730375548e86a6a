package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/metrics"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/test/props"
)

// fakeSlots are slots that do what a test says. A job runs until the test ends it.
type fakeSlots struct {
	mu      sync.Mutex
	slots   map[slot.ID]*fakeSlot
	listed  chan struct{}
	claims  int
	refuse  func(work *classad.Ad) error // nil: every offer is accepted
	failing error                        // of Start
	lingers bool                         // what is given back is not over yet
	waits   bool                         // what is started waits for a job that has to leave
	evicted func(claim.Eviction)
	trace   []string
	store   *job.Store
}

type fakeSlot struct {
	claim.View
	Fetched bool   // its claim is that of fetched work
	Claim   string // public id

	job     *job.Job
	work    *classad.Ad
	changed chan struct{}

	partitionable bool
	left          int // of its Cpus

	lease time.Duration // of its claim; 0: for ever
	ends  *time.Timer   // nil: it was not given one
	until time.Time
}

func newSlots(numbers ...int) *fakeSlots {
	f := &fakeSlots{slots: map[slot.ID]*fakeSlot{}, listed: make(chan struct{})}
	for _, n := range numbers {
		id := slot.Static(n)
		f.slots[id] = &fakeSlot{View: claim.View{Slot: id, State: "Unclaimed", Activity: "Idle"}, changed: make(chan struct{})}
	}
	return f
}

func (f *fakeSlots) note(format string, args ...any) {
	f.trace = append(f.trace, fmt.Sprintf(format, args...))
}

// partition makes a slot partitionable, with as many Cpus.
func (f *fakeSlots) partition(number, cpus int) {
	f.set(number, func(s *fakeSlot) { s.partitionable, s.left = true, cpus })
}

// carve makes a slot of one of the Cpus of another; nil: there is none.
func (f *fakeSlots) carve(parent *fakeSlot) *fakeSlot {
	if parent.left == 0 {
		return nil
	}
	id := slot.ID{Number: parent.Slot.Number, Dynamic: 1}
	for f.slots[id] != nil {
		id.Dynamic++
	}
	f.slots[id] = &fakeSlot{View: claim.View{Slot: id, State: "Unclaimed", Activity: "Idle"}, changed: make(chan struct{})}
	f.resized(parent, -1)
	return f.slots[id]
}

// resized has a partitionable slot have more or fewer Cpus left, and another list.
func (f *fakeSlots) resized(parent *fakeSlot, by int) {
	f.locked(parent.Slot, func(s *fakeSlot) { s.left += by; s.Closed = s.left == 0 })
	close(f.listed)
	f.listed = make(chan struct{})
}

// told returns what has happened so far.
func (f *fakeSlots) told() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.trace, "\n")
}

func (f *fakeSlots) List() ([]slot.ID, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []slot.ID
	for _, s := range f.slots {
		list = append(list, s.Slot)
	}
	return list, f.listed
}

func (f *fakeSlots) Snapshot(id slot.ID, ads bool) (claim.View, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.slots[id]
	if s == nil {
		return claim.View{}, false
	}
	snap := s.View
	switch {
	case s.partitionable:
		snap.Type = claim.Partitionable
	case id.IsDynamic():
		snap.Type = claim.Dynamic
	}
	if ads {
		snap.Ad = s.ad()
	}
	if s.Fetched {
		snap.Holder, snap.ID = slot.FetchHolder, whole(s.Claim)
		if s.lease > 0 {
			snap.Lease, snap.Left = s.lease, time.Until(s.until)
		}
	}
	return snap, true
}

func (s *fakeSlot) ad() *classad.Ad {
	ad := classad.New(
		classad.Attr{Name: "SlotID", Expr: classad.Int(int64(s.Slot.Number)).Expr()},
		classad.Attr{Name: "State", Expr: classad.String(s.State).Expr()},
		classad.Attr{Name: "Activity", Expr: classad.String(s.Activity).Expr()},
	)
	switch {
	case s.partitionable:
		ad = ad.With(classad.Attr{Name: "PartitionableSlot", Expr: classad.Bool(true).Expr()}, classad.Attr{Name: "Cpus", Expr: classad.Int(int64(s.left)).Expr()})
	case s.Slot.IsDynamic():
		ad = ad.With(classad.Attr{Name: "DSlotID", Expr: classad.Int(int64(s.Slot.Dynamic)).Expr()})
	}
	return ad
}

func (f *fakeSlots) Changed(id slot.ID) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.slots[id]; s != nil {
		return s.changed
	}
	return f.listed
}

// set changes a slot.
func (f *fakeSlots) set(number int, change func(*fakeSlot)) { f.setID(slot.Static(number), change) }

func (f *fakeSlots) setID(id slot.ID, change func(*fakeSlot)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locked(id, change)
}

func (f *fakeSlots) locked(id slot.ID, change func(*fakeSlot)) {
	s := f.slots[id]
	change(s)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (f *fakeSlots) Asking(slot.ID, bool) {}

func (f *fakeSlots) Prolong(public string, lease, _ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.slots {
		if s.Fetched && s.Claim == public {
			f.locked(id, func(s *fakeSlot) { f.lend(s, lease) })
			return nil
		}
	}
	return errors.New("there is no such claim")
}

// lend gives the claim of a slot a lease. f.mu is held.
func (f *fakeSlots) lend(s *fakeSlot, lease time.Duration) {
	if s.ends != nil {
		s.ends.Stop()
	}
	s.lease, s.until = lease, time.Now().Add(lease)
	if public := s.Claim; lease > 0 {
		s.ends = time.AfterFunc(lease, func() { f.drop(public, "expired", slot.Hold{Text: "its lease is over"}) })
	}
}

func (f *fakeSlots) Offer(id slot.ID, work *classad.Ad, lease, _ time.Duration) (claim.Granted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.slots[id]
	if f.refuse != nil {
		if err := f.refuse(work); err != nil {
			f.note("slot %v: refused", id)
			return claim.Granted{}, err
		}
	}
	if s.State == "Claimed" && s.Activity != "Idle" || s.State == "Matched" || s.State == "Preempting" {
		f.note("slot %v: refused", id)
		return claim.Granted{}, errors.New("the slot is busy")
	}
	if s.partitionable {
		if s = f.carve(s); s == nil {
			return claim.Granted{}, errors.New("too little Cpus is left")
		}
		id = s.Slot
	}
	if !s.Fetched {
		f.claims++
		s.Claim = fmt.Sprintf("<h>#1#%d#...", f.claims)
	}
	f.note("slot %v: claimed %s", id, s.Claim)
	f.locked(id, func(s *fakeSlot) {
		s.State, s.Activity, s.Fetched = "Claimed", "Idle", true
		f.lend(s, lease)
	})
	return claim.Granted{Slot: id, Ad: s.ad(), ID: whole(s.Claim)}, nil
}

func (f *fakeSlots) Begin(id slot.ID, j *job.Job) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing != nil {
		return f.failing
	}
	if s := f.slots[id]; s == nil || !s.Fetched {
		return fmt.Errorf("slot %v has been taken away", id)
	}
	if f.waits {
		f.locked(id, func(s *fakeSlot) { s.Promised = true })
		return nil
	}
	f.note("slot %v: job %d starts", id, j.Number)
	f.locked(id, func(s *fakeSlot) { s.Activity, s.Promised, s.job = "Busy", false, j })
	return nil
}

func (f *fakeSlots) Withdraw(public string, why slot.Hold) bool {
	return f.drop(public, "withdrawn", why)
}

func (f *fakeSlots) Fetched() map[string]slot.ID {
	f.mu.Lock()
	defer f.mu.Unlock()
	where := map[string]slot.ID{}
	for id, s := range f.slots {
		if s.Fetched {
			where[s.Claim] = id
		}
	}
	return where
}

// whole returns the id whose public part a slot shows.
func whole(public string) claim.ID {
	id, _ := claim.ParseID(strings.TrimSuffix(public, "...") + "secret")
	return id
}

func (f *fakeSlots) drop(public, word string, why slot.Hold) bool {
	if f.lingers {
		return true
	}
	where := f.Fetched()
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := where[public]
	s := f.slots[id]
	if !ok || s == nil || s.Claim != public {
		return false
	}
	f.note("slot %v: %s: %s", id, word, why.Text)
	f.lend(s, 0)
	e := claim.Eviction{Slot: id, Reason: why.Text, Code: why.Code, Subcode: why.Subcode, Ad: s.ad(), ID: whole(s.Claim), Work: s.work}
	if s.job != nil {
		e.Job = s.job.Number
	}
	f.locked(id, func(s *fakeSlot) {
		s.State, s.Activity, s.Fetched, s.Promised, s.Claim, s.job = "Owner", "Idle", false, false, "", nil
	})
	if id.IsDynamic() {
		delete(f.slots, id)
		f.resized(f.slots[id.Parent()], 1)
	}
	f.evicted(e)
	return true
}

// end ends the job of a slot.
func (f *fakeSlots) end(t *testing.T, l *Layer, number int) {
	t.Helper()
	f.endIn(t, l, slot.Static(number))
}

func (f *fakeSlots) endIn(t *testing.T, l *Layer, id slot.ID) {
	t.Helper()
	f.mu.Lock()
	var j *job.Job
	if s := f.slots[id]; s != nil {
		j = s.job
	}
	f.mu.Unlock()
	if j == nil {
		t.Fatalf("slot %v runs nothing; the slots were told\n%s", id, f.told())
	}
	l.Over(j, false)
	if _, err := l.o.Store.Delete(t.Context(), &api.DeleteRequest{Jobs: []string{fmt.Sprint(j.Number)}}, job.Caller{Manager: true}, func(*job.Task) {}); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locked(id, func(s *fakeSlot) { s.Activity, s.Ending, s.job = "Idle", false, nil })
}

// fakeHooks answer what a test says.
type fakeHooks struct {
	mu    sync.Mutex
	calls []call
	// together is what Together returns.
	together bool
	// fetch answers FETCH_WORK; nil: there is never work.
	fetch func(ctx context.Context, c hook.Call) hook.Result
	// other answers all other hooks; nil: they do nothing.
	other func(ctx context.Context, c hook.Call) hook.Result
}

type call struct {
	hook  hook.Name
	kw    string
	args  string
	label string
	stdin string
	at    time.Time
}

func (f *fakeHooks) Run(ctx context.Context, c hook.Call) hook.Result {
	f.mu.Lock()
	f.calls = append(f.calls, call{c.Hook.Name, c.Hook.Keyword, strings.Join(c.Args, " "), c.Label, string(c.Stdin), time.Now()})
	fetch, other := f.fetch, f.other
	f.mu.Unlock()
	answer := other
	if c.Hook.Name == hook.FetchWork {
		answer = fetch
	}
	if answer == nil {
		return hook.Result{}
	}
	return answer(ctx, c)
}

func (f *fakeHooks) Together(*hook.Hook) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.together
}

// answerOther has the hooks but FETCH_WORK answered by fn from now on, also while they are called.
func (f *fakeHooks) answerOther(fn func(context.Context, hook.Call) hook.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.other = fn
}

// of returns the calls of a hook.
func (f *fakeHooks) of(n hook.Name) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c call) bool { return c.hook != n })
}

// words returns the hooks called and their arguments, in order.
func (f *fakeHooks) words() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var w []string
	for _, c := range f.calls {
		w = append(w, strings.TrimSpace(string(c.hook)+" "+c.args))
	}
	return strings.Join(w, ", ")
}

// once answers with these texts, one for each call, and then with nothing.
func once(texts ...string) func(context.Context, hook.Call) hook.Result {
	var mu sync.Mutex
	return func(context.Context, hook.Call) hook.Result {
		mu.Lock()
		defer mu.Unlock()
		if len(texts) == 0 {
			return hook.Result{}
		}
		text := texts[0]
		texts = texts[1:]
		return hook.Result{Stdout: []byte(text)}
	}
}

// endless is a hook that runs when execd ends.
func endless(ctx context.Context, _ hook.Call) hook.Result {
	<-ctx.Done()
	return hook.Result{Err: ctx.Err()}
}

type fakeUsers map[string]*user.User

func (f fakeUsers) ByName(_ context.Context, name string) (*user.User, error) {
	if u := f[name]; u != nil {
		return u, nil
	}
	return nil, fmt.Errorf("%w %q", user.ErrUnknown, name)
}

func (f fakeUsers) ByID(_ context.Context, uid int) (*user.User, error) {
	for _, u := range f {
		if u.UID == uid {
			return u, nil
		}
	}
	return nil, user.ErrUnknown
}

var users = fakeUsers{
	"me":      {Name: "me", UID: 1000, GID: 100, Group: "users", Groups: []int{100}, Home: "/home/me", Shell: "/bin/sh"},
	"other":   {Name: "other", UID: 1001, GID: 100, Group: "users", Groups: []int{100}, Home: "/home/other", Shell: "/bin/sh"},
	"low":     {Name: "low", UID: 10, GID: 10, Group: "low", Groups: []int{10}, Home: "/", Shell: "/bin/sh"},
	"root":    {Name: "root", UID: 0, GID: 0, Group: "root", Groups: []int{0}, Home: "/root", Shell: "/bin/sh"},
	"paddock": {Name: "paddock", UID: 999, GID: 999, Group: "paddock", Groups: []int{999}, Home: "/", Shell: "/bin/sh"},
	"toor":    {Name: "toor", UID: 0, GID: 0, Group: "root", Groups: []int{0}, Home: "/root", Shell: "/bin/sh"},
}

// bench is a layer with all that it needs.
type bench struct {
	*Layer
	t     *testing.T
	slots *fakeSlots
	hooks *fakeHooks
	root  *spool.Root
	log   *props.Log
	knobs string

	config atomic.Pointer[conf.Config]
	table  atomic.Pointer[hook.Table]
}

// set has the configuration be that of a text of hooks.conf, in which $(HOOK) is a program.
func (b *bench) set(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "hook")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	set, problems := knob.Parse("hooks.conf", "HOOK = "+program+"\n"+text)
	for _, p := range problems {
		t.Fatal(p)
	}
	table := hook.NewTable(set)
	for _, p := range table.Problems() {
		t.Fatal(p)
	}
	b.config.Store(&conf.Config{Knobs: set})
	b.table.Store(table)
}

// allHooks is a set of all hooks of execd for every slot.
const allHooks = `STARTD_JOB_HOOK_KEYWORD = kw
KW_HOOK_FETCH_WORK = $(HOOK)
KW_HOOK_REPLY_FETCH = $(HOOK)
KW_HOOK_EVICT_CLAIM = $(HOOK)
`

func newBench(t *testing.T, knobs string, slots ...int) *bench {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, slots: newSlots(slots...), hooks: &fakeHooks{}, root: root, knobs: knobs}
	b.open(t)
	return b
}

// open makes layer and Store anew, as a start of execd does.
func (b *bench) open(t *testing.T) {
	t.Helper()
	b.log = new(props.Log)
	log := slog.New(slog.NewTextHandler(b.log, nil))
	store, err := job.Open(b.root, false, log)
	if err != nil {
		t.Fatal(err)
	}
	b.slots.store = store
	b.set(t, b.knobs)
	b.Layer = New(Options{
		Slots: b.slots, Claims: b.slots, Store: store, Root: b.root, Hooks: b.hooks, Owners: Owners{Users: users, Self: 1000},
		Config: b.config.Load, HookTable: b.table.Load,
		Check:  func(*user.User, *api.SubmitRequest) error { return nil },
		Limits: func() job.Limits { return job.Limits{} },
		Log:    log, Counts: &metrics.Counts{},
	})
	b.slots.evicted = b.Evicted
	b.o.Store.OnDelete(b.Deleting)
}

// start runs the layer until it waits. The function that it returns stops it, and so does
// the end of the test: one that fails says so, and not that goroutines are left in its bubble.
func (b *bench) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l := b.Layer
	l.Recover(ctx)
	go func() { defer close(done); l.Run(ctx) }()
	stop = func() { cancel(); <-done }
	b.t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// startAhead is start: slot 1 has work, which is about to be over, and has asked for the
// next if it asks ahead.
func (b *bench) startAhead() (stop func()) {
	b.hooks.fetch = once(adOf("a"), adOf("b"))
	stop = b.start()
	b.slots.set(1, func(s *fakeSlot) { s.Ending = true })
	synctest.Wait()
	return stop
}
