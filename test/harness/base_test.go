package harness

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
)

// What a run that was killed has left is taken away by the next one, and nothing else.
func TestBase(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	suite := OfRun("swept") // users are of the host, where others may run this
	over := exec.Command("true")
	if err := over.Run(); err != nil {
		t.Fatal(err)
	}
	dead := suite + strconv.Itoa(over.Process.Pid)
	left := filepath.Join(os.TempDir(), "paddock-"+dead)
	keep := filepath.Join(os.TempDir(), "paddock-"+suite+strconv.Itoa(over.Process.Pid)+"0000000") // no process has it
	lives := filepath.Join(os.TempDir(), "paddock-"+suite+"1")
	other := filepath.Join(os.TempDir(), "paddock-"+suite+"-other")
	for _, dir := range []string{left, keep, lives, other} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := Keep(keep); err != nil {
		t.Fatal(err)
	}
	runs := exec.Command("sleep", "600")
	runs.Dir = left
	if err := runs.Start(); err != nil {
		t.Fatal(err)
	}
	var group string
	if os.Getuid() == 0 {
		tops, err := groupTops()
		if err != nil {
			t.Fatal(err)
		}
		for _, top := range tops {
			if os.Mkdir(filepath.Join(top, "paddock-"+dead), 0o755) == nil {
				group = filepath.Join(top, "paddock-"+dead)
			}
		}
		log := "1 I execd: control groups: v1 at " + group + " (made)\n"
		if err := os.WriteFile(LogName(filepath.Join(left, "pd")), []byte(log), 0o644); err != nil {
			t.Fatal(err)
		}
		u, err := AddUser(dead, dead+"-a")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := u.Remove(); err != nil {
				t.Error(err)
			}
		})
	}

	dir, err := Base(suite)
	if err != nil {
		t.Fatal(err)
	}
	if processes, err := Processes(left); len(processes) > 0 || err != nil {
		t.Errorf("what ran there was not killed: %v, %v", processes, err)
	}
	_ = runs.Process.Kill()
	_ = runs.Wait() // it was killed
	if _, err := user.Lookup(dead); err == nil {
		t.Errorf("user %s is left", dead)
	}
	if _, err := user.LookupGroup(dead + "-a"); err == nil {
		t.Errorf("group %s-a is left", dead)
	}
	if group == "" {
		t.Log("no control group is made, so that none is looked for")
	} else if _, err := os.Stat(group); err == nil {
		t.Errorf("control group %s is left", group)
	}
	for path, there := range map[string]bool{left: false, keep: true, lives: true, other: true, dir: true} {
		if _, err := os.Stat(path); (err == nil) != there {
			t.Errorf("%s: %v; want it to be there: %t", path, err, there)
		}
	}
}
