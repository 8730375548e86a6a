package parent

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/command"
	"paddock/shepherd/internal/owner"
	"paddock/shepherd/internal/trace"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// results are the files in which the shepherd tells how the run goes and how it
// has ended, see spool(5).
type results struct {
	dir   spool.Dir
	log   *trace.Log
	trace *os.File   // which the log writes to
	admin owner.User // the user that reads them under a foreign execd, with UID -1 for none
	begun bool       // a part of the run has begun, see persist

	announced bool   // the end is announced before it is told
	verdicts  []int  // for exit_status, in order
	why       string // the last reason given in error
	unsaid    []byte // for error, which had no room
}

// open opens trace and creates error and exit_status, empty: a reader
// that finds them so knows that the shepherd is at work, or died.
func (r *results) open() error {
	for _, name := range []string{spool.FileError, spool.FileExitStatus} {
		if err := r.put(name, nil); err != nil {
			return err
		}
	}
	f, err := r.dir.OpenAppend(spool.FileTrace)
	if err != nil {
		return err
	}
	r.log.SetFile(int(f.Fd()))
	r.trace = f
	return nil
}

// giveTo gives the results in a directory of a foreign execd to the admin user, who has to
// read them.
func (r *results) giveTo(c *spool.Config) error {
	name, err := c.String(spool.KeyAdminUser)
	if err != nil || unix.Geteuid() != 0 || command.IsNone(name) {
		return err
	}
	r.admin, err = owner.Places{}.Lookup(name)
	if err != nil {
		return errors.New("cannot find admin_user " + strconv.Quote(name) + ": " + err.Error())
	}
	for _, name := range []string{spool.FileTrace, spool.FileError, spool.FileExitStatus} {
		r.give(name)
	}
	return nil
}

// give gives a file to the admin user of a foreign execd.
func (r *results) give(name string) {
	if r.admin.UID >= 0 {
		_ = atomicfile.Chmod(r.dir.Path(name), r.admin.UID, r.admin.GID, spool.ModeOf(name))
	}
}

// put writes a whole file. A new one is a third of the price of one that is
// renamed; what is there already, left by whoever made the directory or by an
// earlier run, is replaced: its verdict must not become this one's.
func (r *results) put(name string, b []byte) error {
	err := r.dir.WriteNew(name, b)
	if errors.Is(err, unix.EEXIST) {
		err = r.dir.Write(name, b)
	}
	return err
}

// write writes a file that holds one number.
func (r *results) write(name string, n int) error {
	err := r.put(name, spool.AppendNumber(nil, n))
	if err == nil && r.admin.UID != unix.Geteuid() {
		r.give(name)
	}
	return err
}

// blame adds a failure to the verdict and its reason, as that of this process, to
// error.
func (r *results) blame(number int, text string) {
	r.blameOn(number, unix.Geteuid(), unix.Getpid(), text)
}

// blameOn is blame with the stamp of another process.
func (r *results) blameOn(number, euid, pid int, text string) {
	r.verdicts = append(r.verdicts, number)
	r.why = text
	r.reason(spool.AppendTrace(nil, time.Now(), euid, pid, text))
}

// notStarted blames something for which there was not even a process.
func (r *results) notStarted(number int, text string) {
	r.log.Line(text)
	// sge_execd takes a directory without pid for one whose shepherd never came
	// so far (4), whatever exit_status says.
	if has, err := r.dir.Has(spool.FilePID); err == nil && !has {
		_ = r.write(spool.FilePID, unix.Getpid())
	}
	r.blame(number, text)
}

// traceNotBegun traces that the starter has said why it could not become the part of
// that name.
func (r *results) traceNotBegun(name string) {
	n := len(r.verdicts)
	r.log.Line("exit states increased from " + strconv.Itoa(n-1) + " to " + strconv.Itoa(n))
	r.log.Line("failed starting " + name)
}

// explain adds a reason to error that is nobody's failure.
func (r *results) explain(text string) {
	r.log.Line(text)
	r.why = text
	r.reason(spool.AppendTrace(nil, time.Now(), unix.Geteuid(), unix.Getpid(), text))
}

// reason adds a line to error, or keeps it until the verdict if there is no
// room now. Without it, the number still tells.
func (r *results) reason(line []byte) {
	if len(r.unsaid) > 0 || r.dir.Append(spool.FileError, line) != nil {
		r.unsaid = append(r.unsaid, line...)
		return
	}
	r.give(spool.FileError)
}

// checkpointed says that the job is to go on elsewhere, and whether it left a
// checkpoint. A foreign execd takes an empty file for none; ours has emptied
// files in directories that are used again.
func (r *results) checkpointed(arena, foreign bool) {
	var b []byte
	switch {
	case arena:
		b = spool.AppendNumber(nil, 1)
	case !foreign:
		b = spool.AppendNumber(nil, 0)
	}
	if err := r.persist(func() error { return r.put(spool.FileCheckpointed, b) }); err != nil {
		r.log.Line("cannot write checkpointed: " + err.Error())
	}
	r.give(spool.FileCheckpointed)
}

// announce says that a task of a parallel job is over, before anybody is told
// how: whoever starts the next one then finds execd ready to give it this one's
// slot. It is said once.
func (r *results) announce() {
	if !r.announced {
		return
	}
	r.announced = false
	if err := r.put(spool.FileAboutToExit, nil); err != nil {
		r.log.Line("cannot write " + spool.FileAboutToExit + ": " + err.Error())
	}
	r.give(spool.FileAboutToExit)
}

// persist writes, and waits for a while if the disk is full: how a job of days
// ended is worth more than a minute of a shepherd, and one that could not be
// started for want of room would be taken for one whose shepherd died. Where
// nothing was begun there is nothing to lose.
func (r *results) persist(write func() error) error {
	until := time.Now().Add(diskLimit)
	for {
		err := write()
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || !r.begun || time.Now().After(until) {
			return err
		}
		ts := unix.NsecToTimespec(int64(diskEvery))
		_, _ = unix.Ppoll(nil, &ts, nil)
	}
}

// verdict writes exit_status and returns the exit code. The file is there and
// empty; what is appended to it is whole or taken back, so that it is never
// torn: at worst it stays empty, and says that the shepherd died.
func (r *results) verdict() int {
	var b []byte
	code := 0
	if len(r.verdicts) > 0 {
		code = r.verdicts[0]
	} else {
		b = spool.AppendExitStatus(b, 0)
	}
	for _, n := range r.verdicts {
		b = spool.AppendExitStatus(b, n)
	}
	if len(r.unsaid) > 0 && r.persist(func() error { return r.dir.Append(spool.FileError, r.unsaid) }) == nil {
		r.give(spool.FileError)
	}
	if err := r.persist(func() error { return r.dir.Append(spool.FileExitStatus, b) }); err != nil {
		r.log.Line("cannot write exit_status: " + err.Error())
		r.log.Flush()
		return spool.FailedNoExitStatus
	}
	r.give(spool.FileExitStatus)
	return code
}
