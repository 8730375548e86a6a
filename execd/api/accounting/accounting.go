// Package accounting is the format of the accounting file, accounting(5): one line of
// 45 fields for each run of a task, byte for byte as Grid Engine 8.1.9 writes them,
// and behind them the reason of a failed run in words. Execd writes the file, and
// qacct reads it. Everybody may import the package; it imports nothing of the project.
package accounting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// NumFields is the number of fields of a line, without the reason.
const NumFields = 45

// Places of fields in a line, counted from 0, for Field.
const (
	FieldQName       = 0
	FieldHostname    = 1
	FieldGroup       = 2
	FieldOwner       = 3
	FieldJobName     = 4
	FieldJobNumber   = 5
	FieldAccount     = 6
	FieldStartTime   = 9
	FieldEndTime     = 10
	FieldRuWallclock = 13
	FieldRuUTime     = 14
	FieldRuSTime     = 15
	FieldProject     = 31
	FieldDepartment  = 32
	FieldGrantedPE   = 33
	FieldSlots       = 34
	FieldTaskNumber  = 35
	FieldCPU         = 36
	FieldMem         = 37
	FieldIO          = 38
	FieldIOW         = 40
	FieldPETaskID    = 41
	FieldARID        = 43
)

// None is the value of a text field without a value.
const None = "NONE"

// Record is one line, in the order of its fields. Numbers that Grid Engine
// writes with a point are float64; in the file they have six decimals.
type Record struct {
	QName          string // cluster queue
	Hostname       string // host the run was on
	Group          string
	Owner          string
	JobName        string
	JobNumber      int
	Account        string
	Priority       int     // of the queue: a nice value
	SubmissionTime int64   // seconds since the epoch
	StartTime      int64   // seconds since the epoch; 0: never started
	EndTime        int64   // seconds since the epoch; 0: never started
	Failed         int     // see FailedText
	ExitStatus     int     // the job's exit code, or 128 and the signal
	RuWallclock    int64   // s
	RuUTime        float64 // s
	RuSTime        float64 // s
	RuMaxRSS       float64 // KiB
	RuIXRSS        int64
	RuISMRSS       int64
	RuIDRSS        int64
	RuISRSS        int64
	RuMinFlt       int64 // page faults without I/O
	RuMajFlt       int64 // page faults with I/O
	RuNSwap        int64
	RuInBlock      float64 // reads of the file system, in blocks of 512 bytes
	RuOuBlock      int64   // writes of the file system, in blocks of 512 bytes
	RuMsgSnd       int64
	RuMsgRcv       int64
	RuNSignals     int64
	RuNVCSw        int64  // voluntary context switches
	RuNIVCSw       int64  // involuntary context switches
	Project        string // or None
	Department     string
	GrantedPE      string  // parallel environment, or None
	Slots          int     // of the whole job
	TaskNumber     int     // 0: the job is not an array
	CPU            float64 // s
	Mem            float64 // GiB s
	IO             float64 // GiB
	Category       string  // the requests, as options of qsub, or None
	IOW            float64 // s waited for I/O
	PETaskID       string  // task of a parallel job, or None
	MaxVMem        float64 // bytes
	ARID           int     // advance reservation; 0: none
	ARSubmission   int64   // seconds since the epoch; 0: none

	// Reason says in words why the run failed. Grid Engine does not have this
	// field. It is written only if there is a reason, and readers of Grid
	// Engine's format skip it.
	Reason string
}

// field is a pointer to a field of a Record: *string, *int, *int64 or *float64.
type field = any

// fields returns pointers to all fields, in order.
func (r *Record) fields() [NumFields]field {
	return [NumFields]field{
		&r.QName, &r.Hostname, &r.Group, &r.Owner, &r.JobName, &r.JobNumber, &r.Account, &r.Priority,
		&r.SubmissionTime, &r.StartTime, &r.EndTime, &r.Failed, &r.ExitStatus, &r.RuWallclock, &r.RuUTime, &r.RuSTime,
		&r.RuMaxRSS, &r.RuIXRSS, &r.RuISMRSS, &r.RuIDRSS, &r.RuISRSS, &r.RuMinFlt, &r.RuMajFlt, &r.RuNSwap,
		&r.RuInBlock, &r.RuOuBlock, &r.RuMsgSnd, &r.RuMsgRcv, &r.RuNSignals, &r.RuNVCSw, &r.RuNIVCSw, &r.Project,
		&r.Department, &r.GrantedPE, &r.Slots, &r.TaskNumber, &r.CPU, &r.Mem, &r.IO, &r.Category, &r.IOW, &r.PETaskID,
		&r.MaxVMem, &r.ARID, &r.ARSubmission,
	}
}

// Names are the fields' names as accounting(5) has them.
var Names = [NumFields]string{
	"qname", "hostname", "group", "owner", "job_name", "job_number", "account", "priority",
	"submission_time", "start_time", "end_time", "failed", "exit_status", "ru_wallclock", "ru_utime", "ru_stime",
	"ru_maxrss", "ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap",
	"ru_inblock", "ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw", "project",
	"department", "granted_pe", "slots", "task_number", "cpu", "mem", "io", "category", "iow", "pe_taskid",
	"maxvmem", "arid", "ar_submission_time",
}

// MarshalJSON implements json.Marshaler: an object with the fields by their
// names, in their order, and the reason if there is one.
func (r *Record) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, f := range r.fields() {
		value, err := json.Marshal(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Names[i], err)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, '"'), Names[i]...)
		b = append(append(b, `":`...), value...)
	}
	if r.Reason != "" {
		value, err := json.Marshal(r.Reason)
		if err != nil {
			return nil, fmt.Errorf("reason: %w", err)
		}
		b = append(append(b, `,"reason":`...), value...)
	}
	return append(b, '}'), nil
}

// Parse reads one line, with or without its newline. What it accepts, Append
// writes back byte for byte.
func Parse(line []byte) (Record, error) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	var r Record
	n := bytes.Count(line, []byte{':'}) + 1
	if n != NumFields && n != NumFields+1 {
		return r, fmt.Errorf("accounting line has %d fields; want %d", n, NumFields)
	}
	if line[0] == '#' {
		return r, errors.New("accounting line is a comment")
	}
	for i, to := range r.fields() {
		word := line
		if end := bytes.IndexByte(line, ':'); end >= 0 {
			word, line = line[:end], line[end+1:]
		}
		if !parseField(to, word) {
			return Record{}, fmt.Errorf("accounting line has a bad %s %q", Names[i], clip(word))
		}
	}
	if n > NumFields {
		r.Reason = unescape(line)
		if r.Reason == "" || escape(r.Reason) != string(line) {
			return Record{}, fmt.Errorf("accounting line has a bad reason %q", clip(line))
		}
	}
	return r, nil
}

// clip shortens a word for an error.
func clip(word []byte) []byte { return word[:min(len(word), 40)] }

func parseField(to field, word []byte) bool {
	switch to := to.(type) {
	case *string:
		*to = string(word)
		return plain(*to)
	case *int:
		n, err := strconv.Atoi(string(word))
		*to = n
		return err == nil && decimal(word)
	case *int64:
		n, err := strconv.ParseInt(string(word), 10, 64)
		*to = n
		return err == nil && decimal(word)
	case *float64:
		const decimals = 6
		point := len(word) - decimals - 1
		if point < 1 || word[point] != '.' || !decimal(word[:point]) && string(word[:point]) != "-0" || !digits(word[point+1:]) {
			return false
		}
		n, err := strconv.ParseFloat(string(word), 64)
		*to = n
		// A number of more digits than a float64 holds would not be
		// written back as it was.
		var room [40]byte
		return err == nil && bytes.Equal(appendFloat(room[:0], n), word)
	}
	panic(fmt.Sprintf("internal error: accounting field of type %T", to))
}

// decimal reports whether word is a whole number as the system writes it:
// without plus sign, leading zero or negative zero.
func decimal(word []byte) bool {
	word, negative := bytes.CutPrefix(word, []byte{'-'})
	if len(word) == 0 || word[0] == '0' && (negative || len(word) > 1) {
		return false
	}
	return digits(word)
}

func digits(word []byte) bool {
	for _, c := range word {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(word) > 0
}

// plain reports whether text can stand in a field: a colon would begin another
// field and a newline another line, and other control characters could harm the
// terminals of readers.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == ':' || c == 0x7f {
			return false
		}
	}
	return true
}

// Append appends the line of r with its newline. It refuses text that would
// break the format: colons and control characters, and a '#' in front.
func Append(b []byte, r Record) ([]byte, error) {
	if len(r.QName) > 0 && r.QName[0] == '#' {
		return b, fmt.Errorf("cannot write accounting line: qname %q would make it a comment", r.QName)
	}
	start := len(b)
	for i, from := range r.fields() {
		if i > 0 {
			b = append(b, ':')
		}
		switch v := from.(type) {
		case *string:
			if !plain(*v) {
				return b[:start], fmt.Errorf("cannot write accounting line: %s %q has a colon or a control character", Names[i], *v)
			}
			b = append(b, *v...)
		case *int:
			b = strconv.AppendInt(b, int64(*v), 10)
		case *int64:
			b = strconv.AppendInt(b, *v, 10)
		case *float64:
			// Infinity and NaN would spoil every sum.
			if *v-*v != 0 {
				return b[:start], fmt.Errorf("cannot write accounting line: %s is %v", Names[i], *v)
			}
			b = appendFloat(b, *v)
		}
	}
	if r.Reason != "" {
		b = append(append(b, ':'), escape(r.Reason)...)
	}
	return append(b, '\n'), nil
}

func appendFloat(b []byte, v float64) []byte { return strconv.AppendFloat(b, v, 'f', 6, 64) }

// Field returns the n-th field of a line, counted from 0, or nil if the line
// has fewer. It is cheaper than Parse, for readers of large files.
func Field(line []byte, n int) []byte {
	for range n {
		end := bytes.IndexByte(line, ':')
		if end < 0 {
			return nil
		}
		line = line[end+1:]
	}
	if end := bytes.IndexByte(line, ':'); end >= 0 {
		return line[:end]
	}
	return bytes.TrimSuffix(line, []byte{'\n'})
}
