package worker

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/sandbox/order"
)

// pulled has a tree come that lies below its destination, and returns the orders for it to land.
func (r *rig) pulled(names ...string) (to string, land func() *order.Orders) {
	r.Helper()
	from := r.TempDir()
	r.put(from, names...)
	stream, err := exec.Command(program, "pack", from).Output()
	r.must(err)
	to = filepath.Join(r.home, "to")
	r.mine(to)
	if got, err := r.by(&order.Orders{Unpack: &order.Unpack{Part: "output"}, Beside: to}, &Stream{From: bytes.NewReader(stream)}); err != nil || got.Root == "" {
		r.Fatalf("%+v, %v", got, err)
	}
	return to, func() *order.Orders {
		return &order.Orders{Beside: to, Send: &order.Send{Select: order.All, To: to, Append: []order.Append{
			{From: api.NameStdout, To: filepath.Join(r.home, "o"), Name: "x"}, {From: api.NameStderr, To: to, Name: "e"},
		}}}
	}
}

// What another host has sent is never in the sandbox here: it lies below its destination, and is
// renamed from there. What was written to standard streams is appended, once.
func TestBeside(t *testing.T) {
	r := newRig(t)
	to, land := r.pulled("a", "d/b", api.NameStdout, api.NameStderr)
	r.want(r.files())
	r.put(r.home, "o")
	for range 2 {
		if _, err := r.copy(land()); err != nil {
			t.Fatal(err)
		}
		r.want(to, "a", "d/b", "e="+api.NameStderr)
		if text, err := os.ReadFile(filepath.Join(r.home, "o")); err != nil || string(text) != "o"+api.NameStdout {
			t.Errorf("-o has %q, %v", text, err)
		}
	}
}

// What was appended before an attempt was cut off is not appended again, unless somebody else has
// written behind it.
func TestAppendOnce(t *testing.T) {
	for what, test := range map[string]struct{ there, want string }{
		"a part":    {"o.padd", "o.paddock-stdout"},
		"all":       {"o.paddock-stdout", "o.paddock-stdout"},
		"another's": {"o.padDOCK", "o.padDOCK.paddock-stdout"},
		"nothing":   {"o", "o.paddock-stdout"},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			_, land := r.pulled(api.NameStdout)
			r.put(r.home, "o")
			path := filepath.Join(r.home, "o")
			dev, ino := numbers(t, path)
			note := filepath.Join(r.say(), order.FileAppend+"paddock-stdout")
			r.must(os.WriteFile(note, fmt.Appendln(nil, dev, ino, 1), 0o600))
			r.own(note)
			r.must(os.WriteFile(path, []byte(test.there), 0o600))
			if _, err := r.copy(land()); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != test.want {
				t.Errorf("-o has %q, %v; want %q", text, err, test.want)
			}
		})
	}
}

// A host that means no good brings no dot file into the home directory that was not named, nothing
// to a place beside the destination, and no link in the place of a standard stream.
func TestBesideHostile(t *testing.T) {
	r := newRig(t)
	_, land := r.pulled("a", ".profile", "up>../../../etc", api.NameStdout+">a")
	o := land()
	o.Send.To, o.Send.Home = r.home+"/to", r.home+"/to"
	r.put(r.home, "o")
	got, err := r.copy(o)
	if err != nil {
		t.Fatal(err)
	}
	r.want(filepath.Join(r.home, "to"), "a")
	if text, err := os.ReadFile(filepath.Join(r.home, "o")); err != nil || string(text) != "o" {
		t.Errorf("-o has %q, %v", text, err)
	}
	if got.Skipped == 0 {
		t.Errorf("%+v: nothing was said of what was left out", got)
	}
}

// What lies below the destination may be removed by its owner: then it is not taken for what has
// arrived, and comes again. What nobody wants is removed.
func TestBesideGone(t *testing.T) {
	r := newRig(t)
	to, land := r.pulled("a")
	part := filepath.Join(to, ".paddock-"+r.id+".in.part")
	r.must(os.RemoveAll(part))
	if _, err := r.copy(land()); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("%v", err)
	}
	look := &order.Orders{Unpack: &order.Unpack{Part: "output", Look: true}, Beside: to}
	if got, err := r.by(look, &Stream{From: strings.NewReader("")}); err != nil || got.Root != "" || got.Have != "" {
		t.Errorf("there is %+v, %v", got, err)
	}
	r.must(os.RemoveAll(to))
	_, land = r.pulled("a")
	o := land()
	o.Discard = true
	if _, err := r.copy(o); err != nil {
		t.Fatal(err)
	}
	r.want(to)
}

// numbers returns those of a file.
func numbers(t *testing.T, path string) (dev, ino uint64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Dev, st.Ino
}
