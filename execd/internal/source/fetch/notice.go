package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"paddock/classad"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/slot"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// noticeFormat is the format of the files in evictions/.
const noticeFormat = 1

// notice is what EVICT_CLAIM is still to be told of a claim that is over, as it lies
// on disk: without it an execd that ends before the hook has would tell nobody. The
// secret of the claim is not in it.
type notice struct {
	Format  int    `json:"format"`
	Slot    string `json:"slot"`
	Keyword string `json:"keyword"`
	Claim   string `json:"claim,omitempty"` // its public id
	Work    string `json:"work"`            // the ad that was fetched
	Ad      string `json:"ad"`              // of the slot when the claim was broken
	// Deleting says that the job is about to be deleted before it ran: where it is still
	// there it was not, and there is nothing to tell.
	Deleting bool `json:"deleting,omitempty"`
}

func (l *Layer) noticePath(job int) string {
	return l.o.Root.Path(spool.DirEvictions, strconv.Itoa(job))
}

// newNotice returns the notice of work whose claim is over, see ended, with the ad of
// its slot then.
func newNotice(over *fetched, on slot.ID, public string, ad *classad.Ad) *notice {
	return &notice{Slot: on.String(), Keyword: over.keyword, Claim: public, Work: over.ad.OldString(), Ad: ad.OldString()}
}

// Deleting implements source.Source: it keeps that a job is about to be deleted before
// it ran: if execd is killed before the claim of the work is broken, which is what
// EVICT_CLAIM is told, or REPORT_WORK, nothing else may be left of it. What it returns takes that back.
func (l *Layer) Deleting(j *job.Job) (undo func()) {
	none := func() {}
	c := l.work.of(j.Number)
	if c == nil {
		return none
	}
	at, reason, ok := l.work.deletion(c)
	if !ok {
		return none
	}
	l.unrun(c, reason)
	if l.o.HookTable().Hook(c.keyword, hook.EvictClaim) == nil {
		return func() { l.dropReport(j.Number) }
	}
	n := newNotice(c.ended(reason, int(slot.ReasonRemoved), 0), at, c.id, l.slotAd(at))
	n.Deleting = true
	if err := l.keep(j.Number, n); err != nil {
		l.o.Log.Error(err.Error()) // it is told all the same if execd goes on
	}
	return func() { l.dropReport(j.Number); l.told(j.Number) }
}

// keep writes a notice about the work that was a job.
func (l *Layer) keep(job int, n *notice) error {
	n.Format = noticeFormat
	if err := writeKept(l.noticePath(job), n); err != nil {
		return fmt.Errorf("cannot store that the claim of job %d is over: %w", job, err)
	}
	return nil
}

// told forgets a notice. After a crash it may be told twice.
func (l *Layer) told(job int) {
	if err := atomicfile.Remove(l.noticePath(job)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.o.Log.Error(fmt.Sprintf("cannot forget that the claim of job %d is over: %v", job, err))
	}
}

// tellLeft tells EVICT_CLAIM what an earlier execd has not told it, the oldest first,
// and returns of which claims and jobs.
func (l *Layer) tellLeft() (claims map[string]bool, told map[int]bool) {
	claims, told = map[string]bool{}, map[int]bool{}
	names, err := l.o.Root.ListEvictions()
	if err != nil {
		l.o.Log.Error(err.Error())
		return claims, told
	}
	jobs := make([]int, 0, len(names))
	for _, name := range names {
		if n, ok := job.ParseNumber(name); ok {
			jobs = append(jobs, n)
			continue
		}
		l.unreadable(spool.DirEvictions, name, hook.EvictClaim, errors.New("it is named by no job"))
	}
	slices.Sort(jobs)
	for _, job := range jobs {
		id, err := l.tellAgain(job)
		switch {
		case err == nil:
			claims[id], told[job] = true, true
		case errors.Is(err, errStays):
			l.told(job)
		case l.unreadable(spool.DirEvictions, strconv.Itoa(job), hook.EvictClaim, err):
			told[job] = true
		}
	}
	return claims, told
}

// errStays is the error of a notice of a job that was not deleted after all.
var errStays = errors.New("its job was not deleted")

// tellAgain calls EVICT_CLAIM again for one claim, and returns its public id.
func (l *Layer) tellAgain(job int) (string, error) {
	var n notice
	if err := readKept(l.noticePath(job), &n, &n.Format, noticeFormat); err != nil {
		return "", err
	}
	on, err := slot.ParseID(n.Slot)
	if err == nil && n.Format < 1 {
		err = errors.New("not a notice")
	}
	if err != nil {
		return "", err
	}
	if n.Deleting && l.o.Store.Get(job) != nil {
		return "", errStays
	}
	// They are as they were written, and what is not to be read is left out.
	work, _ := classad.ParseOldLenient(n.Work)
	of, _ := classad.ParseOldLenient(n.Ad)
	l.o.Log.Info(fmt.Sprintf("slot %v: fetch: claim ended before the restart: job=%d: told again", on, job))
	d := l.notifier(on)
	d.noticed(job) // for good: its claim may be found again, and be over again
	d.notify(job, &fetched{slot: on, keyword: n.Keyword, ad: work}, of, claim.PublicID(n.Claim), func() {})
	return n.Claim, nil
}
