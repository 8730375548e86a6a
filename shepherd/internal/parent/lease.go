package parent

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/proc"
	"paddock/shepherd/internal/phase"
	"paddock/spool"
)

// leaseSlack is for how long after its lease a job is left to execd, which ends it first
// if it lives, and leaseGrace how long the job has then to end.
const (
	leaseSlack = time.Second
	leaseGrace = 30 * time.Second
)

// readLease reads the lease of the run, if it has one, and sets the timer for its end. A
// run whose lease is over is not begun.
func (p *parent) readLease() error {
	left, leased, err := p.leaseLeft()
	switch {
	case err != nil || !leased:
		return err
	case left <= 0:
		p.log.Line(spool.LeaseOver)
		p.cancelled, p.expired, p.unleased = true, true, true
		return nil
	}
	return p.watchLease(left)
}

// watchLease sets the timer for the end of the lease.
func (p *parent) watchLease(left time.Duration) (err error) {
	if p.loop.Lease, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err == nil {
		err = p.awaitLease(left)
	}
	if err != nil {
		return errors.New("cannot set a timer for the end of the lease: " + err.Error())
	}
	return nil
}

// findLease reads the lease that a run may have got since it began. One that is over already
// ends the run as one that ends now.
func (p *parent) findLease() {
	if p.loop.Lease >= 0 || p.unleased || p.part > phase.Job {
		return
	}
	left, leased, err := p.leaseLeft()
	if err == nil && leased {
		err = p.watchLease(max(left, 0))
	}
	if err != nil {
		p.log.Line(err.Error())
	}
}

// leaseLeft returns what is left of the lease of the run, if it has one: no foreign execd
// knows of leases. Tasks have that of their job, whose directory is above theirs. Nothing is
// left of a lease of another boot, whose clock means nothing.
func (p *parent) leaseLeft() (left time.Duration, leased bool, err error) {
	if p.foreign {
		return 0, false, nil
	}
	dir := p.dir
	if p.task {
		dir = spool.OpenDir("..")
	}
	if has, err := dir.Has(spool.FileLease); err != nil || !has { // most have none
		return 0, false, err
	}
	l, err := dir.Lease()
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	boot := ""
	if err == nil {
		boot, err = spool.BootID()
	}
	if err != nil || boot != l.Boot {
		return 0, true, err
	}
	return l.End - proc.Uptime(), true, nil
}

// awaitLease sets the timer by the clock that leases go by, which goes on while the host is
// suspended: the timer then ends a suspended wait at once.
func (p *parent) awaitLease(left time.Duration) error {
	in := unix.NsecToTimespec(int64(left + leaseSlack))
	return unix.TimerfdSettime(p.loop.Lease, 0, &unix.ItimerSpec{Value: in}, nil)
}

// leaseDue is called when the lease was to be over as far as is known. If it was renewed
// the end is another one, and if it was lifted there is none. Of a file that cannot be read
// nobody can say that it was.
func (p *parent) leaseDue() {
	left, leased, err := p.leaseLeft()
	switch {
	case p.part > phase.Job: // which was not begun
		p.endLease()
		return
	case err != nil:
		p.log.Line("cannot see whether the lease was renewed: " + err.Error())
	case !leased:
		p.log.Line("the lease was lifted")
		unix.Close(p.loop.Lease)
		p.loop.Lease = -1
		return
	case left > 0:
		if err := p.awaitLease(left); err != nil {
			panic("cannot set a timer for the end of the lease: " + err.Error())
		}
		return
	}
	p.endLease()
	p.log.Line(spool.LeaseOver)
	over := p.part == phase.Job && p.loop.Over()
	p.expired = !over && !p.cancelled && !p.job.killed // else it ends for another reason
	if p.part == phase.Job {
		p.timers.after(timerLease, leaseGrace)
	}
	if p.expired {
		p.want(unix.SIGKILL)
	}
}

// endLease ends the watch over the lease: it is that of the job.
func (p *parent) endLease() {
	p.unleased = true
	if p.loop.Lease >= 0 {
		unix.Close(p.loop.Lease)
		p.loop.Lease = -1
	}
}
