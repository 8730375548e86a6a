package history

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"paddock/classad"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/metrics"
	"paddock/internal/backoff"
	"paddock/internal/hint"
	"paddock/spool/atomicfile"
)

// The records of the log of a queue, by the numbers with which they begin.
const (
	newAd           = 101
	destroyAd       = 102
	setAttribute    = 103
	deleteAttribute = 104
	begin           = 105
	end             = 106
	sequence        = 107
)

// Ads is a job of the queue as the log has it.
type Ads struct {
	Version int         // of Job
	Job     *classad.Ad // what its tasks share; nil: it has not changed since the version that was asked for
	More    *classad.Ad // what else is said of the job as a whole; nil: nothing
	Tasks   map[int]*classad.Ad
}

// Log is the log by which other programs follow the queue: they read what is added to it, and
// begin anew when its first record has another number. One goroutine, Run, writes it. The
// exported fields are set before use.
type Log struct {
	Knobs  func() *knob.Set
	Counts *metrics.Counts
	Log    *slog.Logger
	// Numbers returns those of all jobs of the queue, and Ads one of them, without Job if that
	// has a version; false: it is over.
	Numbers func() []int
	Ads     func(number, version int) (Ads, bool)

	wake hint.Chan
	on   atomic.Bool // changes are noted

	mu      sync.Mutex
	changed map[int]bool // guarded by mu; jobs that have become others; nil: too many, and the log is written anew

	// The rest is Run's.
	path       string
	number     int64 // in its first record
	jobs       map[int]*logged
	size, base int64 // of the file, and what it was when it was written anew
	failing    bool
	failures   int
}

// logged is what the log says of a job.
type logged struct {
	version int
	attrs   map[string][]value // by the key of an ad, and that with job in front of what is in Ads.Job
}

// value is the value of an attribute in the log, as a sum: the log has the text.
type value struct {
	name string
	sum  uint64
}

// These bound the log: it is written anew when it has become longer than compactAbove bytes
// and four times what it was when it was new; and how many changes are noted while a disk is
// waited for.
const (
	compactAbove = 1 << 20
	maxChanged   = 100_000
)

var retries = backoff.Doubling{First: time.Second, Most: time.Minute}

// Init makes it ready.
func (l *Log) Init() {
	l.wake, l.changed = hint.New(), map[int]bool{}
	l.Wake()
}

// Wake has Run look again: a job, or the configuration, has become another.
func (l *Log) Wake() { l.wake.Give() }

// Changed notes that a job has become another. It does not block.
func (l *Log) Changed(number int) {
	if !l.on.Load() {
		return
	}
	l.mu.Lock()
	if l.changed != nil {
		if l.changed[number] = true; len(l.changed) > maxChanged {
			l.changed = nil
		}
	}
	l.mu.Unlock()
	l.Wake()
}

// Run writes the log until ctx is done.
func (l *Log) Run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if l.failures > 0 {
			again = time.After(retries.After(l.failures))
		}
		select {
		case <-ctx.Done():
			return
		case <-again:
			l.write()
		case <-l.wake:
			if again == nil {
				l.write()
			} else if sleep(ctx, again) {
				l.write() // what changes meanwhile is in it
			}
		}
	}
}

// sleep waits, and reports whether ctx is not done.
func sleep(ctx context.Context, until <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-until:
		return true
	}
}

// write brings the log up to date.
func (l *Log) write() {
	to := path(l.Knobs(), KnobQueue)
	anew := to != l.path || l.failures > 0
	if to == "" {
		l.on.Store(false)
		l.path, l.jobs, l.failures = "", nil, 0
		return
	}
	l.on.Store(true)
	l.mu.Lock()
	changed := l.changed
	l.changed = map[int]bool{}
	l.mu.Unlock()
	var err error
	if !anew && changed != nil {
		if err = l.append(changed); err == nil && l.size > compactAbove && l.size > 4*l.base {
			anew = true
		}
	}
	if anew || changed == nil {
		err = l.rewrite(to)
	}
	if err != nil {
		l.Counts.Drop(metrics.ToLog)
		l.failures++
	} else {
		l.failures, l.path = 0, to
	}
	report(l.Log, KnobQueue, err, &l.failing)
}

// append adds what has changed, as one transaction.
func (l *Log) append(changed map[int]bool) error {
	var records []byte
	for _, number := range slices.Sorted(maps.Keys(changed)) {
		records = l.job(records, number)
	}
	if len(records) == 0 {
		return nil
	}
	f, st, err := openOurs(l.path, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if st.Size != l.size {
		return fmt.Errorf("cannot write %s: somebody else has", l.path)
	}
	text := slices.Concat(fmt.Appendf(nil, "%d \n", begin), records, fmt.Appendf(nil, "%d \n", end))
	if err := atomicfile.AppendTo(f, text); err != nil {
		return fmt.Errorf("cannot write %s: %w", l.path, err)
	}
	l.size += int64(len(text))
	return nil
}

// rewrite writes the log anew, with the next number.
func (l *Log) rewrite(to string) error {
	wrap := func(err error) error { return fmt.Errorf("cannot write %s: %w", to, err) }
	if err := safeDir(filepath.Dir(to)); err != nil {
		return wrap(err)
	}
	number, since, err := header(to)
	if err != nil {
		return wrap(err)
	}
	number = max(number, l.number) + 1 // the last may have gone
	fresh := to + ".new"
	if err := atomicfile.Remove(fresh); err != nil {
		return err
	}
	f, err := atomicfile.Create(fresh, 0o644)
	if err != nil {
		return err
	}
	l.jobs, l.size = map[int]*logged{}, 0
	text := fmt.Appendf(nil, "%d %d CreationTimestamp %d\n", sequence, number, since)
	flush := func() {
		if err == nil {
			err = atomicfile.AppendTo(f, text)
		}
		l.size += int64(len(text))
		text = text[:0]
	}
	numbers := l.Numbers()
	slices.Sort(numbers)
	for _, n := range numbers {
		if text = l.job(text, n); len(text) > 64<<10 {
			flush()
		}
	}
	flush()
	if err == nil {
		err = f.Sync() // else a power cut may leave what is no log
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = atomicfile.Rename(fresh, to)
	}
	if err != nil {
		_ = atomicfile.Remove(fresh)
		return wrap(err)
	}
	l.base, l.number = l.size, number
	return nil
}

// header returns the number of the log that is there, and when the first was begun.
func header(of string) (number, since int64, err error) {
	f, err := os.OpenFile(of, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, time.Now().Unix(), nil
	}
	if err != nil {
		return 0, 0, errors.Unwrap(err)
	}
	defer f.Close()
	line := make([]byte, 80)
	n, _ := f.Read(line)
	if n == 0 {
		return 0, time.Now().Unix(), nil
	}
	text, _, _ := strings.Cut(string(line[:n]), "\n")
	if _, err := fmt.Sscanf(text, strconv.Itoa(sequence)+" %d CreationTimestamp %d", &number, &since); err != nil || number < 0 {
		return 0, 0, errors.New("it is there, and is no log of a queue")
	}
	return number, since, nil
}

// job appends the records that make of what the log says of a job what is so now.
func (l *Log) job(b []byte, number int) []byte {
	cluster := fmt.Sprintf("0%d.-1", number)
	task := func(n int) string { return fmt.Sprintf("%d.%d", number, n) }
	was := l.jobs[number]
	version := -1
	if was != nil {
		version = was.version
	}
	ads, ok := l.Ads(number, version)
	if !ok {
		if was == nil {
			return b
		}
		delete(l.jobs, number)
		for _, key := range slices.Sorted(maps.Keys(was.attrs)) { // that of the job is behind those of its tasks
			if key != cluster && key != inJob {
				b = fmt.Appendf(b, "%d %s\n", destroyAd, key)
			}
		}
		return fmt.Appendf(b, "%d %s\n", destroyAd, cluster)
	}
	if was == nil {
		was = &logged{attrs: map[string][]value{}}
		l.jobs[number] = was
		b = fmt.Appendf(b, "%d %s Job Machine\n", newAd, cluster)
	}
	if was.version = ads.Version; ads.Job != nil {
		b, was.attrs[inJob] = changes(b, cluster, was.attrs[inJob], ads.Job)
	}
	if ads.More != nil {
		b, was.attrs[cluster] = changes(b, cluster, was.attrs[cluster], ads.More)
	}
	keys := map[string]bool{inJob: true, cluster: true}
	for _, n := range slices.Sorted(maps.Keys(ads.Tasks)) {
		key := task(n)
		keys[key] = true
		if _, there := was.attrs[key]; !there {
			b = fmt.Appendf(b, "%d %s Job Machine\n", newAd, key)
		}
		b, was.attrs[key] = changes(b, key, was.attrs[key], ads.Tasks[n])
	}
	for _, key := range slices.Sorted(maps.Keys(was.attrs)) {
		if !keys[key] {
			b = fmt.Appendf(b, "%d %s\n", destroyAd, key)
			delete(was.attrs, key)
		}
	}
	return b
}

// inJob is the key in logged of what is in Ads.Job.
const inJob = "job"

var seed = maphash.MakeSeed()

// changes appends the records that make of an ad with some values another one, whose values
// it returns. Its types are in the record that makes it.
func changes(b []byte, key string, was []value, of *classad.Ad) ([]byte, []value) {
	is := make([]value, 0, of.Len())
	for name, e := range of.All() {
		if strings.EqualFold(name, "MyType") || strings.EqualFold(name, "TargetType") || classad.Private(name) {
			continue
		}
		text := e.OldString()
		v := value{name, maphash.String(seed, text)}
		is = append(is, v)
		if !slices.Contains(was, v) {
			b = fmt.Appendf(b, "%d %s %s %s\n", setAttribute, key, name, text)
		}
	}
	for _, v := range was {
		if !slices.ContainsFunc(is, func(now value) bool { return now.name == v.name }) {
			b = fmt.Appendf(b, "%d %s %s\n", deleteAttribute, key, v.name)
		}
	}
	return b, is
}
