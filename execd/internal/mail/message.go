package mail

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"paddock/execd/api"
)

// Event is what a mail is about.
type Event struct {
	letter string // of qsub -m
	word   string // Grid Engine's, by which people sort their mail
}

// The events.
var (
	Started   = Event{"b", "Started"}
	Complete  = Event{"e", "Complete"}
	Aborted   = Event{"a", "Aborted"}
	Suspended = Event{"s", "Suspended"}
	Continued = Event{"s", "Continued"}
)

// Wanted reports whether the letters of qsub -m ask for a mail.
func (e Event) Wanted(options string) bool { return strings.Contains(options, e.letter) }

// Job is what a mail says about a task. It leaves out what has the zero value.
type Job struct {
	Number int
	Task   int // 0: the job is no array
	Name   string
	Owner  string
	Queue  string
	Start  time.Time
	End    time.Time
	// Usage, and with it Exit, is told of a run that has ended.
	Usage     bool
	Wallclock float64 // s
	CPU       float64 // s
	MaxVMem   float64 // bytes
	Exit      int     // exit code, or 128 and the signal
	Reason    string  // in words
	// StderrPath is where standard error was written to, and Stderr reads its
	// end, about TailSize bytes. It is called when the mail is sent, from another
	// goroutine; nil: it is not shown.
	StderrPath string
	Stderr     func(context.Context) ([]byte, error)
}

// How much of standard error a mail has.
const (
	TailSize  = 4 << 10 // bytes
	tailLines = 20
)

// How much is shown of what users choose.
const (
	maxName = 100 // as in Grid Engine
	maxLine = 500 // SMTP allows 998 with the line end (RFC 5321, 4.5.3.1)
)

// subject returns Grid Engine's subject, since people sort their mail by it.
func (j *Job) subject(e Event) string {
	if j.Task > 0 {
		return fmt.Sprintf("Job-array task %d.%d (%s) %s", j.Number, j.Task, shown(j.Name, maxName), e.word)
	}
	return fmt.Sprintf("Job %d (%s) %s", j.Number, shown(j.Name, maxName), e.word)
}

// body returns the text.
func (j *Job) body(ctx context.Context, e Event, host string) []byte {
	var b bytes.Buffer
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-12s %s\n", name, shown(value, maxLine))
		}
	}
	b.WriteString(j.subject(e) + "\n\n")
	line("Owner", j.Owner)
	line("Queue", j.Queue)
	line("Host", host)
	line("Started", stamp(j.Start))
	line("Ended", stamp(j.End))
	if j.Usage {
		line("Wallclock", clock(j.Wallclock))
		line("CPU", clock(j.CPU))
		line("Max vmem", size(j.MaxVMem))
		line("Exit status", fmt.Sprint(j.Exit))
	}
	line("Reason", j.Reason)
	if j.Stderr != nil {
		tail, err := j.Stderr(ctx)
		switch {
		case err != nil:
			line("\nStandard error", shown(err.Error(), maxLine))
		case len(tail) > 0:
			fmt.Fprintf(&b, "\nThe end of standard error, %s:\n\n", shown(j.StderrPath, maxLine))
			quote(&b, tail)
		}
	}
	return b.Bytes()
}

// quote writes the last lines of a text, indented: to mailers a line with a dot
// alone is the end of the mail, and one with a tilde in front may be a command.
func quote(b *bytes.Buffer, text []byte) {
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(text) >= TailSize && len(lines) > 1 {
		lines = lines[1:] // half of a line, most likely
	}
	for _, l := range lines[max(len(lines)-tailLines, 0):] {
		b.WriteString("  " + shown(l, maxLine) + "\n")
	}
}

// shown returns text as one line that harms no terminal, of limited length.
func shown(text string, limit int) string {
	if len(text) <= limit {
		return api.Visible(text)
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return api.Visible(text[:limit]) + "..."
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.UnixDate)
}

// clock writes seconds as hours, minutes and seconds.
func clock(seconds float64) string {
	s := int64(max(seconds, 0) + 0.5)
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// size writes bytes as Grid Engine does.
func size(n float64) string {
	unit := 0
	for ; n >= 1024 && unit < 4; unit++ {
		n /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3f%c", n, " KMGT"[unit])
}
