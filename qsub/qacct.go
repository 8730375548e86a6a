package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/option"
)

// qacct shows what finished jobs used. It needs no execd: it reads the file.
func (s *session) qacct(_ context.Context, args []string) error {
	settings, err := option.Mixed(option.Qacct, args)
	if err != nil {
		return err
	}
	if done, err := s.asked(settings); done {
		return err
	}
	file := s.places.Accounting
	var want filter
	listing, asJSON := false, false
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil:
			return &option.Error{Text: fmt.Sprintf("invalid option argument \"%s\"", o.Value()), Hint: `Type "qacct -help" for the options.`}
		case o.Name == "-j":
			listing = true
			if err := want.job(o.Value()); err != nil {
				return err
			}
		case o.Name == "-t":
			if want.tasks, err = parseTasks(o); err != nil {
				return o.Errorf(exitFailed, "invalid task range \"%s\"", o.Value())
			}
		case o.Name == "-f":
			file = o.Value()
		case o.Name == "-json":
			asJSON = true
		}
	}
	if want.tasks.IsArray() && want.name == "" {
		return &option.Error{Text: "option -t needs a job with -j"}
	}
	var total totals
	found := 0
	var failed error
	err = each(file, want.keep, func(r *accounting.Record) {
		found++
		switch {
		case asJSON && failed == nil:
			failed = json.NewEncoder(s.out).Encode(r)
		case listing:
			writeRecord(s.out, r)
		}
		total.add(r)
	}, func(bad error) {
		fmt.Fprintf(s.err, "qacct: warning: %s: %s\n", file, api.Visible(bad.Error()))
	})
	if err = cmp.Or(err, failed); err != nil {
		return err
	}
	switch {
	case want.name == "" && asJSON:
	case want.name == "":
		total.write(s.out)
	case found > 0:
	case want.tasks.IsArray():
		return &failure{exitFailed, fmt.Sprintf("error: Job-array tasks %s.%v not found", api.Visible(want.name), want.tasks)}
	case isNumber(want.name):
		return &failure{exitFailed, fmt.Sprintf("error: job id %s not found", want.name)}
	default:
		return &failure{exitFailed, fmt.Sprintf("error: job name %s not found", api.Visible(want.name))}
	}
	return nil
}

// each reads the records of a file that keep wants.
func each(file string, keep func([]byte) bool, use func(*accounting.Record), warn func(error)) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // written with the first job that ends
	}
	if err != nil {
		return fmt.Errorf("cannot open accounting file %s: %s", file, cause(err))
	}
	defer f.Close()
	for r, err := range accounting.NewReader(f).Records(keep) {
		if _, ok := errors.AsType[*accounting.LineError](err); ok {
			warn(err)
			continue
		}
		if err != nil {
			return err
		}
		use(&r)
	}
	return nil
}

// filter chooses records; the zero value chooses all.
type filter struct {
	name   string // a job's number, name or pattern
	number []byte // the number as it stands in the file, or nil
	prefix []byte // of a name, up to its first pattern sign
	exact  bool   // prefix is the whole name
	tasks  api.Tasks
}

// job reads the argument of -j: a number, perhaps with a task, a name or a
// pattern.
func (f *filter) job(text string) error {
	f.name = text
	if number, task, ok := strings.Cut(text, "."); ok && isNumber(number) && isNumber(task) {
		n, err := strconv.Atoi(task)
		if err != nil || n == 0 {
			return &failure{exitFailed, fmt.Sprintf("error: job id %s not found", text)}
		}
		f.name, f.tasks = number, api.Tasks{First: n, Last: n, Step: 1}
	}
	if isNumber(f.name) {
		f.number = []byte(f.name)
		return nil
	}
	if _, err := path.Match(f.name, ""); err != nil {
		return &failure{exitFailed, fmt.Sprintf("error: job name %s not found", api.Visible(f.name))}
	}
	end := strings.IndexAny(f.name, `*?[\`)
	f.exact = end < 0
	if f.exact {
		end = len(f.name)
	}
	f.prefix = []byte(f.name[:end])
	return nil
}

// keep reports whether a line is wanted. It is asked for every line of a file
// that may have millions.
func (f *filter) keep(line []byte) bool {
	switch {
	case f.name == "":
		return true
	case f.number != nil:
		// Most lines do not have the digits at all, which is seen at once.
		if !bytes.Contains(line, f.number) || !bytes.Equal(accounting.Field(line, accounting.FieldJobNumber), f.number) {
			return false
		}
	default:
		name := accounting.Field(line, accounting.FieldJobName)
		if !bytes.HasPrefix(name, f.prefix) {
			return false
		}
		if f.exact {
			if len(name) != len(f.prefix) {
				return false
			}
		} else if ok, _ := path.Match(f.name, string(name)); !ok {
			return false
		}
	}
	if !f.tasks.IsArray() {
		return true
	}
	task, err := strconv.Atoi(string(accounting.Field(line, accounting.FieldTaskNumber)))
	t := f.tasks
	return err == nil && task >= t.First && task <= t.Last && (task-t.First)%t.Step == 0
}

const (
	kib = 1 << 10
	gib = 1 << 30
)

func writeRecord(b *bufio.Writer, r *accounting.Record) {
	line := func(key, value string) { fmt.Fprintf(b, "%-13s%s\n", key, value) }
	// Grid Engine pads some values, and those who compare bytes know it.
	text := func(key, value string) { fmt.Fprintf(b, "%-13s%-20s\n", key, api.Visible(value)) }
	number := func(key string, n int64) { fmt.Fprintf(b, "%-13s%-20d\n", key, n) }
	seconds := func(key string, n float64) { line(key, strconv.FormatFloat(n, 'f', 3, 64)+"s") }
	size := func(key string, bytes float64) { line(key, bytesText(bytes)) }
	when := func(key string, t int64) {
		if t == 0 {
			line(key, "-/-")
			return
		}
		line(key, date(time.Unix(t, 0)))
	}
	fmt.Fprintln(b, strings.Repeat("=", 62))
	text("qname", r.QName)
	text("hostname", r.Hostname)
	text("group", r.Group)
	text("owner", r.Owner)
	text("project", r.Project)
	text("department", r.Department)
	text("jobname", r.JobName)
	number("jobnumber", int64(r.JobNumber))
	if r.TaskNumber == 0 {
		line("taskid", "undefined")
	} else {
		number("taskid", int64(r.TaskNumber))
	}
	text("account", r.Account)
	number("priority", int64(r.Priority))
	line("qsub_time", date(time.Unix(r.SubmissionTime, 0)))
	when("start_time", r.StartTime)
	when("end_time", r.EndTime)
	text("granted_pe", r.GrantedPE)
	number("slots", int64(r.Slots))
	if r.Failed == 0 {
		line("failed", "0    ")
	} else {
		line("failed", fmt.Sprintf("%-4d: %s", r.Failed, accounting.FailedText(r.Failed)))
	}
	exit := fmt.Sprintf("%-20d", r.ExitStatus)
	if name := signalText(r.ExitStatus - 128); name != "" {
		exit += " (" + name + ")"
	}
	line("exit_status", exit)
	line("ru_wallclock", fmt.Sprintf("%ds", r.RuWallclock))
	seconds("ru_utime", r.RuUTime)
	seconds("ru_stime", r.RuSTime)
	// Grid Engine 8.1.9 takes these for bytes.
	size("ru_maxrss", r.RuMaxRSS*kib)
	size("ru_ixrss", float64(r.RuIXRSS)*kib)
	size("ru_ismrss", float64(r.RuISMRSS)*kib)
	size("ru_idrss", float64(r.RuIDRSS)*kib)
	size("ru_isrss", float64(r.RuISRSS)*kib)
	number("ru_minflt", r.RuMinFlt)
	number("ru_majflt", r.RuMajFlt)
	number("ru_nswap", r.RuNSwap)
	number("ru_inblock", int64(r.RuInBlock))
	number("ru_oublock", r.RuOuBlock)
	number("ru_msgsnd", r.RuMsgSnd)
	number("ru_msgrcv", r.RuMsgRcv)
	number("ru_nsignals", r.RuNSignals)
	number("ru_nvcsw", r.RuNVCSw)
	number("ru_nivcsw", r.RuNIVCSw)
	seconds("cpu", r.CPU)
	line("mem", bytesText(r.Mem*gib)+"s")
	size("io", r.IO*gib)
	seconds("iow", r.IOW)
	size("maxvmem", r.MaxVMem)
	if r.ARID == 0 {
		line("arid", "undefined")
		line("ar_sub_time", "undefined")
	} else {
		number("arid", int64(r.ARID))
		when("ar_sub_time", r.ARSubmission)
	}
	line("category", api.Visible(r.Category))
}

// bytesText is a number of bytes with three decimals and a unit.
func bytesText(n float64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB", "EB"}
	i := 0
	for i+1 < len(units) && (n >= kib || n <= -kib) {
		n /= kib
		i++
	}
	return strconv.FormatFloat(n, 'f', 3, 64) + units[i]
}

// signalTexts are the C library's words for signals 1 to 31.
var signalTexts = strings.Split("Hangup,Interrupt,Quit,Illegal instruction,Trace/breakpoint trap,Aborted,Bus error,"+
	"Floating point exception,Killed,User defined signal 1,Segmentation fault,User defined signal 2,Broken pipe,Alarm clock,"+
	"Terminated,Stack fault,Child exited,Continued,Stopped (signal),Stopped,Stopped (tty input),Stopped (tty output),"+
	"Urgent I/O condition,CPU time limit exceeded,File size limit exceeded,Virtual timer expired,Profiling timer expired,"+
	"Window changed,I/O possible,Power failure,Bad system call", ",")

func signalText(n int) string {
	if n < 1 || n > len(signalTexts) {
		return ""
	}
	return signalTexts[n-1]
}

// totals are the sums of qacct without a job.
type totals struct {
	wallclock                       int64
	utime, stime, cpu, mem, io, iow float64
}

func (t *totals) add(r *accounting.Record) {
	t.wallclock += r.RuWallclock
	t.utime += r.RuUTime
	t.stime += r.RuSTime
	t.cpu += r.CPU
	t.mem += r.Mem
	t.io += r.IO
	t.iow += r.IOW
}

func (t *totals) write(b *bufio.Writer) {
	fmt.Fprintf(b, "Total System Usage\n%13s %13s %13s %13s %18s %18s %18s\n%s\n", "WALLCLOCK", "UTIME", "STIME", "CPU", "MEMORY", "IO", "IOW", strings.Repeat("=", 112))
	fmt.Fprintf(b, "%13d %13.3f %13.3f %13.3f %18.3f %18.3f %18.3f\n", t.wallclock, t.utime, t.stime, t.cpu, t.mem, t.io, t.iow)
}
