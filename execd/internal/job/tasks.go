package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
)

// Tasks is a set of task numbers of one job, small even when it holds a
// million of them: runs of neighbours, counted in steps of the job's range.
type Tasks struct {
	of   api.Tasks
	runs []run // disjoint, ascending, never touching
	n    int
}

// run is an inclusive range of indexes: task = first + index*step.
type run struct{ low, high int }

// AllTasks returns the set of all tasks of a range.
func AllTasks(of api.Tasks) Tasks {
	return Tasks{of: of, runs: []run{{0, of.Count() - 1}}, n: of.Count()}
}

// NoTasks returns an empty set of tasks of a range.
func NoTasks(of api.Tasks) Tasks { return Tasks{of: of} }

// clone returns a copy that shares nothing.
func (s *Tasks) clone() Tasks {
	return Tasks{of: s.of, runs: slices.Clone(s.runs), n: s.n}
}

// Len returns how many tasks are in the set.
func (s *Tasks) Len() int { return s.n }

// Min returns the lowest task; there must be one.
func (s *Tasks) Min() int { return s.task(s.runs[0].low) }

// Has reports whether a task is in the set.
func (s *Tasks) Has(task int) bool {
	i, ok := s.index(task)
	if !ok {
		return false
	}
	_, found := s.find(i)
	return found
}

// Add puts a task of the job's range into the set.
func (s *Tasks) Add(task int) {
	i, ok := s.index(task)
	if !ok {
		return
	}
	at, found := s.find(i)
	if found {
		return
	}
	s.n++
	left := at > 0 && s.runs[at-1].high == i-1
	right := at < len(s.runs) && s.runs[at].low == i+1
	switch {
	case left && right:
		s.runs[at-1].high = s.runs[at].high
		s.runs = slices.Delete(s.runs, at, at+1)
	case left:
		s.runs[at-1].high = i
	case right:
		s.runs[at].low = i
	default:
		s.runs = slices.Insert(s.runs, at, run{i, i})
	}
}

// AddAll puts the tasks of another set of the same job into the set.
func (s *Tasks) AddAll(more *Tasks) {
	if s.n == 0 {
		s.runs, s.n = slices.Clone(more.runs), more.n
		return
	}
	for task := range more.All {
		s.Add(task)
	}
}

// Subtract takes the tasks of another set of the same job out of the set.
func (s *Tasks) Subtract(less *Tasks) {
	var kept []run
	n, k := 0, 0
	for _, r := range s.runs {
		for k < len(less.runs) && less.runs[k].high < r.low {
			k++
		}
		for i := k; i < len(less.runs) && less.runs[i].low <= r.high; i++ {
			if less.runs[i].low > r.low {
				kept = append(kept, run{r.low, less.runs[i].low - 1})
				n += less.runs[i].low - r.low
			}
			r.low = less.runs[i].high + 1
		}
		if r.low <= r.high {
			kept = append(kept, r)
			n += r.high - r.low + 1
		}
	}
	s.runs, s.n = kept, n
}

// Remove takes a task out of the set and reports whether it was there.
func (s *Tasks) Remove(task int) bool {
	i, ok := s.index(task)
	if !ok {
		return false
	}
	at, found := s.find(i)
	if !found {
		return false
	}
	s.n--
	r := s.runs[at]
	switch {
	case r.low == r.high:
		s.runs = slices.Delete(s.runs, at, at+1)
	case i == r.low:
		s.runs[at].low++
	case i == r.high:
		s.runs[at].high--
	default:
		s.runs[at].high = i - 1
		s.runs = slices.Insert(s.runs, at+1, run{i + 1, r.high})
	}
	return true
}

// Cut takes all tasks of a range out of the set and returns them.
func (s *Tasks) Cut(of api.Tasks) Tasks {
	taken := NoTasks(s.of)
	if !of.IsArray() || s.n == 0 {
		return taken
	}
	// A range that covers whole runs must not be walked task by task: -t
	// 1-1000000 is usual.
	var kept []run
	add := func(list *[]run, r run) {
		if last := len(*list) - 1; last >= 0 && (*list)[last].high == r.low-1 {
			(*list)[last].high = r.high
			return
		}
		*list = append(*list, r)
	}
	step := max(s.of.Step, 1)
	dense := of.Step == 1
	for _, r := range s.runs {
		for i := r.low; i <= r.high; {
			t := s.task(i)
			switch {
			case dense && t >= of.First && t <= of.Last:
				high := min(r.high, (of.Last-s.task(0))/step)
				add(&taken.runs, run{i, high})
				taken.n += high - i + 1
				i = high + 1
			case t > of.Last:
				add(&kept, run{i, r.high})
				i = r.high + 1
			case t >= of.First && (t-of.First)%of.Step == 0:
				add(&taken.runs, run{i, i})
				taken.n++
				i++
			default:
				add(&kept, run{i, i})
				i++
			}
		}
	}
	s.runs = kept
	s.n -= taken.n
	return taken
}

// All calls yield for each task, ascending.
func (s *Tasks) All(yield func(int) bool) {
	for _, r := range s.runs {
		for i := r.low; i <= r.high; i++ {
			if !yield(s.task(i)) {
				return
			}
		}
	}
}

// String returns the set as qstat shows it, "3-7:2,12"; empty for a job that
// is no array.
func (s *Tasks) String() string {
	if !s.of.IsArray() {
		return ""
	}
	return s.format()
}

func (s *Tasks) format() string {
	var b strings.Builder
	for _, r := range s.runs {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s.task(r.low)))
		switch r.high {
		case r.low:
		case r.low + 1:
			b.WriteString("," + strconv.Itoa(s.task(r.high)))
		default:
			b.WriteString("-" + strconv.Itoa(s.task(r.high)) + ":" + strconv.Itoa(max(s.of.Step, 1)))
		}
	}
	return b.String()
}

// short is format for people, of a set that may be long.
func (s *Tasks) short() string {
	text := s.format()
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return text
}

// parseTasks reads what format wrote.
func parseTasks(text string, of api.Tasks) (Tasks, bool) {
	set := NoTasks(of)
	for word := range strings.SplitSeq(text, ",") {
		span, _, _ := strings.Cut(word, ":")
		low, high, isRange := strings.Cut(span, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		i, ok1 := set.index(first)
		j, ok2 := set.index(last)
		if err1 != nil || err2 != nil || !ok1 || !ok2 || i > j {
			return set, false
		}
		if n := len(set.runs); n > 0 && set.runs[n-1].high >= i {
			return set, false
		} else if n > 0 && set.runs[n-1].high == i-1 {
			set.runs[n-1].high = j
		} else {
			set.runs = append(set.runs, run{i, j})
		}
		set.n += j - i + 1
	}
	return set, true
}

// task returns the number of a task by its index; the one task of a job that
// is no array has number 1.
func (s *Tasks) task(i int) int {
	if !s.of.IsArray() {
		return 1
	}
	return s.of.First + i*s.of.Step
}

func (s *Tasks) index(task int) (int, bool) {
	if !s.of.IsArray() {
		return 0, task == 1
	}
	return (task - s.of.First) / s.of.Step, s.of.Has(task)
}

// find returns where index i is, or would be, in the runs.
func (s *Tasks) find(i int) (at int, found bool) {
	at, _ = slices.BinarySearchFunc(s.runs, i, func(r run, i int) int { return r.high - i })
	return at, at < len(s.runs) && s.runs[at].low <= i
}

// Only returns those of a range of tasks that a list of ranges names, in the form
// of api.SubmitRequest.Only, and how many there are. The ranges may overlap, and
// stand in any order.
func Only(list string, of api.Tasks) (only string, n int, err error) {
	var runs []run
	add := func(i, j int) error {
		if runs = append(runs, run{i, j}); len(runs) > maxRanges {
			return fmt.Errorf("more than %d ranges of tasks are too many", maxRanges)
		}
		return nil
	}
	set := NoTasks(of)
	for word := range strings.SplitSeq(list, ",") {
		t, err := api.ParseTasks(word)
		if err != nil {
			return "", 0, err
		}
		t.Last -= (t.Last - t.First) % t.Step
		low, ok1 := set.index(t.First)
		high, ok2 := set.index(t.Last)
		if !ok1 || !ok2 || t.First < t.Last && t.Step%of.Step != 0 {
			return "", 0, fmt.Errorf("%s are no tasks of %v", word, of)
		}
		if t.First == t.Last || t.Step == of.Step {
			err = add(low, high)
		} else {
			for i := low; i <= high && err == nil; i += t.Step / of.Step {
				err = add(i, i)
			}
		}
		if err != nil {
			return "", 0, err
		}
	}
	slices.SortFunc(runs, func(a, b run) int { return a.low - b.low })
	for _, r := range runs {
		if last := len(set.runs) - 1; last >= 0 && r.low <= set.runs[last].high+1 {
			set.runs[last].high = max(set.runs[last].high, r.high)
			continue
		}
		set.runs = append(set.runs, r)
	}
	for _, r := range set.runs {
		set.n += r.high - r.low + 1
	}
	if set.n == of.Count() {
		return "", set.n, nil
	}
	return set.format(), set.n, nil
}

// maxRanges bounds the ranges of tasks of a job that a user lists.
const maxRanges = 10000
