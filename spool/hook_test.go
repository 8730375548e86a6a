package spool_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
)

func TestHookEnvironment(t *testing.T) {
	env := []string{"A=1", "B=two\nlines", "NAME", "C=\xff="}
	b := spool.AppendHookEnvironment(nil, append([]string{"=x", "", "D=\x00"}, env...))
	r := bytes.NewReader(append(b, "more"...))
	if got, err := spool.ReadHookEnvironment(r); err != nil || !slices.Equal(got, env) {
		t.Errorf("read %q, %v; want %q", got, err, env)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "more" {
		t.Errorf("left %q; want what is behind it", rest)
	}
	if got, err := spool.ReadHookEnvironment(bytes.NewReader(spool.AppendHookEnvironment(nil, nil))); err != nil || len(got) != 0 {
		t.Errorf("an empty one: %q, %v", got, err)
	}
	for _, text := range []string{"", "0000", "00000004A=1", "00000003A=1", "00000003=1\x00", "00000001\x00", "ffffffff", "x0000000"} {
		if got, err := spool.ReadHookEnvironment(strings.NewReader(text)); err == nil {
			t.Errorf("%q: read %q; want an error", text, got)
		}
	}
	if _, err := spool.ReadHookEnvironment(strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v; want the end", err)
	}
}

func TestHookReport(t *testing.T) {
	for _, want := range []spool.HookReport{
		{},
		{Failed: `cannot execute "/a\nb": no such file`},
		{PID: 12, Ended: true},
		{PID: 12, Ended: true, Status: -9, Stopped: "more than 64 processes", Left: []int{3, 4}},
	} {
		b := want.Append(want.AppendStarted(nil))
		if want.PID == 0 {
			b = want.Append(nil)
		}
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
	for _, line := range []string{"", "started", "started x", "started 0", "left -1", "status", "status 1x", "ended 1"} {
		if err := r.Take(line); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
	if r.Take("status 0") != nil || r.Take("status 1") == nil || r.Status != 0 {
		t.Error("a second verdict is taken")
	}
}

// FuzzHookReport sees that a report that is read is written the same again.
func FuzzHookReport(f *testing.F) {
	f.Add("started 3\nstopped because\nleft 4\nstatus -15\n")
	f.Add("failed no\n")
	f.Fuzz(func(t *testing.T, text string) {
		var r, again spool.HookReport
		for line := range strings.Lines(text) {
			_ = r.Take(strings.TrimSuffix(line, "\n"))
		}
		b := r.Append(nil)
		if r.PID > 0 {
			b = r.Append(r.AppendStarted(nil))
		}
		for line := range strings.Lines(string(b)) {
			if err := again.Take(strings.TrimSuffix(line, "\n")); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}

// FuzzHookEnvironment sees that an environment that is read is one that is sent.
func FuzzHookEnvironment(f *testing.F) {
	f.Add([]byte("00000004A=1\x00"))
	f.Add([]byte("00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		env, err := spool.ReadHookEnvironment(bytes.NewReader(b))
		if err != nil {
			return
		}
		again := spool.AppendHookEnvironment(nil, env)
		if got, err := spool.ReadHookEnvironment(bytes.NewReader(again)); err != nil || !slices.Equal(got, env) {
			t.Errorf("%q is %q, and again %q, %v", b, env, got, err)
		}
	})
}
