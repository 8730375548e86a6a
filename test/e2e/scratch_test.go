package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/test/harness"
)

// TestScratchLimit has jobs whose TMPDIR is limited: by a file system in memory
// and, if this kernel has them, by project quotas.
func TestScratchLimit(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("needs root: it mounts")
	}
	t.Run("tmpfs", func(t *testing.T) {
		dir := filepath.Join(place(t, "scratch"), "tmp")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		scratchLimit(t, dir, "SCRATCH_TMPFS", "tmpfs")
	})
	t.Run("quota", func(t *testing.T) {
		scratchLimit(t, quotaDir(t), "SCRATCH_PROJECTS=7000-7002", "project quotas")
	})
}

// quotaDir makes a file system with project quotas, if this kernel has them.
func quotaDir(t *testing.T) string {
	t.Helper()
	dir := place(t, "quota")
	if err := harness.MountImage(t, dir, 64<<20, "loop,prjquota",
		"mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota,root_owner=0:0"); err != nil {
		t.Skipf("this host has no project quotas, the machine of make vm has: %v", err)
	}
	return dir
}

func scratchLimit(t *testing.T, dir, params, means string) {
	f := makeFieldIn(t, place(t, "scratchd"), true, "slots 3\npe_list smp\ncomplex_values scratch_limit=100M\ntmpdir "+dir+"\nepilog PUB/after\n")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(f.dir, "etc", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("complexes", "scratch_limit scratch MEMORY <= YES YES 0 0\n")
	write("pes/smp", "pe_name smp\nslots 3\nallocation_rule $pe_slots\n")
	write("sge_conf", "execd_params SCRATCH_LIMIT=2M,"+params+"\n")
	f.plan("")
	f.script("after", "ls $TMPDIR >PUB/after.$JOB_ID\n")
	// As much as can be written, by halves of a megabyte.
	f.script("fills", `
exec 2>PUB/err.$JOB_ID
i=0; while dd if=/dev/zero of=$TMPDIR/file.$i bs=64k count=8 2>>PUB/dd.$JOB_ID; do i=$((i+1)); [ $i -lt 200 ] || break; done
echo $i >PUB/halves.$JOB_ID
exit 3
`)
	f.script("waits", "echo x >$TMPDIR/kept; echo $JOB_ID >PUB/ready.$JOB_ID\nwhile ! test -e PUB/go; do sleep 0.4; done\ncat $TMPDIR/kept >PUB/kept.$JOB_ID\n")
	if out, err := f.check(); err != nil || strings.Contains(out, "scratch directories") {
		t.Errorf("execd -t: %v\n%s", err, out)
	}
	f.start()
	if log := f.d.Log(); !strings.Contains(log, "scratch directories in "+dir+" are limited by "+means) {
		t.Errorf("the log does not say what limits scratch directories:\n%s", log)
	}
	fills := filepath.Join(f.pub, "fills")
	for _, tt := range []struct {
		args   []string
		halves int
	}{
		{nil, 4},
		{[]string{"-l", "scratch=5M"}, 10},
		{[]string{"-l", "scratch=2M", "-pe", "smp", "3"}, 12},
	} {
		job := f.submit(append(tt.args, fills)...)
		f.over(job, "0 3")
		n, err := strconv.Atoi(strings.TrimSpace(f.read(fmt.Sprintf("halves.%d", job))))
		if err != nil || n < tt.halves-1 || n > tt.halves {
			t.Errorf("%q: %d halves of a megabyte were written; want %d: %v %s", tt.args, n, tt.halves, err, f.read(fmt.Sprintf("err.%d", job)))
		}
		said := f.read(fmt.Sprintf("dd.%d", job))
		if !strings.Contains(said, "No space left on device") && !strings.Contains(said, "quota exceeded") {
			t.Errorf("%q: dd says %q", tt.args, said)
		}
		if f.read(fmt.Sprintf("after.%d", job)) == "" {
			t.Errorf("%q: the epilog sees an empty TMPDIR", tt.args)
		}
		if want := fmt.Sprintf("%d.0 MB", tt.halves/2); !strings.Contains(f.d.Log(), `reason="TMPDIR was full: `) || !strings.Contains(f.d.Log(), want) {
			t.Errorf("%q: the log does not say that TMPDIR was full, %s:\n%s", tt.args, want, f.d.Log())
		}
	}
	// A limit is kept over a restart, and what is left of the dead one is not.
	waits := filepath.Join(f.pub, "waits")
	first, last := f.submit(waits), f.submit("-l", "scratch=3M", waits)
	f.until("the jobs run", func() bool {
		return f.has(fmt.Sprintf("ready.%d", first)) && f.has(fmt.Sprintf("ready.%d", last))
	})
	var paths []string
	for _, job := range []int{first, last} {
		config, err := spool.OpenDir(f.active(job, "")).Config()
		if err != nil {
			t.Fatal(err)
		}
		path, err := config.String(spool.KeyTmpdir)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	f.d.Kill()
	stray := filepath.Join(dir, "9.1.all.q")
	if means == "tmpfs" {
		if err := os.Mkdir(stray, 0o700); err != nil {
			t.Fatal(err)
		}
		spoolDir, err := filepath.Glob(f.dir + "/spool")
		if err != nil || len(spoolDir) != 1 {
			t.Fatal(spoolDir, err)
		}
		if err := unix.Mount("paddock:"+spoolDir[0], stray, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
	}
	f.start()
	if _, err := os.Stat(stray); !os.IsNotExist(err) {
		t.Errorf("what an earlier execd had mounted for nobody is there: %v", err)
		_ = unix.Unmount(stray, unix.MNT_DETACH)
	}
	more := f.submit("-l", "scratch=5M", fills)
	f.over(more, "0 3")
	if err := os.WriteFile(filepath.Join(f.pub, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, job := range []int{first, last} {
		f.over(job, "0 0")
		if got := f.read(fmt.Sprintf("kept.%d", job)); got != "x\n" {
			t.Errorf("job %d has kept %q", job, got)
		}
	}
	for _, path := range paths {
		f.until(path+" is gone", func() bool { _, err := os.Lstat(path); return os.IsNotExist(err) })
	}
	if err := f.d.Stop(); err != nil {
		t.Error(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), f.dir) {
		t.Errorf("something is mounted still: %v", err)
	}
}

// check runs execd -t for the field.
func (f *field) check() (string, error) {
	cmd := exec.Command(filepath.Join(bin, "execd"), "-t", "-root", f.dir)
	cmd.Env = plainEnv(f.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
