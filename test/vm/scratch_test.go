package vm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// quotas is where the machine has a file system with project quotas.
const quotas = "/quota"

// testScratch has jobs that write to their TMPDIR until they cannot, and to a
// /tmp of their own, for which there is one limit.
func testScratch(t *testing.T) {
	tmp := quotas + "/tmp"
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	c := prepare(t, "tmpdir "+tmp+"\ncomplex_values private_tmp=TRUE,scratch_limit=1G", "execd_params SCRATCH_LIMIT=2M,SCRATCH_PROJECTS=7000-7001")
	if err := os.WriteFile(c.dir+"/etc/complexes", []byte("scratch_limit sl MEMORY <= YES NO 0 0\nprivate_tmp ptmp BOOL == YES NO 0 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	boxes := quotas + "/boxes"
	if err := errors.Join(os.Mkdir(boxes, 0o755), os.WriteFile(c.dir+"/etc/hooks.conf", []byte("EXECUTE = "+boxes+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	c.run()
	if !strings.Contains(c.log(), "scratch directories in "+tmp+" are limited by project quotas") {
		t.Error("the log does not say what limits scratch directories")
	}
	pub := quotas + "/pub" // since in /tmp nobody finds what a job leaves
	if err := errors.Join(os.Mkdir(pub, 0o755), os.Chmod(pub, 0o777)); err != nil {
		t.Fatal(err)
	}
	const limit = 2 << 20
	for i, tt := range []struct{ where, request string }{
		{"$TMPDIR", "sl=2M"},
		{"/tmp", "private_tmp"},
		{"$TMPDIR", "sl=2M"}, // what was there before counts no more
	} {
		script := "dd if=/dev/zero of=" + tt.where + "/file bs=64k count=160 2>" + pub + "/said; wc -c <" + tt.where + "/file >" + pub + "/wrote; exit 3"
		out := c.as("qsub", "-l", tt.request, "-sync", "y", "-b", "y", "-wd", "/", "-o", "/dev/null", "-j", "y", "-shell", "y", script)
		wrote := 0
		_, err := fmt.Sscan(read(pub+"/wrote"), &wrote)
		if err != nil || wrote < limit*7/8 || wrote > limit || !strings.Contains(out, "exited with exit code 3") {
			t.Errorf("job %d wrote %d bytes below a limit of %d: %v %s%s", i+1, wrote, limit, err, out, read(pub+"/said"))
		}
		c.wait("the log says that TMPDIR was full", func() bool {
			return strings.Count(c.log(), `reason="TMPDIR was full: 2.0 of 2.0 MB"`) == i+1
		})
		fmt.Printf("vm: %s: %d of %d bytes were written to %s: %q\n", t.Name(), wrote, limit, tt.where, read(pub+"/said"))
	}
	testSandboxQuota(t, c, pub)
	c.wait("the scratch directories are gone", func() bool { left, _ := os.ReadDir(tmp); return len(left) == 0 })
}

// testSandboxQuota has jobs write to their sandbox until they cannot. Each has a project,
// as its TMPDIR has, of which there are two: what is brought out of a sandbox is renamed and
// does not stay in its project, and who finds none is not limited.
func testSandboxQuota(t *testing.T, c *cluster, pub string) {
	const limit = 3 << 20
	for i := range 3 {
		script := "dd if=/dev/zero of=file bs=64k count=160 2>" + pub + "/said; wc -c <file >" + pub + "/wrote; stat -c %i file >" + pub + "/inode; exit 3"
		out := c.as("qsub", "-l", "sl=3M", "-sync", "y", "-sandbox", "y", "-stageout_to", pub, "-b", "y", "-wd", "/", "-o", "/dev/null", "-j", "y", "-shell", "y", script)
		wrote := 0
		_, err := fmt.Sscan(read(pub+"/wrote"), &wrote)
		info, statErr := os.Stat(pub + "/file")
		if err != nil || statErr != nil || wrote < limit*7/8 || wrote > limit || info.Size() != int64(wrote) || !strings.Contains(out, "exited with exit code 3") {
			t.Errorf("run %d wrote %d bytes below a limit of %d: %v, %v %s%s", i+1, wrote, limit, err, statErr, out, read(pub+"/said"))
		} else if st, ok := info.Sys().(*syscall.Stat_t); !ok || strings.TrimSpace(read(pub+"/inode")) != strconv.FormatUint(st.Ino, 10) {
			t.Errorf("run %d: its output was copied", i+1)
		}
		c.wait("the log says that the sandbox was full", func() bool {
			return strings.Count(c.log(), `reason="sandbox was full: 3.0 of 3.0 MB"`) == i+1
		})
		fmt.Printf("vm: %s: %d of %d bytes were written to the sandbox: %q\n", t.Name(), wrote, limit, read(pub+"/said"))
	}
	// REQ-XFER-106: the size of what waits in one is what the file system counts.
	const text = "dd if=/dev/zero of=file bs=64k count=32"
	if out := c.as("qsub", "-l", "sl=3M", "-sync", "y", "-sandbox", "y", "-stageout_to", pub+"/gone", "-b", "y", "-wd", "/", "-o", "/dev/null", "-j", "y", "-shell", "y", text); !strings.Contains(out, "gone") {
		t.Errorf("its output cannot be delivered: %s", out)
	}
	if out := c.as("qhost", "-sandboxes"); !strings.Contains(out, " stuck 2.0") {
		t.Errorf("2 MB are stuck: %s", out)
	}
	c.as("qdel", "-u", "alice")
	c.wait("the sandboxes are gone", func() bool { left, _ := os.ReadDir(quotas + "/boxes"); return len(left) == 1 })
}
