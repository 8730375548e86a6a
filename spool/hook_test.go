package spool_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
)

func TestHookCall(t *testing.T) {
	want := &spool.HookCall{Processes: 64, Dir: "/a b", Argv: []string{"/bin/x", "", "two\nlines"}, Env: []string{"A=1", "B=two\nlines", "NAME", "C=\xff="}}
	sent := *want
	sent.Env = append([]string{"=x", "", "D=\x00"}, want.Env...)
	r := bytes.NewReader(append(sent.Append(nil), "more"...))
	if got, err := spool.ReadHookCall(r); err != nil || !cmp.Equal(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "more" {
		t.Errorf("left %q; want what is behind it", rest)
	}
	bare := &spool.HookCall{Processes: 1, Argv: []string{"/x"}}
	if got, err := spool.ReadHookCall(bytes.NewReader(bare.Append(nil))); err != nil || len(got.Env) != 0 || got.Dir != "" {
		t.Errorf("one without an environment: %+v, %v", got, err)
	}
	framed := func(words ...string) string {
		b := spool.AppendArgs(nil, words)
		return fmt.Sprintf("%08x%s", len(b), b)
	}
	for _, text := range []string{
		"", "0000", "00000004A=1", "00000000", "ffffffff", "x0000000",
		framed("1", "/"), framed("1", "/", "0"), framed("1", "/", "2", "/x"), framed("-1", "/", "1", "/x"), framed("x", "/", "1", "/x"),
		framed("1", "/", "-1", "/x"), framed("1", "/", "1", ""), framed("1", "/", "1", "/x", "=x"), framed("1", "/", "1", "/x", ""),
		framed("1", "/", "1", "/x")[:16],
	} {
		if got, err := spool.ReadHookCall(strings.NewReader(text)); err == nil {
			t.Errorf("%q: read %+v; want an error", text, got)
		}
	}
	if _, err := spool.ReadHookCall(strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v; want the end", err)
	}
}

// written is a report as a shepherd sends it.
func written(r *spool.HookReport) (b []byte) {
	if r.Taken {
		b = r.AppendTaken(b)
	}
	if r.PID > 0 {
		b = r.AppendStarted(b)
	}
	return r.Append(b)
}

func TestHookReport(t *testing.T) {
	for _, want := range []spool.HookReport{
		{},
		{Failed: `cannot execute "/a\nb": no such file`},
		{PID: 12, Ended: true},
		{Taken: true},
		{Taken: true, PID: 12, Ended: true, Waits: true},
		{PID: 12, Ended: true, Status: -9, Stopped: "more than 64 processes", Left: []int{3, 4}},
	} {
		b := written(&want)
		var got spool.HookReport
		for line := range strings.Lines(string(b)) {
			if err := got.Take(strings.TrimSuffix(line, "\n")); err != nil {
				t.Error(err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
	}
	r := spool.HookReport{Failed: "two\nlines"}
	if got := string(r.Append(nil)); got != "failed two lines\n" {
		t.Errorf("%q; want one line", got)
	}
	for _, line := range []string{"", "started", "started x", "started 0", "left -1", "status", "status 1x", "ended 1", "taken 1", "waits "} {
		if err := r.Take(line); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
	if r.Take("status 0") != nil || r.Take("status 1") == nil || r.Take("waits") == nil || r.Status != 0 {
		t.Error("a second verdict is taken")
	}
}

// FuzzHookReport sees that a report that is read is written the same again.
func FuzzHookReport(f *testing.F) {
	f.Add("taken\nstarted 3\nwaits\nstopped because\nleft 4\nstatus -15\n")
	f.Add("failed no\n")
	f.Fuzz(func(t *testing.T, text string) {
		var r, again spool.HookReport
		for line := range strings.Lines(text) {
			_ = r.Take(strings.TrimSuffix(line, "\n"))
		}
		for line := range strings.Lines(string(written(&r))) {
			if err := again.Take(strings.TrimSuffix(line, "\n")); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}

// FuzzHookCall sees that a call that is read is one that is sent.
func FuzzHookCall(f *testing.F) {
	f.Add([]byte("0000000e1\x00/\x001\x00/x\x00A=1\x00"))
	f.Add([]byte("00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := spool.ReadHookCall(bytes.NewReader(b))
		if err != nil {
			return
		}
		if got, err := spool.ReadHookCall(bytes.NewReader(c.Append(nil))); err != nil || !cmp.Equal(got, c) {
			t.Errorf("%q is %+v, and again %+v, %v", b, c, got, err)
		}
	})
}
