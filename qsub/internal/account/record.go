package account

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/qsub/internal/output"
)

const (
	kib = 1 << 10
	gib = 1 << 30
)

// writeRecord prints a record as qacct -j does.
func writeRecord(b io.Writer, r *accounting.Record) {
	line := func(key, value string) { fmt.Fprintf(b, "%-13s%s\n", key, value) }
	// Grid Engine pads some values with blanks, which programs that compare
	// bytes expect.
	text := func(key, value string) { fmt.Fprintf(b, "%-13s%-20s\n", key, api.Visible(value)) }
	number := func(key string, n int64) { fmt.Fprintf(b, "%-13s%-20d\n", key, n) }
	seconds := func(key string, n float64) { line(key, strconv.FormatFloat(n, 'f', 3, 64)+"s") }
	size := func(key string, bytes float64) { line(key, bytesText(bytes)) }
	when := func(key string, t int64) {
		if t == 0 {
			line(key, "-/-")
			return
		}
		line(key, output.Date(time.Unix(t, 0)))
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
	line("qsub_time", output.Date(time.Unix(r.SubmissionTime, 0)))
	when("start_time", r.StartTime)
	when("end_time", r.EndTime)
	text("granted_pe", r.GrantedPE)
	number("slots", int64(r.Slots))
	if r.Failed == 0 {
		line("failed", "0    ")
	} else {
		line("failed", fmt.Sprintf("%-4d: %s", r.Failed, cmp.Or(accounting.FailedText(r.Failed), "invalid execution state")))
	}
	exit := fmt.Sprintf("%-20d", r.ExitStatus)
	if r.ExitStatus < 0 || r.ExitStatus >= 128 {
		exit += " (" + signalText(r.ExitStatus-128) + ")"
	}
	line("exit_status", exit)
	line("ru_wallclock", fmt.Sprintf("%ds", r.RuWallclock))
	seconds("ru_utime", r.RuUTime)
	seconds("ru_stime", r.RuSTime)
	// These are in KB; Grid Engine 8.1.9 prints them as if they were bytes.
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
	if r.Reason != "" && r.Reason != accounting.None {
		line("reason", api.Visible(r.Reason))
	}
}

// bytesText returns a number of bytes with three decimals and a unit.
func bytesText(n float64) string {
	return output.Scaled(n, "B", "KB", "MB", "GB", "TB", "PB", "EB")
}

// signalTexts are the C library's words for signals 1 to 31.
var signalTexts = strings.Split("Hangup,Interrupt,Quit,Illegal instruction,Trace/breakpoint trap,Aborted,Bus error,"+
	"Floating point exception,Killed,User defined signal 1,Segmentation fault,User defined signal 2,Broken pipe,Alarm clock,"+
	"Terminated,Stack fault,Child exited,Continued,Stopped (signal),Stopped,Stopped (tty input),Stopped (tty output),"+
	"Urgent I/O condition,CPU time limit exceeded,File size limit exceeded,Virtual timer expired,Profiling timer expired,"+
	"Window changed,I/O possible,Power failure,Bad system call", ",")

// signalText returns the C library's words for a signal.
func signalText(n int) string {
	const firstRealTime, lastRealTime = 34, 64
	switch {
	case n >= 1 && n <= len(signalTexts):
		return signalTexts[n-1]
	case n >= firstRealTime && n <= lastRealTime:
		return "Real-time signal " + strconv.Itoa(n-firstRealTime)
	}
	return "Unknown signal " + strconv.Itoa(n)
}
