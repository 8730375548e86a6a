package job

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"paddock/execd/api"
)

// graph has the dependencies between the jobs that are not over: who waits for whom,
// and what of that is in vain. It and what it reads of the jobs is guarded by the
// Store's mutex, which its callers hold.
type graph struct {
	jobs      map[int]*Job   // the Store's
	followers map[int][]*Job // the jobs that wait for a job, by its number
	waits     map[int]int    // how many elements followers has, by the uid of their owner
	vains     map[*Job]*vain // what inVain has found out since something has changed
}

func newGraph(jobs map[int]*Job) graph {
	return graph{jobs: jobs, followers: map[int][]*Job{}, waits: map[int]int{}}
}

// link enters a job with those it waits for, so that their ends are told to
// it; those that are over meanwhile are not waited for.
func (g *graph) link(j *Job) {
	maps.DeleteFunc(j.waitsFor, func(number int, _ bool) bool { return g.jobs[number] == nil })
	for _, number := range j.predecessors() {
		if g.jobs[number] != nil {
			g.followers[number] = append(g.followers[number], j)
			g.waits[j.UID]++
		}
	}
}

// relink enters a job with those it waits for now, and not with those it waited
// for before.
func (g *graph) relink(j *Job, before []int) {
	for _, number := range before {
		all := g.followers[number]
		n := len(all)
		rest := slices.DeleteFunc(all, func(f *Job) bool { return f == j })
		g.waitsLess(j, n-len(rest))
		if len(rest) == 0 {
			delete(g.followers, number)
		} else {
			g.followers[number] = rest
		}
	}
	g.link(j)
}

// unlink frees those who waited for a job that is over.
func (g *graph) unlink(j *Job) {
	delete(g.vains, j)
	if len(g.followers[j.Number]) == 0 {
		return
	}
	own := j.own()
	own.freed = g.followers[j.Number]
	delete(g.followers, j.Number)
	var vain []*Job
	for _, f := range own.freed {
		g.waitsLess(f, 1)
		delete(f.waitsFor, j.Number)
		for _, u := range f.unmetBy(j) {
			_ = f.addUnmet(&u) // the tasks are its own
			own.blocked = append(own.blocked, blockedJob{f, &u})
			vain = append(vain, f)
		}
	}
	if len(vain) > 0 {
		g.changeVain(vain...)
	}
}

// waitsLess notes that a job does not wait for so many others any more.
func (g *graph) waitsLess(j *Job, n int) {
	if g.waits[j.UID] -= n; g.waits[j.UID] == 0 {
		delete(g.waits, j.UID)
	}
}

// followedBy returns the jobs that wait for one, by -hold_jid and by
// -hold_jid_ad.
func (g *graph) followedBy(number int) (jobs, array []int) {
	for _, f := range g.followers[number] {
		if g.jobs[f.Number] != f {
			continue // it was deleted
		}
		if f.waitsFor[number] {
			jobs = append(jobs, f.Number)
		}
		if slices.Contains(f.waitsForTasks, number) {
			array = append(array, f.Number)
		}
	}
	slices.Sort(jobs)
	slices.Sort(array)
	return slices.Compact(jobs), slices.Compact(array)
}

// allFollowers returns the jobs that wait for one, through whatever others.
func (g *graph) allFollowers(j *Job) map[int]bool {
	all := map[int]bool{}
	for next := []int{j.Number}; len(next) > 0; {
		jobs, array := g.followedBy(next[len(next)-1])
		next = next[:len(next)-1]
		for _, number := range append(jobs, array...) {
			if !all[number] {
				all[number] = true
				next = append(next, number)
			}
		}
	}
	return all
}

// unfinished returns those jobs that a job waits for task by task and that are not over.
func (g *graph) unfinished(j *Job) []*Job {
	var jobs []*Job
	for _, number := range j.waitsForTasks {
		if p := g.jobs[number]; p != nil {
			jobs = append(jobs, p)
		}
	}
	return jobs
}

// maxWaits bounds how often the jobs of a user wait for another: n jobs that wait for
// all before them would do it n*n/2 times.
const maxWaits = 500_000

// mayWait refuses a job of a user that waits for more others than there is room for, and
// one with -hold_jid_ad whose tasks are not those of the arrays it waits for (qsub(1)).
func (g *graph) mayWait(owner string, uid int, tasks api.Tasks, links *links) error {
	if n, more := g.waits[uid], links.count(); more > 0 && n+more > maxWaits {
		return api.Errorf(api.CodeLimit, "job rejected: it waits for %d jobs, those of user %s wait for %d others already, and at most %d are possible", more, owner, n, maxWaits)
	}
	for _, number := range links.arrays() {
		p := g.jobs[number]
		switch {
		case p == nil: // it is over meanwhile
		case !p.Tasks.IsArray():
			return ErrNoArray
		case p.Tasks.First != tasks.First || p.Tasks.Last != tasks.Last:
			return api.Errorf(api.CodeRejected, "This array job must have the same range of sub-tasks as the dependent array job specified with -hold_jid_ad")
		}
	}
	return nil
}

// ErrNoArray refuses -hold_jid_ad of and on jobs that are no arrays.
var ErrNoArray = api.Errorf(api.CodeRejected, `Can only specify "-hold_jid_ad" option with an array job (using "-t" option)`)

// free returns the pending tasks that nothing holds back but -a and -tc. The set is to
// be read only.
func (g *graph) free(j *Job) Tasks {
	if len(j.waitsFor) > 0 {
		return NoTasks(j.Tasks)
	}
	if len(j.held) == 0 && len(j.waitsForTasks) == 0 && len(j.unmet) == 0 {
		return j.pending
	}
	for _, held := range j.held {
		if held.Len() == j.count() {
			return NoTasks(j.Tasks)
		}
	}
	set := j.pending.clone()
	for _, held := range j.held {
		set.Subtract(&held)
	}
	for _, p := range g.unfinished(j) {
		unfinished := p.unfinished()
		holdFollowers(&unfinished, &set)
		if slices.Contains(j.links.Success, dependency{p.Number, true}) {
			holdFollowers(&p.failed, &set)
		}
	}
	for _, u := range j.unmet {
		tasks, _ := parseTasks(u.Tasks, j.Tasks) // addUnmet has looked at it
		set.Subtract(&tasks)
	}
	return set
}

// holdFollowers takes those tasks out of the set of a job with -hold_jid_ad
// that wait for these of another. Steps may differ: a task stands for all
// numbers up to the next.
func holdFollowers(these, set *Tasks) {
	for _, r := range these.runs {
		low, high := these.task(r.low), these.task(r.high)
		set.Cut(api.Tasks{First: max(low-max(set.of.Step, 1)+1, 1), Last: high + max(these.of.Step, 1) - 1, Step: 1})
	}
}

// holds returns the letters of what holds pending tasks back, for people: u, o
// and s, j for other jobs, a for other jobs' tasks.
func (g *graph) holds(j *Job) string {
	var b strings.Builder
	for _, letter := range Holds {
		if _, ok := j.held[letter]; ok {
			b.WriteRune(letter)
		}
	}
	if len(j.waitsFor)+len(j.unmet) > 0 {
		b.WriteByte('j')
	}
	if len(g.unfinished(j)) > 0 {
		b.WriteByte('a')
	}
	return b.String()
}

// gone returns those dependencies of a job of which the other job is over and is not known
// to have failed.
func (g *graph) gone(j *Job, success []dependency) []dependency {
	return slices.DeleteFunc(slices.Clone(success), func(d dependency) bool {
		return g.jobs[d.Job] != nil || slices.ContainsFunc(j.unmet, d.isOf)
	})
}

// endedMeanwhile returns those of a new or altered job that ended before it was linked. They
// count as failed until outcome has looked.
func (g *graph) endedMeanwhile(j *Job, success []dependency) []dependency {
	gone, all := g.gone(j, success), j.all()
	for _, d := range gone {
		j.own().unmet = append(j.unmet, &unmet{d, all.format(), fmt.Sprintf("it is not known how job %d has ended", d.Job)})
	}
	return gone
}

// vain is what of a job waits in vain: tasks that never start as things are.
type vain struct {
	tasks Tasks
	root  string   // how what it all comes from has ended; empty: nothing is in vain
	texts []string // a line for each dependency
}

// maxVainTexts bounds the lines about one job.
const maxVainTexts = 20

func (v *vain) add(tasks *Tasks, on, root string, of *Job) {
	v.root = cmp.Or(v.root, root)
	v.tasks.AddAll(tasks)
	if len(v.texts) == maxVainTexts {
		return
	}
	what := "it"
	if tasks.Len() < of.count() {
		what = "tasks " + tasks.short()
	}
	v.texts = append(v.texts, fmt.Sprintf("%s: %s will never start; delete it by qdel", on+root, what))
}

// inVain returns what of a job never starts, because what must succeed for it has not, or
// waits in vain itself.
func (g *graph) inVain(j *Job) *vain {
	if len(j.links.Success) == 0 {
		return &vain{tasks: NoTasks(j.Tasks)}
	}
	if g.vains == nil {
		g.vains = map[*Job]*vain{}
	}
	// Chains may be long: what a job depends on is looked at before it, without recursion.
	for next := []*Job{j}; len(next) > 0; {
		at, n := next[len(next)-1], len(next)
		for _, d := range at.links.Success {
			if p := g.jobs[d.Job]; g.vains[at] == nil && p != nil && len(p.links.Success) > 0 && g.vains[p] == nil {
				next = append(next, p)
			}
		}
		if len(next) == n {
			if g.vains[at] == nil {
				g.vains[at] = g.lookInVain(at)
			}
			next = next[:n-1]
		}
	}
	return g.vains[j]
}

// lookInVain is inVain of a job where it is known of those that it depends on.
func (g *graph) lookInVain(j *Job) *vain {
	v := &vain{tasks: NoTasks(j.Tasks)}
	for _, u := range j.unmet {
		tasks, _ := parseTasks(u.Tasks, j.Tasks) // addUnmet has looked at it
		v.add(&tasks, "", u.Why, j)
	}
	for _, d := range j.links.Success {
		p := g.vains[g.jobs[d.Job]]
		if p == nil || p.root == "" {
			continue
		}
		on := fmt.Sprintf("job %d never starts, since ", d.Job)
		if p.tasks.Len() < g.jobs[d.Job].count() {
			on = fmt.Sprintf("tasks %s of job %d never start, since ", p.tasks.short(), d.Job)
		}
		if tasks := j.following(d, &p.tasks); tasks.Len() > 0 {
			v.add(&tasks, on, p.root, j)
		}
	}
	return v
}

// changeVain takes note that it has changed what of jobs waits in vain, and tells those
// who wait for them and for what depends on them.
func (g *graph) changeVain(jobs ...*Job) {
	g.vains = nil
	told := map[*Job]bool{}
	for len(jobs) > 0 {
		j := jobs[len(jobs)-1]
		jobs = jobs[:len(jobs)-1]
		if !told[j] {
			told[j] = true
			j.wakeWaiting()
			jobs = append(jobs, g.followers[j.Number]...)
		}
	}
}
