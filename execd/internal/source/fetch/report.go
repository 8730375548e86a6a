package fetch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/internal/backoff"
	"paddock/internal/hint"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// report is how fetched work has ended, as it lies in reports/ until REPORT_WORK has heard
// it. The file is named by the job until the end is recorded: until then the execd may be
// killed, and the end be another one to the next. From then on a number comes before that,
// by which it is in the order of the ends.
type report struct {
	Format  int       `json:"format"`
	Slot    string    `json:"slot"`
	Keyword string    `json:"keyword"`
	Word    string    `json:"word"` // how it ended, as JOB_EXIT is told
	Time    time.Time `json:"time"`
	Work    string    `json:"work"` // the ad of the job
}

const (
	// reportFormat is the format of the files in reports/.
	reportFormat = 1
	// reportPatience is for how long a report is told that is not heard.
	reportPatience = 7 * 24 * time.Hour
	// wordEvict is told of work that has not run.
	wordEvict = "evict"
	// mostTogether bounds how many reports are told in a call, and mostBytes of how much.
	mostTogether = 100
	mostBytes    = 1 << 20
)

// attrReport is the number of a report, in the ad that REPORT_WORK reads.
const attrReport = "ReportNumber"

// reportPauses are between two attempts to tell a report that is not heard.
var reportPauses = backoff.Doubling{First: time.Second, Most: 5 * time.Minute}

// waiting is a report that is to be told.
type waiting struct {
	number uint64
	job    int
}

func (w waiting) name() string { return strconv.FormatUint(w.number, 10) + "." + strconv.Itoa(w.job) }

// reports are those of all keywords that are to be told.
type reports struct {
	disk  atomicfile.Group
	order sync.Mutex // before mu; held while a file gets its number
	last  uint64     // guarded by order; the number that was given last

	mu        sync.Mutex           // before that of the Layer
	reporters map[string]*reporter // guarded by mu; by keyword
	jobs      map[int]bool         // guarded by mu; whose ends are to be told
}

// has reports whether the end of a job is to be told.
func (r *reports) has(job int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[job]
}

// number returns the next number. It is larger than those of every execd before, unless the
// clock was set back and none of their reports is left. order is held.
func (r *reports) number() uint64 {
	r.last = max(r.last+1, uint64(time.Now().UnixMicro()))
	return r.last
}

// reporter tells the reports of a keyword, one after the other: the next when the one before
// has been heard, since who keeps a queue must not have to sort them. Who takes several in a
// call hears those that wait together, all or none. A goroutine is there as long as there is
// one to tell.
type reporter struct {
	layer   *Layer
	keyword string
	again   hint.Chan // try at once

	list     []waiting // guarded by reports.mu
	runs     bool      // guarded by reports.mu; the goroutine is there
	failures int       // guarded by reports.mu; to tell the first
	problem  string    // guarded by reports.mu; why the last attempt failed
}

func (l *Layer) reportPath(name string) string { return l.o.Root.Path(spool.DirReports, name) }

// Report implements source.Source: it keeps how a run has ended, which is told from Recorded
// on.
func (l *Layer) Report(j *job.Job, word string, ended func(work *classad.Ad) *classad.Ad) error {
	c := l.work.of(j.Number)
	if c == nil {
		var err error
		if c, err = l.reread(job.Claimed{Job: j}); err != nil {
			return err
		}
	}
	if l.o.HookTable().Hook(c.keyword, hook.ReportWork) == nil {
		l.dropReport(j.Number) // as it may be left of an execd that was about to delete the job
		l.known.over(j.Number, time.Now())
		return nil
	}
	return l.keepReport(j.Number, &report{Slot: string(c.request.Work.Slot), Keyword: c.keyword, Word: word, Work: ended(c.ad).OldString()})
}

// Recorded implements source.Source.
func (l *Layer) Recorded(j *job.Job) { l.release(j.Number) }

// unrun keeps that accepted work never runs, and why, which is told from release on.
func (l *Layer) unrun(c *fetched, reason string) {
	if l.o.HookTable().Hook(c.keyword, hook.ReportWork) == nil {
		return
	}
	r := &report{Slot: c.slot.String(), Keyword: c.keyword, Word: wordEvict, Work: c.ended(reason, 0, 0).ad.OldString()}
	if err := l.keepReport(c.job.Number, r); err != nil {
		l.o.Log.Error(err.Error())
	}
}

// keepReport writes the report of a job whose end is not recorded yet.
func (l *Layer) keepReport(job int, r *report) error {
	r.Format, r.Time = reportFormat, time.Now()
	path := l.reportPath(strconv.Itoa(job))
	if err := l.writeReport(path, r); err != nil {
		err = fmt.Errorf("cannot store how job %d has ended: %w", job, err)
		return errors.Join(err, atomicfile.Remove(path)) // nobody is to read half of it
	}
	return nil
}

// writeReport writes a report, and shares the sync with all that are written at the same time. Half of one
// that an execd has left which was killed is written anew, since the end is not recorded.
func (l *Layer) writeReport(path string, r *report) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(path, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err = atomicfile.Remove(path); err == nil {
			f, err = atomicfile.Create(path, 0o600)
		}
	}
	if err != nil {
		return err
	}
	err = atomicfile.AppendTo(f, append(data, '\n'))
	if err == nil {
		err = l.reports.disk.Sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return l.reports.disk.SyncDir(l.o.Root.Path(spool.DirReports))
}

// dropReport takes back a report of a job that goes on.
func (l *Layer) dropReport(job int) {
	if err := atomicfile.Remove(l.reportPath(strconv.Itoa(job))); err != nil {
		l.o.Log.Error(err.Error())
	}
}

// release has the report of a job told, if there is one. Its end is recorded.
func (l *Layer) release(job int) {
	l.reports.order.Lock()
	defer l.reports.order.Unlock()
	r, err := l.readReport(strconv.Itoa(job))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		l.lost(strconv.Itoa(job), err)
		return
	}
	w := waiting{l.reports.number(), job}
	if err := atomicfile.Rename(l.reportPath(strconv.Itoa(job)), l.reportPath(w.name())); err != nil {
		l.o.Log.Error(fmt.Sprintf("%v: REPORT_WORK is told after the next start", err))
		return
	}
	l.unheard(r, job)
	l.enter(r.Keyword, w)
}

// unheard enters the identity of work whose end is to be told. Until it is heard, who hands out
// the work may hand it out again: he may not even know that it was accepted. What is to be done
// again he is to hand out again.
func (l *Layer) unheard(r *report, job int) {
	on, err := slot.ParseID(r.Slot)
	if err != nil || r.Word == wordEvict {
		return
	}
	work, _ := classad.ParseOldLenient(r.Work)
	id, _ := text(work, attrIdentity)
	l.known.add(id, job, on)
}

// enter has a report told after all others of its keyword.
func (l *Layer) enter(keyword string, w waiting) {
	l.reports.mu.Lock()
	defer l.reports.mu.Unlock()
	t := l.reports.reporters[keyword]
	if t == nil {
		t = &reporter{layer: l, keyword: keyword, again: hint.New()}
		l.reports.reporters[keyword] = t
	}
	l.reports.jobs[w.job] = true
	if t.list = append(t.list, w); t.runs {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx := l.running
	if l.stopped || ctx.Err() != nil {
		return // the next execd tells it
	}
	t.runs = true
	l.errands.Go(func() { t.run(ctx) })
}

// run tells reports until there are none, or ctx is done.
func (t *reporter) run(ctx context.Context) {
	for {
		list, pause, ok := t.next()
		if !ok {
			return
		}
		if t.layer.o.HookTable().Hook(t.keyword, hook.ReportWork) == nil {
			sleep(ctx, 0, t.again, nil, nil) // until the configuration is another one
		} else if pause > 0 {
			sleep(ctx, pause, t.again, nil, nil)
		}
		if ctx.Err() != nil {
			return
		}
		told, why := t.tell(ctx, list)
		if ctx.Err() != nil {
			return
		}
		t.told(told, why)
		for _, w := range list[:told] {
			t.layer.known.over(w.job, time.Now())
		}
	}
}

// next returns the reports that may be told next, and after what time: one alone if it was not
// heard.
func (t *reporter) next() (list []waiting, pause time.Duration, ok bool) {
	r := &t.layer.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(t.list) == 0 {
		t.runs = false
		return nil, 0, false
	}
	most := mostTogether
	if t.failures > 0 {
		most = 1
	}
	return slices.Clone(t.list[:min(most, len(t.list))]), reportPauses.After(t.failures), true
}

// told notes that the first reports were told, or why the first was not heard.
func (t *reporter) told(n int, why string) {
	r, log := &t.layer.reports, t.layer.o.Log
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf("fetch: hook %s of %s", hook.ReportWork, t.keyword)
	if why == "" {
		if t.failures > 0 {
			log.Info(fmt.Sprintf("%s: works again: failures=%d", name, t.failures))
		}
		for _, w := range t.list[:n] {
			delete(r.jobs, w.job)
		}
		t.list, t.failures, t.problem = slices.Delete(t.list, 0, n), 0, ""
		return
	}
	t.failures, t.problem = t.failures+1, why
	log.Warn(fmt.Sprintf("%s: job=%d: %s: reports=%d, told again in %v", name, t.list[0].job, why, len(t.list), reportPauses.After(t.failures)))
}

// tell tells the first reports of a list, as many as may be told in a call, and returns how many need not be told
// any more; or why the first was not heard.
func (t *reporter) tell(ctx context.Context, list []waiting) (told int, why string) {
	l := t.layer
	h := l.o.HookTable().Hook(t.keyword, hook.ReportWork)
	if h != nil && len(list) > 1 && !l.o.Hooks.Together(h) {
		list = list[:1]
	}
	var reports []*report
	var words []string
	var stdin []byte
	for i, w := range list {
		r, err := l.readReport(w.name())
		switch {
		case err != nil && i > 0: // it is the first the next time
		case errors.Is(err, fs.ErrNotExist):
			return 1, "" // somebody has removed it
		case spool.Unread(err):
			return 0, err.Error()
		case err != nil:
			l.lost(w.name(), err)
			return 1, ""
		}
		if err != nil || i > 0 && len(stdin)+len(r.Work) > mostBytes {
			list = list[:i]
			break
		}
		work, _ := classad.ParseOldLenient(r.Work) // as it was written
		work = work.With(classad.Attr{Name: attrReport, Expr: classad.Int(int64(w.number)).Expr()})
		stdin = ad.AppendStdin(stdin, work)
		reports, words = append(reports, r), append(words, r.Word)
	}
	first := reports[0]
	if h == nil {
		why = "there is no such hook any more"
	} else {
		res := l.o.Hooks.Run(ctx, hook.Call{Hook: h, Args: words, Stdin: stdin, Label: "slot " + first.Slot})
		if why = failure(&res, h); why == "" && res.Status != 0 {
			why = fmt.Sprintf("exit status %d", res.Status)
		}
	}
	switch {
	case ctx.Err() != nil:
		return 0, ""
	case why == "":
	case len(list) == 1 && time.Since(first.Time) > reportPatience:
		l.o.Log.Error(fmt.Sprintf("slot %s: fetch: hook %s of %s: %s: the end of job %d is told no more, since %v are over", first.Slot, hook.ReportWork, t.keyword, why, list[0].job, reportPatience))
	default:
		return 0, why
	}
	for i, w := range list {
		if why == "" {
			l.o.Log.Debug(fmt.Sprintf("slot %s: fetch: reported: job=%d word=%s", reports[i].Slot, w.job, reports[i].Word))
		}
		// It need not be durable: who heard a report may hear it again.
		if err := atomicfile.Remove(l.reportPath(w.name())); err != nil {
			l.o.Log.Error(fmt.Sprintf("%v: it is told again after the next start", err))
		}
	}
	return len(list), ""
}

// readReport reads a file of reports/.
func (l *Layer) readReport(name string) (*report, error) {
	var r report
	err := readKept(l.reportPath(name), &r, &r.Format, reportFormat)
	switch {
	case err != nil:
		return nil, err
	case r.Format < 1 || r.Keyword == "" || r.Word == "":
		return nil, errors.New("not a report")
	}
	return &r, nil
}

// lost deals with a report that cannot be read.
func (l *Layer) lost(name string, err error) {
	l.unreadable(spool.DirReports, name, hook.ReportWork, err)
}

// recoverReports has those told that an earlier execd has left. Those of jobs whose ends are
// not recorded stay until they are.
func (l *Layer) recoverReports() {
	names, err := l.o.Root.ListReports()
	if err != nil {
		l.o.Log.Error(err.Error())
		return
	}
	var numbered []waiting
	var fresh []int
	for _, name := range names {
		before, after, dotted := strings.Cut(name, ".")
		if n, ok := job.ParseNumber(name); ok {
			fresh = append(fresh, n)
			continue
		}
		number, err := strconv.ParseUint(before, 10, 63)
		n, ok := job.ParseNumber(after)
		if w := (waiting{number, n}); dotted && ok && err == nil && w.name() == name {
			numbered = append(numbered, w)
			continue
		}
		l.lost(name, errors.New("it is named by no job"))
	}
	slices.SortFunc(numbered, func(a, b waiting) int { return cmp.Compare(a.number, b.number) })
	for _, w := range numbered {
		r, err := l.readReport(w.name())
		if err != nil {
			l.lost(w.name(), err)
			continue
		}
		l.reports.order.Lock()
		l.reports.last = max(l.reports.last, w.number)
		l.reports.order.Unlock()
		l.unheard(r, w.job)
		l.enter(r.Keyword, w)
	}
	slices.Sort(fresh)
	for _, n := range fresh {
		if j := l.o.Store.Get(n); j == nil || l.recorded(j) {
			l.release(n)
		}
	}
}

// recorded reports whether the end of a job is recorded.
func (l *Layer) recorded(j *job.Job) bool {
	state, there := l.o.Store.ClaimedState(j)
	return !there || state == job.Ended
}

// hurryReports has reports told at once that wait for another attempt.
func (l *Layer) hurryReports() {
	l.reports.mu.Lock()
	defer l.reports.mu.Unlock()
	for _, t := range l.reports.reporters {
		t.again.Give()
	}
}

// Reports returns how many ends wait to be heard, by keyword. One of which all were heard is
// among them, so that nobody has to guess why it is missing.
func (l *Layer) Reports() map[string]int {
	l.reports.mu.Lock()
	defer l.reports.mu.Unlock()
	waiting := map[string]int{}
	for keyword, t := range l.reports.reporters {
		waiting[keyword] = len(t.list)
	}
	return waiting
}

// failingReports tells of the keywords whose reports are not heard, a line each.
func (l *Layer) failingReports() (lines []string) {
	l.reports.mu.Lock()
	defer l.reports.mu.Unlock()
	for keyword, t := range l.reports.reporters {
		if t.failures > 0 {
			lines = append(lines, fmt.Sprintf("%s of %s has failed %d times: %s: %d reports wait", hook.ReportWork, keyword, t.failures, t.problem, len(t.list)))
		}
	}
	slices.Sort(lines)
	return lines
}
