package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/harness"
)

// TestScriptOfSharedGroup has two users with one primary group: nobody but root can
// change the script of a job of one, and the other cannot read it. The job reads and
// runs it all the same, and finds as little to change.
func TestScriptOfSharedGroup(t *testing.T) {
	if second == nil {
		t.Skip("needs root: users have jobs")
	}
	f := makeField(t, true, "")
	f.plan("")
	shared := accountUID() + 2
	line := func(name string, uid int) string {
		return name + ":x:" + strconv.Itoa(uid) + ":" + strconv.Itoa(shared) + "::/:/bin/sh"
	}
	var err error
	if f.via, err = harness.OtherAccounts(f.dir+".etc", second.Name, line("staff"+second.Name, shared), line(second.Name, second.UID)); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.script("job", `
(echo x >>$0; chmod u+w $0; : >$0) 2>/dev/null && exit 3
test -x $0 && cmp $0 PUB/job || exit 4
`)
	n := f.submit("-h", "-S", "/bin/sh", filepath.Join(f.pub, "job"))
	script := filepath.Join(api.DevPlaces(f.dir).Spool, "job_scripts", strconv.Itoa(n))
	for _, uid := range []int{second.UID, shared} {
		if err := harness.As(uid, shared, func() {
			for what, err := range map[string]error{
				"append to":  open(script, os.O_WRONLY|os.O_APPEND),
				"truncate":   os.Truncate(script, 1<<20),
				"chmod":      os.Chmod(script, 0o700),
				"chown":      os.Chown(script, uid, -1),
				"change ACL": unix.Removexattr(script, "system.posix_acl_access"),
				"remove":     os.Remove(script),
			} {
				if !errors.Is(err, os.ErrPermission) {
					t.Errorf("uid %d can %s the script: %v", uid, what, err)
				}
			}
			if err := open(script, os.O_RDONLY); (err == nil) != (uid == second.UID) {
				t.Errorf("uid %d reads the script: %v", uid, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Nor does a look at the spool find anything to mend.
	if err := f.d.Stop(); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command(filepath.Join(bin, "execd"), "-check", "-root", f.dir).CombinedOutput(); err != nil {
		t.Errorf("execd -check: %v\n%s", err, out)
	}
	f.start()
	if out, err := f.command("qrls", strconv.Itoa(n)); err != nil {
		t.Fatalf("qrls: %v\n%s", err, out)
	}
	f.over(n, "0 0")
	if err := f.d.Stop(); err != nil {
		t.Error(err)
	}
}

// open opens a file and closes it.
func open(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0)
	if err == nil {
		f.Close()
	}
	return err
}
