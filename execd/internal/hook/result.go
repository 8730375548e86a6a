package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"paddock/spool"
)

// Result is how one run of a hook has ended.
type Result struct {
	Keyword  string
	Hook     Name
	Started  time.Time
	Took     time.Duration
	Status   int    // exit status, or -n for signal n; noStatus
	TimedOut bool   // it was ended at its limit
	TooLong  bool   // it was ended for its output, which is cut
	Err      error  // it could not be started, or has no result: its parent was killed, it had too many processes, or ctx was done
	Stdout   []byte // at most the hook's MaxOutput
	Stderr   string // the last 4 KiB, which the log has as well
}

// noStatus is the Status of a hook without one: nobody is to take it for a success.
const noStatus = -9

// OK reports whether the hook ran to its end and has exited with 0.
func (r *Result) OK() bool { return r.Err == nil && !r.TimedOut && !r.TooLong && r.Status == 0 }

// String says how the hook ended.
func (r *Result) String() string {
	took := r.Took.Round(time.Millisecond)
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.TimedOut:
		return fmt.Sprintf("ended at its limit after %v", took)
	case r.TooLong:
		return fmt.Sprintf("ended after %v since it printed more than it may", took)
	case r.Status < 0:
		if sig := spool.SignalName(-r.Status); sig != "" {
			return fmt.Sprintf("killed by signal %s after %v", sig, took)
		}
		return fmt.Sprintf("killed by signal %d after %v", -r.Status, took)
	}
	return fmt.Sprintf("exit status %d after %v", r.Status, took)
}

// record is the JSON form of a Result, without Stdout, which may be long.
type record struct {
	Keyword  string    `json:"keyword"`
	Hook     Name      `json:"hook"`
	Started  time.Time `json:"started"`
	Took     float64   `json:"took"` // seconds
	Status   int       `json:"status"`
	TimedOut bool      `json:"timed_out,omitempty"`
	TooLong  bool      `json:"too_long,omitempty"`
	Error    string    `json:"error,omitempty"`
	Stderr   string    `json:"stderr,omitempty"`
}

// MarshalJSON writes a Result as it stands in the file hooks of a run's directory.
func (r Result) MarshalJSON() ([]byte, error) {
	w := record{
		Keyword: r.Keyword, Hook: r.Hook, Started: r.Started, Took: r.Took.Seconds(), Status: r.Status,
		TimedOut: r.TimedOut, TooLong: r.TooLong, Stderr: r.Stderr,
	}
	if r.Err != nil {
		w.Error = r.Err.Error()
	}
	return json.Marshal(&w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Result) UnmarshalJSON(b []byte) error {
	var w record
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*r = Result{
		Keyword: w.Keyword, Hook: w.Hook, Started: w.Started, Took: time.Duration(w.Took * float64(time.Second)), Status: w.Status,
		TimedOut: w.TimedOut, TooLong: w.TooLong, Stderr: w.Stderr,
	}
	if w.Error != "" {
		r.Err = errors.New(w.Error)
	}
	return nil
}
