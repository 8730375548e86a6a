package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/stage/exit"
	"paddock/test/harness"
)

// fake has a script stand in for execd-transfer, as one that its owner has meddled with
// may do anything.
func (r *rig) fake(script string) {
	r.Helper()
	dir := r.TempDir()
	r.must(os.Chmod(filepath.Dir(dir), 0o755))
	r.must(os.Chmod(dir, 0o755))
	r.Program = filepath.Join(dir, Program)
	r.must(harness.WriteExecutable(r.Program, "#!/bin/sh\n"+script))
}

// What the lock says of its holder, whom root may have to kill, the holder cannot change.
func TestHolderIsNotTheUsersToSay(t *testing.T) {
	r := newRig(t)
	if r.owner.UID == 0 || os.Getuid() != 0 {
		t.Skip("the owner is another user in root mode alone")
	}
	r.fake(`echo "1 1" >&3 || echo "1 1" >/proc/self/fd/3 || echo '{"result":{"ok":true}}' >&4`)
	if _, err := r.copy(send(order.Send{Select: order.All})); err != nil {
		t.Errorf("it has written to its lock: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(r.dir, order.FileLock))
	if pid, _, _ := strings.Cut(string(text), " "); err != nil || pid == "1" || pid == "" {
		t.Errorf("the holder is %q, %v", text, err)
	}
}

// What a worker reports is bounded, and its end has one clear reason.
func TestReports(t *testing.T) {
	for what, test := range map[string]struct {
		script string
		says   string // "": it is done
	}{
		"done":                   {`echo '{"result":{"ok":true,"bytes":5}}' >&4`, ""},
		"done, and does not end": {`echo '{"result":{"ok":true,"bytes":5}}' >&4; exec sleep 1000`, ""},
		"done, and leaves somebody with the report": {
			`echo '{"bytes":1}' >&4; sleep 1000 & echo '{"result":{"ok":true,"bytes":5}}' >&4`, "",
		},
		"ends without a word":              {"echo why >&2; exit 3", "exit status 3: why"},
		"says much, and ends":              {"echo why >&2; head -c 1000000 /dev/zero >&2; exit 3", "exit status 3: why"},
		"half a line, and ends":            {`printf '{"bytes":1}\n{"byt' >&4; exit 3`, "exit status 3"},
		"is killed":                        {"kill -9 $$", "signal: killed"},
		"is killed and leaves somebody":    {"sleep 1000 & kill -9 $$", "signal: killed"},
		"ends well without a word":         {"exit 0", "without a word"},
		"no JSON":                          {"echo hello >&4; exec sleep 1000", "meddled"},
		"a line without an end":            {"tr '\\0' a </dev/zero >&4", "meddled"},
		"lines without an end":             {"exec yes '{}' >&4", "meddled"},
		"less than nothing":                {`echo '{"bytes":-1}' >&4; exec sleep 1000`, "meddled"},
		"less than nothing at the end":     {`echo '{"result":{"ok":true,"files":-1}}' >&4`, "meddled"},
		"a number that is too large":       {`echo '{"bytes":99999999999999999999}' >&4; exec sleep 1000`, "meddled"},
		"a failure":                        {`printf '%s\n' '{"result":{"error":"disk\nfull\u0007"}}' >&4`, "disk"},
		"a failure without a reason":       {`echo '{"result":{}}' >&4`, "did not say why"},
		"nothing at all":                   {"exec sleep 1000", "nothing was done"},
		"nothing, and says so":             {`while :; do echo '{"bytes":7}' >&4; sleep 0.4; done`, "nothing was done"},
		"nothing, and closes the report":   {"exec 4>&-; exec sleep 1000", "nothing was done"},
		"nothing, and minds no signal":     {"trap '' TERM; while :; do sleep 1; done", "nothing was done"},
		"its program is not there (below)": {"", "cannot execute"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.fake(test.script)
			if test.script == "" {
				r.Program += "-none"
			}
			r.patience(strings.Contains(test.says, "nothing was done"))
			got, err := r.copy(send(order.Send{Select: order.All}))
			switch {
			case test.says == "" && (err != nil || got.Bytes != 5):
				t.Errorf("%+v, %v; want 5 bytes", got, err)
			case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || strings.ContainsAny(err.Error(), "\n\a")):
				t.Errorf("%v; want %q in one line", err, test.says)
			}
			if _, ok := errors.AsType[*exit.Permanent](err); ok {
				t.Errorf("%v is for good", err)
			}
		})
	}
}

// patience has workers ended soon where they are to stall. Elsewhere a slow machine has time:
// what does nothing yet may be waiting for a processor.
func (r *rig) patience(stalls bool) {
	r.Stall, r.Grace = harness.Patience, 500*time.Millisecond
	if stalls {
		r.Stall = 1500 * time.Millisecond
	}
}

// await waits for a file.
func (r *rig) await(path string) {
	r.Helper()
	r.must(harness.WaitFor(harness.Patience, path, func() (bool, error) {
		_, err := os.Stat(path)
		return err == nil, nil
	}))
}

// A worker ends with its context, and another can begin at once.
func TestCancel(t *testing.T) {
	for _, script := range []string{"", "trap '' TERM\n"} {
		r := newRig(t)
		begun := filepath.Join(r.home, "begun")
		r.Grace = 500 * time.Millisecond
		r.fake(script + "echo $$ >" + begun + "; while :; do sleep 1; done")
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("deleted")
		go func() {
			r.await(begun)
			cancel(why)
		}()
		o := send(order.Send{Select: order.All})
		o.ID, o.Base = r.id, r.home
		if _, err := r.Copy(ctx, r.owner, r.dir, o, nil, func(order.Progress) {}); !errors.Is(err, why) {
			t.Errorf("%v; want the cause", err)
		}
		r.Program = program
		r.ok(o)
	}
}

// A worker outlives who has started it. Who comes later waits for it, or ends it.
func TestOutlives(t *testing.T) {
	for _, wait := range []bool{true, false} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			r := newRig(t)
			r.put(r.files(), "file")
			begun, gate := filepath.Join(r.home, "begun"), filepath.Join(r.home, "gate")
			r.fake("echo >" + begun + "; while ! test -e " + gate + "; do sleep 0.4; done; echo over >>" + begun)
			o := send(order.Send{Select: order.All})
			o.ID, o.Base = r.id, r.home
			// An execd that is killed has no chance to end its worker: this one is forgotten.
			lock, err := take(t.Context(), filepath.Join(r.dir, order.FileLock), false)
			r.must(err)
			old, err := r.start(r.owner, r.dir, lock, nil, o, nil)
			r.must(err)
			r.must(lock.Close())
			defer old.kill()
			r.await(begun)
			r.Program = program
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			if wait {
				r.must(os.WriteFile(gate, nil, 0o644))
				_, err := r.Copy(ctx, r.owner, r.dir, o, nil, func(order.Progress) {})
				r.must(err)
				if text, err := os.ReadFile(begun); err != nil || !strings.Contains(string(text), "over") {
					t.Errorf("the first worker has written %q, %v; want that it was waited for", text, err)
				}
				return
			}
			cancel()
			if _, err := r.Copy(ctx, r.owner, r.dir, o, nil, func(order.Progress) {}); !errors.Is(err, context.Canceled) {
				t.Errorf("%v; want the end of the context", err)
			}
			if e := <-old.ended; e.err == nil || !strings.Contains(e.err.Error(), "killed") {
				t.Errorf("the first worker: %v; want it killed", e.err)
			}
		})
	}
}

// What execd-transfer gets is what it is to have, and no more.
func TestGiven(t *testing.T) {
	r := newRig(t)
	out := filepath.Join(r.home, "out")
	r.fake("exec >" + out + "\nfor f in 0 1 2 3 4 5 6 7 8 9 11; do test ! -e /proc/$$/fd/$f || printf '%s ' $f; done; echo; env | grep -v -e ^PWD= -e ^_=; id -u; cut -d' ' -f19 /proc/$$/stat; grep NoNewPrivs /proc/$$/status; cat")
	_, _ = r.copy(send(order.Send{Select: order.All}))
	text, err := os.ReadFile(out)
	r.must(err)
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // as the kernel has it, 20 less
	r.must(err)
	for _, want := range []string{"0 1 2 3 4 5 6 \n", "GOMAXPROCS=1\n", fmt.Sprintf("\n%d\n%d\n", r.owner.UID, max(10, 20-own)), "NoNewPrivs:\t1\n", `{"id":"` + r.id + `"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q; want %q in it", text, want)
		}
	}
}

// A file that is written to all the while is not sent.
func TestChanges(t *testing.T) {
	for range 20 {
		// Who writes may stand still while an attempt reads, and then it is sent.
		if err := sendWhileWritten(t); err != nil {
			if p, ok := errors.AsType[*exit.Permanent](err); !ok || p.Error() != `"busy" changed while it was sent` {
				t.Errorf("%v; want that it changed", err)
			}
			return
		}
	}
	t.Error("it was sent each time; want that it changed")
}

func sendWhileWritten(t *testing.T) error {
	r := newRig(t)
	r.elsewhere()
	r.put(r.files(), "busy")
	path := filepath.Join(r.files(), "busy")
	r.must(os.WriteFile(path, make([]byte, 64<<20), 0))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	r.must(err)
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan bool)
	go func() {
		defer close(stopped)
		for i := int64(0); ctx.Err() == nil; i++ {
			_, _ = f.WriteAt([]byte("x"), i%(64<<20))
		}
	}()
	_, err = r.copy(send(order.Send{Select: order.All, To: r.other}))
	cancel()
	<-stopped
	if err != nil {
		r.ok(send(order.Send{Select: order.All, To: r.other}))
	}
	return err
}

// What an attempt has gathered is removed when nobody wants it any more.
func TestDiscard(t *testing.T) {
	r := newRig(t)
	r.put(r.files(), "a", "b")
	r.put(r.home, "b/there")
	if _, err := r.copy(send(order.Send{Select: order.All})); err == nil {
		t.Error("a file has replaced a directory")
	}
	if left, _ := filepath.Glob(r.home + "/.paddock-*"); len(left) != 1 {
		t.Errorf("%q is left of the attempt", left)
	}
	o := send(order.Send{Select: order.All})
	o.Discard = true
	r.ok(o)
	if left, _ := filepath.Glob(r.home + "/.paddock-*"); len(left) != 0 {
		t.Errorf("%q is left", left)
	}
}

// What has no place on the disk yet has one after a flush, whatever else is in the
// sandbox, of which nothing is changed.
func TestFlush(t *testing.T) {
	r := newRigIn(t, harness.Disk(t))
	r.put(r.files(), "d/pipe|", "d/link>/etc/passwd", "d/closed", "d/up>..")
	large, hole := filepath.Join(r.files(), "d/large"), filepath.Join(r.files(), "d/hole")
	r.must(os.WriteFile(large, make([]byte, 9<<20), 0o600))
	r.must(os.WriteFile(hole, nil, 0o600))
	r.must(os.Truncate(hole, 1<<43))
	r.own(large)
	r.own(hole)
	r.must(os.Chmod(filepath.Join(r.files(), "d/closed"), 0))
	placed := func() bool {
		f, err := os.Open(large)
		r.must(err)
		defer f.Close()
		// FS_IOC_FIEMAP, struct fiemap with room for one extent, and FIEMAP_EXTENT_DELALLOC of
		// linux/fiemap.h.
		var m struct {
			start, length                 uint64
			flags, mapped, count, _unused uint32
			logical, physical, size       uint64
			_unused64                     [2]uint64
			state                         uint32
			_unused32                     [3]uint32
		}
		m.length, m.count = 1<<62, 1
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0xc020660b, uintptr(unsafe.Pointer(&m))); errno != 0 || m.mapped == 0 {
			t.Skip("the file system does not tell where files lie: ", errno)
		}
		return m.state&4 == 0
	}
	if placed() {
		t.Skip("the file system has given the file its place at once")
	}
	// A sync does what a flush would, which does not wait for who is in the sandbox.
	lock, err := take(t.Context(), filepath.Join(r.dir, order.FileLock), true)
	r.must(err)
	r.ok(&order.Orders{Flush: true})
	r.must(lock.Close())
	if placed() {
		t.Error("the file was written while somebody was in the sandbox")
	}
	r.ok(&order.Orders{Flush: true})
	if !placed() {
		t.Error("the file has no place on the disk")
	}
	if info, err := os.Stat(hole); err != nil || info.Size() != 1<<43 {
		t.Errorf("%v, %v", info, err)
	}
}

// What has arrived is not over before its traces are removed, however often that is tried.
func TestTraces(t *testing.T) {
	r := newRig(t)
	if r.owner.UID == 0 {
		t.Skip("needs a user who may not write everywhere")
	}
	r.put(r.files(), "a")
	r.ok(send(order.Send{Select: order.All}))
	r.put(r.home, ".paddock-"+r.id+".part/tree/")
	for _, mode := range []os.FileMode{0o500, 0} {
		r.must(os.Chmod(r.home, mode))
		_, err := r.copy(send(order.Send{Select: order.All}))
		if p, ok := errors.AsType[*exit.Permanent](err); !ok || p.Errno != int(unix.EACCES) || !strings.Contains(err.Error(), r.home+"/.paddock-") {
			t.Errorf("with mode %o got %v; want that it is denied, and where", mode, err)
		}
	}
	r.must(os.Chmod(r.home, 0o700))
	r.ok(send(order.Send{Select: order.All}))
	r.want(r.home, "a")
}
