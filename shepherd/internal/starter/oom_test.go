package starter

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUnprotect(t *testing.T) {
	path := t.TempDir() + "/adj"
	for v, want := range map[string]string{"-1000\n": "0\n000\n", "-5\n": "0\n\n", "0\n": "0\n", "300\n": "300\n"} {
		if err := os.WriteFile(path, []byte(v), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unprotect(path); err != nil {
			t.Errorf("unprotect with %q: %v", v, err)
		}
		// The kernel's file is not written over, so neither is this one cut.
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v; want %q", v, got, err, want)
		}
	}
	if err := unprotect(path + "/not-there"); err != nil {
		t.Errorf("without the file: %v", err)
	}
}

// TestUnprotected sees that a job is not spared when memory runs out because
// execd is.
func TestUnprotected(t *testing.T) {
	r := newRig(t)
	old := r.oom("-500")
	defer r.oom(old)
	for _, o := range []Order{
		{Name: "job"}, {Kind: Prolog, Argv: []string{r.base + "/procedure"}}, {Kind: Epilog, User: "root", Argv: []string{r.base + "/procedure"}},
	} {
		r.set("script_file=" + r.script("cat /proc/self/oom_score_adj; echo -1 2>&1 >/proc/self/oom_score_adj | wc -l"))
		r.ran(o)
	}
	if got := r.read("out/o"); got != "0\n1\n0\n1\n0\n0\n" {
		t.Errorf("oom_score_adj and whether it is theirs to lower: %q", got)
	}
	r.oom("300")
	r.ran(Order{Name: "job"})
	if got := r.read("out/o"); !strings.HasSuffix(got, "\n300\n1\n") {
		t.Errorf("oom_score_adj %q; want it left alone above 0", got)
	}
}

// oom sets this process's value, which all it starts have, and returns the old.
func (r *rig) oom(v string) string {
	r.t.Helper()
	old, err := readSmall(fileOOM)
	if err != nil {
		r.t.Skip(err)
	}
	fd, err := unix.Open(fileOOM, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		r.t.Skip(err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(v)); err != nil {
		r.t.Skip(err)
	}
	return old
}
