package parent

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/phase"
	"paddock/spool"
)

// finish gives the verdict, and returns the exit code. The lock falls with the
// process, so that whoever sees it free and the verdict whole knows that this
// is the end.
func (p *parent) finish() int {
	if p.stage != nil { // for a part that did not come
		p.dismiss()
	}
	p.announce()
	p.endCoshepherd()
	if err := p.group.empty(); err != nil {
		p.log.Line("cannot kill what is left in the control group: " + err.Error())
	}
	p.log.Flush()
	if p.unreported {
		return spool.FailedNoExitStatus
	}
	return p.verdict()
}

// announce says that a task of a parallel job is over, before anybody is told
// how: whoever starts the next one then finds execd ready to give it this one's
// slot. It is said once.
func (p *parent) announce() {
	if !p.announced {
		return
	}
	p.announced = false
	if err := p.put(spool.FileAboutToExit, nil); err != nil {
		p.log.Line("cannot write " + spool.FileAboutToExit + ": " + err.Error())
	}
	p.give(spool.FileAboutToExit)
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
	if len(p.unsaid) > 0 && p.persist(func() error { return p.dir.Append(spool.FileError, p.unsaid) }) == nil {
		p.give(spool.FileError)
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
// ended is worth more than a minute of a shepherd, and one that could not be
// started for want of room would be taken for one whose shepherd died. Where
// nothing was begun there is nothing to lose.
func (p *parent) persist(write func() error) error {
	until := time.Now().Add(diskLimit)
	for {
		err := write()
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || p.part == phase.Begin || time.Now().After(until) {
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
	if p.loop.Child >= 0 {
		_ = unix.Kill(-p.loop.PID, unix.SIGKILL)
	} else if p.stage != nil {
		p.dismiss()
	}
	if p.job != nil && !p.started.IsZero() {
		number = spool.FailedNoExitStatus
		p.job.Sweep()
	}
	p.killSession()
	p.endCoshepherd()
	_ = p.group.empty()
	p.log.Line(text)
	p.log.Flush()
	p.verdicts = nil
	p.blame(number, unix.Geteuid(), unix.Getpid(), text)
	return p.verdict()
}
