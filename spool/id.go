package spool

import (
	"strconv"
	"strings"
)

// An ID names a task of a job, or a task that a parallel job started on this
// host. Tasks are counted from 1; a job that is no array has task 1 alone.
type ID struct {
	Job, Task int
	PETask    string // empty for the job's own task
}

// A RunID names one run of a task. Runs are counted from 0.
type RunID struct {
	Job, Task, Run int
	PETask         string // a task that was started in the run; empty: the run itself
}

// ParseID parses "42.1" or "42.1/3.host". It accepts exactly what String
// writes, so a name that passes is safe as a path below the spool.
func ParseID(s string) (ID, error) {
	name, petask, isTask := strings.Cut(s, "/")
	job, task, ok := strings.Cut(name, ".")
	id := ID{PETask: petask}
	if ok {
		id.Job, ok = parsePart(job, 1)
	}
	if ok {
		id.Task, ok = parsePart(task, 1)
	}
	if !ok || isTask && !validPETask(petask) {
		return ID{}, syntax("job id", 0, short([]byte(s))+" is not JOB.TASK or JOB.TASK/PETASK")
	}
	return id, nil
}

// ParseRunID parses "42.1.0".
func ParseRunID(s string) (RunID, error) {
	var r RunID
	job, rest, ok := strings.Cut(s, ".")
	task, run, ok2 := strings.Cut(rest, ".")
	ok = ok && ok2
	if ok {
		r.Job, ok = parsePart(job, 1)
	}
	if ok {
		r.Task, ok = parsePart(task, 1)
	}
	if ok {
		r.Run, ok = parsePart(run, 0)
	}
	if !ok {
		return RunID{}, syntax("run id", 0, short([]byte(s))+" is not JOB.TASK.RUN")
	}
	return r, nil
}

func parsePart(s string, least uint64) (int, bool) {
	n, ok := decimal(s, maxID)
	return int(n), ok && n >= least
}

// validPETask checks the name of a task directory, "<counter>.<host>": letters,
// digits, and between them dots, hyphens and underscores.
func validPETask(s string) bool {
	if s == "" || len(s) > 200 || strings.Contains(s, "..") {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && i < len(s)-1 && (c == '.' || c == '-' || c == '_'):
		default:
			return false
		}
	}
	return true
}

// Valid reports whether ParseID would accept the id.
func (id ID) Valid() bool {
	return 1 <= id.Job && id.Job <= maxID && 1 <= id.Task && id.Task <= maxID &&
		(id.PETask == "" || validPETask(id.PETask))
}

// String returns the name that ParseID parses.
func (id ID) String() string {
	s := strconv.Itoa(id.Job) + "." + strconv.Itoa(id.Task)
	if id.PETask != "" {
		s += "/" + id.PETask
	}
	return s
}

// Valid reports whether ParseRunID would accept the id.
func (r RunID) Valid() bool {
	return r.ID().Valid() && 0 <= r.Run && r.Run <= maxID
}

// String returns the name that ParseRunID parses, and behind it the task that
// was started in the run.
func (r RunID) String() string {
	s := strconv.Itoa(r.Job) + "." + strconv.Itoa(r.Task) + "." + strconv.Itoa(r.Run)
	if r.PETask != "" {
		s += "/" + r.PETask
	}
	return s
}

// ID returns the task that the run is one of.
func (r RunID) ID() ID { return ID{Job: r.Job, Task: r.Task, PETask: r.PETask} }

// Within returns the run in which the task PETask was started, or the run itself.
func (r RunID) Within() RunID { return RunID{Job: r.Job, Task: r.Task, Run: r.Run} }

// intoPrefix begins the names of what qrsh -into starts in a job.
const intoPrefix = "into."

// IntoTask returns the name of what is started in a job by its owner or an
// administrator, counted from 1.
func IntoTask(n int) string { return intoPrefix + strconv.Itoa(n) }

// IsInto reports whether a task of that name was started by qrsh -into.
func IsInto(petask string) bool { return strings.HasPrefix(petask, intoPrefix) }
