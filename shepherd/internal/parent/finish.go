package parent

import (
	"golang.org/x/sys/unix"

	"paddock/spool"
)

// finish gives the verdict, and returns the exit code. The lock falls with the
// process, so that whoever sees it free and the verdict whole knows that this
// is the end.
func (p *parent) finish() int {
	p.launcher.dismiss() // for a part that did not come
	p.results.announce()
	p.coshepherd.end()
	if err := p.launcher.group.empty(); err != nil {
		p.log.Line("cannot kill what is left in the control group: " + err.Error())
	}
	p.log.Flush()
	if p.unreported {
		return spool.FailedNoExitStatus
	}
	return p.results.verdict()
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
	} else {
		p.launcher.dismiss()
	}
	if p.job.Job != nil && !p.job.started.IsZero() {
		number = spool.FailedNoExitStatus
		p.job.Sweep()
	}
	p.session.kill()
	p.coshepherd.end()
	_ = p.launcher.group.empty()
	p.log.Line(text)
	p.log.Flush()
	p.results.verdicts = nil
	p.results.blame(number, text)
	return p.results.verdict()
}
