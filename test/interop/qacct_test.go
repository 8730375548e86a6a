package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// accountTables has the accounting file that both qaccts read, and what Grid
// Engine's printed, by which qsub's tests hold ours.
var accountTables = filepath.Join(harness.Root(), "qsub", "internal", "account", "testdata", "qacct")

// ran is what a qacct printed, and its exit status.
type ran struct {
	out, err string
	exit     int
}

func (r ran) String() string {
	text := r.out
	for line := range strings.Lines(r.err) {
		text += "! " + line
	}
	return fmt.Sprintf("%s= %d\n", text, r.exit)
}

// runAccount runs a qacct.
func runAccount(t *testing.T, cmd *exec.Cmd) ran {
	t.Helper()
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	cmd.Env = append(os.Environ(), "TZ=UTC")
	if e := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(e)
	}
	return ran{out.String(), err.String(), cmd.ProcessState.ExitCode()}
}

func theirQacct(t *testing.T, args ...string) ran {
	r := runAccount(t, ge.Command(append([]string{"run", "env", "TZ=UTC", "qacct"}, args...)...))
	// What follows is all options.
	r.err, _, _ = strings.Cut(r.err, "SGE 8.1.9\nusage:")
	r.err = strings.TrimPrefix(r.err, "\n")
	r.err = withoutBadLines(r.err)
	// It takes KiB for bytes.
	r.out = regexp.MustCompile(`(?m)^(ru_maxrss +[0-9.]+)KB$`).ReplaceAllString(r.out, "${1}MB")
	return r
}

func ourQacct(t *testing.T, args ...string) ran {
	r := runAccount(t, exec.Command(filepath.Join(bin, "qacct"), args...))
	r.err = regexp.MustCompile(`(?m)^Type .*\n`).ReplaceAllString(strings.TrimPrefix(r.err, "qacct: "), "")
	r.err = withoutBadLines(r.err)
	return r
}

// withoutBadLines leaves out what is said of lines that are no records. Ours
// names all of them, by their place in the file, and what is wrong; Grid
// Engine's counts neither comments nor empty lines, and looks no further in a
// line that is not wanted.
func withoutBadLines(text string) string {
	return regexp.MustCompile(`(?m)^error: ignoring invalid entry in line \d+.*\n`).ReplaceAllString(text, "")
}

// TestQacct runs command lines of qacct, Grid Engine's and ours, on one file.
func TestQacct(t *testing.T) {
	t.Parallel()
	file := filepath.Join(accountTables, "accounting")
	golden := filepath.Join(accountTables, "printed")
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	n := 0
	for line := range strings.Lines(string(text)) {
		words, ok := strings.CutPrefix(line, "$ qacct")
		if !ok {
			continue
		}
		n++
		args := append([]string{"-f", file}, strings.Fields(words)...)
		theirs, ours := theirQacct(t, args...), ourQacct(t, args...)
		if diff := gocmp.Diff(theirs.String(), ours.String()); diff != "" {
			t.Errorf("qacct%s(-theirs +ours):\n%s", words, diff)
		}
		printed.WriteString(line + theirs.String())
	}
	if n < 30 {
		t.Errorf("%d command lines; want 30 at least", n)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(printed.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := gocmp.Diff(string(text), printed.String()); diff != "" {
		t.Errorf("%s is not what Grid Engine prints (-file +printed); write it anew with -update:\n%s", golden, diff)
	}
}

// TestQacctReadsOurs has Grid Engine's qacct read a file that our execd wrote,
// with a reason behind the fields.
func TestQacctReadsOurs(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(base, "qacct-ours")
	d, err := harness.Start(harness.Options{Bin: bin, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Kill()
	for _, line := range []string{"qsub -N well -b y -o /dev/null -j y true", `qsub -N killed -b y -o /dev/null -j y -shell n sh -c 'kill -KILL $$'`} {
		cmd := exec.Command("sh", "-c", line)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "PADDOCK_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	for job := 1; job <= 2; job++ {
		if err := d.WaitJob(job); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "accounting")
	maxrss := regexp.MustCompile(`(?m)^ru_maxrss .*$`) // also below 1024 KiB
	for _, args := range [][]string{{}, {"-o"}, {"-j"}, {"-j", "1"}, {"-j", "2"}, {"-j", "killed"}, {"-q", "*", "-slots"}} {
		args = append([]string{"-f", file}, args...)
		theirs, ours := theirQacct(t, args...), ourQacct(t, args...)
		reason := regexp.MustCompile(`(?m)^reason +.*\n`)
		if listed := strings.Contains(ours.out, "killed  "); listed != reason.MatchString(ours.out) {
			t.Errorf("qacct %q: reason there: %v; want %v:\n%s", args, !listed, listed, ours.out)
		}
		ours.out = maxrss.ReplaceAllString(reason.ReplaceAllString(ours.out, ""), "")
		theirs.out = maxrss.ReplaceAllString(theirs.out, "")
		if diff := gocmp.Diff(theirs.String(), ours.String()); diff != "" {
			t.Errorf("qacct %q (-theirs +ours):\n%s", args, diff)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^([^:\n]*:){45}[^:\n]+$`).Match(text) {
		t.Errorf("no line with a reason in\n%s", text)
	}
}
