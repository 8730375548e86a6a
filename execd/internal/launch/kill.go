package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// killLeft kills what a run has left whose shepherd is gone, and returns how
// many processes that were: those with its additional group id or its
// SGE_JOB_SPOOL_DIR, which procedures, methods and the starter stage have too,
// and what descends from those, whatever became of their environment. (Not
// those of its session: the number may long be another's.) gid is 0 for none.
func (l *Launcher) killLeft(run spool.RunID, gid int) (killed int, err error) {
	path := l.Root.Active(run.ID()).Path()
	left := leftovers{shepherd: shepherdName(run), dir: path, marks: [][]byte{[]byte(spoolDirMark + path)}}
	if gid > 0 {
		left.gid = strconv.Itoa(gid)
	}
	// The stage knows where it is, and not by what name that was configured.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && parent != filepath.Dir(path) {
		left.dir = filepath.Join(parent, filepath.Base(path))
		left.marks = append(left.marks, []byte(spoolDirMark+left.dir))
	}
	var refused error
	deadline := time.Now().Add(killTimeout)
	// A process in the middle of exec has no environment for an instant, so
	// that one look that finds nothing is not enough.
	for quiet := 0; quiet < 2; {
		found, err := left.freeze(deadline)
		if err != nil {
			return killed, err
		}
		killed = max(killed, len(found))
		for pid, start := range found {
			if kerr := send(pid, start, unix.SIGKILL); kerr != nil {
				// What the job started has rights that we lack (su in user mode).
				refused = fmt.Errorf("cannot kill process %d: %w", pid, kerr)
				delete(found, pid)
			}
		}
		switch {
		case len(found) == 0:
			quiet++
		case time.Now().After(deadline):
			return killed, fmt.Errorf("cannot kill what the job left: %d processes do not die", len(found))
		default:
			quiet = 0
		}
		// What was killed may take a moment to go; there is no descriptor to
		// wait on for strangers that were just found.
		unix.Poll(nil, 10) //nolint:errcheck // only a pause
	}
	return killed, refused
}

// killTimeout bounds the wait for processes that do not die: those in the
// middle of a disk access that hangs.
const killTimeout = 10 * time.Second

// spoolDirMark is what the mark of a run begins with in environments.
const spoolDirMark = "SGE_JOB_SPOOL_DIR="

// shepherdName is what a shepherd is called in the list of processes.
func shepherdName(run spool.RunID) string { return "shepherd-" + run.ID().String() }

// leftovers tells a run's processes from others.
type leftovers struct {
	gid      string
	marks    [][]byte
	shepherd string // the name of its shepherd
	dir      string // which works here
}

// freeze stops the run's processes until a look finds no new ones, and returns
// them by pid with their start times: what is stopped forks no more, so that no
// child is lost by the death of a parent, which is all that tells of some.
func (l *leftovers) freeze(deadline time.Time) (map[int]string, error) {
	stopped := map[int]string{}
	for {
		found, err := l.look()
		if err != nil {
			return nil, err
		}
		fresh := false
		for pid, start := range found {
			if stopped[pid] != start {
				fresh, stopped[pid] = true, start
				_ = send(pid, start, unix.SIGSTOP) // the kill will say why
			}
		}
		// All of them: a child is not found again whose parent has just ended.
		if !fresh || time.Now().After(deadline) {
			return stopped, nil
		}
	}
}

// send sends a signal to the process of a number that started at a time, by a
// pidfd: a number that is reused right now is no harm.
func send(pid int, start string, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil //nolint:nilerr // gone
	}
	defer unix.Close(fd)
	if p, ok := readProcess(strconv.Itoa(pid)); !ok || p.start != start {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// look returns the run's processes by pid with their start times.
func (l *leftovers) look() (map[int]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot look for processes: %w", err)
	}
	all, found := map[int]process{}, map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == 1 {
			continue
		}
		p, ok := readProcess(e.Name())
		if !ok {
			continue
		}
		all[pid] = p
		if l.owns(e.Name()) {
			found[pid] = p.start
		}
	}
	for again := len(found) > 0; again; {
		again = false
		for pid, p := range all {
			_, known := found[pid]
			if _, below := found[p.parent]; below && !known {
				found[pid], again = p.start, true
			}
		}
	}
	return found, nil
}

// process is what /proc/PID/stat says of a process.
type process struct {
	parent int
	start  string // in ticks since boot
}

// readProcess reads it; ok is false for one that is gone or a zombie.
func readProcess(pid string) (p process, ok bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return process{}, false
	}
	// Its fields stand after the command's name, which may hold anything.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, parent, threads, start = 0, 1, 17, 19
	if len(f) <= start {
		return process{}, false
	}
	// A first thread that has ended is shown as a zombie while others run.
	if (f[state][0] == 'Z' || f[state][0] == 'X') && len(f[threads]) == 1 && f[threads][0] <= '1' {
		return process{}, false
	}
	p.start = string(f[start])
	p.parent, err = strconv.Atoi(string(f[parent]))
	return p, err == nil
}

// processAge returns for how long a process has been there; false: it is not.
func processAge(pid int) (time.Duration, bool) {
	p, ok := readProcess(strconv.Itoa(pid))
	ticks, err := strconv.ParseInt(p.start, 10, 64)
	var boot unix.Timespec
	if !ok || err != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0, false
	}
	const tick = time.Second / 100 // USER_HZ, wherever Go runs
	return max(0, time.Duration(boot.Nano())-time.Duration(ticks)*tick), true
}

// owns reports whether a process belongs to the run by its own marks.
func (l *leftovers) owns(pid string) bool {
	if l.gid != "" {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			return false
		}
		_, groups, _ := bytes.Cut(status, []byte("\nGroups:"))
		groups, _, _ = bytes.Cut(groups, []byte("\n"))
		for g := range bytes.FieldsSeq(groups) {
			if string(g) == l.gid {
				return true
			}
		}
	}
	if environ, err := os.ReadFile("/proc/" + pid + "/environ"); err == nil {
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			for _, mark := range l.marks {
				// What is below is a task that was started in the run.
				if rest, ok := bytes.CutPrefix(v, mark); ok && (len(rest) == 0 || rest[0] == '/') {
					return true
				}
			}
		}
	}
	return l.leads(pid)
}

// leads reports whether a process is the shepherd of the run, working in a
// directory that somebody has removed: only then is it still to be found here.
func (l *leftovers) leads(pid string) bool {
	where, err := os.Readlink("/proc/" + pid + "/cwd")
	if err != nil || where != l.dir+" (deleted)" {
		return false
	}
	if _, err := os.Lstat(l.dir); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	line, err := os.ReadFile("/proc/" + pid + "/cmdline")
	name, _, _ := bytes.Cut(line, []byte{0})
	return err == nil && string(name) == l.shepherd
}
