package parent

import (
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/reap"
	"paddock/spool"
)

// finish writes down how the job ended, the verdict last, and returns the exit
// code. The lock falls with the process, so that whoever sees it free and the
// verdict whole knows that this is the end.
func (p *parent) finish() int {
	if p.ran {
		p.judge()
		orphans := p.loop.OrphanUsage()
		reap.Add(&p.rusage, &orphans)
		usage := spool.NewUsage(p.status, p.started, p.ended, &p.rusage)
		p.log.Line(`writing usage file to "usage"`)
		b := usage.Append(nil)
		// A new file is a third of the price of one that is renamed, and a torn
		// usage is known as such. What is there already gets replaced.
		write := p.dir.WriteNew
		err := p.persist(func() error {
			err := write(spool.FileUsage, b)
			if errors.Is(err, unix.EEXIST) {
				err = p.dir.Write(spool.FileUsage, b)
			}
			write = p.dir.Write
			return err
		})
		if err != nil {
			// A verdict without usage would say that the job never ran.
			p.log.Line("cannot write usage: " + err.Error())
			p.log.Flush()
			return spool.FailedNoExitStatus
		}
		p.give(spool.FileUsage)
	}
	p.log.Line("no epilog script to start")
	p.log.Flush()
	return p.verdict()
}

// judge looks at exit codes by which the job asks for something.
func (p *parent) judge() {
	if !p.status.Exited() {
		return
	}
	code := p.status.ExitStatus()
	number := 0
	switch {
	case code == 99 && !p.forbidReschedule:
		number = spool.FailedRescheduling
	case code == 100 && !p.forbidApperror:
		number = spool.FailedApplication
	default:
		return
	}
	text := "exit_status of job start = " + strconv.Itoa(code)
	p.log.Line(text)
	p.blame(number, unix.Geteuid(), unix.Getpid(), text)
}

// verdict writes exit_status and returns the exit code. The file is there and
// empty; what is appended to it is whole or taken back, so that it is never
// torn: at worst it stays empty, and says that the shepherd died.
func (p *parent) verdict() int {
	var b []byte
	code := 0
	if len(p.verdicts) > 0 {
		code = p.verdicts[0]
	} else {
		b = spool.AppendExitStatus(b, 0)
	}
	for _, n := range p.verdicts {
		b = spool.AppendExitStatus(b, n)
	}
	if err := p.persist(func() error { return p.dir.Append(spool.FileExitStatus, b) }); err != nil {
		p.log.Line("cannot write exit_status: " + err.Error())
		p.log.Flush()
		return spool.FailedNoExitStatus
	}
	p.give(spool.FileExitStatus)
	return code
}

// persist writes, and waits for a while if the disk is full: how a job of days
// ended is worth more than a minute of a shepherd. A job that did not run can be
// started again, so that nothing is lost.
func (p *parent) persist(write func() error) error {
	until := time.Now().Add(diskLimit)
	for {
		err := write()
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || !p.ran || time.Now().After(until) {
			return err
		}
		ts := unix.NsecToTimespec(int64(diskEvery))
		_, _ = unix.Ppoll(nil, &ts, nil)
	}
}

// panicked ends a shepherd that is wrong itself: nothing of the job may be left
// running unwatched, and the reason must be readable where reasons are.
func (p *parent) panicked(e any) int {
	text := "internal error"
	switch e := e.(type) {
	case error:
		text += ": " + e.Error()
	case string:
		text += ": " + e
	}
	number := spool.FailedBeforeStart
	if p.job != nil && !p.started.IsZero() {
		number = spool.FailedNoExitStatus
		if p.loop.Child >= 0 {
			_ = unix.Kill(-p.job.PID, unix.SIGKILL)
		}
		p.job.Sweep()
	} else if p.stage != nil {
		p.dismiss()
	}
	p.log.Line(text)
	p.log.Flush()
	p.verdicts = nil
	p.blame(number, unix.Geteuid(), unix.Getpid(), text)
	return p.verdict()
}
