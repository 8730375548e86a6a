package order

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const id = "0123456789abcdef"

// What is sent is what arrives, whatever bytes paths have.
func TestEncode(t *testing.T) {
	odd := "a\xff\n\"\u00e9"
	for _, o := range []*Orders{
		{ID: id, Base: "/" + odd, Max: 5, Send: &Send{Select: All, Names: []Named{{From: odd, To: odd + "/"}}, To: odd, Home: "/" + odd}},
		{ID: id, Base: "/", Root: true, Bring: []Named{{From: "/" + odd, To: odd}}},
	} {
		text, err := o.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(text)
		if diff := cmp.Diff(o, got); diff != "" || err != nil {
			t.Errorf("%v, differs (-want +got):\n%s", err, diff)
		}
	}
}

func TestCheck(t *testing.T) {
	listed := func(name string) *Orders {
		return &Orders{ID: id, Base: "/", Send: &Send{Select: Listed, Names: []Named{{From: name}}}}
	}
	bring := func(names ...Named) *Orders { return &Orders{ID: id, Base: "/", Bring: names} }
	many := make([]Named, MaxNames+1)
	for what, o := range map[string]*Orders{
		"hex":           {ID: "0123456789abcdeg", Base: "/", Send: &Send{Select: All}},
		"slash":         {ID: id, Base: "home", Send: &Send{Select: All}},
		"either":        {ID: id, Base: "/"},
		"either ":       {ID: id, Base: "/", Send: &Send{Select: All}, Bring: []Named{{From: "x"}}},
		"selects":       {ID: id, Base: "/", Send: &Send{Select: "some"}},
		"more than":     {ID: id, Base: "/", Send: &Send{Select: All, Names: many}},
		"more than ":    bring(many...),
		`".."`:          listed(".."),
		`"/etc/passwd"`: listed("/etc/passwd"),
		`"a/../../b"`:   listed("a/../../b"),
		`"./a"`:         listed("./a"),
		`"a//b"`:        listed("a//b"),
		`""`:            listed(""),
		`"a\x00b"`:      listed("a\x00b"),
		"no name":       listed(strings.Repeat("a", 256)),
		"no name ":      listed(strings.Repeat("a/", 2100) + "a"),
		"two inputs":    bring(Named{From: "/x/a"}, Named{From: "a"}),
		"no path":       bring(Named{To: "a"}),
		"no path ":      bring(Named{From: "a\x00", To: "a"}),
		`"../b"`:        bring(Named{From: "a", To: "../b"}),
		`".." is`:       bring(Named{From: "a/.."}),
		`"out/../../x"`: bring(Named{From: "x", To: "out/../../"}),
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(what)) {
			t.Errorf("%v; want %q in it", err, what)
		}
	}
}

// FuzzDecode holds that whatever comes is refused or is what Check allows.
func FuzzDecode(f *testing.F) {
	for _, o := range []*Orders{
		{ID: id, Base: "/", Send: &Send{Select: All, Names: []Named{{From: "a", To: "b/"}}}},
		{ID: id, Base: "/home", Bring: []Named{{From: "/a"}}},
	} {
		text, err := o.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := Decode(text)
		if err != nil {
			return
		}
		for _, n := range o.Bring {
			if to := n.Place(); strings.HasPrefix(to, "/") || strings.Contains("/"+to+"/", "/../") {
				t.Errorf("%q is brought to %q", n.From, to)
			}
		}
	})
}

// Of what a program says no more is kept than was to be, by whatever way it comes.
func TestBeginning(t *testing.T) {
	const most = 1000
	said, gone := &Beginning{Most: most}, &Beginning{Most: most}
	cmd := exec.Command("sh", "-c", "echo begins; head -c 1000000 /dev/zero")
	cmd.Stdout = said
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if text := said.String(); len(text) != most || !strings.HasPrefix(text, "begins\n") {
		t.Errorf("%d bytes are kept: %.20q", len(text), text)
	}
	for range most {
		if n, err := gone.Write([]byte("abc")); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	if text := gone.String(); text != strings.Repeat("abc", most)[:most] {
		t.Errorf("%d bytes are kept", len(text))
	}
	if n, err := gone.ReadFrom(iotest.ErrReader(io.ErrUnexpectedEOF)); n != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d, %v", n, err)
	}
}
