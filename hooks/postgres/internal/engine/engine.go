// Package engine answers the hooks of execd with jobs of a PostgreSQL database: FETCH_WORK, REPLY_FETCH, RENEW_CLAIM,
// EVICT_CLAIM and REPORT_WORK. What may happen to a job is decided by the functions of the database; here it is
// decided which jobs fit a slot, and what is handed out gets its identity.
//
// The command imports it, and packages serve and people.
package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/classad"
	"paddock/internal/hint"
)

const (
	// answerWithin bounds how long a call is repeated while the database is away. The limit of the hooks is 30 s.
	answerWithin = 20 * time.Second
	// fresh is for how long the classes, and the marks below which there is nothing, are taken for true.
	fresh = time.Second
	// shy is for how long a slot is not given a class again of which it has refused a job.
	shy = time.Minute
)

// Engine answers hooks. Any number of calls may be made at the same time.
type Engine struct {
	conf     *Config
	db       *db
	log      func(string)
	over     hint.Chan // some run of this host is to end, and execd is to ask which
	reported hint.Chan // the end of a run was reported
	asks     *gather[ask, answer]

	reading sync.Mutex // held by who reads classes; before mu

	mu           sync.Mutex
	installation string                // guarded by mu; empty: not known yet
	classes      map[int32]*class      // guarded by mu
	seen         string                // guarded by mu; which classes are there
	refreshed    time.Time             // guarded by mu
	lows         map[int32]low         // guarded by mu; by class
	gens         map[string]int64      // guarded by mu; by slot: the number of the run that it was given last
	shunned      map[shunned]time.Time // guarded by mu; until when
	idleHosts    int                   // guarded by mu; how many hosts waited the last time
}

// low is a mark of a class: it has no job before this rank, but for those that have come since.
type low struct {
	rank  int64
	until time.Time // when it is forgotten
}

// shunned is a class of which a slot has refused a job.
type shunned struct {
	slot  string
	class int32
}

// New makes an engine, which connects when it is asked. Log is called with what an administrator should read.
func New(c *Config, log func(string)) (*Engine, error) {
	d, err := open(c)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		conf: c, db: d, log: log, over: hint.New(), reported: hint.New(), classes: map[int32]*class{}, seen: "0",
		lows: map[int32]low{}, gens: map[string]int64{}, shunned: map[shunned]time.Time{},
	}
	e.asks = newGather(e.exchange)
	return e, nil
}

// Close closes its connections.
func (e *Engine) Close() { e.db.pool.Close() }

// run is one run of a job: what is said of another one does not count.
type run struct {
	job, gen int64
	host     string // which has its lease
}

// attrHost is the host to which a job was given, in its ad. Who tells of it may be another one: a
// pilot tells what one that is gone could not.
const attrHost = "LeaseHost"

// identity is the GlobalJobId of a run.
var identity = regexp.MustCompile(`^([0-9]{1,18})\.([0-9]{1,18})@([0-9a-f]{8})$`)

func (r run) global(installation string) string {
	return fmt.Sprintf("%d.%d@%s", r.job, r.gen, installation)
}

// about returns the name of the installation.
func (e *Engine) about(ctx context.Context) (string, error) {
	e.mu.Lock()
	name := e.installation
	e.mu.Unlock()
	if name != "" {
		return name, nil
	}
	name, err := e.db.about(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.installation = name
	return name, err
}

// runOf returns the run that the ad of a job is of.
func (e *Engine) runOf(ctx context.Context, ad *classad.Ad) (run, error) {
	name, _ := (&classad.Env{My: ad}).Attr("GlobalJobId").Str()
	m := identity.FindStringSubmatch(name)
	if m == nil {
		return run{}, errors.New("the ad has no GlobalJobId of paddock-pg")
	}
	installation, err := e.about(ctx)
	if err != nil {
		return run{}, err
	}
	if m[3] != installation {
		return run{}, fmt.Errorf("%s is of another database than %s", name, installation)
	}
	job, _ := strconv.ParseInt(m[1], 10, 64)
	gen, _ := strconv.ParseInt(m[2], 10, 64)
	host, ok := (&classad.Env{My: ad}).Attr(attrHost).Str()
	if !ok {
		host = e.conf.Host
	}
	return run{job, gen, host}, nil
}

// Answer answers a call of a hook with its arguments: the exit status, and what is printed.
func (e *Engine) Answer(ctx context.Context, hook string, words []string, input []byte) (status int, output []byte, err error) {
	if hook == "FETCH_WORK" {
		_, _ = e.db.tick(ctx) // where no program stays, nobody else does
		output, err := e.fetch(ctx, input)
		return 0, output, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	parts := bytes.Split(input, []byte("\n-----\n"))
	ad, _ := classad.ParseOldLenient(string(parts[0]))
	switch hook {
	case "REPLY_FETCH":
		var slotPart []byte
		if len(parts) > 1 {
			slotPart = parts[1]
		}
		return 0, nil, e.reply(ctx, ad, slices.Equal(words, []string{"accept"}), slotPart)
	case "RENEW_CLAIM":
		return e.renew(ctx, ad)
	case "REPORT_WORK":
		return 0, nil, e.report(ctx, parts, words)
	}
	// EVICT_CLAIM: what becomes of the work comes by REPORT_WORK.
	return 0, nil, nil
}

func (e *Engine) fetch(ctx context.Context, input []byte) ([]byte, error) {
	s, err := Slot(input)
	if err != nil || s.busy {
		return nil, err
	}
	return e.Claim(ctx, s)
}

// Question is a slot that asks for work.
type Question = slot

// Slot reads what FETCH_WORK was asked.
func Slot(input []byte) (*Question, error) {
	ad, _ := classad.ParseOldLenient(string(input))
	s := readSlot(ad)
	if s.name == "" {
		return nil, errors.New("the ad of the slot has no Name")
	}
	return s, nil
}

// Waits reports whether work is worth waiting for: the slot is free. One whose claim waits is told at once, so
// that it is free for others.
func (s *slot) Waits() bool { return !s.busy && !s.kept }

// Busy reports whether the slot runs something.
func (s *slot) Busy() bool { return s.busy }

// Claim returns the ad of the first job that fits a slot, nothing if there is none.
func (e *Engine) Claim(ctx context.Context, s *slot) ([]byte, error) {
	installation, err := e.about(ctx)
	if err != nil {
		return nil, err
	}
	for {
		if err := e.refresh(ctx); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		got, err := e.asks.ask(ask{slot: s})
		if err != nil {
			return nil, err
		}
		w := got.work
		if w == nil {
			if got.marked && e.unmark() {
				continue // what was put in front of the others
			}
			return nil, nil
		}
		text, err := e.compose(w, installation)
		if err == nil {
			return text, nil
		}
		e.log(fmt.Sprintf("job %d: %v", w.job, err))
		result, _ := json.Marshal(map[string]string{"HoldReason": err.Error()})
		if _, err := e.db.report(ctx, []run{{w.job, w.gen, e.conf.Host}}, []string{"hold"}, []string{string(result)}); err != nil {
			return nil, err
		}
	}
}

// ask is what execd wants to know: work for a slot, or whether a run that it has accepted is its own.
type ask struct {
	slot *slot // nil: it is about the run
	run  run
}

type answer struct {
	work     *work // nil: there is none
	marked   bool  // it was looked for behind marks
	accepted bool
}

// exchange answers what is asked at the same time. Slots that may have the same classes are given work at once.
func (e *Engine) exchange(ctx context.Context, asks []ask) ([]answer, error) {
	answers := make([]answer, len(asks))
	var runs []run
	var wants []*want
	wanted := make([]*want, len(asks)) // nil: it is about a run
	now := time.Now()
	for i, a := range asks {
		if a.slot == nil {
			runs = append(runs, a.run)
			continue
		}
		classes, lows, marked := e.candidates(a.slot, now)
		n := slices.IndexFunc(wants, func(w *want) bool { return slices.Equal(w.classes, classes) })
		if n < 0 {
			n, wants = len(wants), append(wants, &want{classes: classes, lows: lows})
		}
		wants[n].slots = append(wants[n].slots, a.slot.name)
		wants[n].gens = append(wants[n].gens, e.gen(a.slot.name))
		wanted[i], answers[i].marked = wants[n], marked
	}
	accepted, err := e.db.exchange(ctx, runs, wants)
	if err != nil {
		return nil, err
	}
	for _, w := range wants {
		e.mark(w, time.Now())
	}
	for i, a := range asks {
		if w := wanted[i]; w != nil {
			answers[i].work = w.given[a.slot.name]
		} else {
			answers[i].accepted, accepted = accepted[0], accepted[1:]
		}
	}
	return answers, nil
}

// GiveBack gives back work that was claimed when there was nobody any more to be told of it. Work that
// execd may have heard of is not: it may run.
func (e *Engine) GiveBack(work []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ad, _ := classad.ParseOldLenient(string(work))
	r, err := e.runOf(ctx, ad)
	if err == nil {
		err = e.db.refuse(ctx, r, "nobody waits for it any more")
	}
	if err != nil {
		e.log(fmt.Sprintf("cannot give back work, which another host has when its lease is over: %v", err))
	}
}

// Classes returns a number for each class of jobs that a slot may have now, in their order. Slots with the same ones find the
// same work.
func (e *Engine) Classes(s *slot) []int32 {
	ids, _, _ := e.candidates(s, time.Now())
	return ids
}

// refresh reads the classes that are new, if that was not done a moment ago.
func (e *Engine) refresh(ctx context.Context) error {
	e.reading.Lock()
	defer e.reading.Unlock()
	e.mu.Lock()
	since, when := e.seen, e.refreshed
	e.mu.Unlock()
	if time.Since(when) < fresh {
		return nil
	}
	// What is passed is the oldest transaction of the last time that was not over, so that none is missed.
	asked := time.Now()
	var added []*class
	seen, err := e.db.classes(ctx, since, func(c *class) { added = append(added, c) })
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range added {
		e.classes[c.id] = c
	}
	e.seen, e.refreshed = seen, asked
	return nil
}

// Stale has the classes read again before the next claim.
func (e *Engine) Stale() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refreshed = time.Time{}
}

// candidates returns the classes that a slot may have, and the marks below which they have no job.
func (e *Engine) candidates(s *slot, now time.Time) (ids []int32, lows []int64, marked bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids, lows = []int32{}, []int64{}
	left := map[string]*int{} // steps, by owner
	for id, c := range e.classes {
		if left[c.owner] == nil {
			steps := ownerSteps
			left[c.owner] = &steps
		}
		if len(e.conf.Queues) > 0 && !slices.Contains(e.conf.Queues, c.queue) || !s.may(c, now, left[c.owner]) {
			continue
		}
		if until, ok := e.shunned[shunned{s.name, id}]; ok && now.Before(until) {
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		rank := int64(first)
		if m, ok := e.lows[id]; ok && now.Before(m.until) {
			rank, marked = m.rank, true
		}
		lows = append(lows, rank)
	}
	return ids, lows, marked
}

// gen returns the number of the run that a slot was given last. A slot is given what it has not accepted until it does, so
// that none before that is open, and what is dead of those is not read again for each claim.
func (e *Engine) gen(slot string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.gens[slot]
}

// mark notes how far a claim has looked for jobs of classes, and what it has given. What is dead before a mark is read again
// when it is forgotten, which no two classes are at the same time, and one that is marked again not later.
func (e *Engine) mark(w *want, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	mark := func(id int32, rank int64) {
		m, ok := e.lows[id]
		switch {
		case !ok || !now.Before(m.until):
			e.lows[id] = low{rank, now.Add(fresh/2 + rand.N(fresh))}
		case rank > m.rank:
			e.lows[id] = low{rank, m.until}
		}
	}
	for i, rank := range w.heads {
		if rank != nil {
			mark(w.classes[i], *rank)
		}
	}
	for slot, g := range w.given {
		mark(g.class, g.rank)
		e.gens[slot] = g.gen
	}
}

// unmark forgets what mark has noted, unless there is nothing.
func (e *Engine) unmark() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	had := len(e.lows) > 0
	clear(e.lows)
	return had
}

// compose returns the ad that execd gets. Owner, identity and requests are what the database has recorded,
// whatever the ad says.
func (e *Engine) compose(w *work, installation string) ([]byte, error) {
	rest, script, scripted, err := classad.CutOldString(w.ad, "Script")
	if err != nil {
		return nil, fmt.Errorf("its ad cannot be read: %w", err)
	}
	ad, err := classad.ParseOld(rest)
	if err != nil {
		return nil, fmt.Errorf("its ad cannot be read: %w", err)
	}
	set := []classad.Attr{
		{Name: "Owner", Expr: classad.String(w.owner).Expr()},
		{Name: "GlobalJobId", Expr: classad.String(run{job: w.job, gen: w.gen}.global(installation)).Expr()},
		{Name: attrHost, Expr: classad.String(e.conf.Host).Expr()},
		{Name: "JobLeaseDuration", Expr: classad.Int(int64(w.term)).Expr()},
		{Name: "NumJobStarts", Expr: classad.Int(int64(w.attempts + w.evictions)).Expr()},
	}
	e.mu.Lock()
	c := e.classes[w.class]
	e.mu.Unlock()
	if c != nil && !c.malformed {
		for _, name := range []string{"RequestCpus", "RequestMemory", "RequestDisk"} {
			expr, _ := c.ad.Lookup(name)
			set = append(set, classad.Attr{Name: name, Expr: expr})
		}
	}
	text := ad.With(set...).OldString()
	if scripted > 0 {
		text += "Script = " + classad.String(script).Expr().OldString() + "\n"
	}
	return []byte(text), nil
}

func (e *Engine) reply(ctx context.Context, ad *classad.Ad, accepted bool, slotPart []byte) error {
	r, err := e.runOf(ctx, ad)
	if err != nil {
		return err
	}
	if accepted {
		var got answer
		if err = again(ctx, func() (err error) { got, err = e.asks.ask(ask{run: r}); return err }); err == nil && !got.accepted {
			e.log(fmt.Sprintf("job %d.%d was accepted and is another's by now", r.job, r.gen))
			e.over.Give()
		}
		return err
	}
	if s, err := Slot(slotPart); err == nil {
		e.shun(s, ad)
	}
	return again(ctx, func() error { return e.db.refuse(ctx, r, "its log says why") })
}

// shun has a slot not be given jobs of the class for a while of which it has refused one.
func (e *Engine) shun(s *slot, ad *classad.Ad) {
	owner, _ := (&classad.Env{My: ad}).Attr("Owner").Str()
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, until := range e.shunned {
		if now.After(until) {
			delete(e.shunned, k)
		}
	}
	for id, c := range e.classes {
		if !c.malformed && c.owner == owner && c.of(ad) {
			e.shunned[shunned{s.name, id}] = now.Add(shy)
		}
	}
}

// of reports whether an ad has all attributes of the class.
func (c *class) of(ad *classad.Ad) bool {
	for name, expr := range c.ad.All() {
		if name == "Queue" {
			continue
		}
		if has, ok := ad.Lookup(name); !ok || !has.Equal(expr) {
			return false
		}
	}
	return true
}

func (e *Engine) renew(ctx context.Context, ad *classad.Ad) (status int, output []byte, err error) {
	r, err := e.runOf(ctx, ad)
	if err != nil {
		return statusUnknown, nil, err
	}
	var word string
	if err := again(ctx, func() (err error) { word, err = e.db.renew(ctx, r); return err }); err != nil {
		return statusUnknown, nil, err
	}
	if word == "renewed" {
		return 0, nil, nil
	}
	e.log(fmt.Sprintf("job %d.%d is to end: %s", r.job, r.gen, word))
	return 1, nil, nil
}

// statusUnknown is that of a call that has no answer: it is made again.
const statusUnknown = 75

// kept are the attributes of an ad that are kept with the end of a job.
var kept = regexp.MustCompile(`^(Exit\w*|Job(Duration|CoreDumped|StartDate|Number)|Remote\w*Cpu|ImageSize|ResidentSetSize|DiskUsage|Vacate\w*|Hold\w*|TransferOutput(Success|Bytes|Error)|ReportNumber)$`)

// maxText bounds a text of an ad that is kept.
const maxText = 4096

// report tells the ends of runs, each by its ad and a word: all of them, or none.
func (e *Engine) report(ctx context.Context, ads [][]byte, words []string) error {
	if len(ads) != len(words) {
		return fmt.Errorf("%d ads and %d words", len(ads), len(words))
	}
	runs, ends := make([]run, len(ads)), make([]string, len(ads))
	for i, text := range ads {
		ad, _ := classad.ParseOldLenient(string(text))
		var err error
		if runs[i], err = e.runOf(ctx, ad); err != nil {
			return err
		}
		result, err := json.Marshal(results(ad))
		if err != nil {
			return err
		}
		ends[i] = string(result)
	}
	var stale []run
	if err := again(ctx, func() (err error) { stale, err = e.db.report(ctx, runs, words, ends); return err }); err != nil {
		return err
	}
	e.reported.Give()
	for _, r := range stale {
		// Nobody waits for it: it was heard before, or the run is another's.
		e.log(fmt.Sprintf("job %d.%d: its report changes nothing", r.job, r.gen))
	}
	return nil
}

// results returns what is kept of an ad.
func results(ad *classad.Ad) map[string]any {
	all := map[string]any{}
	for name, expr := range ad.All() {
		v, ok := expr.Constant()
		if !ok || !kept.MatchString(name) {
			continue
		}
		if b, ok := v.Bool(); ok {
			all[name] = b
		} else if i, ok := v.Int(); ok {
			all[name] = i
		} else if f, ok := v.Number(); ok {
			all[name] = f
		} else if s, ok := v.Str(); ok {
			all[name] = strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), maxText)], "?"), "\x00", "?") // as a text of the database
		}
	}
	return all
}
