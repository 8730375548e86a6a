package launch

import (
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// fork is one shepherd to start.
type fork struct {
	path string
	argv []string
	dir  string
	lock *os.File // becomes descriptor 3

	pid, pidfd int
	err        error
	done       chan struct{}
}

// forker starts processes from one thread that has the shepherd's signals
// blocked: the mask is inherited, so that a signal sent to a shepherd in its
// first instants waits for it instead of ending it, and the shepherd needs no
// thread of the Go runtime that has them open.
type forker struct{ jobs chan *fork }

func (f *forker) start(job *fork) (pid, pidfd int, err error) {
	job.done = make(chan struct{})
	f.jobs <- job
	<-job.done
	return job.pid, job.pidfd, job.err
}

func (f *forker) run(stop <-chan struct{}) {
	runtime.LockOSThread() // and never unlocked: the thread ends with its mask
	var mask unix.Sigset_t
	for _, sig := range slices.Concat(spool.CaughtSignals, spool.IgnoredSignals) {
		mask.Val[(sig-1)/64] |= 1 << (uint(sig-1) % 64)
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, nil); err != nil {
		panic("internal error: cannot block signals: " + err.Error())
	}
	// Without it all is the same but slower.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, spool.StartTimerSlack, 0, 0, 0)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	for {
		select {
		case <-stop:
			if null != nil {
				null.Close()
			}
			return
		case job := <-f.jobs:
			if err != nil {
				job.err = err
			} else {
				job.fork(null)
			}
			close(job.done)
		}
	}
}

// fork starts the process.
func (j *fork) fork(null *os.File) {
	n := null.Fd()
	j.pidfd = -1
	j.pid, j.err = syscall.ForkExec(j.path, j.argv, &syscall.ProcAttr{
		Dir:   j.dir,
		Env:   spool.StartEnvironment,
		Files: []uintptr{n, n, n, j.lock.Fd()},
		Sys: &syscall.SysProcAttr{
			// Signals of a terminal are meant for execd, and not for shepherds.
			Setpgid: true,
			PidFD:   &j.pidfd,
		},
	})
	runtime.KeepAlive(j.lock)
}
