package api

import (
	"strings"
	"testing"
)

// What no sandbox can be is refused in a line that names the option.
func TestCheckSandbox(t *testing.T) {
	in := func(list ...Staged) SubmitRequest { return SubmitRequest{Sandbox: "y", StageIn: list} }
	out := func(list ...Staged) SubmitRequest { return SubmitRequest{Sandbox: "y", StageOut: list} }
	many := make([]Staged, MaxWords+1)
	for _, test := range []struct {
		r    SubmitRequest
		want string // in the error; empty: there is none
	}{
		{SubmitRequest{}, ""},
		{SubmitRequest{Sandbox: "y"}, ""},
		{SubmitRequest{Sandbox: "n"}, ""},
		{SubmitRequest{Sandbox: "yes"}, "no value of -sandbox"},
		{SubmitRequest{Sandbox: "y", Interactive: &Interactive{}}, "an interactive job has no sandbox"},
		{SubmitRequest{Sandbox: "n", StageOut: []Staged{{Name: "a"}}}, "-stageout needs a sandbox: -sandbox y"},
		{SubmitRequest{StageIn: []Staged{{Place: "a"}}}, "-stagein needs a sandbox"},
		{SubmitRequest{Sandbox: "n", StageOutTo: "/d"}, "-stageout_to needs a sandbox"},
		{SubmitRequest{WhenOut: OutAlways}, "-when_out needs a sandbox"},
		{SubmitRequest{Sandbox: "y", WhenOut: "later"}, "no value of -when_out"},
		{SubmitRequest{Sandbox: "y", WhenOut: OutSuccess, StageOutTo: "$HOME/out"}, ""},
		{SubmitRequest{Sandbox: "y", StageOutTo: "a\nb"}, "the path of -stageout_to contains a control character"},
		{SubmitRequest{Sandbox: "y", StageOutTo: "s3://bucket/a"}, ""},
		{SubmitRequest{Sandbox: "y", StageOutTo: "file://host/a"}, "names a file of no host"},
		{SubmitRequest{Sandbox: "y", StageOutTo: "file:///a"}, ""},

		{in(Staged{Place: "data"}, Staged{Name: "b/c", Place: "/data"}, Staged{Place: "d/"}), ""},
		{in(Staged{Name: "a=b", Place: "x=y"}), ""},
		{in(Staged{Name: "a"}), `-stagein: no file is named for "a"`},
		{in(Staged{Name: "../a", Place: "b"}), `-stagein: "../a" is not a name in the sandbox`},
		{in(Staged{Name: "a/../../b", Place: "b"}), "is not a name in the sandbox"},
		{in(Staged{Name: "/a", Place: "b"}), "is not a name in the sandbox"},
		{in(Staged{Name: ".", Place: "b"}), "is not a name in the sandbox"},
		{in(Staged{Place: ".."}), `".." is not a name in the sandbox`},
		{in(Staged{Place: "/"}), `"/" is not a name in the sandbox`},
		{in(Staged{Place: "a"}, Staged{Place: "b/a/"}), `"a" is there twice`},
		{in(Staged{Place: "x/a"}, Staged{Place: "y/a"}), `-stagein: "a" is there twice`},
		{in(Staged{Place: "x/a"}, Staged{Name: "./a", Place: "b"}), `-stagein: "a" is there twice`},
		{in(Staged{Place: "a\x7f"}), "control character"},
		{in(Staged{Name: "a\n", Place: "a"}), "control character"},
		{in(Staged{Place: Text(strings.Repeat("a", MaxPath+1))}), "4096 bytes"},
		{in(Staged{Place: Text(strings.Repeat("a", 256))}), "more than 255 bytes"},
		{in(Staged{Place: "https://h/a?b=c"}), ""},
		{in(Staged{Place: "https://"}), "names nothing"},
		{in(many...), "at most 1000 are possible"},

		{out(Staged{Name: "a"}, Staged{Name: "b", Place: "/c"}), ""},
		{out(Staged{Name: "."}, Staged{Name: "b", Place: "/c"}), ""},
		{out(Staged{Name: "*"}, Staged{Name: "b", Place: "/c"}), ""},
		{out(Staged{Name: "NONE"}), ""},
		{out(Staged{Name: "NONE"}, Staged{Name: "b"}), "NONE stands alone"},
		{out(Staged{Name: "."}, Staged{Name: "*"}), `"*" is there twice`},
		{out(Staged{Name: ".", Place: "/d"}), "see -stageout_to"},
		{out(Staged{}), "-stageout: an empty name"},
		{out(Staged{Name: "../a"}), "is not a name in the sandbox"},
		{out(Staged{Name: "a"}, Staged{Name: "a/"}), `"a" is there twice`},
		{out(Staged{Name: "a", Place: "/c"}, Staged{Name: "b", Place: "/c"}), `two files would become "/c"`},
		{out(Staged{Name: "a/c"}, Staged{Name: "b/c"}), `two files would become "c"`},
		{out(Staged{Name: "a/c"}, Staged{Name: "b/c", Place: "b/c"}), ""},
		{out(Staged{Name: "a", Place: "b\r"}), "control character"},
	} {
		test.r.Name, test.r.Script = "n", []byte("x")
		err := test.r.Check()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("Check of %+v = %v; want %q", test.r, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is more than a line", err)
		}
	}
}

func TestPlainPlace(t *testing.T) {
	for place, want := range map[string]string{
		"/a": "/a", "a://b": "", "file:///a b": "/a b", "file://h/a": "", "1 a://b": "1 a://b", "://": "://", "FILE:///a": "/a",
	} {
		if got, ok := PlainPlace(place); got != want || ok != (want != "") {
			t.Errorf("PlainPlace(%q) = %q, %t; want %q", place, got, ok, want)
		}
	}
}
