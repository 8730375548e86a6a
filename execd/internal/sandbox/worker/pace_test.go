package worker

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"paddock/execd/internal/sandbox/order"
)

// What moves many bytes needs a turn, and says so before it does; what renames, moves few
// bytes or nothing needs none.
func TestTurn(t *testing.T) {
	const much = order.Brief + 1
	for what, test := range map[string]struct {
		size  int64
		far   bool // another file system
		bring bool
		url   bool
		needs bool
	}{
		"much, renamed":           {size: much},
		"much, copied":            {size: much, far: true, needs: true},
		"little, copied":          {size: order.Brief, far: true},
		"much, brought":           {size: much, bring: true, needs: true},
		"little, brought":         {size: order.Brief, bring: true},
		"little, from a URL":      {size: 1, bring: true, url: true, needs: true},
		"little, to a URL":        {size: 1, url: true, needs: true},
		"nothing, to another one": {far: true},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			r.elsewhere()
			store := r.store()
			from, to := r.files(), r.home
			o := send(order.Send{Select: order.All, To: r.home})
			switch {
			case test.bring:
				from, to = r.home, r.files()
				o = bring(order.Named{From: "file"})
			case test.far:
				to = r.other
				o.Send.To = r.other
			}
			if test.url {
				r.must(os.WriteFile(filepath.Join(store, "file"), []byte("x"), 0o644))
				o.Plugins = []order.Plugin{r.plugin("box", false, "exec cp "+store+"/file \"$2\"")}
				if test.bring {
					o.Bring[0].From = "box:///file"
				} else {
					o.Send.To, to = "box://x", store
				}
			}
			path := filepath.Join(from, "file")
			r.put(from, "file")
			r.must(os.WriteFile(path, make([]byte, test.size), 0o640))
			o.Turn = false
			_, err := r.copy(o)
			if errors.Is(err, ErrTurn) != test.needs || !test.needs && err != nil {
				t.Fatalf("%v; want a turn: %v", err, test.needs)
			}
			if _, err := os.Stat(path); err != nil && test.needs {
				t.Errorf("%v; want that nothing was moved", err)
			}
			o.Turn = true
			if test.needs && (!test.url || test.bring) { // the plugin above only brings
				r.ok(o)
			}
			if _, err := os.Stat(filepath.Join(to, "file")); err != nil {
				t.Error(err)
			}
		})
	}
}

// All who have a turn may copy as much as another, and know it when somebody comes or
// leaves, or when the administrator changes it.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		total := int64(100)
		p := Pace{Total: func() int64 { return total }}
		a := p.join()
		if got := <-a.rate; got != 100 {
			t.Errorf("alone: %d", got)
		}
		b, c := p.join(), p.join()
		for _, s := range []*share{a, b, c} {
			if got := <-s.rate; got != 33 {
				t.Errorf("three: %d", got)
			}
		}
		p.leave(b)
		p.leave(c)
		if got := <-a.rate; got != 100 { // not that for two, which is older
			t.Errorf("alone again: %d", got)
		}
		total = 0
		p.Again()
		if got := <-a.rate; got != 0 {
			t.Errorf("without a limit: %d", got)
		}
		p.leave(a)
		if _, more := <-a.rate; more {
			t.Error("who has left is told more")
		}
	})
}

// A worker copies no faster than it may, and hears that it may be faster. So it is with trees
// that go by a stream.
func TestRate(t *testing.T) {
	r := newRig(t)
	r.elsewhere()
	const size = 16 << 20
	full := func() {
		r.put(r.files(), "file")
		r.must(os.WriteFile(filepath.Join(r.files(), "file"), bytes.Repeat([]byte("0123456789abcdef"), size/16), 0o640))
	}
	full()
	all := order.Send{Select: order.All, To: r.other}
	var stream bytes.Buffer
	r.paced(&order.Orders{Send: &all, Pack: &order.Pack{}}, &Stream{To: &stream, Stop: func() {}}, size)
	r.paced(send(all), nil, size)
	r.paced(&order.Orders{Unpack: &order.Unpack{Part: "input"}}, &Stream{From: &stream, Stop: func() {}}, size)
}

// paced fails the test unless orders are carried out as fast as they may be.
func (r *rig) paced(o *order.Orders, via *Stream, size int64) {
	t := r.T
	t.Helper()
	total := int64(1 << 20)
	r.Pace = &Pace{Total: func() int64 { return total }}
	o.ID, o.Base, o.Root, o.Turn = r.id, r.home, r.owner.UID == 0, true
	lines := 0
	got, err := r.Copy(t.Context(), r.owner, r.dir, o, via, func(p order.Progress) {
		// It reports once a second: in this one it would be through, had it no limit.
		if lines++; lines == 2 {
			if p.Bytes == 0 || p.Bytes > 12<<20 {
				t.Errorf("%d bytes after two seconds at 1 MB/s", p.Bytes)
			}
			total = 0
			r.Pace.Again()
		}
	})
	if err != nil || got.Bytes != size || lines < 2 {
		t.Errorf("%+v, %v after %d reports", got, err, lines)
	}
}
