package command

import (
	"strings"
	"testing"

	"paddock/spool"
)

// set returns a config with one value, or skips what config cannot have.
func set(t *testing.T, values ...string) *spool.Config {
	t.Helper()
	c := config(t, job...)
	for i := 0; i < len(values); i += 2 {
		if c.Set(values[i], values[i+1]) != nil {
			t.Skip()
		}
	}
	return c
}

// words splits a command as sh does, as far as there are only words. It is
// written apart from quoting, against which it is held.
func words(s string) (list []string, ok bool) {
	word, open := "", false
	for s != "" {
		c := s[0]
		s = s[1:]
		switch c {
		case ' ', '\t':
			if open {
				list, word, open = append(list, word), "", false
			}
			continue
		case '\'':
			quoted, rest, closed := strings.Cut(s, "'")
			if !closed {
				return nil, false
			}
			word, s = word+quoted, rest
		case '"':
			for {
				if s == "" || s[0] == '$' || s[0] == '`' {
					return nil, false
				}
				c, s = s[0], s[1:]
				if c == '"' {
					break
				}
				if c == '\\' && s != "" && strings.Contains("$`\"\\", s[:1]) {
					c, s = s[0], s[1:]
				}
				word += string([]byte{c})
			}
		case '\\':
			if s == "" {
				return nil, false
			}
			word, s = word+s[:1], s[1:]
		default:
			if !harmless(string([]byte{c})) {
				return nil, false
			}
			word += string([]byte{c})
		}
		open = true
	}
	if open {
		list = append(list, word)
	}
	return list, true
}

func FuzzExpand(f *testing.F) {
	for _, value := range nasty {
		f.Add("/x $job_name '$job_name' \"$job_name\"", value)
	}
	for _, text := range []string{
		"$", "$$", "/x \\$job_name \"\\$job_name\"", "/x `$job_name`", "/x `echo '`' $job_name", "$job_name$job_pid", "'", "\"`", "/x $ckpt_dir",
	} {
		f.Add(text, "a'b")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		c := set(t, spool.KeyJobName, value)
		for _, scope := range []Scope{ForProcedure, ForPE, ForControl, ForCheckpoint} {
			got, err := Expand(text, scope, c, jobPID)
			if len(got) > MaxLength || err != nil && got != "" {
				t.Fatalf("Expand(%q, %d) = %d bytes, %v", text, scope, len(got), err)
			}
			if err != nil || !scope.shell() {
				continue
			}
			// What the text is with a value that needs no quotes it must be with
			// every other, but for the value.
			const mark = "7MARK7"
			if strings.Contains(text, mark) {
				t.Skip()
			}
			marked, err := Expand(text, scope, set(t, spool.KeyJobName, mark), jobPID)
			if err != nil {
				continue // it is longer
			}
			want, ok := words(marked)
			if !ok {
				continue
			}
			list, ok := words(got)
			if !ok || strings.Join(list, "\n") != strings.ReplaceAll(strings.Join(want, "\n"), mark, value) {
				t.Fatalf("Expand(%q) with %q = %q: words %q, %v", text, value, got, list, ok)
			}
		}
	})
}

func FuzzProcedure(f *testing.F) {
	for _, text := range []string{
		"/x", "root@/x $job_name", "$job_name", "$job_name@/x", "@/x", "a@b@/x", " \t", "none", "/x $ y", "/x\t$job_name$job_id", "/$pe_slots",
	} {
		f.Add(text, "a b")
		f.Add(text, "root@/x")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		c := set(t, spool.KeyJobName, value, spool.KeyPEStart, text)
		template, parseErr := ParseProcedure(text)
		if parseErr == nil && (len(template.Argv) == 0 || strings.ContainsAny(strings.Join(template.Argv, ""), " \t")) {
			t.Fatalf("ParseProcedure(%q) = %q", text, template)
		}
		p, ok, err := ReadProcedure(spool.KeyPEStart, ForPE, c)
		if !ok {
			if p.User != "" || p.Argv != nil {
				t.Fatalf("ReadProcedure(%q) = %q, %v", text, p, err)
			}
			return
		}
		if parseErr != nil || err != nil || p.User != template.User || len(p.Argv) != len(template.Argv) || p.Argv[0][0] != '/' ||
			strings.Contains(p.User, "$") || len(strings.Join(p.Argv, " ")) > MaxLength {
			t.Fatalf("ReadProcedure(%q) with %q = %q, %v; want words of %q", text, value, p, err, template)
		}
	})
}

func FuzzMethod(f *testing.F) {
	for _, value := range []string{"", "none", "/x $job_pid", "SIGTERM", "SIG", "SIGSIGTERM", "9", "-1", "65", "x"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		m, err := ReadMethod(spool.KeyResumeMethod, set(t, spool.KeyResumeMethod, value))
		switch {
		case m.Signal < 0 || m.Signal > 64, m.Signal != 0 && m.Command != "", err != nil && m != (Method{}):
			t.Fatalf("ReadMethod(%q) = %+v, %v", value, m, err)
		case m.Command != "" && (m.Command != value || value[0] != '/'), err == nil && m == (Method{}) && !IsNone(value):
			t.Fatalf("ReadMethod(%q) = %+v", value, m)
		}
		// The same texts as other values that name signals.
		n, err := ReadNotification(set(t, spool.KeyNotify, "5", spool.KeyNotifyKillType, "0", spool.KeyNotifyKill, value))
		if n.Kill < 0 || n.Kill > 64 || err == nil && n.Kill == 0 {
			t.Fatalf("ReadNotification with %q = %+v, %v", value, n, err)
		}
	})
}
