package control

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

func TestCarrier(t *testing.T) {
	for _, c := range []struct {
		sig     unix.Signal
		meaning Meaning
		to      unix.Signal
	}{
		{unix.SIGTSTP, Forward, unix.SIGKILL},
		{unix.SIGUSR2, Forward, unix.SIGXCPU},
		{unix.SIGUSR1, Forward, unix.SIGUSR1},
		{unix.SIGCONT, Forward, unix.SIGCONT},
		{unix.SIGWINCH, Forward, unix.SIGWINCH},
		{unix.SIGTTOU, Forward, unix.SIGTTOU},
		{unix.SIGTTIN, Read, 0},
		{unix.SIGPIPE, Ignore, 0},
		{unix.SIGALRM, Ignore, 0},
	} {
		if meaning, to := Carrier(c.sig); meaning != c.meaning || to != c.to {
			t.Errorf("Carrier(%v) = %v, %v; want %v, %v", c.sig, meaning, to, c.meaning, c.to)
		}
	}
}

// TestMask sees that what the Go runtime unblocks is not in the set: a start by
// our execd would look foreign.
func TestMask(t *testing.T) {
	m := Mask()
	for _, sig := range spool.CaughtSignals {
		if m.Val[0]&(1<<(sig-1)) == 0 {
			t.Errorf("%v is not in the mask", sig)
		}
		if slices.Contains(spool.IgnoredSignals, sig) {
			t.Errorf("%v is both caught and ignored", sig)
		}
	}
}

func TestInbox(t *testing.T) {
	dir := spool.OpenDir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := dir.Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	in := Inbox{Dir: dir}
	take := func(want ...unix.Signal) {
		t.Helper()
		if got, err := in.Take(); err != nil || !slices.Equal(got, want) {
			t.Errorf("Take() = %v, %v; want %v", got, err, want)
		}
	}
	nothing := func() {
		t.Helper()
		if got, err := in.Take(); err == nil || len(got) != 0 {
			t.Errorf("Take() = %v, %v; want an error and no signal", got, err)
		}
	}
	nothing()
	write(spool.FileSignals, "19 1\n18 2\n10 3\n9") // the last one is still being written
	take(19, 18, 10)
	take()
	write(spool.FileSignals, "19 1\n18 2\n10 3\n12 4\n")
	write(spool.FileSignal, "12 4\n")
	take(12)
	write(spool.FileSignal, "24 5\n") // came by signal alone
	take(24)
	take()
	write(spool.FileSignals, "99 6\n18 7\n") // no such signal
	take(18)

	dir = spool.OpenDir(t.TempDir())
	in = Inbox{Dir: dir}
	nothing()
	write(spool.FileSignal, "19\n")
	take(19)
	take(19) // without a number every poke counts
	for _, bad := range []string{"x\n", "", "0\n", "99\n"} {
		write(spool.FileSignal, bad)
		nothing()
	}
}

func TestHeld(t *testing.T) {
	var h Held
	if got := h.Take(); got != nil {
		t.Errorf("Take() = %v of an empty one", got)
	}
	for _, s := range []unix.Signal{19, 19, 18, 19} {
		h.Add(s)
	}
	if got, want := h.Take(), []unix.Signal{19, 18, 19}; !slices.Equal(got, want) {
		t.Errorf("Take() = %v; want %v", got, want)
	}
	for i := range 250 {
		h.Add(unix.Signal(1 + i%2))
	}
	if got := len(h.Take()); got != maxHeld {
		t.Errorf("%d signals were kept; want %d", got, maxHeld)
	}
}

func TestAllRoot(t *testing.T) {
	if !allRoot([]byte("Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t10 54399 20 \n")) {
		t.Error("root's process is not seen as such")
	}
	if allRoot([]byte("Name:\tx\nUid:\t0\t0\t0\t0\nGid:\t0\t5\t0\t0\nGroups:\t\n")) {
		t.Error("a process with another gid is taken for root's")
	}
}
