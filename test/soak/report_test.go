package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"paddock/test/harness"
)

// The test's binary is the hook server of TestReported as well, in a directory.
const unitsDir = "SOAK_UNITS"

func init() {
	if dir := os.Getenv(unitsDir); dir != "" {
		if err := serveUnits(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// units is a queue of units of work, by their numbers. What has become of them stands in a
// file, a line for each event, so that the next process knows it when this one is killed.
type units struct {
	dir     string
	journal *os.File
	total   int
	next    int            // that was never given
	back    []int          // to be given again
	given   map[string]int // and not accepted, by slot
}

// serveUnits answers execd in a directory that has the number of units.
func serveUnits(dir string) error {
	u := units{dir: dir, given: map[string]int{}}
	total, err := os.ReadFile(filepath.Join(dir, "total"))
	if err != nil {
		return err
	}
	if u.total, err = strconv.Atoi(string(total)); err != nil {
		return err
	}
	if u.journal, err = os.OpenFile(filepath.Join(dir, "journal"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600); err != nil {
		return err
	}
	known, err := os.ReadFile(u.journal.Name())
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(known)) {
		u.happened(strings.Fields(line))
	}
	fresh := filepath.Join(dir, fmt.Sprintf("pid.%d", os.Getpid()))
	if err := os.WriteFile(fresh, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	if err := os.Rename(fresh, filepath.Join(dir, "pid")); err != nil {
		return err
	}
	return harness.ServeHooks(os.Stdin, os.Stdout, u.answer)
}

// happened takes an event: what, of which unit, and of a unit that is given the slot.
func (u *units) happened(event []string) {
	unit, _ := strconv.Atoi(event[1])
	switch event[0] {
	case "give":
		u.given[event[2]] = unit
		u.next = max(u.next, unit+1)
		for i, n := range u.back {
			if n == unit {
				u.back = append(u.back[:i], u.back[i+1:]...)
				break
			}
		}
		return
	case "reject", "evict":
		u.back = append(u.back, unit)
	}
	for slot, n := range u.given {
		if n == unit {
			delete(u.given, slot)
		}
	}
}

// note writes an event and takes it.
func (u *units) note(event ...string) error {
	if _, err := u.journal.WriteString(strings.Join(event, " ") + "\n"); err != nil {
		return err
	}
	u.happened(event)
	return nil
}

var (
	slotName = regexp.MustCompile(`(?m)^Name = "(.*)"$`)
	slotBusy = regexp.MustCompile(`(?m)^Activity = "(Busy|Retiring|Vacating|Killing)"$`)
	unitOf   = regexp.MustCompile(`(?m)^GlobalJobId = "unit(\d+)"$`)
	numberOf = regexp.MustCompile(`(?m)^ReportNumber = (\d+)$`)
	codeOf   = regexp.MustCompile(`(?m)^ExitCode = (\d+)$`)
)

// found returns what the first match of a pattern has; "-": there is none.
func found(in *regexp.Regexp, text string) string {
	if m := in.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "-"
}

func (u *units) answer(hook, word string, input []byte) (status int, output []byte) {
	text := string(input)
	unit := strings.TrimLeft(found(unitOf, text), "0")
	if unit == "" {
		unit = "0"
	}
	var err error
	switch hook {
	case "FETCH_WORK":
		slot := found(slotName, text)
		n, again := u.given[slot]
		switch {
		case slotBusy.MatchString(text):
			return 0, nil // it would refuse what ranks no higher
		case again:
		case len(u.back) > 0:
			n = u.back[0]
		case u.next < u.total:
			n = u.next
		default:
			return 0, nil
		}
		if err := u.note("give", strconv.Itoa(n), slot); err != nil {
			return 1, nil
		}
		return 0, fmt.Appendf(nil, "Cmd = \"/bin/sh\"\nArgs = \"%s/unit.sh unit%06d\"\nIwd = \"/\"\nGlobalJobId = \"unit%06d\"\n", filepath.Dir(u.dir), n, n)
	case "REPLY_FETCH":
		err = u.note(word, unit)
	case "REPORT_WORK":
		err = u.note(word, unit, found(numberOf, text), found(codeOf, text))
	}
	if err != nil {
		return 1, nil
	}
	return 0, nil
}

// TestReported has four slots fetch units from a hook server, which is killed at random moments
// as execd is. Every unit runs once and its end is heard at least once, in the order of the ends.
// REQ-HOOK-121, REQ-HOOK-122.
func TestReported(t *testing.T) {
	drawSeed()
	total, kills := part(10000, 60), part(20, 3)
	t.Logf("%d units, %d kills of each; repeat with -scale %g -seed %d", total, kills, *scale, *seed)
	base, err := os.MkdirTemp(top, "") //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{base: base, dir: filepath.Join(base, "pd"), bin: filepath.Join(base, "bin")}
	t.Cleanup(func() { s.cleanUp(t) })
	s.prepare(t)
	dir := filepath.Join(base, "units")
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"units/total":         strconv.Itoa(total),
		"units/serve":         "#!/bin/sh\n" + unitsDir + "=" + dir + " exec " + me + "\n",
		"unit.sh":             "echo $1 >>" + base + "/ran\n",
		"pd/etc/queues/all.q": "qname all.q\nslots 4\n",
		"pd/etc/hooks.conf": "STARTD_JOB_HOOK_KEYWORD = UNITS\nUNITS_HOOK_SERVER = " + dir + "/serve\nUNITS_HOOK_SERVER_HOOKS = FETCH_WORK, REPLY_FETCH, REPORT_WORK\n" +
			"UNITS_HOOK_REPLY_FETCH_TIMEOUT = 600\n" + // a host that stands still is no reason to cut it short
			"FetchWorkDelay = State == \"Claimed\" && Activity == \"Idle\" ? 0 : 1\n",
	} {
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.start(t)
	begin := time.Now()
	var killers sync.WaitGroup
	killers.Go(func() { s.killAtRandom(t, kills, total, nil) })
	killers.Go(func() { s.killServers(t, kills, total, filepath.Join(dir, "pid")) })
	killers.Wait()
	if err := harness.WaitFor(10*harness.Patience, "all units to be reported", func() (bool, error) {
		return len(ends(t, s)) == total && count(t, filepath.Join(s.dir, "spool", "reports")) == 0, nil
	}); err != nil {
		t.Errorf("%v: %d of %d\n%s", err, len(ends(t, s)), total, s.daemon.Log())
	}
	elapsed := time.Since(begin)
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
	checkReported(t, s, total)
	t.Logf("%d units in %.1f s (%.0f a second), execd and the hook server killed %d times", total, elapsed.Seconds(), float64(total)/elapsed.Seconds(), kills)
}

// killServers kills the hook server at moments spread over the work.
func (s *soak) killServers(t *testing.T, kills, total int, pid string) {
	for i := range kills {
		target := total * (2*i + 1) / (2 * kills)
		if err := harness.WaitFor(10*time.Minute, fmt.Sprintf("%d accounting lines before kill %d of the hook server", target, i+1), func() (bool, error) {
			return s.accounted(t) >= target || t.Failed(), nil
		}); err != nil {
			t.Error(err)
			return
		}
		text, err := os.ReadFile(pid)
		if err != nil {
			t.Error(err)
			return
		}
		n, err := strconv.Atoi(string(text))
		if err != nil || n < 2 {
			t.Errorf("pid %q: %v", text, err)
			return
		}
		if environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", n)); strings.Contains(string(environ), unitsDir+"="+filepath.Dir(pid)+"\x00") {
			_ = syscall.Kill(n, syscall.SIGKILL) // else it is that of an execd that was killed
		}
	}
}

// ends returns what was heard of each unit at last: exit, and its code.
func ends(t *testing.T, s *soak) map[string]string {
	t.Helper()
	heard := map[string]string{}
	for _, line := range s.lines(t, "units/journal") {
		if f := strings.Fields(line); len(f) == 4 && f[0] != "evict" {
			heard[f[1]] = f[0] + " " + f[3]
		}
	}
	return heard
}

// checkReported compares what ran, what was heard and what was accounted.
func checkReported(t *testing.T, s *soak, total int) {
	t.Helper()
	ran := map[string]int{}
	for _, name := range s.lines(t, "ran") {
		ran[name]++
	}
	heard := ends(t, s)
	for i := range total {
		if name := fmt.Sprintf("unit%06d", i); ran[name] != 1 {
			t.Errorf("%s ran %d times; want once", name, ran[name])
		}
		if got := heard[strconv.Itoa(i)]; got != "exit 0" {
			t.Errorf("of unit %d was heard %q", i, got)
		}
	}
	last, of, again := uint64(0), "", 0
	for _, line := range s.lines(t, "units/journal") {
		f := strings.Fields(line)
		if len(f) != 4 {
			continue
		}
		number, err := strconv.ParseUint(f[2], 10, 64)
		if err != nil || number < last || (number == last) != (f[1] == of) {
			t.Errorf("report %q comes after number %d of unit %s", line, last, of)
		}
		if number == last {
			again++
		}
		last, of = number, f[1]
	}
	if again > 4*part(20, 3) {
		t.Errorf("%d reports were heard again; want at most one for each kill, or a few", again)
	}
	s.checkBooked(t, total)
}
