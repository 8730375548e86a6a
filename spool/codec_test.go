package spool_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
)

// Bad content of every file is refused, and never a reason to panic.
func TestBadContent(t *testing.T) {
	usage, err := os.ReadFile("testdata/golden/batch-exit3/usage")
	if err != nil {
		t.Fatal(err)
	}
	without := func(line string) string { return strings.Replace(string(usage), line+"\n", "", 1) }
	with := func(line, instead string) string { return strings.Replace(string(usage), line, instead, 1) }
	number := func(b []byte) error { _, err := spool.ParseNumber(b); return err }
	status := func(b []byte) error { _, _, err := spool.ParseExitStatus(b); return err }
	config := func(b []byte) error { _, err := spool.ParseConfig(b); return err }
	environment := func(b []byte) error { _, err := spool.ParseEnvironment(b); return err }
	use := func(b []byte) error { _, err := spool.ParseUsage(b); return err }
	trace := func(b []byte) error { _, err := spool.ParseTraceLine(b); return err }
	sig := func(b []byte) error { _, _, err := spool.ParseSignal(b); return err }
	sigs := func(b []byte) error { _, err := spool.ParseSignals(b); return err }
	args := func(b []byte) error { _, err := spool.ParseArgs(b); return err }
	hosts := func(b []byte) error { _, err := spool.ParsePEHosts(b); return err }
	for _, tt := range []struct {
		name  string
		parse func([]byte) error
		bad   []string
	}{
		{"number", number, []string{"", "\n", "12", "12\n\n", "12\n3\n", "012\n", "-1\n", "+1\n", " 1\n", "1 \n", "1\r\n", "a\n", "9223372036854775808\n", "99999999999999999999999\n", "1\x00\n"}},
		{"exit_status", status, []string{"", "2", "\n", "x\n", "-1\n", " 8\n", "08\n", "8\r\n", "99999999999\n", "\n8\n"}},
		{"config", config, []string{"a", "a\n", "\n", "=v\n", " a=v\n", "a=b", "a=b\n\n", "a=b\nc\n", "a=b\x00\n", "a=1\na=2\n", "a=1\npaddock_uid=0\n"}},
		{"environment", environment, []string{"A", "A\n", "\n", "=v\n", "A=b", "A=b\nB", "A=\x00\n"}},
		{"usage", use, []string{
			"", "\n", "x", string(usage[:len(usage)-1]), string(usage[:len(usage)/2]), without("ru_nivcsw=3"), without("wait_status=49"),
			string(usage) + "signal=0\n", string(usage) + "x\n", string(usage) + "a b=1\n", string(usage) + "a=\x01\n",
			with("wait_status=49", "wait_status=4294967296"), with("ru_utime=0.001083", "ru_utime=1"), with("ru_utime=0.001083", "ru_utime=0.1"),
			with("ru_utime=0.001083", "ru_utime=-0.001083"), with("ru_utime=0.001083", "ru_utime=99999999999.000000"), with("signal=0", "signal=-1"), with("start_time=", "start_time=x"),
		}},
		{"trace", trace, []string{
			"", "x", "11/20/2026 16:01:01 [0:1]:x", "11/20/2026 16:01:01 [0]: x", "11/20/2026 16:01:01 [a:1]: x", "13/20/2026 16:01:01 [0:1]: x",
			"02/30/2026 16:01:01 [0:1]: x", "11/20/2026 24:01:01 [0:1]: x", "11/20/2026 16:60:01 [0:1]: x", "11/20/2026 16:01:60 [0:1]: x", "11-20-2026 16:01:01 [0:1]: x", "11/20/2026 16:01:01 [0:1]: x\ny",
		}},
		{"signal", sig, []string{"", "19", "0\n", "-19\n", "19 \n", "19 0\n", "19 x\n", "19 1 2\n", "19\n19\n", "KILL\n"}},
		{"signals", sigs, []string{"\n", "19\n", "19 0\n", "x 1\n", "19 1\n\n"}},
		{"args", args, []string{"a", "a\x00b", "\x00a"}},
		{"pe_hostfile", hosts, []string{"\n", "a 1 q@a UNDEFINED", "a 1 q@a\n", "a 1 q@a U x\n", "a -1 q@a U\n", "a x q@a U\n", "a  1 q@a U\n", " a 1 q@a U\n", "a 1 q@a U \n", "a 1 q@a \tU\n"}},
	} {
		for _, bad := range tt.bad {
			if err := tt.parse([]byte(bad)); err == nil {
				t.Errorf("%s: %q was accepted", tt.name, bad)
			}
		}
	}
	if err := status(nil); !errors.Is(err, spool.ErrNoStatus) {
		t.Errorf("ParseExitStatus of nothing: %v; want ErrNoStatus", err)
	}
	if err := status([]byte("2")); !errors.Is(err, spool.ErrNoStatus) {
		t.Errorf("ParseExitStatus of a torn line: %v; want ErrNoStatus", err)
	}
}

func TestErrorTexts(t *testing.T) {
	_, missing := new(spool.Config).Int("job_owner")
	_, dup := spool.ParseConfig([]byte("epilog=none\nepilog=/bin/echo\n"))
	_, sep := spool.ParseConfig([]byte("epilog=none\nb\n"))
	_, read := spool.OpenDir("/nonexistent/42.1").Read(spool.FilePID)
	set := new(spool.Config).Set("job_arg1", "x\nepilog=y")
	for _, tt := range []struct {
		err  error
		want string
	}{
		{missing, `can't get configuration value for "job_owner"`},
		{dup, `cannot parse config: two values for "epilog"`},
		{sep, `cannot parse config: line 2: want name=value, got "b"`},
		{read, `cannot read "/nonexistent/42.1/pid": no such file or directory`},
		{set, `cannot set config key "job_arg1": the value has a control character: "\n"`},
	} {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("got error %v; want %s", tt.err, tt.want)
		}
	}
	if !errors.Is(read, fs.ErrNotExist) {
		t.Errorf("%v does not match fs.ErrNotExist", read)
	}
}

func TestConfigValues(t *testing.T) {
	c, err := spool.ParseConfig([]byte("paddock_groups=1000,4,65401\nn=-3\nyes=1\nno=0\nempty=\nword=abc\nh_vmem=2G\njob_arg1=a\njob_arg2=\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Int("n"); n != -3 || err != nil {
		t.Errorf("Int(n) = %d, %v; want -3", n, err)
	}
	for key, want := range map[string]bool{"yes": true, "no": false} {
		if got, err := c.Bool(key); got != want || err != nil {
			t.Errorf("Bool(%s) = %t, %v; want %t", key, got, err, want)
		}
	}
	if got, err := c.Strings(spool.KeyJobArg, 2); !cmp.Equal(got, []string{"a", ""}) || err != nil {
		t.Errorf("Strings = %q, %v", got, err)
	}
	var missing *spool.MissingError
	if _, err := c.Strings(spool.KeyJobArg, 1<<40); !errors.As(err, &missing) || missing.Key != "job_arg3" {
		t.Errorf("Strings of too many: %v; want job_arg3 missing", err)
	}
	for _, key := range []string{"word", "empty"} {
		if _, err := c.Int(key); !errors.Is(err, spool.ErrSyntax) {
			t.Errorf("Int(%s): %v; want ErrSyntax", key, err)
		}
		if _, err := c.Bool(key); !errors.Is(err, spool.ErrSyntax) {
			t.Errorf("Bool(%s): %v; want ErrSyntax", key, err)
		}
	}
}

// Keys of ours come first, in whatever order they are set.
func TestOwnKeysFirst(t *testing.T) {
	c := &spool.Config{}
	for _, e := range []spool.Entry{{Key: "a", Value: "1"}, {Key: spool.KeyUID, Value: "7"}, {Key: "b", Value: "2"}, {Key: spool.KeyGID, Value: "8"}, {Key: "a", Value: "3"}} {
		if err := c.Set(e.Key, e.Value); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Set(spool.KeyGroups, "8,9"); err != nil {
		t.Fatal(err)
	}
	want := "paddock_uid=7\npaddock_gid=8\npaddock_groups=8,9\na=3\nb=2\n"
	if got := string(c.Append(nil)); got != want {
		t.Errorf("Append = %q; want %q", got, want)
	}
	for key, want := range map[string]string{"a": "3", "b": "2", spool.KeyUID: "7", spool.KeyGID: "8"} {
		if got, _ := c.Lookup(key); got != want {
			t.Errorf("Lookup(%s) = %q; want %q", key, got, want)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for s, want := range map[string]spool.Limit{
		"0": 0, "17": 17, "007": 7, "1k": 1000, "1K": 1024, "2m": 2e6, "2M": 2 << 20, "3g": 3e9, "3G": 3 << 30,
		"1.5G": 3 << 29, "0.5k": 500, "1.25": 1, "1:0:0": 3600, "00:10:30": 630, "::5": 5, "1::": 3600, "0:90:0": 5400,
		"INFINITY": spool.Infinity, "infinity": spool.Infinity, "UNDEFINED": spool.Undefined,
		"18446744073709551613": 1<<64 - 3,
	} {
		got, err := spool.ParseLimit(s)
		if got != want || err != nil {
			t.Errorf("ParseLimit(%q) = %d, %v; want %d", s, got, err, want)
		}
		if back, err := spool.ParseLimit(got.String()); back != got || err != nil {
			t.Errorf("ParseLimit(%q.String()) = %d, %v; want %d", s, back, err, got)
		}
	}
	for _, s := range []string{
		"", "k", "G", "-1", "+1", " 1", "1 ", "1T", "1kk", "1.", ".5", "1.5.5", "1.x", "1.0000000001", "1:2", ":", "::", "1:2:3:4", "a:b:c", "1:-2:3",
		"18446744073709551614", "18446744073709551615", "99999999999999999999", "99999999999G", "0x10", "NONE", "1e3",
	} {
		if got, err := spool.ParseLimit(s); err == nil {
			t.Errorf("ParseLimit(%q) = %d; want an error", s, got)
		}
	}
}

func TestEnvironment(t *testing.T) {
	env := []string{"A=", "B=x y", "NL=a\nb\n", `BS=\n\\`, "B\nC=1", "EQ=a=b", "TAB=\t", "X=\xff", "DUP=1", "DUP=2"}
	b := spool.AppendEnvironment(nil, env)
	got, err := spool.ParseEnvironment(b)
	if err != nil || !cmp.Equal(got, env) {
		t.Errorf("ParseEnvironment(%q) = %q, %v; want %q", b, got, err, env)
	}
	if n := strings.Count(string(b), "\n"); n != len(env) {
		t.Errorf("%d lines; want %d", n, len(env))
	}
	// What no process can have is not written; a name alone has no value.
	if got := string(spool.AppendEnvironment(nil, []string{"", "=x", "N=\x00", "ALONE"})); got != "ALONE=\n" {
		t.Errorf("AppendEnvironment = %q; want ALONE alone", got)
	}
	if got, err := spool.ParseEnvironment([]byte("A=\\x\\\n")); err != nil || got[0] != `A=\x\` {
		t.Errorf("other backslashes: got %q, %v", got, err)
	}
}

func TestWaitStatus(t *testing.T) {
	exit := func(n int) syscall.WaitStatus { return syscall.WaitStatus(n << 8) }
	for _, tt := range []struct {
		ws   syscall.WaitStatus
		want spool.WaitStatus
		exit int
		sig  int
		core bool
	}{
		{exit(0), 1, 0, 0, false},
		{exit(3), 49, 3, 0, false},
		{exit(99), 1585, 99, 0, false},
		{exit(100), 1601, 100, 0, false},
		{exit(127), 2033, 127, 0, false},
		{exit(255), 4081, 255, 0, false},
		{syscall.WaitStatus(9), 3727362, 0, 9, false},
		{syscall.WaitStatus(11 | 0x80), 3735558, 0, 11, true},
		{syscall.WaitStatus(24 | 0x80), 3788806, 0, 24, true},
		{syscall.WaitStatus(12), 3817474, 0, 12, false},
		{syscall.WaitStatus(40), 0xffff002, 0, 0, false}, // a real-time signal
	} {
		w := spool.MakeWaitStatus(tt.ws)
		if w != tt.want || w.ExitStatus() != tt.exit && w.Exited() || w.Signal() != tt.sig || w.CoreDump() != tt.core {
			t.Errorf("MakeWaitStatus(%#x) = %d, exit %d, signal %d, core %t; want %d, %d, %d, %t",
				tt.ws, w, w.ExitStatus(), w.Signal(), w.CoreDump(), tt.want, tt.exit, tt.sig, tt.core)
		}
		if w.Exited() == w.Signaled() {
			t.Errorf("%d: exited %t, signaled %t", w, w.Exited(), w.Signaled())
		}
	}
	if w := spool.MakeWaitStatus(0x137f); w != 0 {
		t.Errorf("MakeWaitStatus of a stopped process = %d; want 0", w)
	}
}

func TestSignalNames(t *testing.T) {
	for sys := 1; sys <= 31; sys++ {
		name := spool.SignalName(sys)
		for _, s := range []string{name, "SIG" + name} {
			if got, ok := spool.SignalNumber(s); got != sys || !ok {
				t.Errorf("SignalNumber(%q) = %d, %t; want %d", s, got, ok, sys)
			}
		}
	}
	for name, want := range map[string]uint32{
		"HUP": 901, "INT": 902, "QUIT": 903, "ILL": 904, "TRAP": 905, "ABRT": 906, "FPE": 909, "KILL": 910, "BUS": 911, "SEGV": 912,
		"PIPE": 914, "ALRM": 915, "TERM": 916, "URG": 917, "STOP": 918, "TSTP": 919, "CONT": 920, "CHLD": 921, "TTIN": 922, "TTOU": 923,
		"IO": 924, "XCPU": 925, "XFSZ": 926, "VTALRM": 927, "PROF": 928, "WINCH": 929, "USR1": 931, "USR2": 932, "PWR": 1<<32 - 1,
	} {
		sys, ok := spool.SignalNumber(name)
		if got := spool.GESignal(sys); got != want || !ok {
			t.Errorf("GESignal(%s) = %d; want %d", name, got, want)
		}
	}
	if got := spool.SignalName(40); got != "40" {
		t.Errorf("SignalName(40) = %q; want the number", got)
	}
	for _, name := range []string{"", "SIG", "kill", "SIGSIGKILL", "9", "EMT"} {
		if n, ok := spool.SignalNumber(name); ok {
			t.Errorf("SignalNumber(%q) = %d; want none", name, n)
		}
	}
	for _, sys := range []int{0, -1, 64} {
		if got := spool.GESignal(sys); got != 1<<32-1 {
			t.Errorf("GESignal(%d) = %d; want all ones", sys, got)
		}
	}
}

func TestUsage(t *testing.T) {
	start := time.Unix(1795190461, 0)
	ru := &syscall.Rusage{Utime: syscall.Timeval{Sec: 12, Usec: 21049}, Stime: syscall.Timeval{Usec: 36}, Maxrss: 4648, Minflt: 2145, Nvcsw: 46}
	u := spool.NewUsage(syscall.WaitStatus(9), start, start.Add(2*time.Second), ru)
	u.Extra = []spool.Entry{{Key: "paddock_maxvmem", Value: "17"}, {Key: "z", Value: ""}}
	b := u.Append(nil)
	for _, want := range []string{"wait_status=3727362\nexit_status=137\nsignal=9\n", "ru_wallclock=2\nru_utime=12.021049\nru_stime=0.000036\nru_maxrss=4648\n", "ru_nivcsw=0\npaddock_maxvmem=17\nz=\n"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("usage lacks %q:\n%s", want, b)
		}
	}
	got, err := spool.ParseUsage(b)
	if err != nil || !cmp.Equal(got, u) {
		t.Errorf("ParseUsage: %v\n%s", err, cmp.Diff(got, u))
	}
	if back := spool.NewUsage(0x300, start, start.Add(-time.Hour), ru); back.Wallclock != 0 || back.End != back.Start || back.ExitStatus != 3 || back.Signal != 0 {
		t.Errorf("clock set back: %+v", back)
	}
	// An entry that would add a line, or another value, is not written.
	u.Extra = []spool.Entry{{Key: "a", Value: "1\nsignal=0"}, {Key: "b\nc", Value: "1"}, {Key: "signal", Value: "0"}}
	if got, err := spool.ParseUsage(u.Append(nil)); err != nil || got.Extra != nil {
		t.Errorf("bad extra entries: %v, %v", got.Extra, err)
	}
}

func TestTrace(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	got := string(spool.AppendTrace(nil, when, 103, 7, "a\nb\tc\r\x1b[2J\x00\xff\\n"))
	want := "01/02/2026 03:04:05 [103:7]: a\\nb\tc\\r\\x1b[2J\\x00\xff\\n\n"
	if got != want {
		t.Errorf("AppendTrace = %q; want %q", got, want)
	}
	l, err := spool.ParseTraceLine([]byte(want))
	if err != nil || !l.Time.Equal(when) || l.EUID != 103 || l.PID != 7 || l.Text != want[len("01/02/2026 03:04:05 [103:7]: "):len(want)-1] {
		t.Errorf("ParseTraceLine(%q) = %+v, %v", want, l, err)
	}
}

func TestParseError(t *testing.T) {
	for _, tt := range []struct{ in, first, last string }{
		{"", "", ""},
		{"\n", "", ""},
		{"11/20/2026 16:02:27 [103:13824]: exit_status of prolog = 1\n", "exit_status of prolog = 1", "exit_status of prolog = 1"},
		{"11/20/2026 16:02:27 [103:1]: a\n11/20/2026 16:02:27 [103:1]: b\n11/20/2026 16:02:28 [103:1]: c [x]: y", "a", "c [x]: y"},
		{"2026-05-19 13:47:12.111258 [1730:4185611]: text ]: more\n", "text ]: more", "text ]: more"},
		{"plain text\n", "plain text", "plain text"},
		{"2026 was [a]: good year\n", "2026 was [a]: good year", "2026 was [a]: good year"},
	} {
		if first, last := spool.ParseError([]byte(tt.in)); first != tt.first || last != tt.last {
			t.Errorf("ParseError(%q) = %q, %q; want %q, %q", tt.in, first, last, tt.first, tt.last)
		}
	}
}

func TestSignals(t *testing.T) {
	for in, want := range map[string]spool.Signal{"19\n": {Signal: 19}, "19 7\n": {Signal: 19, Seq: 7}} {
		sig, seq, err := spool.ParseSignal([]byte(in))
		if sig != want.Signal || seq != want.Seq || err != nil {
			t.Errorf("ParseSignal(%q) = %d, %d, %v; want %v", in, sig, seq, err, want)
		}
		if got := string(spool.AppendSignal(nil, sig, seq)); got != in {
			t.Errorf("AppendSignal(%d, %d) = %q; want %q", sig, seq, got, in)
		}
	}
	want := []spool.Signal{{Signal: 19, Seq: 1}, {Signal: 18, Seq: 2}}
	b := spool.AppendSignals(nil, want)
	for _, torn := range []string{"", "1", "12 3", "x"} {
		got, err := spool.ParseSignals(append(slices.Clip(b), torn...))
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParseSignals with %q behind = %v, %v; want %v", torn, got, err, want)
		}
	}
}

func TestPEHosts(t *testing.T) {
	got := string(spool.AppendPEHosts(nil, []spool.PEHost{{Host: "a", Slots: 2, Instance: "q@a"}, {Host: "b\nc d", Slots: 1, Instance: "", Processors: "0-3"}}))
	if want := "a 2 q@a UNDEFINED\nb_c_d 1 UNKNOWN 0-3\n"; got != want {
		t.Errorf("AppendPEHosts = %q; want %q", got, want)
	}
}

func TestIDs(t *testing.T) {
	for s, want := range map[string]spool.ID{
		"42.1":             {Job: 42, Task: 1},
		"42.1/3.host":      {Job: 42, Task: 1, PETask: "3.host"},
		"1.75000/1.a-b_c9": {Job: 1, Task: 75000, PETask: "1.a-b_c9"},
		"2147483647.1":     {Job: 2147483647, Task: 1},
	} {
		id, err := spool.ParseID(s)
		if id != want || err != nil || id.String() != s || !id.Valid() {
			t.Errorf("ParseID(%q) = %+v, %v; want %+v", s, id, err, want)
		}
	}
	for _, s := range []string{
		"", ".", "..", "/", "42", "42.", ".1", "42.1.", "42.1.0", "042.1", "42.01", "0.1", "42.0", "-42.1", "+42.1", "42.-1", " 42.1", "42.1 ", "42.1\n", "42,1",
		"2147483648.1", "42.2147483648", "99999999999999999999.1", "٤٢.1", "4²2.1", "42.1/", "42.1/.", "42.1/..", "42.1/../x", "42.1/a/b", "42.1//a", "42.1/.hidden",
		"42.1/a..b", "42.1/-a", "42.1/a.", "42.1/a b", "42.1/a\x00", "42.1/a\nb", "42.1/" + strings.Repeat("a", 201), "/42.1", "../42.1", "42.1/\xff", "0x2a.1", "1_0.1",
	} {
		if id, err := spool.ParseID(s); err == nil {
			t.Errorf("ParseID(%q) = %+v; want an error", s, id)
		}
	}
	for s, want := range map[string]spool.RunID{"42.1.0": {Job: 42, Task: 1}, "42.7.13": {Job: 42, Task: 7, Run: 13}} {
		r, err := spool.ParseRunID(s)
		if r != want || err != nil || r.String() != s || !r.Valid() {
			t.Errorf("ParseRunID(%q) = %+v, %v; want %+v", s, r, err, want)
		}
	}
	for _, s := range []string{"", "42.1", "42.1.", "42.1.00", "42.1.-1", "42.1.0.0", "0.1.0", "42.0.0", "42.1.0/x", "42.1.2147483648", "a.b.c", "..", "42..0"} {
		if r, err := spool.ParseRunID(s); err == nil {
			t.Errorf("ParseRunID(%q) = %+v; want an error", s, r)
		}
	}
	for _, id := range []spool.ID{{}, {Job: 1}, {Job: -1, Task: 1}, {Job: 1 << 40, Task: 1}, {Job: 1, Task: 1, PETask: "../../etc"}} {
		if id.Valid() {
			t.Errorf("%+v is valid", id)
		}
	}
}

func TestBlame(t *testing.T) {
	want := map[spool.Blame][]int{
		spool.BlameNone:   {0, 22, 24, 25},
		spool.BlameJob:    {17, 26, 28, 29, 30, 31, 32, 33, 35, 37, 38, 100},
		spool.BlameQueue:  {5, 6, 8, 9, 10, 11, 13, 15, 27},
		spool.BlameHost:   {7, 34, 36},
		spool.BlameSystem: {1, 2, 3, 4, 12, 14, 16, 18, 19, 20, 21, 23, -1, 39, 101},
	}
	for blame, codes := range want {
		for _, n := range codes {
			if got := spool.BlameOf(n); got != blame {
				t.Errorf("BlameOf(%d) = %v; want %v", n, got, blame)
			}
		}
	}
	for _, n := range []int{spool.FailedBeforeStart, spool.FailedSearchingShell} {
		if got := spool.BlameWith(n, true); got != spool.BlameJob {
			t.Errorf("BlameWith(%d, true) = %v; want job", n, got)
		}
	}
	u := &spool.Usage{}
	for _, tt := range []struct {
		got  spool.Outcome
		want int
	}{
		{spool.ShepherdDied(false, nil), 1},
		{spool.ShepherdDied(true, nil), 19},
		{spool.ShepherdDied(true, u), 19},
	} {
		if tt.got.Failed != tt.want || tt.got.Blame != spool.BlameSystem || tt.got.Reason == "" {
			t.Errorf("ShepherdDied = %+v; want failed %d, blame system and a reason", tt.got, tt.want)
		}
	}
}
