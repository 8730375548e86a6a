package job

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"paddock/execd/api"
)

// linking are the fields of which the words name jobs to wait for.
var linking = []api.Field{api.FieldHoldJobs, api.FieldHoldArray, api.FieldHoldOK, api.FieldHoldArrayOK}

// relinks reports whether an alteration of these fields changes what is waited for.
func relinks(fields []api.Field) bool {
	return slices.ContainsFunc(fields, func(f api.Field) bool { return slices.Contains(linking, f) })
}

// meaning is what the words of one of these fields mean.
type meaning struct {
	field api.Field
	jobs  []*Job   // that are not over, each once
	words []string // that mean them
	over  []string // numbers of none that is not over
	none  []string // other words that mean none
}

// numbers returns those of the jobs.
func (m *meaning) numbers() []int {
	numbers := make([]int, len(m.jobs))
	for i, j := range m.jobs {
		numbers[i] = j.Number
	}
	return numbers
}

// meanings returns what the words of these fields mean to a user: his jobs that are not
// over, and those that a number names.
func (s *Store) meanings(r *api.SubmitRequest, fields []api.Field, uid int) []meaning {
	var list []meaning
	q := s.search(context.Background(), ownOrNumber(Caller{UID: uid}))
	for i, words := range [][]string{r.HoldJobs, r.HoldArray, r.HoldOK, r.HoldArrayOK} {
		if !slices.Contains(fields, linking[i]) {
			continue
		}
		clear(q.told) // of the other fields
		m := meaning{field: linking[i]}
		for _, word := range words {
			found, meant, _ := q.find(word, api.Tasks{})
			for _, j := range found {
				if q.first(toldOf{j, api.Tasks{}, true}) {
					m.jobs, m.words = append(m.jobs, j), append(m.words, word)
				}
			}
			_, err := strconv.Atoi(word)
			switch {
			case meant:
			case err == nil:
				m.over = append(m.over, word)
			default:
				m.none = append(m.none, word)
			}
		}
		list = append(list, m)
	}
	return list
}

// unmatched says of which words of -hold_jid and -hold_jid_ad a new job waits for nothing:
// names of no job that is not over, and numbers that were never given out.
func (s *Store) unmatched(list []meaning) (texts []string) {
	for _, m := range list {
		if m.field != api.FieldHoldJobs && m.field != api.FieldHoldArray {
			continue
		}
		for _, word := range slices.Concat(m.none, m.over) {
			if number, err := strconv.Atoi(word); err != nil || number < 1 || number > s.Last() {
				texts = append(texts, fmt.Sprintf("there is no job %q that is not finished; nothing is waited for", word))
			}
		}
	}
	return texts
}

// links returns what a job has to wait for by what was meant.
func (s *Store) links(j *Job, list []meaning) (l links, err error) {
	for i := range list {
		m := &list[i]
		switch m.field {
		case api.FieldHoldJobs:
			l.WaitsFor = m.numbers()
		case api.FieldHoldArray:
			l.WaitsForTasks = m.numbers()
		default:
			err = s.dependOn(&l, j, m)
		}
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

// arrays are the jobs that are waited for task by task.
func (l *links) arrays() []int {
	arrays := slices.Clone(l.WaitsForTasks)
	for _, d := range l.Success {
		if d.ByTask {
			arrays = append(arrays, d.Job)
		}
	}
	return arrays
}

// count is how many they are.
func (l *links) count() int { return len(l.WaitsFor) + len(l.WaitsForTasks) + len(l.Success) }

// alter replaces those of the fields.
func (l *links) alter(fields []api.Field, to *links) {
	for _, f := range fields {
		switch f {
		case api.FieldHoldJobs:
			l.WaitsFor = to.WaitsFor
		case api.FieldHoldArray:
			l.WaitsForTasks = to.WaitsForTasks
		case api.FieldHoldOK, api.FieldHoldArrayOK:
			byTask := f == api.FieldHoldArrayOK
			l.Success = replaced(l.Success, to.Success, func(d dependency) bool { return d.ByTask == byTask })
			l.Unmet = replaced(l.Unmet, to.Unmet, func(u unmet) bool { return u.ByTask == byTask })
		}
	}
}

// replaced returns a list in which those that are meant are those of another list.
func replaced[T any](list, by []T, meant func(T) bool) []T {
	rest := slices.DeleteFunc(slices.Clone(list), meant)
	for _, v := range by {
		if meant(v) {
			rest = append(rest, v)
		}
	}
	return rest
}

// waitFor has the job wait for these and for no others.
func (j *Job) waitFor(l links) error {
	if l.count()+j.links.count() == 0 {
		return nil
	}
	own := j.own()
	own.unmet = slices.DeleteFunc(own.unmet, func(u *unmet) bool { return !slices.Contains(l.Success, u.dependency) })
	known := l.Unmet
	l.Unmet = nil
	own.links, own.waitsFor, own.waitsForTasks = l, map[int]bool{}, l.WaitsForTasks
	for i := range known {
		if err := j.addUnmet(&known[i]); err != nil {
			return err
		}
	}
	for _, number := range l.WaitsFor {
		own.waitsFor[number] = true
	}
	for _, d := range l.Success {
		switch {
		case !d.ByTask:
			own.waitsFor[d.Job] = true
		case !slices.Contains(own.waitsForTasks, d.Job):
			own.waitsForTasks = append(slices.Clip(own.waitsForTasks), d.Job)
		}
	}
	return nil
}
