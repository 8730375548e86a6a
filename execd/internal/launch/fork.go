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
	name string   // what it is called in the list of processes
	dir  string   // absolute
	lock *os.File // becomes descriptor 3
	own  bool     // it is our program, and may have been started before

	pid, pidfd int
	err        error
	done       chan struct{}
}

// forker starts processes from one thread that has the shepherd's signals
// blocked: the mask is inherited, so that a signal sent to a shepherd in its
// first instants waits for it instead of ending it, and the shepherd needs no
// thread of the Go runtime that has them open.
//
// It keeps a shepherd on standby, so that a job does not wait for the start of
// one, which is a third of the time until it begins. The next is started when the
// run of the last has settled, with which it would compete for the processors.
type forker struct {
	jobs    chan *fork
	settled chan struct{} // has word when the run of the last one on standby has

	// Of the thread.
	null    *os.File
	standby *standby // nil: there is none
	pending bool     // the run of the last one has not settled
}

func newForker() forker { return forker{jobs: make(chan *fork), settled: make(chan struct{})} }

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
	var err error
	if f.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		defer f.null.Close()
	}
	path := "" // of our program
	for {
		select {
		case <-stop:
			f.dismiss()
			return
		case <-f.settled:
			f.pending = false
		case job := <-f.jobs:
			if err != nil {
				job.err = err
			} else if !f.assign(job, stop) {
				job.pid, job.pidfd, job.err = f.fork(job.lock, job.dir, job.path, job.name, "-bg")
			}
			if job.own {
				path = job.path
			}
			close(job.done)
		}
		if path != "" && f.standby == nil && !f.pending {
			f.standby = f.newStandby(path)
		}
	}
}

// fork starts a shepherd with one descriptor beside the standard ones.
func (f *forker) fork(third *os.File, dir, path string, argv ...string) (pid, pidfd int, err error) {
	n := f.null.Fd()
	pidfd = -1
	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir:   dir,
		Env:   spool.StartEnvironment,
		Files: []uintptr{n, n, n, third.Fd()},
		Sys: &syscall.SysProcAttr{
			// Signals of a terminal are meant for execd, and not for shepherds.
			Setpgid: true,
			PidFD:   &pidfd,
		},
	})
	runtime.KeepAlive(third)
	return pid, pidfd, err
}
