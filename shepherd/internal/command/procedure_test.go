package command

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
)

func TestParseProcedure(t *testing.T) {
	for _, test := range []struct {
		text string
		want Procedure
		err  string
	}{
		{"/x", Procedure{Argv: []string{"/x"}}, ""},
		{" \t/x  a\tb ", Procedure{Argv: []string{"/x", "a", "b"}}, ""},
		{"root@/x a@b", Procedure{User: "root", Argv: []string{"/x", "a@b"}}, ""},
		{"root@/x@y", Procedure{User: "root", Argv: []string{"/x@y"}}, ""},
		{"/x@y", Procedure{Argv: []string{"/x@y"}}, ""},
		{"/x 'a b' \"c\" \\ d", Procedure{Argv: []string{"/x", "'a", "b'", `"c"`, `\`, "d"}}, ""},
		{"root@$sge_root/x $job_id", Procedure{User: "root", Argv: []string{"$sge_root/x", "$job_id"}}, ""},
		{"x\u00a0y", Procedure{Argv: []string{"x\u00a0y"}}, ""},
		{"", Procedure{}, "it has no command"},
		{" \t ", Procedure{}, "it has no command"},
		{"@/x", Procedure{}, "it has no user before the @"},
		{"root@", Procedure{}, `it has no command behind "root@"`},
		{"root@ /x", Procedure{}, `it has no command behind "root@"`},
		{"$job_owner@/x", Procedure{}, `it has a variable in the name of its user, "$job_owner"`},
		{"a$host@/x", Procedure{}, `it has a variable in the name of its user, "a$host"`},
	} {
		got, err := ParseProcedure(test.text)
		if diff := cmp.Diff(test.want, got); diff != "" || text(err) != test.err {
			t.Errorf("ParseProcedure(%q): %v; want %s (-want +got):\n%s", test.text, err, test.err, diff)
		}
	}
}

func TestReadProcedure(t *testing.T) {
	with := func(lines ...string) []string { return append(slices.Clone(job), lines...) }
	for _, test := range []struct {
		name  string
		key   string
		scope Scope
		lines []string
		want  []string // user, words
		err   string
	}{
		{"none", "prolog", ForProcedure, with("prolog=none"), nil, ""},
		{"NONE", "prolog", ForProcedure, with("prolog=NONE"), nil, ""},
		{"empty", "epilog", ForProcedure, with("epilog="), nil, ""},
		{"blank", "epilog", ForProcedure, with("epilog= \t"), nil, ""},
		{"plain", "prolog", ForProcedure, with("prolog=/x.sh $job_id $queue"), []string{"", "/x.sh", "42", "all.q"}, ""},
		{"root", "epilog", ForProcedure, with("epilog=root@/x.sh -j$job_id"), []string{"root", "/x.sh", "-j42"}, ""},
		{"root of sge", "prolog", ForProcedure, with("prolog=sge@$sge_root/$sge_cell/p"), []string{"sge", "/opt/sge/default/p"}, ""},
		{"empty word", "prolog", ForProcedure, with("prolog=/x $processors $job_id"), []string{"", "/x", "", "42"}, ""},
		{"blank in a value", "prolog", ForProcedure, with("prolog=/x $stderr_path $host"), []string{"", "/x", "/home/alice/my err", "node7"}, ""},
		{"pe", "pe_start", ForPE, with("pe_start=/x $pe_hostfile $pe_slots $pe"), []string{"", "/x", "/spool/pe_hostfile", "4", "smp"}, ""},
		{"no pe", "pe_start", ForPE, []string{"pe=none", "job_arg1=x", "pe_start=root@/home/eve/x"}, nil, ""},
		{"no pe, not even the key", "pe_stop", ForPE, []string{"pe_stop=root@/home/eve/x"}, nil, ""},
		{"pe without stop", "pe_stop", ForPE, []string{"pe=smp"}, nil, `can't get configuration value for "pe_stop"`},
		{"missing", "prolog", ForProcedure, job, nil, `can't get configuration value for "prolog"`},
		{"not absolute", "prolog", ForProcedure, with("prolog=root@bin/x y"), nil, `prolog "bin/x" is not an absolute path`},
		{"not absolute, by variable", "epilog", ForProcedure, with("epilog=$job_name/x"), nil, `epilog "pack/x" is not an absolute path`},
		{"nothing, by variable", "epilog", ForProcedure, with("epilog=$processors /x"), nil, `epilog "" is not an absolute path`},
		{"scope", "prolog", ForProcedure, with("prolog=/x $pe_hostfile"), nil, `cannot use prolog "/x $pe_hostfile": unknown variable "pe_hostfile"`},
		{"dollar", "prolog", ForProcedure, with("prolog=/x $ y"), nil, `cannot use prolog "/x $ y": a "$" without the name of a variable behind it, but ""`},
		{"user", "prolog", ForProcedure, with("prolog=$job_owner@/x"), nil, `cannot use prolog "$job_owner@/x": it has a variable in the name of its user, "$job_owner"`},
		{"variable missing", "prolog", ForProcedure, []string{"prolog=/x $queue"}, nil, `cannot use prolog "/x $queue": can't get configuration value for "queue"`},
	} {
		p, ok, err := ReadProcedure(test.key, test.scope, config(t, test.lines...))
		var got []string
		if ok {
			got = append([]string{p.User}, p.Argv...)
		}
		if diff := cmp.Diff(test.want, got); diff != "" || text(err) != test.err {
			t.Errorf("%s: %v; want %s (-want +got):\n%s", test.name, err, test.err, diff)
		}
		if !ok && (p.User != "" || p.Argv != nil) {
			t.Errorf("%s: %+v without ok", test.name, p)
		}
	}
	_, _, err := ReadProcedure("prolog", ForProcedure, config(t))
	if _, ok := errors.AsType[*spool.MissingError](err); !ok {
		t.Errorf("ReadProcedure = %v; want a *spool.MissingError", err)
	}
}

// TestReadProcedureValues sees that no value adds words, users or variables.
func TestReadProcedureValues(t *testing.T) {
	for _, value := range append(nasty, "root@/bin/sh", "$job_id", "a\tb c") {
		c := config(t, "prolog=/x $job_name a$job_name", "job_name="+value, "job_id=1")
		p, _, err := ReadProcedure("prolog", ForProcedure, c)
		if diff := cmp.Diff(Procedure{Argv: []string{"/x", value, "a" + value}}, p); diff != "" || err != nil {
			t.Errorf("with %q: %v (-want +got):\n%s", value, err, diff)
		}
	}
	c := config(t, "prolog=$job_name/x", "job_name=root@/bin")
	if p, ok, err := ReadProcedure("prolog", ForProcedure, c); ok || err == nil {
		t.Errorf("a value named the user: %+v", p)
	}
}

func TestReadProcedureLimit(t *testing.T) {
	c := config(t, "prolog=/x"+strings.Repeat(" $job_name", 11), "job_name="+strings.Repeat("n", 1000))
	if p, ok, err := ReadProcedure("prolog", ForProcedure, c); ok || err == nil || !strings.Contains(err.Error(), "longer than 10000 bytes") {
		t.Errorf("ReadProcedure = %d words, %v; want an error", len(p.Argv), err)
	}
}
