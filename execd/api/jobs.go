package api

import (
	"bytes"
	"encoding/json"
	"runtime"
	"slices"
	"sync"
)

// betweenJobs stands between two lines of a JobsReply, and nowhere else: in a
// string the quotes would be escaped, and nothing within a line begins so.
var betweenJobs = []byte(`},{"job":`)

// UnmarshalJSON reads the lines with all processors: of very many, reading them is
// most of what qstat takes.
func (r *JobsReply) UnmarshalJSON(b []byte) error {
	type plain JobsReply
	rest, ok := bytes.CutPrefix(b, []byte(`{"jobs":[`))
	list, end := bytes.CutSuffix(rest, []byte(`]}`))
	if !ok || !end || len(b) < 64<<10 {
		return json.Unmarshal(b, (*plain)(r))
	}
	pieces := divideJobs(list, runtime.GOMAXPROCS(0))
	jobs, errs := make([][]JobStatus, len(pieces)), make([]error, len(pieces))
	var all sync.WaitGroup
	for i, piece := range pieces {
		all.Go(func() { errs[i] = json.Unmarshal(slices.Concat([]byte("["), piece, []byte("]")), &jobs[i]) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return json.Unmarshal(b, (*plain)(r)) // it says better what is wrong
		}
	}
	r.Jobs = slices.Concat(jobs...)
	return nil
}

// divideJobs divides lines into about so many pieces of whole ones.
func divideJobs(list []byte, pieces int) [][]byte {
	var divided [][]byte
	for ; pieces > 1; pieces-- {
		from := len(list) / pieces
		at := bytes.Index(list[from:], betweenJobs)
		if at < 0 {
			break
		}
		divided = append(divided, list[:from+at+1])
		list = list[from+at+2:] // behind the comma
	}
	return append(divided, list)
}
