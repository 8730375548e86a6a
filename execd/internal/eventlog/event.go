// Package eventlog is the log of the events of a job that its owner may have,
// eventlog(5): records in the three forms that programs read, a Reader of them, and a
// Writer that writes them with the owner's rights alone.
// Package journal writes with it, and the daemon makes it; it imports classad, for the ad
// of how a job ended, the API and user.
package eventlog

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Number says which event a record is of. Records begin with it.
type Number int

// The events that execd writes. A reader meets others.
const (
	NumberSubmitted   Number = 0
	NumberExecuting   Number = 1
	NumberEvicted     Number = 4
	NumberTerminated  Number = 5
	NumberImageSize   Number = 6
	NumberGeneric     Number = 8
	NumberAborted     Number = 9
	NumberSuspended   Number = 10
	NumberResumed     Number = 11
	NumberHeld        Number = 12
	NumberReleased    Number = 13
	NumberRemoteError Number = 21
	NumberTransfer    Number = 40
)

// Event is one record.
type Event struct {
	// ID is unique in the log, and is the same when the event is written again, so that
	// readers can drop doubles. Empty: the event has none.
	ID string
	// Cluster and Proc name the job: ClusterId and ProcId of its ad, or its number
	// and task.
	Cluster, Proc int
	Time          time.Time
	Body          Body
}

// Body is what an event tells: one of the types of this package.
type Body interface {
	number() Number
	// typeName returns MyType in the forms that are ads.
	typeName() string
	// text appends the rest of the first line, and the lines below it.
	text(*lines)
	// attrs returns the attributes in the forms that are ads.
	attrs() []attr
}

// Submitted says that a job was submitted.
type Submitted struct {
	Host string // of the submission
}

// Executing says that a job runs.
type Executing struct {
	Host string
	Slot string // slot1@HOST; empty: the record has no such line
}

// Evicted says that a job was removed from its slot before its end, and may run
// again.
type Evicted struct {
	Checkpointed   bool
	Run            CPU
	Sent, Received int64 // bytes
	Reason         string
	Code, Subcode  int
	Resources      []Resource
}

// Terminated says that a job has ended.
type Terminated struct {
	// Signal is the signal that ended it; 0: it exited, with ReturnValue.
	Signal      int
	ReturnValue int
	CoreFile    string // empty: there is none
	Run, Total  CPU    // of this run, and of all runs of the job
	// These are bytes of this run, and of all runs.
	Sent, Received, TotalSent, TotalReceived int64
	Resources                                []Resource
	// By is who ended it; empty: it came to its own end.
	By     string
	Reason string // why it was ended; empty: no such line
}

// ImageSize says how much memory a job uses. Negative values are not known.
type ImageSize struct {
	Size   int64 // KiB of address space
	Memory int64 // MiB
	RSS    int64 // KiB
	PSS    int64 // KiB
}

// Generic is any text.
type Generic struct{ Text string }

// Aborted says that a job was deleted.
type Aborted struct{ Reason string }

// Suspended says that a job was suspended.
type Suspended struct{ Processes int }

// Resumed says that a job was resumed.
type Resumed struct{}

// Held says that a job was put on hold.
type Held struct {
	Reason        string
	Code, Subcode int
}

// Released says that a job is no longer on hold.
type Released struct{ Reason string }

// RemoteError says what a hook of the job, or the transfer of its files, reports.
type RemoteError struct {
	Host          string // where, or the slot
	Text          string
	Warning       bool // the job goes on
	Code, Subcode int  // Code 0: no such line
}

// FileTransfer says how the files of a job travel.
type FileTransfer struct {
	Output bool // out of the sandbox; else into it
	Phase  Phase
	Waited time.Duration // of TransferStarted: in the queue; 0: it was not there
	Host   string        // to which they travel; empty: no such line
}

// Phase is how far a transfer is.
type Phase int

// The phases, as the log numbers them for what travels into a sandbox.
const (
	TransferQueued Phase = 1 + iota
	TransferStarted
	TransferFinished
)

// phases is how many there are: those of what travels out of a sandbox follow.
const phases = 3

// CPU is processor time.
type CPU struct{ User, System time.Duration }

// Resource is a line of the table of resources. Negative values are not known.
type Resource struct {
	Name string // Cpus
	Unit string // MB; empty: it is counted
	// Usage may have a fraction.
	Usage, Request, Allocated float64
}

func (Submitted) number() Number    { return NumberSubmitted }
func (Executing) number() Number    { return NumberExecuting }
func (Evicted) number() Number      { return NumberEvicted }
func (Terminated) number() Number   { return NumberTerminated }
func (ImageSize) number() Number    { return NumberImageSize }
func (Generic) number() Number      { return NumberGeneric }
func (Aborted) number() Number      { return NumberAborted }
func (Suspended) number() Number    { return NumberSuspended }
func (Resumed) number() Number      { return NumberResumed }
func (Held) number() Number         { return NumberHeld }
func (Released) number() Number     { return NumberReleased }
func (RemoteError) number() Number  { return NumberRemoteError }
func (FileTransfer) number() Number { return NumberTransfer }

func (Submitted) typeName() string    { return "SubmitEvent" }
func (Executing) typeName() string    { return "ExecuteEvent" }
func (Evicted) typeName() string      { return "JobEvictedEvent" }
func (Terminated) typeName() string   { return "JobTerminatedEvent" }
func (ImageSize) typeName() string    { return "JobImageSizeEvent" }
func (Generic) typeName() string      { return "GenericEvent" }
func (Aborted) typeName() string      { return "JobAbortedEvent" }
func (Suspended) typeName() string    { return "JobSuspendedEvent" }
func (Resumed) typeName() string      { return "JobUnsuspendedEvent" }
func (Held) typeName() string         { return "JobHeldEvent" }
func (Released) typeName() string     { return "JobReleasedEvent" }
func (RemoteError) typeName() string  { return "RemoteErrorEvent" }
func (FileTransfer) typeName() string { return "FileTransferEvent" }

// unspecified stands in the place of a reason: readers take the line below the first
// one for the reason, whatever it says.
const unspecified = "Reason unspecified"

func (b Submitted) text(l *lines) {
	l.head("Job submitted from host: %s", address(b.Host))
}

func (b Submitted) attrs() []attr { return []attr{{"SubmitHost", address(b.Host)}} }

func (b Executing) text(l *lines) {
	l.head("Job executing on host: %s", address(b.Host))
	if b.Slot != "" {
		l.line("SlotName: %s", b.Slot)
	}
}

func (b Executing) attrs() []attr {
	return optional([]attr{{"ExecuteHost", address(b.Host)}}, "SlotName", b.Slot)
}

func (b Evicted) text(l *lines) {
	l.head("Job was evicted.")
	if b.Checkpointed {
		l.line("(1) Job was checkpointed.")
	} else {
		l.line("(0) Job was not checkpointed.")
	}
	l.usage("Run", b.Run)
	l.bytes("Run", b.Sent, b.Received)
	if b.Reason != "" {
		l.line("Reason: %s", b.Reason)
	}
	if b.Code != 0 {
		l.line("Code %d Subcode %d", b.Code, b.Subcode)
	}
	l.resources(b.Resources)
}

func (b Evicted) attrs() []attr {
	list := []attr{
		{"Checkpointed", b.Checkpointed},
		{"RunRemoteUsage", b.Run.String()},
		{"RunLocalUsage", CPU{}.String()},
		{"SentBytes", float64(b.Sent)},
		{"ReceivedBytes", float64(b.Received)},
		{"TerminatedAndRequeued", false},
		{"TerminatedNormally", false},
	}
	list = optional(list, "Reason", b.Reason)
	if b.Code != 0 {
		list = append(list, attr{"ReasonCode", b.Code}, attr{"ReasonSubCode", b.Subcode})
	}
	return append(list, resourceAttrs(b.Resources)...)
}

func (b Terminated) text(l *lines) {
	l.head("Job terminated.")
	switch {
	case b.Signal == 0:
		l.line("(1) Normal termination (return value %d)", b.ReturnValue)
	case b.CoreFile != "":
		l.line("(0) Abnormal termination (signal %d)", b.Signal)
		l.line("(1) Corefile in: %s", b.CoreFile)
	default:
		l.line("(0) Abnormal termination (signal %d)", b.Signal)
		l.line("(0) No core file")
	}
	l.usage("Run", b.Run)
	l.usage("Total", b.Total)
	l.bytes("Run", b.Sent, b.Received)
	l.bytes("Total", b.TotalSent, b.TotalReceived)
	l.resources(b.Resources)
	how := fmt.Sprintf("exit-code %d", b.ReturnValue)
	if b.Signal != 0 {
		how = fmt.Sprintf("signal %d", b.Signal)
	}
	at := l.time.UTC().Format("2006-01-02T15:04:05Z")
	l.blank()
	if b.By == "" {
		l.line("Job terminated of its own accord at %s with %s.", at, how)
	} else {
		l.line("Job terminated by %s at %s with %s.", b.By, at, how)
	}
	if b.Reason != "" {
		l.line("Reason: %s", b.Reason)
	}
}

func (b Terminated) attrs() []attr {
	list := []attr{{"TerminatedNormally", b.Signal == 0}}
	if b.Signal == 0 {
		list = append(list, attr{"ReturnValue", b.ReturnValue})
	} else {
		list = optional(append(list, attr{"TerminatedBySignal", b.Signal}), "CoreFile", b.CoreFile)
	}
	list = append(list, []attr{
		{"RunRemoteUsage", b.Run.String()},
		{"RunLocalUsage", CPU{}.String()},
		{"TotalRemoteUsage", b.Total.String()},
		{"TotalLocalUsage", CPU{}.String()},
		{"SentBytes", float64(b.Sent)},
		{"ReceivedBytes", float64(b.Received)},
		{"TotalSentBytes", float64(b.TotalSent)},
		{"TotalReceivedBytes", float64(b.TotalReceived)},
	}...)
	list = optional(append(list, resourceAttrs(b.Resources)...), "TerminatedBy", b.By)
	return optional(list, "Reason", b.Reason)
}

// sizes returns the lines below the first one, with their attributes.
func (b ImageSize) sizes() []struct {
	value       int64
	label, name string
} {
	return []struct {
		value       int64
		label, name string
	}{
		{b.Memory, "MemoryUsage of job (MB)", "MemoryUsage"},
		{b.RSS, "ResidentSetSize of job (KB)", "ResidentSetSize"},
		{b.PSS, "ProportionalSetSize of job (KB)", "ProportionalSetSize"},
	}
}

func (b ImageSize) text(l *lines) {
	l.head("Image size of job updated: %d", max(b.Size, 0))
	for _, s := range b.sizes() {
		if s.value >= 0 {
			l.line("%d  -  %s", s.value, s.label)
		}
	}
}

func (b ImageSize) attrs() []attr {
	list := []attr{{"Size", int(max(b.Size, 0))}}
	for _, s := range b.sizes() {
		if s.value >= 0 {
			list = append(list, attr{s.name, int(s.value)})
		}
	}
	return list
}

func (b Generic) text(l *lines)   { l.head("%s", b.Text) }
func (b Generic) attrs() []attr   { return []attr{{"Info", b.Text}} }
func (b Suspended) attrs() []attr { return []attr{{"NumberOfPIDs", b.Processes}} }
func (Resumed) text(l *lines)     { l.head("Job was unsuspended.") }
func (Resumed) attrs() []attr     { return nil }

func (b Aborted) text(l *lines) {
	l.head("Job was aborted.")
	l.line("%s", cmp.Or(b.Reason, unspecified))
}

func (b Aborted) attrs() []attr { return optional(nil, "Reason", b.Reason) }

func (b Suspended) text(l *lines) {
	l.head("Job was suspended.")
	l.line("Number of processes actually suspended: %d", b.Processes)
}

func (b Held) text(l *lines) {
	l.head("Job was held.")
	l.line("%s", cmp.Or(b.Reason, unspecified))
	l.line("Code %d Subcode %d", b.Code, b.Subcode)
}

func (b Held) attrs() []attr {
	return append(optional(nil, "HoldReason", b.Reason), attr{"HoldReasonCode", b.Code}, attr{"HoldReasonSubCode", b.Subcode})
}

func (b Released) text(l *lines) {
	l.head("Job was released.")
	l.line("%s", cmp.Or(b.Reason, unspecified))
}

func (b Released) attrs() []attr { return optional(nil, "Reason", b.Reason) }

func (b RemoteError) text(l *lines) {
	what := "Error"
	if b.Warning {
		what = "Warning"
	}
	l.head("%s from starter on %s:", what, b.Host)
	for line := range strings.SplitSeq(long(b.Text), "\n") {
		l.line("%s", line)
	}
	if b.Code != 0 {
		l.line("Code %d Subcode %d", b.Code, b.Subcode)
	}
}

func (b RemoteError) attrs() []attr {
	list := []attr{
		{"Daemon", "starter"}, {"ExecuteHost", b.Host}, {"ErrorMsg", b.Text}, {"CriticalError", !b.Warning},
	}
	if b.Code != 0 {
		list = append(list, attr{"HoldReasonCode", b.Code}, attr{"HoldReasonSubCode", b.Subcode})
	}
	return list
}

func (b FileTransfer) text(l *lines) {
	what := "input"
	if b.Output {
		what = "output"
	}
	switch b.Phase {
	case TransferQueued:
		l.head("Entered queue to transfer %s files", what)
	case TransferStarted:
		l.head("Started transferring %s files", what)
	case TransferFinished:
		l.head("Finished transferring %s files", what)
	}
	if b.Waited > 0 {
		l.line("Seconds spent in queue: %d", b.seconds())
	}
	if b.Host != "" {
		l.line("Transferring to host: %s", address(b.Host))
	}
}

func (b FileTransfer) attrs() []attr {
	number := int(b.Phase)
	if b.Output {
		number += phases
	}
	list := []attr{{"Type", number}}
	if b.Waited > 0 {
		list = append(list, attr{"QueueingDelay", b.seconds()})
	}
	if b.Host != "" {
		list = append(list, attr{"Host", address(b.Host)})
	}
	return list
}

func (b FileTransfer) seconds() int { return int(b.Waited.Round(time.Second) / time.Second) }

// address returns a host in the form of the log.
func address(host string) string {
	if strings.HasPrefix(host, "<") {
		return host
	}
	return "<" + host + ">"
}

// String returns the times in the form of the log, with days, hours, minutes and
// seconds.
func (c CPU) String() string { return "Usr " + clock(c.User) + ", Sys " + clock(c.System) }

func clock(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	return fmt.Sprintf("%d %02d:%02d:%02d", s/86400, s/3600%24, s/60%60, s%60)
}

// attr is an attribute of a record that is an ad. Its value is a string, an int,
// a float64 or a bool.
type attr struct {
	name  string
	value any
}

// optional appends an attribute unless its value is empty.
func optional(list []attr, name, value string) []attr {
	if value == "" {
		return list
	}
	return append(list, attr{name, value})
}

// resourceAttrs returns the lines of the table of resources as attributes.
func resourceAttrs(resources []Resource) (list []attr) {
	for _, r := range resources {
		for _, a := range []struct {
			name  string
			value float64
		}{{r.Name + "Usage", r.Usage}, {"Request" + r.Name, r.Request}, {r.Name, r.Allocated}} {
			if a.value >= 0 {
				list = append(list, attr{a.name, a.value})
			}
		}
	}
	return list
}
