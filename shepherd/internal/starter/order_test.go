package starter

import (
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOrder(t *testing.T) {
	for _, o := range []Order{
		{Name: "job", State: 11, Argv: []string{}, Env: []string{}},
		{Kind: Prolog, Name: "prolog", State: 7, User: "root", Argv: []string{"/bin/x", "", "a b", "\n"}, Env: []string{"A=1", "", "B="}},
		{Kind: Method, Name: "", State: 100, Argv: []string{""}, Env: []string{}},
		{Kind: Epilog, Detail: true, Name: "epilog", State: 14, Argv: []string{"3", "2"}, Env: []string{"1"}},
	} {
		b := o.message()
		if err := o.check(b); err != nil {
			t.Errorf("check(%+v) = %v", o, err)
		}
		if got, err := parseOrder(b); err != nil || !reflect.DeepEqual(got, o) {
			t.Errorf("parseOrder(append(%+v)) = %+v, %v", o, got, err)
		}
	}
	for _, o := range []Order{
		{Name: "a\x00b"}, {User: "\x00"}, {Argv: []string{"x", "\x00"}}, {Env: []string{"A=\x00"}}, {Argv: []string{strings.Repeat("x", maxOrder)}},
	} {
		if o.check(o.message()) == nil {
			t.Errorf("check(%.50s) has no objection", o.message())
		}
	}
	for _, b := range []string{
		"", "G", "X\x00\x07job\x00\x000", "G\x00\x07", "G\x09\x07job\x00\x000", "G\x00\x07job\x00", "G\x00\x07job\x00\x00x", "G\x00\x07job\x00\x001",
		"G\x00\x07job\x00\x00-1", "G\x00\x07job\x00\x0000", "G\x00\x07job\x00\x000\x00" + strings.Repeat("x", maxOrder),
	} {
		o, err := parseOrder([]byte(b))
		if err == nil {
			t.Errorf("parseOrder(%.50q) = %+v; want an error", b, o)
		}
		if len(b) >= orderHead && b[0] == kindGo && o.State != 7 {
			t.Errorf("parseOrder(%.50q): state %d; want 7", b, o.State)
		}
	}
}

// TestGo sends what cannot be sent in a form that is refused.
func TestGo(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	s := Process{Socket: pair[0]}
	if err := s.Go(Order{Kind: Prolog, State: 9, Argv: []string{"/bin/true", "\x00"}}); err == nil {
		t.Error("an argument with a NUL byte was sent")
	}
	var b [64]byte
	n, err := unix.Read(pair[1], b[:])
	if err != nil {
		t.Fatal(err)
	}
	if o, err := parseOrder(b[:n]); err == nil || o.State != 9 {
		t.Errorf("got %+v, %v; want the state and an error", o, err)
	}
}

// FuzzOrder sees that a message that is understood has one meaning only.
func FuzzOrder(f *testing.F) {
	for _, o := range []Order{
		{Name: "job", State: 11},
		{Kind: Prolog, Name: "prolog", State: 7, User: "root", Argv: []string{"/bin/x", "a b", ""}, Env: []string{"A=1"}},
	} {
		f.Add(o.message())
	}
	f.Add([]byte("G\x00\x07job\x00\x00+0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOrder(b)
		if err != nil {
			return
		}
		if o.Kind >= kinds {
			t.Errorf("parseOrder(%q) has kind %d", b, o.Kind)
		}
		if got := o.message(); string(got) != string(b) {
			t.Errorf("parseOrder(%q) is sent as %q", b, got)
		}
		if err := o.check(b); err != nil {
			t.Errorf("check(%q) = %v", b, err)
		}
	})
}
