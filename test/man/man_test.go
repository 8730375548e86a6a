// Package man holds the manual pages and what is shipped beside them against
// the programs: options, names of the spool, references, the example
// configuration and the unit of systemd, and the guides to the code against the
// code. Nobody imports it.
package man

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
	"paddock/test/harness"
	"paddock/test/props"
)

// read returns a file of the source tree.
func read(t *testing.T, elem ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{harness.Root()}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages returns the paths of all manual pages.
func pages(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(harness.Root(), "man", "man*", "*"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no manual pages: %v", err)
	}
	return list
}

// program returns the path of a program.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := props.Build(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// between returns what stands between two comments of a page.
func between(t *testing.T, text, what string) string {
	t.Helper()
	_, text, ok := strings.Cut(text, `.\" begin `+what)
	text, _, ok2 := strings.Cut(text, `.\" end `+what)
	if !ok || !ok2 {
		t.Fatalf("no comments around %s", what)
	}
	return text
}

// section returns one section of a page.
func section(t *testing.T, text, name string) string {
	t.Helper()
	_, text, ok := strings.Cut(text, "\n.Sh "+name+"\n")
	if !ok {
		t.Fatalf("no section %s", name)
	}
	text, _, _ = strings.Cut(text, "\n.Sh ")
	return text
}

// sorted returns a list in order, each word once.
func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// TestOptions holds what `execd -help` and `qweb -help` say against their pages.
func TestOptions(t *testing.T) {
	for name, place := range map[string]struct{ page, section string }{
		"execd": {"man8/execd.8", "OPTIONS"},
		"qweb":  {"man1/qweb.1", "DESCRIPTION"},
	} {
		t.Run(name, func(t *testing.T) { optionsOf(t, name, section(t, read(t, "man", place.page), place.section)) })
	}
}

// optionsOf holds the options of a program against a section of its page.
func optionsOf(t *testing.T, name, page string) {
	t.Helper()
	bin := program(t, name)
	help, err := exec.CommandContext(t.Context(), bin, "-help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(help)) {
		if len(line) > 81 { // with its end
			t.Errorf("%s -help has a line that is wider than a terminal:\n%s", name, line)
		}
	}
	_, options, ok := strings.Cut(string(help), "OPTIONS:\n")
	if !ok {
		t.Fatalf("%s -help lists no options:\n%s", name, help)
	}
	var want []string
	for line := range strings.Lines(options) {
		for word := range strings.FieldsSeq(line) {
			if word[0] != '-' {
				break // the description, or the option's argument
			}
			want = append(want, strings.Trim(word, "-,"))
		}
	}
	var got []string
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, ".It ") {
			continue
		}
		words := strings.Fields(line)
		for i, word := range words {
			if word == "Fl" && i+1 < len(words) {
				got = append(got, words[i+1])
			}
		}
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("%s -help and its page differ (-help +page):\n%s", name, diff)
	}
}

// TestSpool holds the tables of names.go against spool(5): each row stands
// there, with what the table says of it, and nothing else does.
func TestSpool(t *testing.T) {
	page := read(t, "man", "man5", "spool.5")
	var files, places strings.Builder
	for _, f := range spool.Files {
		fmt.Fprintf(&files, "%s: Written by %s, read by %s, mode %04o. When: %s.", f.Name, f.Writer, f.Reader, f.Mode, f.When)
		if f.Durable != "" {
			fmt.Fprintf(&files, " Durable: %s.", f.Durable)
		}
		files.WriteString("\n")
	}
	for _, p := range spool.Places {
		fmt.Fprintf(&places, "%s: Mode %04o: %s.\n", p.Name, p.Mode, p.Means)
	}
	for what, want := range map[string]string{"files": files.String(), "places": places.String()} {
		if diff := cmp.Diff(want, heads(between(t, page, what))); diff != "" {
			t.Errorf("names.go and the %s of spool.5 differ (-table +page):\n%s", what, diff)
		}
	}
}

// heads returns the first paragraph of each item of a list of names, a line
// each.
func heads(list string) string {
	var b strings.Builder
	for _, item := range strings.Split(list, "\n.It Pa ")[1:] {
		head, _, _ := strings.Cut(item, "\n.Pp\n")
		name, text, _ := strings.Cut(head, "\n")
		fmt.Fprintf(&b, "%s: %s\n", name, strings.ReplaceAll(text, "\n", " "))
	}
	return b.String()
}

// TestLint holds all pages against mandoc's idea of mdoc, and their print
// against a terminal of 80 columns.
func TestLint(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed (Debian: mandoc)")
	}
	overstrike := regexp.MustCompile(".\b")
	for _, page := range pages(t) {
		t.Run(filepath.Base(page), func(t *testing.T) {
			if out, err := exec.CommandContext(t.Context(), mandoc, "-T", "lint", "-W", "warning", page).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("mandoc -T lint: %v\n%s", err, out)
			}
			out, err := exec.CommandContext(t.Context(), mandoc, "-T", "ascii", page).Output()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(overstrike.ReplaceAllString(string(out), "")) {
				if n := len(line) - 1; n > 80 {
					t.Errorf("%d columns: %s", n, line)
				}
			}
		})
	}
}

// foreign are the pages of others that ours may refer to.
var foreign = []string{
	"awk(1)", "bash(1)", "cat(1)", "csh(1)", "curl(1)", "getent(1)", "grep(1)", "loginctl(1)", "nice(1)", "sh(1)", "ssh(1)", "systemctl(1)", "tail(1)", "vi(1)", "xterm(1)",
	"clone(2)", "flock(2)", "getrlimit(2)", "getrusage(2)", "prctl(2)", "setpgid(2)", "setpriority(2)",
	"setrlimit(2)", "setsid(2)", "signal(2)", "umask(2)", "wait4(2)",
	"fnmatch(3)", "sd_notify(3)", "sd_watchdog_enabled(3)", "strftime(3)", "sysexits(3)",
	"acl(5)", "core(5)", "group(5)", "passwd(5)", "proc(5)", "projid(5)", "systemd.exec(5)", "systemd.service(5)",
	"environ(7)", "glob(7)", "inotify(7)", "pty(7)", "session-keyring(7)", "signal(7)", "unix(7)", "user-keyring(7)",
	"inetd(8)", "logrotate(8)", "pam_systemd(8)",
	"sge_execd(8)",
}

// reference matches a cross reference.
var reference = regexp.MustCompile(`(?m)(?:^\.| )Xr (\S+) ([1-9])\b`)

// TestReferences looks for every page that one of ours refers to.
func TestReferences(t *testing.T) {
	have := map[string]bool{}
	for _, name := range foreign {
		have[name] = true
	}
	list := pages(t)
	for _, page := range list {
		sect := strings.TrimPrefix(filepath.Ext(page), ".")
		have[strings.TrimSuffix(filepath.Base(page), "."+sect)+"("+sect+")"] = true
		if dir := filepath.Base(filepath.Dir(page)); dir != "man"+sect {
			t.Errorf("%s is in %s", filepath.Base(page), dir)
		}
	}
	for _, page := range list {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var missing []string
		for _, m := range reference.FindAllStringSubmatch(string(text), -1) {
			if to := m[1] + "(" + m[2] + ")"; !have[to] {
				missing = append(missing, to)
			}
		}
		for _, to := range sorted(missing) {
			t.Errorf("%s refers to %s, which is no page of ours, nor on the list of others'", filepath.Base(page), to)
		}
	}
}

var (
	// inTree matches a path in a guide, from the top of the tree.
	inTree = regexp.MustCompile("`([\\w.][\\w.-]*(?:/[\\w.-]+)+|[\\w.-]+\\.md)`")
	// inFile matches a name that a guide says is in a file.
	inFile = regexp.MustCompile("`([\\w.]+)`(?: of `[\\w.]+`)? in\\s+`([\\w./-]+)`")
)

// TestGuides looks for every file that the guides to the code name, and in it for
// what it is said to have.
func TestGuides(t *testing.T) {
	readme := read(t, "README.md")
	for _, guide := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		if !strings.Contains(readme, "]("+guide+")") {
			t.Errorf("README.md does not lead to %s", guide)
		}
		text := read(t, guide)
		paths := inTree.FindAllStringSubmatch(text, -1)
		if len(paths) < 10 {
			t.Errorf("%s names %d files", guide, len(paths))
		}
		for _, m := range paths {
			if _, err := os.Stat(filepath.Join(harness.Root(), m[1])); err != nil {
				t.Errorf("%s: %v", guide, err)
			}
		}
		for _, m := range inFile.FindAllStringSubmatch(text, -1) {
			code, err := os.ReadFile(filepath.Join(harness.Root(), m[2]))
			if err != nil {
				continue // it was said above
			}
			for name := range strings.SplitSeq(m[1], ".") {
				if !regexp.MustCompile(`\b` + name + `\b`).Match(code) {
					t.Errorf("%s looks for %s in %s, which has no %s", guide, m[1], m[2], name)
				}
			}
		}
	}
}

// parameter matches a line of the example configuration that is commented out:
// prose has a blank behind the sign.
var parameter = regexp.MustCompile(`(?m)^#([A-Za-z])`)

// hookDir and hookProgram match what the example hooks.conf says of programs,
// which are the site's to write.
var (
	hookDir     = regexp.MustCompile(`(?m)^SITE_HOOK_DIR = .*$`)
	hookProgram = regexp.MustCompile(`\$\(SITE_HOOK_DIR\)/(\S+)`)
)

// withHooks makes the programs of a hooks.conf, and returns it with their place.
func withHooks(t *testing.T, text, dir string) string {
	t.Helper()
	programs := filepath.Join(dir, "programs")
	for _, d := range []string{programs, filepath.Join(dir, "etc", "hooks.d")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range hookProgram.FindAllStringSubmatch(text, -1) {
		if err := os.WriteFile(filepath.Join(programs, m[1]), []byte("#!/bin/sh\n"), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	return hookDir.ReplaceAllString(text, "SITE_HOOK_DIR = "+programs)
}

// TestExampleConfig gives the example configuration to execd, as it is and
// with every parameter in force.
func TestExampleConfig(t *testing.T) {
	bin := program(t, "execd")
	for name, change := range map[string]func(string) string{
		"shipped":  func(s string) string { return s },
		"in force": func(s string) string { return parameter.ReplaceAllString(s, "$1") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range []string{"sge_conf", "sched_conf", "complexes", "queues/all.q", "hooks.conf"} {
				to := filepath.Join(dir, "etc", file)
				if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
					t.Fatal(err)
				}
				text := change(read(t, "packaging", "config", file))
				if file == "hooks.conf" {
					text = withHooks(t, text, dir)
				}
				if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), bin, "-t", "-dev", dir).CombinedOutput()
			if err != nil {
				t.Errorf("execd -t: %v\n%s", err, out)
			}
		})
	}
}

// directives are those of systemd that we know, by section.
var directives = map[string][]string{
	"Unit": {"After", "Description", "Documentation", "RequiresMountsFor", "StartLimitIntervalSec", "Wants"},
	"Service": {
		"ConfigurationDirectory", "Delegate", "DelegateSubgroup", "ExecReload", "ExecStart", "KillMode", "NotifyAccess",
		"OOMPolicy", "OOMScoreAdjust", "Restart", "RestartPreventExitStatus", "RestartSec", "RuntimeDirectory",
		"RuntimeDirectoryPreserve", "StateDirectory", "TasksMax", "TimeoutAbortSec", "TimeoutStartSec", "Type", "WatchdogSec",
	},
	"Install": {"Alias", "WantedBy"},
}

// TestUnit reads the unit of systemd: known directives in their sections, each
// once, and those there on which running jobs depend.
func TestUnit(t *testing.T) {
	got := map[string]string{}
	in := ""
	for n, line := range strings.Split(read(t, "packaging", "systemd", "paddock-execd.service"), "\n") {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			in = strings.Trim(line, "[]")
			if directives[in] == nil {
				t.Errorf("line %d: no such section: %s", n+1, line)
			}
		case !ok || value == "" || !slices.Contains(directives[in], key):
			t.Errorf("line %d: no directive of section %s: %s", n+1, in, line)
		case got[key] != "":
			t.Errorf("line %d: %s is already set", n+1, key)
		default:
			got[key] = value
		}
	}
	for key, want := range map[string]string{
		"Type":      "notify",
		"KillMode":  "process", // jobs outlive execd
		"Delegate":  "yes",
		"OOMPolicy": "continue",
		// The leaf of package cgroup.
		"DelegateSubgroup": "execd",
	} {
		if got[key] != want {
			t.Errorf("%s=%s; want %s", key, got[key], want)
		}
	}
	path, _, _ := strings.Cut(got["ExecStart"], " ")
	manifest := strings.ReplaceAll(read(t, "packaging", "manifest"), "@SBINDIR@", "/usr/sbin")
	if !strings.Contains(manifest, " "+path+" ") {
		t.Errorf("ExecStart=%s: the manifest does not install it", path)
	}
}

// What systemd-analyze says of the units is nothing, or on a systemd before 254 that it
// ignores DelegateSubgroup.
func TestUnitVerify(t *testing.T) {
	for _, name := range []string{"paddock-execd.service", "paddock-web.service"} {
		t.Run(name, func(t *testing.T) { verifyUnit(t, name) })
	}
}

func verifyUnit(t *testing.T, name string) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze")
	}
	path := filepath.Join(t.TempDir(), name)
	// The programs that it names are not installed.
	text := regexp.MustCompile(`(?m)^(Exec\w+=)\S+`).ReplaceAllString(read(t, "packaging", "systemd", name), "${1}/bin/true")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", path).CombinedOutput()
	allowed := regexp.MustCompile(`^` + regexp.QuoteMeta(path) + `:\d+: Unknown key '?DelegateSubgroup'? in section \[Service\], ignoring\.\n$`)
	if (err != nil || len(out) > 0) && !allowed.Match(out) { // which is an error here, and none to a manager
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
