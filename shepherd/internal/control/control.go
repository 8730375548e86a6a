// Package control turns what people want of a job (kill it, suspend it, send
// it a signal) into what is done to its processes. Want comes in as carrier
// signals and the files signals and signal; is comes from /proc. Only the
// shepherd imports it.
package control

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// Set returns signals as a set.
func Set(signals ...unix.Signal) (set unix.Sigset_t) {
	for _, s := range signals {
		set.Val[(s-1)/64] |= 1 << ((s - 1) % 64)
	}
	return set
}

// Mask returns spool.CaughtSignals as a signal set.
func Mask() unix.Sigset_t { return Set(spool.CaughtSignals...) }

// Blocked reports whether every one of spool.CaughtSignals is blocked in this thread.
func Blocked() bool {
	var now unix.Sigset_t
	if unix.PthreadSigmask(unix.SIG_BLOCK, nil, &now) != nil {
		return false
	}
	want := Mask()
	for i := range want.Val {
		if now.Val[i]&want.Val[i] != want.Val[i] {
			return false
		}
	}
	return true
}

// Meaning is what a carrier signal asks the shepherd for.
type Meaning uint8

// The meanings.
const (
	Ignore  Meaning = iota // nothing: it would only have ended the shepherd
	Forward                // send the job the signal that comes with it
	Read                   // read the files signals and signal
)

// Carrier returns what a signal sent to the shepherd means, and the signal the
// job is to get. SIGTTOU stands for a migration: a checkpoint, if there is an
// interface, and the end of the job.
func Carrier(sig unix.Signal) (Meaning, unix.Signal) {
	switch sig {
	case unix.SIGTSTP:
		return Forward, unix.SIGKILL
	case unix.SIGUSR2:
		return Forward, unix.SIGXCPU
	case unix.SIGUSR1, unix.SIGCONT, unix.SIGWINCH:
		return Forward, sig
	case unix.SIGTTIN:
		return Read, 0
	case unix.SIGTTOU:
		return Forward, sig
	}
	return Ignore, 0
}

// Inbox reads the signals that execd wrote down for the job. It remembers the
// sequence number of the last one, so that each is taken once however many
// pokes arrive, and none is lost however few.
type Inbox struct {
	Dir  spool.Dir
	last int
}

// Take returns the signals that were not taken before, oldest first. The error
// says why there may be more: Grid Engine's shepherd then sends the carrier
// itself, SIGTTIN, which stops a job for ever.
func (in *Inbox) Take() ([]unix.Signal, error) {
	var out []unix.Signal
	list, err := in.Dir.Signals()
	listed := err == nil && len(list) > 0
	if err == nil {
		for _, s := range list {
			if s.Seq > in.last && valid(s.Signal) {
				out = append(out, unix.Signal(s.Signal))
			}
			in.last = max(in.last, s.Seq)
		}
	}
	b, err := in.Dir.Read(spool.FileSignal)
	sig, seq := 0, 0
	if err == nil {
		sig, seq, err = spool.ParseSignal(b)
	}
	switch {
	case err == nil && !valid(sig):
		err = errors.New("no such signal: " + strconv.Itoa(sig))
	case err == nil && seq == 0 && !listed:
		out = append(out, unix.Signal(sig)) // no sequence: every poke counts
	case err == nil && seq > in.last:
		out = append(out, unix.Signal(sig))
		in.last = seq
	}
	if listed {
		err = nil // signal is for others
	}
	return out, err
}

func valid(sig int) bool { return sig > 0 && sig <= 64 }

// Name returns a signal's name as it stands in a trace: KILL, or its number
// if Grid Engine has no name for it.
func Name(sig unix.Signal) string {
	if name := spool.SignalName(int(sig)); name != "" {
		return name
	}
	return strconv.Itoa(int(sig))
}

// Held keeps signals for a job that does not run yet. The zero value is empty.
type Held struct{ list []unix.Signal }

// maxHeld is how many signals Grid Engine's shepherd keeps, too.
const maxHeld = 100

// Add keeps a signal. A signal that says what the last one said is not kept
// twice, and too many lose the oldest.
func (h *Held) Add(sig unix.Signal) {
	if n := len(h.list); n > 0 && h.list[n-1] == sig {
		return
	}
	if len(h.list) == maxHeld {
		h.list = append(h.list[:0], h.list[1:]...)
	}
	h.list = append(h.list, sig)
}

// Empty reports whether none is kept.
func (h *Held) Empty() bool { return len(h.list) == 0 }

// Take returns the signals kept so far and forgets them.
func (h *Held) Take() []unix.Signal {
	l := h.list
	h.list = nil
	return l
}
