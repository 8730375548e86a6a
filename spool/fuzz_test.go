package spool_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
)

// addGolden adds a file of every golden directory to the seeds.
func addGolden(f *testing.F, name string) {
	f.Helper()
	for _, dir := range goldenDirs(f) {
		if b, err := os.ReadFile(dir + "/" + name); err == nil {
			f.Add(b)
		}
	}
}

func FuzzConfig(f *testing.F) {
	addGolden(f, spool.FileConfig)
	for _, s := range []string{"", "a=1\na=1\n", "a=1\na=2\n", "a b\n", "=\n", "a\n", "paddock_uid=0\na=\n", "a=\npaddock_uid=0\n", "a=\x00\n", "a"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := spool.ParseConfig(b)
		if err != nil {
			return
		}
		if got := c.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("written back as %q; want %q", got, b)
		}
		// What Set takes changes one value and leaves a file that parses.
		entries := c.Entries()
		for i, e := range entries {
			if i%8 != 0 || c.Set(e.Key, "new") != nil {
				continue
			}
			again, err := spool.ParseConfig(c.Append(nil))
			if err != nil {
				t.Fatalf("after Set(%q): %v", e.Key, err)
			}
			if v, _ := again.Lookup(e.Key); v != "new" || len(again.Entries()) != len(entries) {
				t.Fatalf("after Set(%q): value %q, %d entries; want new, %d", e.Key, v, len(again.Entries()), len(entries))
			}
		}
	})
}

// FuzzConfigSet builds a config from what anybody may pass and reads it back.
func FuzzConfigSet(f *testing.F) {
	f.Add("job_arg1", "x\nepilog=/bin/echo", "paddock_uid", "0")
	f.Add("a", "b", "a", "c")
	f.Add("a", "\xff =", "B_9", "")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		c := &spool.Config{}
		want := map[string]string{}
		for _, e := range []spool.Entry{{Key: k1, Value: v1}, {Key: k2, Value: v2}, {Key: "epilog", Value: "none"}} {
			if c.Set(e.Key, e.Value) == nil {
				want[e.Key] = e.Value
			}
		}
		again, err := spool.ParseConfig(c.Append(nil))
		if err != nil {
			t.Fatalf("ParseConfig: %v", err)
		}
		got := map[string]string{}
		for _, e := range again.Entries() {
			got[e.Key] = e.Value
		}
		if !cmp.Equal(got, want) {
			t.Fatalf("got %q; want %q", got, want)
		}
	})
}

func FuzzEnvironment(f *testing.F) {
	addGolden(f, spool.FileEnvironment)
	for _, s := range []string{"A=\\n\\\\\n", "A=\\x\\\n", "A\n", "=\n", "Q=a\xffb\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// As content of the file.
		if env, err := spool.ParseEnvironment(b); err == nil {
			canonical := spool.AppendEnvironment(nil, env)
			again, err := spool.ParseEnvironment(canonical)
			if err != nil || !slices.Equal(again, env) {
				t.Fatalf("got %q, %v; want %q", again, err, env)
			}
			if !bytes.Contains(b, []byte{'\\'}) && !bytes.Equal(canonical, b) {
				t.Fatalf("written back as %q; want %q", canonical, b)
			}
		}
		// As variables.
		var env []string
		for v := range strings.SplitSeq(string(b), "\x00") {
			if strings.Contains(v, "=") && spool.CheckVariable(v) == nil {
				env = append(env, v)
			}
		}
		file := spool.AppendEnvironment(nil, env)
		got, err := spool.ParseEnvironment(file)
		if err != nil || !slices.Equal(got, env) || bytes.Count(file, []byte{'\n'}) != len(env) {
			t.Fatalf("got %q, %v; want %q", got, err, env)
		}
	})
}

func FuzzUsage(f *testing.F) {
	addGolden(f, spool.FileUsage)
	if b, err := os.ReadFile("testdata/golden/batch-exit3/usage"); err == nil {
		f.Add(append(b, "paddock_x=1\n"...))
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := spool.ParseUsage(b)
		if err != nil {
			return
		}
		canonical := u.Append(nil)
		again, err := spool.ParseUsage(canonical)
		if err != nil || !cmp.Equal(again, u) {
			t.Fatalf("ParseUsage(Append): %v\n%s", err, cmp.Diff(again, u))
		}
		// Only the order of lines is free.
		if len(canonical) != len(b) {
			t.Fatalf("written back as %q; want %q", canonical, b)
		}
	})
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"", "0\n", "801\n", "12", "012\n", "-1\n", "9223372036854775807\n", "9223372036854775808\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := spool.ParseNumber(b)
		if err != nil {
			return
		}
		if got := spool.AppendNumber(nil, n); !bytes.Equal(got, b) {
			t.Fatalf("written back as %q; want %q", got, b)
		}
	})
}

func FuzzExitStatus(f *testing.F) {
	for _, s := range []string{"", "0\n", "10\n13\n", "25", "x\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n, lines, err := spool.ParseExitStatus(b)
		if err != nil {
			return
		}
		if got := spool.AppendExitStatus(nil, n); !bytes.HasPrefix(b, got) || lines != bytes.Count(b, []byte{'\n'}) {
			t.Fatalf("got %d, %d lines of %q", n, lines, b)
		}
	})
}

func FuzzTraceLine(f *testing.F) {
	for _, dir := range goldenDirs(f)[:2] {
		b, err := os.ReadFile(dir + "/" + spool.FileTrace)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			f.Add(line)
		}
	}
	f.Add([]byte("11/20/2026 16:01:01 [4294967295:2147483647]: \xff\n"))
	local := time.Local
	time.Local = time.UTC // no hour is missing there
	f.Cleanup(func() { time.Local = local })
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := spool.ParseTraceLine(b)
		if err != nil {
			return
		}
		got := spool.AppendTrace(nil, l.Time, l.EUID, l.PID, l.Text)
		plain := !bytes.ContainsFunc(bytes.TrimSuffix(b, []byte{'\n'}), func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f })
		if plain && !bytes.Equal(bytes.TrimSuffix(got, []byte{'\n'}), bytes.TrimSuffix(b, []byte{'\n'})) {
			t.Fatalf("written back as %q; want %q", got, b)
		}
		again, err := spool.ParseTraceLine(got)
		if err != nil || !again.Time.Equal(l.Time) || plain && again != l {
			t.Fatalf("ParseTraceLine(%q) = %+v, %v; want %+v", got, again, err, l)
		}
		if bytes.Count(got, []byte{'\n'}) != 1 {
			t.Fatalf("more than one line: %q", got)
		}
	})
}

func FuzzError(f *testing.F) {
	addGolden(f, spool.FileError)
	f.Add([]byte("2026-05-19 13:47:12.111258 [1730:4185611]: text\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		first, last := spool.ParseError(b)
		if strings.Contains(first, "\n") || strings.Contains(last, "\n") {
			t.Fatalf("got %q, %q; want single lines", first, last)
		}
		if !bytes.Contains(b, []byte(first)) || !bytes.Contains(b, []byte(last)) {
			t.Fatalf("got %q, %q, which are not in %q", first, last, b)
		}
	})
}

func FuzzSignals(f *testing.F) {
	for _, s := range []string{"", "19\n", "19 7\n", "19 7\n18 8\n1", "x\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if sig, seq, err := spool.ParseSignal(b); err == nil {
			if got := spool.AppendSignal(nil, sig, seq); !bytes.Equal(got, b) {
				t.Fatalf("signal written back as %q; want %q", got, b)
			}
		}
		if list, err := spool.ParseSignals(b); err == nil {
			whole := b[:bytes.LastIndexByte(b, '\n')+1]
			if got := spool.AppendSignals(nil, list); !bytes.Equal(got, whole) {
				t.Fatalf("signals written back as %q; want %q", got, whole)
			}
		}
	})
}

func FuzzArgs(f *testing.F) {
	for _, s := range []string{"", "\x00", "a\x00b c\x00", "a", "x\nepilog=/bin/echo\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		args, err := spool.ParseArgs(b)
		if err != nil {
			return
		}
		if got := spool.AppendArgs(nil, args); !bytes.Equal(got, b) {
			t.Fatalf("written back as %q; want %q", got, b)
		}
	})
}

func FuzzPEHosts(f *testing.F) {
	addGolden(f, spool.FilePEHostfile)
	f.Add([]byte("a 2 q@a 0,0:0,1\nb 1 q@b <NULL>\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		hosts, err := spool.ParsePEHosts(b)
		if err != nil {
			return
		}
		if got := spool.AppendPEHosts(nil, hosts); !bytes.Equal(got, b) {
			t.Fatalf("written back as %q; want %q", got, b)
		}
	})
}

func FuzzID(f *testing.F) {
	for _, s := range []string{"42.1", "42.1/3.host", "42.1.0", "../42.1", "42.1/..", "042.1", "42.1/a/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := spool.ParseID(s); err == nil {
			if id.String() != s || !id.Valid() || strings.Contains(s, "..") || strings.Count(s, "/") > 1 || strings.HasPrefix(s, "/") || strings.ContainsAny(s, "\x00\n ") {
				t.Fatalf("ParseID(%q) = %+v", s, id)
			}
		}
		if r, err := spool.ParseRunID(s); err == nil && (r.String() != s || !r.Valid() || strings.ContainsAny(s, "/\x00")) {
			t.Fatalf("ParseRunID(%q) = %+v", s, r)
		}
	})
}

func FuzzLimit(f *testing.F) {
	for _, s := range []string{"INFINITY", "1.5G", "1:2:3", "18446744073709551613", "0.999999999G", "::"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := spool.ParseLimit(s)
		if err != nil {
			return
		}
		if again, err := spool.ParseLimit(l.String()); again != l || err != nil {
			t.Fatalf("ParseLimit(%q) = %d, but %q is %d, %v", s, l, l.String(), again, err)
		}
	})
}
