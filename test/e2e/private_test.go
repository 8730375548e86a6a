package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

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
	parallel(t)
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
while ! test -e PUB/go; do sleep 0.4; done
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
	// Killed in the middle of its end, it would be told twice.
	f.over(shared, "0 0")
	// Jobs keep what they have when another execd takes over.
	f.d.Kill()
	f.start()
	if err := os.WriteFile(filepath.Join(f.pub, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
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

// TestPrivateTmpAttacked has the owner of a job with a /tmp of its own, and somebody
// who helps him and has it open, move what is root's to where it would be removed.
func TestPrivateTmpAttacked(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("needs root: it mounts")
	}
	base := away(t)
	helper := accountUID() + 1
	mkdir := func(path string, uid int, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chown(path, uid, uid), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	scratch, his := filepath.Join(base, "scratch"), filepath.Join(base, "his")
	mkdir(scratch, 0, 0o777|os.ModeSticky)
	mkdir(his, second.UID, 0o777)
	// Directories of theirs, in which root has something.
	with := func(name string, uid int) string {
		dir := filepath.Join(his, name)
		mkdir(dir, uid, 0o777)
		mkdir(filepath.Join(dir, "roots"), 0, 0o700)
		if err := os.WriteFile(filepath.Join(dir, "roots", "kept"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	moved := with("moved", second.UID)
	f := makeFieldIn(t, base, true, "slots 2\ntmpdir "+scratch+"\n")
	if err := os.WriteFile(filepath.Join(f.dir, "etc", "sge_conf"), []byte("execd_params PRIVATE_TMP=true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.plan("")
	f.script("job", "mkdir /tmp/own; echo $$ >PUB/pid.$JOB_ID\nwhile ! test -e PUB/go; do sleep 0.4; done\n")
	f.start()
	as := func(uid int, do func()) {
		if err := harness.As(uid, uid, do); err != nil {
			t.Error(err)
		}
	}
	var gone, stays []string
	var last *os.File
	for _, uid := range []int{second.UID, helper} {
		n := f.submit(filepath.Join(f.pub, "job"))
		pid := "pid." + strconv.Itoa(n)
		f.until("the job runs", func() bool { return f.has(pid) && strings.HasSuffix(f.read(pid), "\n") })
		config, err := spool.OpenDir(f.active(n, "")).Config()
		if err != nil {
			t.Fatal(err)
		}
		closed, _ := config.Lookup(spool.KeyPrivateTmp)
		tmpdir, _ := config.Lookup(spool.KeyTmpdir)
		inside, err := os.Open("/proc/" + strings.TrimSpace(f.read(pid)) + "/root/tmp")
		if err != nil {
			t.Fatal(err)
		}
		defer inside.Close()
		last = inside
		at, here := int(inside.Fd()), unix.AT_FDCWD
		for _, uid := range []int{second.UID, helper} {
			as(uid, func() {
				for what, err := range map[string]error{
					"move into it":           unix.Renameat2(here, moved, at, "moved", 0),
					"exchange with its own":  unix.Renameat2(here, moved, at, "own", unix.RENAME_EXCHANGE),
					"link into it":           unix.Linkat(here, f.pub+"/job", at, "job", 0),
					"move into it by name":   unix.Renameat2(here, moved, here, closed+"/tmp/moved", 0),
					"move what holds it":     unix.Renameat2(here, closed, here, scratch+"/other", 0),
					"exchange what holds it": unix.Renameat2(here, moved, here, closed, unix.RENAME_EXCHANGE),
				} {
					if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
						t.Errorf("uid %d can %s: %v", uid, what, err)
					}
				}
			})
		}
		// TMPDIR is the owner's: in its place comes a directory of his, or the helper's.
		put := with(strconv.Itoa(n), uid)
		as(second.UID, func() {
			if err := unix.Renameat2(here, put, here, tmpdir, unix.RENAME_EXCHANGE); err != nil {
				t.Error(err)
			}
		})
		gone, stays = append(gone, closed), append(stays, tmpdir)
	}
	// The helper makes directories in one of his until he cannot any more.
	many := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		as(helper, func() {
			err := unix.Mkdirat(int(last.Fd()), "helper", 0o700)
			dir, err2 := unix.Openat(int(last.Fd()), "helper", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err := errors.Join(err, err2); err != nil {
				t.Error(err)
			}
			defer unix.Close(dir)
			for i := 0; err == nil && i < 1e6; i++ {
				if i == 100 {
					close(many)
				}
				err = unix.Mkdirat(dir, strconv.Itoa(i), 0o700)
			}
		})
	})
	<-many
	if err := os.WriteFile(filepath.Join(f.pub, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f.accounted(1, 1)
	f.accounted(2, 1)
	for _, path := range gone {
		f.until(path+" is gone", func() bool { _, err := os.Lstat(path); return os.IsNotExist(err) })
	}
	busy.Wait()
	for _, dir := range append(stays, moved) {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, "roots", "kept"), &st); err != nil || st.Uid != 0 || st.Mode&0o777 != 0o600 {
			t.Errorf("what is root's in %s: uid %d, mode %o, %v", dir, st.Uid, st.Mode, err)
		}
	}
	if err := f.d.Stop(); err != nil {
		t.Error(err)
	}
}
