package jobhook

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob/knobtest"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/job"
	"paddock/execd/internal/stage/base"
	"paddock/execd/internal/stage/notice"
)

// REQ-HOOK-34, REQ-HOOK-36, REQ-HOOK-110, REQ-HOOK-115, REQ-HOOK-116: what becomes
// of a job by the end of a prepare hook, each row of the table.
func TestJudge(t *testing.T) {
	unreadable := errors.New("line 3: no attribute")
	for _, tt := range []struct {
		name       string
		res        hook.Result
		m          ad.Merged
		unreadable error
		held, back bool // neither: it goes on
		code, sub  int
		late       bool
		text       string
		warning    string
	}{
		{name: "0"},
		{name: "0 and a message", m: ad.Merged{Message: "old"}, warning: "old"},
		{name: "1", res: hook.Result{Status: 1}, held: true, code: 19, sub: 1, text: "status 1"},
		{name: "7 and a message", res: hook.Result{Status: 7, Stderr: "x\n"}, m: ad.Merged{Message: "m"}, held: true, code: 19, sub: 7, text: "status 7: m"},
		{name: "7 and standard error", res: hook.Result{Status: 7, Stderr: "a\nb\n"}, held: true, code: 19, sub: 7, text: "status 7: b"},
		{name: "7 and a command to the terminal", res: hook.Result{Status: 7, Stderr: "a\x1b[2J\rb\n"}, held: true, code: 19, sub: 7, text: `status 7: a\x1b[2J\rb`},
		{name: "code for status", res: hook.Result{Status: 7}, m: ad.Merged{Status: new(299)}, held: true, code: 19, sub: 299, text: "status 299"},
		{name: "code 0 for status", res: hook.Result{Status: 7}, m: ad.Merged{Status: new(0), Message: "m"}, warning: "m"},
		{name: "code 300", m: ad.Merged{Status: new(300), Message: "m"}, back: true, sub: 300, text: "status 300: m"},
		{name: "signal", res: hook.Result{Status: -9}, back: true, text: "killed by signal"},
		{name: "signal and a code", res: hook.Result{Status: -9}, m: ad.Merged{Status: new(0)}, back: true, text: "killed by signal"},
		{name: "not started", res: hook.Result{Err: errors.New("exec format error"), Status: -9}, held: true, code: 19, text: "exec format error"},
		{name: "no descriptors", res: hook.Result{Err: fmt.Errorf("cannot make a pipe: %w", os.NewSyscallError("pipe2", unix.EMFILE)), Status: -9}, back: true, text: "too many open files"},
		{name: "no processes", res: hook.Result{Err: &os.PathError{Op: "fork/exec", Path: "/shepherd", Err: unix.EAGAIN}, Status: -9}, back: true, text: "temporarily unavailable"},
		{name: "not readable", unreadable: unreadable, held: true, code: 19, text: "line 3: no attribute"},
		{name: "not readable, and 7", res: hook.Result{Status: 7}, unreadable: unreadable, held: true, code: 19, sub: 7, text: "status 7"},
		{name: "too long", res: hook.Result{TooLong: true, Status: -9}, held: true, code: 19, text: "printed more than it may"},
		{name: "timed out", res: hook.Result{TimedOut: true, Status: -9}, back: true, late: true, text: "ended at its limit"},
		{name: "timed out and a code", res: hook.Result{TimedOut: true, Status: -15}, m: ad.Merged{Status: new(5)}, back: true, late: true, text: "ended at its limit"},
	} {
		tt.res.Keyword, tt.res.Hook = "K", hook.PrepareJob
		u, warning := judge(&tt.res, &tt.m, tt.unreadable)
		if warning != tt.warning {
			t.Errorf("%s: warning %q; want %q", tt.name, warning, tt.warning)
		}
		if u == nil {
			if tt.held || tt.back {
				t.Errorf("%s: goes on", tt.name)
			}
			continue
		}
		if !tt.held && !tt.back || u.Hold != tt.held || u.Code != tt.code || u.Subcode != tt.sub || u.Late != tt.late || !strings.Contains(u.Text, tt.text) ||
			!strings.HasPrefix(u.Text, "hook PREPARE_JOB of K: ") {
			t.Errorf("%s: %+v; want held %v, code %d.%d, late %v, %q", tt.name, *u, tt.held, tt.code, tt.sub, tt.late, tt.text)
		}
	}
}

// REQ-HOOK-38, REQ-HOOK-39: 8 s, then 300 s; each knob changes its own interval
// alone, and the first never comes later than a later one would.
func TestIntervals(t *testing.T) {
	for _, tt := range []struct {
		text          string
		first, steady time.Duration
	}{
		{"", 8 * time.Second, 300 * time.Second},
		{"STARTER_INITIAL_UPDATE_INTERVAL = 20", 20 * time.Second, 300 * time.Second},
		{"STARTER_UPDATE_INTERVAL = 60", 8 * time.Second, 60 * time.Second},
		{"STARTER_UPDATE_INTERVAL = 5", 5 * time.Second, 5 * time.Second},
		{"STARTER_UPDATE_INTERVAL = 60\nSTARTER_INITIAL_UPDATE_INTERVAL = 400", time.Minute, time.Minute},
	} {
		first, steady := intervals(&conf.Config{Knobs: knobtest.Parse(t, tt.text)})
		if first != tt.first || steady != tt.steady {
			t.Errorf("%q: %v, then %v; want %v, then %v", tt.text, first, steady, tt.first, tt.steady)
		}
	}
}

// REQ-FLOW-101: at most a tenth of the time goes by updates, and they are at most 3000 s apart for that.
func TestStretched(t *testing.T) {
	for _, tt := range []struct{ steady, took, want time.Duration }{
		{300 * time.Second, time.Second, 300 * time.Second},
		{300 * time.Second, 40 * time.Second, 400 * time.Second},
		{300 * time.Second, time.Hour, 3000 * time.Second},
		{4000 * time.Second, time.Hour, 4000 * time.Second},
		{time.Second, 0, time.Second},
	} {
		if got := stretched(tt.steady, tt.took); got != tt.want {
			t.Errorf("every %v, took %v: %v, want %v", tt.steady, tt.took, got, tt.want)
		}
	}
}

// REQ-HOOK-38, REQ-HOOK-39: jobs that execd finds again keep their beats, and are not
// all told of at once.
func TestUntilNext(t *testing.T) {
	const first, steady = 8 * time.Second, 300 * time.Second
	for ran, want := range map[time.Duration]time.Duration{
		-time.Hour: first, 0: first, 5 * time.Second: 3 * time.Second, 8 * time.Second: 0,
		9 * time.Second: 299 * time.Second, 307 * time.Second: time.Second, 308 * time.Second: 0,
		308*time.Second + time.Hour: 0, 310*time.Second + time.Hour: 298 * time.Second,
	} {
		if got := untilNext(ran, first, steady); got != want {
			t.Errorf("after %v: %v; want %v", ran, got, want)
		}
	}
}

// Without a hook for updates, and without who follows the job, there is no timer, and nothing
// is asked of hooks.conf.
func TestNoUpdatesWithoutHook(t *testing.T) {
	x := &Hooks{}
	x.Init(&base.Host{}, &job.Task{Job: &job.Job{Submitter: &job.Submitter{}, Origin: &job.Origin{}}}, &notice.Notices{}, nil)
	x.StartUpdates(0)
	x.Watch()
	x.ChangedState()
	if x.updates.timer != nil {
		t.Error("something ticks")
	}
	if over, err := x.StopUpdates(); !over || err != nil {
		t.Error(over, err)
	}
}

// What the hooks of an earlier execd have changed counts for those that follow.
func TestRecallChanges(t *testing.T) {
	x := &Hooks{}
	for _, changed := range [][]string{{"Cmd"}, nil, {"Args", "Env"}} {
		x.Recall(&HookRun{Result: &hook.Result{}, Changed: changed}, "post script")
	}
	if len(x.changed) != 3 || len(x.Runs()) != 3 {
		t.Errorf("changed %q, %d hooks; want 3, 3", x.changed, len(x.Runs()))
	}
}

// What a hook says comes into reasons that others read on their terminals.
func TestLastLine(t *testing.T) {
	for text, want := range map[string]string{
		"first\nlast \n": "last", "": "", "\x1b[2Jgone\r": `\x1b[2Jgone`, "\xff": "?",
		strings.Repeat("x", 400): strings.Repeat("x", 300),
	} {
		if got := lastLine(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}
