package worker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/pack"
	"paddock/execd/internal/sandbox/ring"
	"paddock/execd/internal/stage/exit"
	"paddock/test/harness"
)

// by is copy with a stream.
func (r *rig) by(o *order.Orders, via *Stream) (order.Result, error) {
	r.Helper()
	o.ID, o.Base, o.Root, o.Turn = r.id, r.home, r.owner.UID == 0, true
	if via.Stop == nil {
		via.Stop = func() {}
	}
	ctx, cancel := context.WithTimeout(r.Context(), harness.Patience)
	defer cancel()
	return r.Copy(ctx, r.owner, r.dir, o, via, func(order.Progress) {})
}

// packed is a stream of what orders name.
func (r *rig) packed(o *order.Orders) []byte {
	r.Helper()
	var b bytes.Buffer
	got, err := r.by(o, &Stream{To: &b})
	if err != nil || len(got.Root) != 64 {
		r.Fatalf("%+v: %+v, %v", o, got, err)
	}
	return b.Bytes()
}

// unpack makes a stream a tree, without a worker.
func (r *rig) unpack(stream []byte) (dir string) {
	r.Helper()
	dir = r.TempDir()
	cmd := exec.Command(program, "unpack", "-links", "-dots", dir)
	cmd.Stdin = bytes.NewReader(stream)
	if said, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("%v: %s", err, said)
	}
	return dir
}

func (r *rig) say() string { return filepath.Join(r.dir, order.DirSay) }

// What another host pulls is what is selected, under the names that it has in the sandbox,
// and what the job has said. What was brought in and has not changed does not travel.
func TestPackOutput(t *testing.T) {
	for what, test := range map[string]struct {
		send order.Send
		want []string
		errs string
	}{
		"all":          {send: order.Send{Select: order.All}, want: []string{"OUT=stdout", "ERR=stderr", "f", "l>f", "d/new", "e/", "in/changed=x", "in/deep/new", ".dot"}},
		"changed":      {send: order.Send{Select: order.Changed}, want: []string{"OUT=stdout", "ERR=stderr", "f", "l>f", ".dot"}},
		"and named":    {send: order.Send{Select: order.Changed, Names: []order.Named{{From: "in/deep"}, {From: "d/"}, {From: "none"}}}, want: []string{"OUT=stdout", "ERR=stderr", "f", "l>f", ".dot", "d/new", "in/deep/new"}},
		"listed":       {send: order.Send{Select: order.Listed, Names: []order.Named{{From: "l"}, {From: "in"}, {From: "in/same"}, {From: "d/new"}, {From: "ld"}}}, want: []string{"OUT=stdout", "ERR=stderr", "l=f", "in/same", "in/changed=x", "in/deep/new", "in/deep/same", "d/new", "ld/new=d/new"}},
		"nothing":      {send: order.Send{Select: order.Listed}, want: []string{"OUT=stdout", "ERR=stderr"}},
		"missing":      {send: order.Send{Select: order.Listed, Names: []order.Named{{From: "none"}}}, errs: `output "none" is missing`},
		"out of reach": {send: order.Send{Select: order.Listed, Names: []order.Named{{From: "../say"}}}, errs: `"../say" is no name in a sandbox`},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			r.put(r.home, "in/same", "in/changed", "in/deep/same", "top")
			r.ok(bring(order.Named{From: "in"}, order.Named{From: "top"}))
			r.put(r.files(), "f", "l>f", "d/new", "e/", "in/deep/new", ".dot", "OUT", "ERR", "p|", ".paddock-0123456789abcdef.part/x")
			if test.send.Select == order.Listed {
				r.put(r.files(), "ld>d")
			}
			r.must(os.WriteFile(filepath.Join(r.files(), "in/changed"), []byte("x"), 0o600))
			for _, name := range []string{order.FileStdout, order.FileStderr} {
				r.put(r.say(), name)
			}
			o := &order.Orders{Send: &test.send, Pack: &order.Pack{Out: "OUT", Err: "ERR"}}
			if test.errs != "" {
				var b bytes.Buffer
				if _, err := r.by(o, &Stream{To: &b}); err == nil || !strings.Contains(err.Error(), test.errs) {
					t.Errorf("%v; want %q", err, test.errs)
				} else if permanent, ok := errors.AsType[*exit.Permanent](err); !ok {
					t.Errorf("%v may pass", permanent)
				}
				return
			}
			r.want(r.unpack(r.packed(o)), test.want...)
		})
	}
}

// What another host pushes is each name by its place, with the directories that it is in.
func TestPackInput(t *testing.T) {
	r := newRig(t)
	r.put(r.home, "a", "d/x", "d/y/z", "l>a")
	stream := r.packed(&order.Orders{Pack: &order.Pack{}, Bring: []order.Named{
		{From: "d", To: "deep/d"}, {From: "a", To: "deep/b/a"}, {From: "l"}, {From: "a", To: "deep/d/x"}, {From: r.home + "/a", To: "deep/"},
	}})
	r.want(r.unpack(stream), "deep/d/x=d/x", "deep/d/y/z=d/y/z", "deep/b/a=a", "l=a", "deep/a=a")
	var b bytes.Buffer
	_, err := r.by(&order.Orders{Pack: &order.Pack{}, Bring: []order.Named{{From: "a", To: "f"}, {From: "a", To: "f/g"}}}, &Stream{To: &b})
	if err == nil || !strings.Contains(err.Error(), `"f" is no directory`) {
		t.Errorf("a file in a file: %v", err)
	}
}

// look returns what there is of a part.
func (r *rig) look(part string) order.Result {
	r.Helper()
	got, err := r.by(&order.Orders{Unpack: &order.Unpack{Part: part, Look: true}}, &Stream{From: strings.NewReader("")})
	if err != nil {
		r.Fatal(err)
	}
	return got
}

// A part comes once, goes on where it was cut off, and counts as brought in if that is so.
func TestUnpackParts(t *testing.T) {
	r := newRig(t)
	const size = 12 << 20
	r.put(r.home, "in/f", "in/g")
	r.must(os.WriteFile(filepath.Join(r.home, "in/big"), make([]byte, size), 0o600))
	r.must(os.WriteFile(filepath.Join(r.home, "in/big"), bytes.Repeat([]byte("0123456789abcdef"), size/16), 0o600))
	r.own(filepath.Join(r.home, "in/big"))
	source := func(have string) []byte {
		return r.packed(&order.Orders{Pack: &order.Pack{Have: have}, Bring: []order.Named{{From: "in"}}})
	}
	unpack := func(part string, from io.Reader) (order.Result, error) {
		return r.by(&order.Orders{Unpack: &order.Unpack{Part: part, Note: part == "input"}}, &Stream{From: from})
	}
	whole := source("")
	if got := r.look("input"); got.Have != "" || got.Root != "" {
		t.Errorf("there is %+v of nothing", got)
	}
	if _, err := unpack("input", &cut{bytes.NewReader(whole[:size/2+1])}); !errors.Is(err, ErrCut) {
		t.Errorf("cut off: %v", err)
	}
	got := r.look("input")
	rest := source(got.Have)
	if got.Have == "" || len(rest) > size-4<<20+1<<16 {
		t.Fatalf("%+v, and %d bytes are left", got, len(rest))
	}
	done, err := unpack("input", bytes.NewReader(rest))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.look("input"); got.Root != done.Root {
		t.Errorf("%+v after %+v", got, done)
	}
	if again, err := unpack("input", strings.NewReader("")); err != nil || again.Root != done.Root {
		t.Errorf("again: %+v, %v", again, err)
	}
	if stream := r.packed(&order.Orders{Send: &order.Send{Select: order.All}, Pack: &order.Pack{}}); len(r.tree(r.unpack(stream))) != 0 {
		t.Errorf("what was brought in is output")
	}
	r.put(r.home, "spool/g", "spool/h")
	if _, err := unpack("spool", bytes.NewReader(r.packed(&order.Orders{Pack: &order.Pack{}, Bring: []order.Named{{From: "spool/g", To: "in/g"}, {From: "spool/h"}}}))); err != nil {
		t.Fatal(err)
	}
	r.want(r.unpack(r.packed(&order.Orders{Send: &order.Send{Select: order.All}, Pack: &order.Pack{}})), "in/g=spool/g", "h=spool/h")
	for _, name := range []string{"in/f", "in/big", "in/g", "h"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(r.files(), name), &st); err != nil || int(st.Uid) != r.owner.UID {
			t.Errorf("%s is of %d, %v", name, st.Uid, err)
		}
	}
}

// A ring has room for a block that is read while another one is filled, or both ends would wait
// for each other.
func TestRingHasRoom(t *testing.T) {
	if ring.Size < 2*pack.MaxRecord || ring.Size < most+pack.MaxRecord {
		t.Errorf("a ring of %d bytes for records of %d, and reads of %d", ring.Size, pack.MaxRecord, most)
	}
}

// cut is a stream that breaks off.
type cut struct{ io.Reader }

func (c *cut) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// More than may be is refused for good, also without a turn, and does not stay.
func TestUnpackTooMuch(t *testing.T) {
	for _, turn := range []bool{true, false} {
		r := newRig(t)
		most := int64(1 << 20)
		if !turn {
			most = order.Brief
		}
		r.must(os.WriteFile(filepath.Join(r.home, "f"), bytes.Repeat([]byte("x"), int(most)+1), 0o600))
		r.own(filepath.Join(r.home, "f"))
		stream := r.packed(&order.Orders{Pack: &order.Pack{}, Bring: []order.Named{{From: "f"}}})
		o := &order.Orders{ID: r.id, Base: r.home, Root: r.owner.UID == 0, Turn: turn, Unpack: &order.Unpack{Part: "input"}}
		if turn {
			o.Max = most
		}
		_, err := r.Copy(t.Context(), r.owner, r.dir, o, &Stream{From: bytes.NewReader(stream), Stop: func() {}}, func(order.Progress) {})
		if permanent, ok := errors.AsType[*exit.Permanent](err); !ok || permanent.Errno != int(unix.EFBIG) {
			t.Errorf("turn %t: %v", turn, err)
		}
		if _, err := os.Lstat(filepath.Join(r.files(), "f")); err == nil {
			t.Error("it is there")
		}
	}
}

// blocked is an end of a stream that does nothing until it is stopped.
type blocked struct {
	once sync.Once
	stop chan struct{}
}

func (b *blocked) wait() (int, error) {
	<-b.stop
	return 0, os.ErrDeadlineExceeded
}

func (b *blocked) Read([]byte) (int, error)  { return b.wait() }
func (b *blocked) Write([]byte) (int, error) { return b.wait() }
func (b *blocked) Stop()                     { b.once.Do(func() { close(b.stop) }) }

// The end of the context, and that of the worker, end a stream of which nothing comes or
// into which nothing goes.
func TestStreamStops(t *testing.T) {
	r := newRig(t)
	r.put(r.home, "f")
	r.must(os.WriteFile(filepath.Join(r.home, "big"), make([]byte, 1), 0o600))
	r.must(os.Truncate(filepath.Join(r.home, "big"), 1))
	in := &order.Orders{ID: r.id, Base: r.home, Root: r.owner.UID == 0, Unpack: &order.Unpack{Part: "input"}}
	out := &order.Orders{ID: r.id, Base: r.home, Root: r.owner.UID == 0, Pack: &order.Pack{}, Bring: []order.Named{{From: "f"}}}
	why := errors.New("not wanted any more")
	for what, test := range map[string]struct {
		o   *order.Orders
		via func(*blocked) *Stream
	}{
		"in":  {in, func(b *blocked) *Stream { return &Stream{From: b, Stop: b.Stop} }},
		"out": {out, func(b *blocked) *Stream { return &Stream{To: b, Stop: b.Stop} }},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		b := &blocked{stop: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			_, err := r.Copy(ctx, r.owner, r.dir, test.o, test.via(b), func(order.Progress) { cancel(why) })
			done <- err
		}()
		if what == "out" { // the worker is done, and what it has written is not taken
			cancel(why)
		}
		if err := <-done; !errors.Is(err, why) {
			t.Errorf("%s: %v", what, err)
		}
	}
	bad := *in
	bad.Unpack = &order.Unpack{Part: "other"}
	b := &blocked{stop: make(chan struct{})}
	_, err := r.Copy(t.Context(), r.owner, r.dir, &bad, &Stream{From: io.MultiReader(strings.NewReader(strings.Repeat("bad\n", 100)), b), Stop: b.Stop}, func(order.Progress) {})
	if err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("no stream: %v", err)
	}
}

// filling fills all that it is given, and ends with the third time.
type filling struct{ times int }

func (f *filling) Read(b []byte) (int, error) {
	if f.times++; f.times == 3 {
		return len(b), io.EOF
	}
	return len(b), nil
}

// What has come is in the worker's hands at once when nothing follows for now, or nothing any more.
func TestTake(t *testing.T) {
	silent, never := io.Pipe()
	defer never.Close()
	for what, test := range map[string]struct {
		from io.Reader
		want int
	}{
		"a pause": {io.MultiReader(strings.NewReader("some bytes"), silent), 10},
		"the end": {&filling{}, ring.Size},
	} {
		in, theirs, err := ring.NewWriter()
		if err != nil {
			t.Fatal(err)
		}
		var fds [2]int
		for i, f := range []*os.File{theirs.Memory, theirs.Link} {
			if fds[i], err = unix.Dup(int(f.Fd())); err != nil {
				t.Fatal(err)
			}
		}
		out, err := ring.OpenReader(fds[0], fds[1])
		if err = errors.Join(err, theirs.Close()); err != nil {
			t.Fatal(err)
		}
		r := &relay{via: &Stream{From: test.from}, in: in}
		go func() { _ = r.take() }()
		b, err := out.Peek(test.want)
		if err == nil && test.want == ring.Size { // the ring was full until now
			_, err = out.Discard(2 * least)
			if err = errors.Join(err, out.Flush()); err == nil {
				b, err = out.Peek(test.want)
			}
		}
		if err != nil || len(b) != test.want {
			t.Errorf("%s: %d bytes, %v; want %d", what, len(b), err, test.want)
		}
	}
}
