package job

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"paddock/execd/api"
)

// search finds the jobs that the words of one request mean. It looks at all jobs
// once, and not under the Store's lock, however many words there are.
type search struct {
	ctx context.Context
	all *jobSet
	// keep says which jobs count, and whether a word is the number of a job; nil: all.
	keep func(j *Job, number bool) bool
	jobs []*Job            // of the Store, by number; nil: not needed yet
	name map[string][]*Job // of jobs
	told map[toldOf]bool
}

// toldOf is a job with the tasks of it that a name or a pattern has named, or, anyhow, any
// word: a number as well.
type toldOf struct {
	job    *Job
	tasks  api.Tasks
	anyhow bool
}

// first reports whether a job is told of for the first time, and notes that it is.
func (q *search) first(key toldOf) bool {
	known := q.told[key]
	q.told[key] = true
	return !known
}

// search returns a search of all jobs that keep keeps.
func (s *jobSet) search(ctx context.Context, keep func(j *Job, number bool) bool) *search {
	return &search{ctx: ctx, all: s, keep: keep, told: map[toldOf]bool{}}
}

// find returns the jobs that a number, a name or a pattern means, and whether there is
// one. Jobs that an earlier name or pattern has meant with the same tasks are not
// returned again. The error is that of the context: who asked has gone.
func (q *search) find(word string, tasks api.Tasks) (found []*Job, meant bool, err error) {
	if number, err := strconv.Atoi(word); err == nil {
		if j := q.all.Get(number); j != nil && (q.keep == nil || q.keep(j, isNumber(word))) {
			return []*Job{j}, true, q.ctx.Err()
		}
		return nil, false, q.ctx.Err()
	}
	if q.jobs == nil {
		q.begin()
	}
	all := q.name[word]
	if strings.ContainsAny(word, api.PatternSigns) {
		all = q.matching(word)
	}
	for _, j := range all {
		if q.all.Get(j.Number) != j {
			continue // it is over meanwhile
		}
		meant = true
		if q.first(toldOf{j, tasks, false}) {
			found = append(found, j)
		}
	}
	return found, meant, q.ctx.Err()
}

// begin takes the jobs.
func (q *search) begin() {
	q.jobs = q.all.chosen(func(j *Job) bool { return q.keep == nil || q.keep(j, false) })
	q.name = map[string][]*Job{}
	for _, j := range q.jobs {
		name := j.Terms().Name
		q.name[name] = append(q.name[name], j)
	}
}

// matching returns the jobs whose name matches a pattern.
func (q *search) matching(pattern string) (found []*Job) {
	for i, j := range q.jobs {
		if i%1024 == 0 && q.ctx.Err() != nil {
			return nil
		}
		if ok, err := path.Match(pattern, j.Terms().Name); err == nil && ok {
			found = append(found, j)
		}
	}
	return found
}

// owners returns what says whether an owner is one of those that patterns name; no
// pattern means the caller. An owner is compared once, however many jobs he has.
func owners(patterns []string, caller Caller) func(owner string, uid int) bool {
	if len(patterns) == 0 {
		return func(_ string, uid int) bool { return uid == caller.UID }
	}
	known := map[string]bool{}
	return func(owner string, _ int) bool {
		yes, ok := known[owner]
		if !ok {
			yes = slices.ContainsFunc(patterns, func(p string) bool {
				ok, err := path.Match(p, owner)
				return err == nil && ok
			})
			known[owner] = yes
		}
		return yes
	}
}

// Meant returns the jobs that words mean, each once, and the words that mean none. The
// error is that of ctx.
func (s *jobSet) Meant(ctx context.Context, words []string) (jobs []*Job, missing []string, err error) {
	q := s.search(ctx, nil)
	for _, word := range words {
		found, meant, err := q.find(word, api.Tasks{})
		if err != nil {
			return nil, nil, err
		}
		if !meant {
			missing = append(missing, word)
		}
		for _, j := range found {
			if q.first(toldOf{j, api.Tasks{}, true}) {
				jobs = append(jobs, j)
			}
		}
	}
	return jobs, missing, nil
}

// lines gathers what is said of jobs, and of very many only how many more there are.
type lines struct {
	list   []api.Line
	untold int
}

// maxLines bounds the lines of a reply, those of failures to twice as many.
const maxLines = 100_000

func (l *lines) add(line api.Line) {
	if n := len(l.list); n >= 2*maxLines || n >= maxLines && !line.Failed {
		l.untold++
		return
	}
	l.list = append(l.list, line)
}

func (l *lines) say(format string, args ...any) {
	l.add(api.Line{Text: fmt.Sprintf(format, args...)})
}

// fail says what cannot be done, and why in a word.
func (l *lines) fail(code api.Code, format string, args ...any) {
	l.add(api.Line{Text: fmt.Sprintf(format, args...), Failed: true, Code: code})
}

// atSameTime is how many jobs are changed at the same time, sharing the syncs.
const atSameTime = 32

// each has the jobs changed, as long as somebody waits for the answer, and tells in their
// order what is told of them.
func (l *lines) each(ctx context.Context, jobs []*Job, change func(*Job, *lines) error) error {
	for chunk := range slices.Chunk(jobs, atSameTime) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		told, errs := make([]lines, len(chunk)), make([]error, len(chunk))
		var wg sync.WaitGroup
		for i, j := range chunk {
			wg.Go(func() { errs[i] = change(j, &told[i]) })
		}
		wg.Wait()
		for i := range told {
			l.untold += told[i].untold
			for _, line := range told[i].list {
				l.add(line)
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// all returns the lines.
func (l *lines) all() []api.Line {
	if l.untold > 0 {
		return append(l.list, api.Line{Text: "and " + strconv.Itoa(l.untold) + " more lines like these"})
	}
	return l.list
}
