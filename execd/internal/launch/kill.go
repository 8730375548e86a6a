package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// killLeft kills what a run has left whose shepherd died: every process with
// its additional group id or its SGE_JOB_SPOOL_DIR. (Not those of its session:
// the number may long be another's.) It looks again until a look finds none,
// since what it finds may be forking.
func killLeft(d spool.Dir) error {
	var left leftovers
	if gid, err := d.AddGrpID(); err == nil && gid > 0 {
		left.gid = strconv.Itoa(gid)
	}
	left.variable = []byte("SGE_JOB_SPOOL_DIR=" + d.Path())
	deadline := time.Now().Add(killTimeout)
	for {
		n, err := left.kill()
		if err != nil || n == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cannot kill what the job left: %d processes do not die", n)
		}
		// What was killed may take a moment to go; there is no descriptor to
		// wait on for strangers that were just found.
		unix.Poll(nil, 10) //nolint:errcheck // only a pause
	}
}

// killTimeout bounds the wait for processes that do not die: those in the
// middle of a disk access that hangs.
const killTimeout = 10 * time.Second

// leftovers tells a run's processes from others.
type leftovers struct {
	gid      string
	variable []byte
}

func (l *leftovers) kill() (found int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, fmt.Errorf("cannot look for processes: %w", err)
	}
	self := os.Getpid()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == self || pid == 1 || !l.owns(e.Name()) {
			continue
		}
		// A pidfd, so that a number that is reused right now is no harm; what
		// it stands for is looked at again.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if l.owns(e.Name()) {
			found++
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				unix.Close(fd)
				return found, fmt.Errorf("cannot kill process %d: %w", pid, err)
			}
		}
		unix.Close(fd)
	}
	return found, nil
}

// owns reports whether a process that is no zombie belongs to the run.
func (l *leftovers) owns(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	// The state stands after the command's name, which may hold anything.
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) == 0 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return false
	}
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
	environ, err := os.ReadFile("/proc/" + pid + "/environ")
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(v, l.variable) {
			return true
		}
	}
	return false
}
