package proc

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	tail := " S 7 8 9 0 -1 4194560 1 0 0 0 100 20 3 4 20 0 1 0 4711 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 60"
	want := Process{
		ID: ID{5, 4711}, Parent: 7, Group: 8, Session: 9, Threads: 1,
		CPU: 127, Sys: 24, Wait: 60, Pages: 2,
	}
	ended, kernel, threads, execs := want, want, want, want
	ended.ended, kernel.kernel, threads.Threads, execs.Execs = true, true, 3, true
	for text, want := range map[string]Process{
		"5 (sh)" + tail:                                                                 want,
		"5 (a) Z 1 (b) c)\n)" + tail:                                                    want,
		"5 (x)" + strings.Replace(tail, "S", "Z", 1):                                    ended,
		"5 (x)" + strings.Replace(tail, "S", "X", 1):                                    ended,
		"5 (x)" + strings.Replace(tail, "4194560", "2129984", 1):                        kernel,
		"5 (x)" + strings.NewReplacer(" S", " Z", "20 0 1 0", "20 0 3 0").Replace(tail): threads,
		"5 (x)" + strings.Replace(tail, "4711 1 2 3 4", "4711 1 2 3 0", 1):              execs,
		"5 (x)" + strings.Replace(tail, "4711 1 2 3 4", "4711 0 2 3 0", 1):              want,
	} {
		if got, ok := parse(5, []byte(text)); !ok || got != want {
			t.Errorf("%q is %+v, %t; want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "5 (x) S 7 8", "5 x"} {
		if p, ok := parse(5, []byte(text)); ok {
			t.Errorf("%q is %+v", text, p)
		}
	}
}

// TestAt asks for a process by its number at the time when it was there, and long
// before it was.
func TestAt(t *testing.T) {
	cmd, _ := sleeper(t)
	pid := cmd.Process.Pid
	if p, ok := At(pid, time.Now()); !ok || p.PID != pid {
		t.Errorf("a process that is there: %+v, %t", p, ok)
	}
	if p, ok := At(pid, time.Now().Add(-time.Hour)); ok {
		t.Errorf("a process that started an hour later: %+v", p)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if p, ok := At(pid, time.Now()); ok {
		t.Errorf("a process that has ended: %+v", p)
	}
}

func TestGroups(t *testing.T) {
	status := "Name:\tx\nGroups:\t10 54399 20 \nNStgid:\t1\n"
	if got := slices.Collect(Groups([]byte(status))); !slices.Equal(got, []int{10, 54399, 20}) {
		t.Errorf("groups %v", got)
	}
	if got := slices.Collect(Groups([]byte("Name:\tx\n"))); got != nil {
		t.Errorf("without the line: %v", got)
	}
}

func TestDescendants(t *testing.T) {
	all := []Process{{ID: ID{PID: 3}, Parent: 9}, {ID: ID{PID: 9}, Parent: 2}, {ID: ID{PID: 4}, Parent: 1}, {ID: ID{PID: 5}, Parent: 4}}
	got := Descendants(all, 2, 5)
	if len(got) != 4 || !got[2] || !got[9] || !got[3] || !got[5] {
		t.Errorf("%v", got)
	}
	if got := Descendants(all); len(got) > 0 {
		t.Errorf("below nobody: %v", got)
	}
}

// The threads of the kernel are nobody's, and who has ended is nobody any more,
// though a parent has not waited for it.
func TestAll(t *testing.T) {
	child, _ := sleeper(t)
	p, ok := Get(child.Process.Pid)
	if !ok || p.Parent != os.Getpid() || p.Age() > time.Hour {
		t.Fatalf("%+v, %t, age %v", p, ok, p.Age())
	}
	all, err := All()
	if i := slices.IndexFunc(all, func(q Process) bool { return q.ID == p.ID }); err != nil || i < 0 {
		t.Errorf("the child is not there: %v", err)
	}
	if i := slices.IndexFunc(all, func(p Process) bool { return p.kernel || p.ended }); i >= 0 {
		t.Errorf("%+v is there", all[i])
	}
	if there, err := p.Signal(unix.SIGKILL); !there || err != nil {
		t.Fatal(there, err)
	}
	if !p.Ends(20 * time.Second) {
		t.Fatal("it does not end")
	}
	if _, ok := Get(p.PID); ok {
		t.Error("who has ended is there")
	}
	table, err := Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	if q, ok := table.Stat(p.PID); !ok || q.ID != p.ID {
		t.Errorf("what it took is not told: %+v, %t", q, ok)
	}
}

// Another process with the same number gets no signal.
func TestSignalOther(t *testing.T) {
	child, _ := sleeper(t)
	p, ok := Get(child.Process.Pid)
	if !ok {
		t.Fatal("no child")
	}
	other := p
	other.Start--
	if there, err := other.Signal(unix.SIGKILL); there || err != nil {
		t.Errorf("an earlier process of that number got it: %v", err)
	}
	if !other.Ends(0) {
		t.Error("an earlier process of that number has not ended")
	}
	if p.Ends(0) {
		t.Error("another process was hit")
	}
}

// What the picked process has started goes with it, its first thread dead or not,
// and whatever environment it has.
func TestKill(t *testing.T) {
	mark := "PROC_TEST=" + strconv.Itoa(os.Getpid())
	cmd := exec.Command("sh", "-c", "env -i setsid sh -c 'sleep 1000 & echo begun; wait' & wait")
	cmd.Env = append(os.Environ(), mark)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	below := Descendants(all, cmd.Process.Pid)
	owns := func(p Process) bool {
		for v := range p.Environ() {
			if string(v) == mark {
				return true
			}
		}
		return false
	}
	if n, err := Kill(20*time.Second, owns); n != len(below) || err != nil {
		t.Errorf("%d processes were killed, %v; want %d", n, err, len(below))
	}
	for pid := range below {
		if p, ok := Get(pid); ok {
			t.Errorf("%+v is left", p)
		}
	}
}

// A process in the middle of exec has no environment for an instant: one look that
// finds nothing is not enough.
func TestKillLooksAgain(t *testing.T) {
	child, _ := sleeper(t)
	looks := 0
	n, err := Kill(20*time.Second, func(p Process) bool {
		if p.PID == child.Process.Pid {
			looks++
			return looks > 1
		}
		return false
	})
	if n != 1 || err != nil {
		t.Errorf("%d processes were killed, %v", n, err)
	}
	wasKilled(t, child)
}

// Who asks is never among them, and what it has started is only where it is picked.
func TestKillSpares(t *testing.T) {
	child, _ := sleeper(t)
	n, err := Kill(time.Second, func(p Process) bool { return p.PID == os.Getpid() })
	if _, ok := Get(child.Process.Pid); n != 0 || err != nil || !ok {
		t.Errorf("%d processes were killed, %v; the child lives: %t", n, err, ok)
	}
}
