package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"paddock/spool"
	"paddock/test/harness"
)

// away makes a directory that is not below /tmp.
func away(t *testing.T) string {
	t.Helper()
	base, err := os.MkdirTemp("/var/lib", "paddock-e2e-") //nolint:usetesting // which is below /tmp
	if err == nil {
		err = os.Chmod(base, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := harness.LeftBehind(base)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
		harness.KillLeft(base)
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	return base
}

// TestPrivateTmp has jobs with a /tmp of their own, and others.
func TestPrivateTmp(t *testing.T) {
	if second == nil {
		t.Skip("needs root: it mounts")
	}
	f := makeFieldIn(t, away(t), true, "slots 3\ntmpdir /tmp\ncomplex_values private_tmp=TRUE\nprolog root@PUB/before\nepilog PUB/after\n")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(f.dir, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("complexes", "private_tmp ptmp BOOL == YES NO 0 0\n")
	f.plan("")
	mark := "/tmp/paddock-e2e-mark-" + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(mark, []byte("of the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(mark); os.Remove(mark + "-out") })
	f.script("before", "test -e "+mark+" && exit 0; umask 077; mkdir /tmp/roots; echo $JOB_ID >/tmp/roots/file\n")
	f.script("after", "test -e "+mark+" && exit 0; cat /tmp/note >PUB/after.$JOB_ID\n")
	// The bad end: what only root can read, what nobody may enter, what is deep,
	// and what leads out.
	f.script("job", `
exec 2>PUB/err.$JOB_ID
echo to the stream
ls -A /tmp | sort >PUB/sees.$JOB_ID
echo $JOB_ID >/tmp/note; echo $JOB_ID >/var/tmp/note
stat -c '%n %a %U' /tmp /var/tmp >PUB/modes.$JOB_ID
awk '$5 == "/tmp" || $5 == "/var/tmp" {is[$5] = substr($6, 1, 15)} END {print is["/tmp"], is["/var/tmp"]}' /proc/self/mountinfo >PUB/mounts.$JOB_ID
echo x >$TMPDIR/file && rmdir $TMPDIR 2>/dev/null; mv $TMPDIR /tmp/gone 2>/dev/null; ls $TMPDIR >PUB/scratch.$JOB_ID
ln -s PUB /tmp/link
mkdir -p /tmp/closed/inner && echo x >/tmp/closed/inner/file && chmod 0 /tmp/closed
d=/var/tmp; for i in $(seq 100); do d=$d/deep; done; mkdir -p $d
echo $JOB_ID >PUB/ready.$JOB_ID
while ! test -e PUB/go; do sleep 0.05; done
cat /tmp/note /var/tmp/note >PUB/kept.$JOB_ID
`)
	f.script("shares", "ls -A /tmp >PUB/sees.$JOB_ID\necho $JOB_ID >PUB/ready.$JOB_ID\n")
	f.start()
	job := filepath.Join(f.pub, "job")
	first := f.submit("-l", "private_tmp", "-o", mark+"-out", job)
	second := f.submit("-l", "ptmp=TRUE", job)
	shared := f.submit(filepath.Join(f.pub, "shares"))
	suffix := func(n int) string { return "." + strconv.Itoa(n) }
	f.until("the jobs run", func() bool {
		return f.has("ready"+suffix(first)) && f.has("ready"+suffix(second)) && f.has("ready"+suffix(shared))
	})
	taken := regexp.MustCompile(`\.[0-9a-z]{9,13}\b`)
	for _, n := range []int{first, second} {
		scratch := strconv.Itoa(n) + ".1.all.q"
		for name, want := range map[string]string{
			"sees":    scratch + "\nroots\n",
			"modes":   "/tmp 1777 root\n/var/tmp 1777 root\n",
			"mounts":  "rw,nosuid,nodev rw,nosuid,nodev\n",
			"scratch": "file\n",
		} {
			got := f.read(name + suffix(n))
			// Where the name of the scratch directory was taken it has more.
			if got = strings.Replace(got, taken.FindString(got), "", 1); got != want {
				t.Errorf("%s of job %d: %q; want %q", name, n, got, want)
			}
		}
	}
	if got := f.read("sees" + suffix(shared)); !strings.Contains(got, filepath.Base(mark)+"\n") {
		t.Errorf("a job that did not ask for it sees %q", got)
	}
	var gone []string
	for _, n := range []int{first, second} {
		config, err := spool.OpenDir(f.active(n, "")).Config()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{spool.KeyTmpdir, spool.KeyPrivateTmp} {
			path, err := config.String(key)
			if info, err2 := os.Stat(path); err != nil || err2 != nil || key == spool.KeyPrivateTmp && info.Mode().Perm() != 0o700 {
				t.Errorf("%s of job %d: %q, %v %v", key, n, path, err, err2)
			}
			gone = append(gone, path)
		}
	}
	if text, err := os.ReadFile(mark + "-out"); err != nil || string(text) != "to the stream\n" {
		t.Errorf("the stream of a job, which is the host's: %q, %v", text, err)
	}
	// Jobs keep what they have when another execd takes over.
	f.d.Kill()
	f.start()
	if err := os.WriteFile(filepath.Join(f.pub, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f.over(shared, "0 0")
	for _, n := range []int{first, second} {
		f.over(n, "0 0")
		if got, want := f.read("after"+suffix(n))+f.read("kept"+suffix(n)), strings.Repeat(strconv.Itoa(n)+"\n", 3); got != want {
			t.Errorf("what job %d has found again: %q; want %q; it said %q", n, got, want, f.read("err"+suffix(n)))
		}
	}
	for _, path := range gone {
		f.until(path+" is gone", func() bool { _, err := os.Lstat(path); return os.IsNotExist(err) })
	}
	if !f.has("job") {
		t.Error("a link out of /tmp was followed")
	}
	if err := f.d.Stop(); err != nil {
		t.Error(err)
	}
}
