package parent

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"paddock/spool"
)

// stock puts a script where Grid Engine's own shepherd is, and returns the
// environment by which it is found, and its path.
func (r *rig) stock(body string) (env []string, path string) {
	r.t.Helper()
	path = r.base + "/sge/bin/lx-test/sge_shepherd"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		r.t.Fatal(err)
	}
	return []string{"KEPT=a b", "SGE_ROOT=" + r.base + "/sge", "SGE_ARCH=lx-test"}, path
}

// TestHandOver gives interactive jobs of a foreign execd to its own shepherd:
// the same process, with all that it was given, and nothing touched.
func TestHandOver(t *testing.T) {
	// What signals are ignored, as whoever runs the tests may have it, such as nohup.
	// Signal 32 is glibc's own, which a shepherd built with -race is linked to.
	const ignored = `sed -n '/^SigIgn/{s/8\(.......\)$/0\1/;p}' /proc/`
	given, err := exec.Command("sh", "-c", ignored+"$$/status").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"QRSH", "qlogin", "QRLOGIN", "INTERACTIVE"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, "exit 1").set("script_file=" + kind).foreign()
			env, _ := r.stock(`{ echo $$; pwd; echo "$*"; ls -A | tr '\n' ' '; echo; ` + ignored + `$$/status; tr '\0' '\n' </proc/$$/environ; } >` + r.base + "/out/said; exit 33\n")
			p := r.startForeign(env) // as a shepherd_cmd
			if code := p.wait(); code != 33 {
				t.Errorf("exit code %d; want that of the other shepherd, 33; error %q", code, r.read(spool.FileError))
			}
			want := strings.Join([]string{
				strconv.Itoa(p.cmd.Process.Pid), r.dir.Path(), "-bg", "config environment pe_hostfile ",
			}, "\n") + "\n" + string(given) + strings.Join(env, "\n") + "\n"
			if got := r.output("said"); got != want {
				t.Errorf("the other shepherd saw\n%s; want\n%s", got, want)
			}
		})
	}
}

// TestHandOverAsAdmin is started as by sge_execd.
func TestHandOverAsAdmin(t *testing.T) {
	needRoot(t, "becomes another user")
	r := newRig(t, "exit 1").set("script_file=QRSH", "admin_user=daemon").foreign()
	r.fill()
	env, path := r.stock("")
	// Not sh, which gives up a user that is only the effective one.
	if err := os.WriteFile(path, []byte(`#!/usr/bin/perl
print "$< $> ", join " ", map { "$_=$ENV{$_}" } sort keys %ENV`), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{r.base + "/sge", r.dir.Path(spool.FileConfig)} { // as sge_execd and many installations have it
		if err := os.Chown(name, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("perl", "-e", `$> = 1; exec { $ARGV[0] } "sge_shepherd-1", "-bg"; die "$!"`, binary)
	cmd.Dir = r.dir.Path()
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if want := "0 1 KEPT=a b SGE_ARCH=lx-test SGE_ROOT=" + r.base + "/sge"; err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}

// TestHandOverLoop has a wrapper in the place of the other shepherd that starts
// ours.
func TestHandOverLoop(t *testing.T) {
	r := newRig(t, "exit 1").set("script_file=QRSH").foreign()
	env, path := r.stock("exec " + binary + " \"$@\"\n")
	r.ended(r.startForeign(env, "-bg").wait(), 30, -1)
	if got := r.read(spool.FileError); !strings.Contains(got, "way back") || strings.Count(got, "\n") != 1 {
		t.Errorf("error %q; want one line that says that %s leads back", got, path)
	}
}

// TestHandOverNowhere says where Grid Engine's shepherd was looked for.
func TestHandOverNowhere(t *testing.T) {
	needRoot(t, "hides the system's own Grid Engine by a mount")
	r := newRig(t, "exit 1").set("script_file=QRSH").foreign()
	env, path := r.stock("")
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	r.fill()
	const system = "/usr/lib/gridengine"
	cmd := exec.Command("unshare", "-m", "sh", "-c", "[ ! -d "+system+" ] || mount -t tmpfs none "+system+" && exec \"$0\" -bg", binary)
	cmd.Dir, cmd.Env = r.dir.Path(), append(env, "PATH="+os.Getenv("PATH"))
	p := &running{rig: r, cmd: cmd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.ended(p.wait(), 30, -1)
	got := r.read(spool.FileError)
	for _, want := range []string{
		"script_file=QRSH", path + ": others may write to " + path,
		r.base + "/sge/utilbin/lx-test/sge_shepherd: no such file", system + "/sge_shepherd: no such file",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("error %q; want %q in it", got, want)
		}
	}
}

// TestTwoValuesAreKept does not give away what may be a user's own line: Grid
// Engine's shepherd would take the last.
func TestTwoValuesAreKept(t *testing.T) {
	r := newRig(t, "exit 1").set("script_file=QRSH", "njob_args=1").foreign()
	r.raw = append(r.raw, "job_arg1=x\nepilog=root@/bin/sh\n"...)
	env, _ := r.stock("exit 33\n")
	r.ended(r.startForeign(env).wait(), 26, -1)
}

func TestTrusted(t *testing.T) {
	needRoot(t, "gives files to another user")
	r := newRig(t, "")
	_, path := r.stock("")
	dir := filepath.Dir(path)
	link := r.base + "/link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if got, err := trusted(link); got != path || err != nil {
		t.Fatalf("trusted(%s) = %q, %v; want %s", link, got, err, path)
	}
	for _, c := range []struct {
		name   string
		change func() error
		want   string
	}{
		{"others may write the file", func() error { return os.Chmod(path, 0o757) }, "others may write to " + path},
		{"its group may", func() error { return os.Chmod(path, 0o775) }, "others may write to " + path},
		{"another's file", func() error { return os.Chown(path, 2, 0) }, path + " belongs to uid 2"},
		{"not executable", func() error { return os.Chmod(path, 0o644) }, "not a program"},
		{"others may write the directory", func() error { return os.Chmod(dir, 0o757) }, "others may write to " + dir},
		{"another's directory", func() error { return os.Chown(filepath.Dir(dir), 2, 0) }, filepath.Dir(dir) + " belongs to uid 2"},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if got, err := trusted(link); err == nil || err.Error() != c.want {
			t.Errorf("%s: trusted() = %q, %v; want error %q", c.name, got, err, c.want)
		}
		for _, p := range []string{path, dir, filepath.Dir(dir)} {
			if err := os.Chown(p, 0, 0); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(p, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, r.base+"/self"); err != nil {
		t.Fatal(err)
	}
	if got, err := trusted(r.base + "/self"); err == nil || !strings.Contains(err.Error(), "itself") {
		t.Errorf("trusted(a link to this program) = %q, %v; want a refusal", got, err)
	}
	if got, err := trusted("/tmp"); err == nil {
		t.Errorf("trusted(a directory) = %q; want a refusal", got)
	}
}

func TestStockPlaces(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"", "/usr/lib/gridengine/sge_shepherd"},
		{"SGE_ROOT=relative", "/usr/lib/gridengine/sge_shepherd"},
		{"SGE_ROOT=/opt/sge SGE_ARCH=lx-x86", "/opt/sge/bin/lx-x86/sge_shepherd /opt/sge/utilbin/lx-x86/sge_shepherd /usr/lib/gridengine/sge_shepherd"},
		{"SGE_ROOT=/sge SGE_ARCH=../x", "/sge/bin/lx-" + runtime.GOARCH + "/sge_shepherd /sge/utilbin/lx-" + runtime.GOARCH + "/sge_shepherd /usr/lib/gridengine/sge_shepherd"},
	} {
		if got := strings.Join(stockPlaces(strings.Fields(c.env)), " "); got != c.want {
			t.Errorf("stockPlaces(%q) = %s; want %s", c.env, got, c.want)
		}
	}
}
