package launch

import (
	"testing"

	"paddock/classad"
	"paddock/execd/api"
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

// What is relative in the ad of work is below the scratch directory that its run has.
func TestPathsOfWorkInScratch(t *testing.T) {
	n := names{home: "/home/u", user: "u", jobName: "j", host: "h.example", job: 7}
	for iwd, want := range map[string]string{"": "/t$1/7", ".": "/t$1/7", "./a": "/t$1/7/a", "~/$HOME": "/t$1/7/~/$HOME"} {
		work := classad.New(
			classad.Attr{Name: "Cmd", Expr: classad.String("c").Expr()}, classad.Attr{Name: "Iwd", Expr: classad.String(iwd).Expr()},
			classad.Attr{Name: "Out", Expr: classad.String("~/o:$USER").Expr()},
		)
		r, err := ad.Request(work, ad.RequestOptions{})
		if err != nil {
			t.Errorf("%q: %v", iwd, err)
			continue
		}
		r.Work = &api.Work{Ad: work.OldString()}
		dir := workingDir(n, cwd(r, "/t$1/7"))
		if got := n.stream(r.Stdout, dir, "none"); dir != want || got != want+"/~/o:$USER" || r.Command != "./c" {
			t.Errorf("%q: %s in %s writes to %s; want it in %s", iwd, r.Command, dir, got, want)
		}
	}
	if got := cwd(&api.SubmitRequest{Cwd: "a", Work: &api.Work{}}, "/t"); got != "a" {
		t.Errorf("of a request under a claim: %q; want it as it came", got)
	}
}
