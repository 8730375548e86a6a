package launch

import (
	"testing"

	"paddock/classad"
	"paddock/execd/internal/ad"
)

// Paths of qsub have variables and hosts in them, those of fetched work are what
// they are: its request says so in the words that are read here.
func TestPathsOfWorkAreLiteral(t *testing.T) {
	n := names{home: "/home/u", user: "u", jobName: "j", host: "h.example", job: 7}
	for _, path := range []string{"/dev/null", "/a b", "/$HOME/$$/$JOB_ID$", "/h:o", "/h.example:/o", "/~", "/a/:", "/\xff"} {
		text := func(s string) classad.Expr { return classad.String(s).Expr() }
		r, err := ad.Request(classad.New(
			classad.Attr{Name: "Cmd", Expr: text("/bin/true")}, classad.Attr{Name: "Iwd", Expr: text(path)}, classad.Attr{Name: "In", Expr: text(path)},
			classad.Attr{Name: "Out", Expr: text(path)}, classad.Attr{Name: "Err", Expr: text("e:" + path[1:])},
		), ad.RequestOptions{})
		if err != nil {
			t.Errorf("%q: %v", path, err)
			continue
		}
		for what, got := range map[string]string{
			"Iwd": workingDir(n, r.Cwd), "In": n.stream(r.Stdin, "/d", "none"), "Out": n.stream(r.Stdout, "/d", "none"),
		} {
			if got != path {
				t.Errorf("%s %q becomes %q", what, path, got)
			}
		}
		if got, want := n.stream(r.Stderr, "/d", "none"), path+"/e:"+path[1:]; got != want {
			t.Errorf("Err is %q; want %q", got, want)
		}
	}
}
