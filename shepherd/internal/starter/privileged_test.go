package starter

import (
	"os"
	"slices"
	"strings"
	"testing"

	"paddock/shepherd/internal/owner"
)

// hostile is an environment as a user may submit it, with what execd writes.
func hostile(base string) []string {
	return []string{
		"LD_PRELOAD=" + base + "/evil.so", "LD_LIBRARY_PATH=" + base, "LD_AUDIT=x", "IFS=/", "BASH_ENV=" + base + "/evil", "ENV=" + base + "/evil",
		"PYTHONPATH=" + base, "PYTHONSTARTUP=x", "PERL5LIB=" + base, "PERL5OPT=-Mevil", "NODE_OPTIONS=x", "RUBYOPT=x", "BASH_FUNC_echo%%=() { :\n}",
		"SHELLOPTS=xtrace", "PS4=$(id)", "GCONV_PATH=" + base, "TZ=:/etc/shadow", "TERM=x", "TERMINFO=" + base, "LANG=../../x", "LC_ALL=C", "EDITOR=x", "PAGER=x",
		"MINE=yes", "SGE_QMASTER_PORT=1", "SGE_EXECD_PORT=1", "SGE_RSH_COMMAND=x", "HOST=x", "PWD=" + base, "OLDPWD=" + base, "DISPLAY=x", "PE=faked",
		"PE_HOSTFILE=/etc/shadow", "SGE_CKPT_DIR=/etc", "SGE_CKPT_ENV=x", "SGE_JOBEXIT_STAT=0", "SGE_JOB_NEW=x", "SGE_BINDING=0", "JOB_ID_X=1",
		"SGE_TASK_LAST=1\nid", "RESTARTED=\x1b[2J",
		"PATH=" + base + ":/usr/bin:/bin", "HOME=" + base, "SHELL=" + base + "/evil", "USER=owner", "LOGNAME=owner", "TMPDIR=" + base, "TMP=" + base,
		"JOB_ID=1", "JOB_NAME=a b", "QUEUE=all.q", "SGE_ROOT=/opt/sge", "SGE_TASK_ID=undefined", "ENVIRONMENT=BATCH", "SGE_O_WORKDIR=/w",
	}
}

// TestFromNothing sees what of a hostile environment reaches procedures that
// have rights the owner lacks: nothing that he could choose.
func TestFromNothing(t *testing.T) {
	for _, c := range []struct {
		name, user string
		set        []string
		want       []string
	}{
		{"another user", "site", nil, []string{"HOME=/home/site", "SHELL=/bin/ksh", "USER=owner", "LOGNAME=owner"}},
		{"root", "root", nil, []string{"HOME=/root", "SHELL=/bin/bash", "USER=owner", "LOGNAME=owner"}},
		{"the same uid in another group", "wheel", nil, []string{"HOME=/home/owner", "SHELL=/bin/sh", "USER=owner", "LOGNAME=owner"}},
		{
			"root's own job", "",
			[]string{"paddock_uid=0", "paddock_gid=0", "paddock_groups=0", "paddock_home=/root", "job_owner=root"},
			[]string{"HOME=/root", "SHELL=/bin/bash", "USER=root", "LOGNAME=root"},
		},
		{
			"a parallel job", "root",
			[]string{"pe=mpi", "pe_hostfile=/spool/pe_hostfile", "ckpt_job=1"},
			[]string{"HOME=/root", "SHELL=/bin/bash", "USER=owner", "LOGNAME=owner", "PE=mpi", "PE_HOSTFILE=/spool/pe_hostfile", "SGE_CKPT_DIR=/c", "SGE_CKPT_ENV=x"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t).set(c.set...)
			r.env = hostile(r.base)
			if c.name == "a parallel job" { // then execd writes these
				r.env = append(r.env, "PE=mpi", "PE_HOSTFILE=/spool/pe_hostfile", "SGE_CKPT_DIR=/c")
			}
			r.ran(Order{Kind: Epilog, Name: "epilog", User: c.user, Argv: []string{"/usr/bin/env"}, Env: []string{"SGE_JOBEXIT_STAT=7"}})
			want := append([]string{
				"PATH=" + safePath, "JOB_ID=1", "JOB_NAME=a b", "QUEUE=all.q", "SGE_ROOT=/opt/sge", "SGE_TASK_ID=undefined", "ENVIRONMENT=BATCH",
				"SGE_O_WORKDIR=/w", "SGE_STDIN_PATH=/dev/null", "SGE_STDOUT_PATH=" + r.base + "/out/o", "SGE_STDERR_PATH=" + r.base + "/out/e",
				"SGE_CWD_PATH=" + r.base + "/out", "SGE_JOBEXIT_STAT=7",
			}, c.want...)
			got := strings.Split(strings.TrimSuffix(r.read("out/o"), "\n"), "\n")
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("environment\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestOwnEnvironment sees that the owner's procedures have his environment.
func TestOwnEnvironment(t *testing.T) {
	r := newRig(t)
	r.env = append(r.env, "LANG=C", "TMPDIR=/tmp", "PYTHONPATH=/x")
	for _, user := range []string{"", "owner"} {
		r.ran(Order{Kind: Prolog, Name: "prolog", User: user, Argv: []string{"/usr/bin/env"}})
		r.lines(r.read("out/o"), "LANG=C", "TMPDIR=/tmp", "PYTHONPATH=/x", "MINE=yes", "PATH=/usr/bin:/bin")
		if err := os.Remove(r.base + "/out/o"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRootsJob purges the environment of root's jobs and of root's group's.
func TestRootsJob(t *testing.T) {
	for _, ids := range [][]string{{"paddock_uid=0", "paddock_gid=0"}, {"paddock_gid=0"}} {
		r := newRig(t).set("paddock_groups=0").set(ids...).set("script_file=/usr/bin/env")
		r.env = []string{
			"LD_PRELOAD=", "BASH_FUNC_x%%=() { :; }", "OLD=() { :; }", "IFS=x", "ENV=x", "ENVIRON=x", "LANG=de_DE.UTF-8", "LC_ALL=../x",
			"ENVIRONMENT=BATCH", "TMPDIR=/tmp/1", "MINE=yes",
		}
		r.ran(Order{Name: "job", State: 11})
		got := strings.Split(strings.TrimSuffix(r.read("out/o"), "\n"), "\n")
		want := []string{
			"LANG=de_DE.UTF-8", "ENVIRONMENT=BATCH", "TMPDIR=/tmp/1", "MINE=yes", "SGE_STDIN_PATH=/dev/null",
			"SGE_STDOUT_PATH=" + r.base + "/out/o", "SGE_STDERR_PATH=" + r.base + "/out/e", "SGE_CWD_PATH=" + r.base + "/out",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: environment %q; want %q", ids, got, want)
		}
	}
}

func TestHarmless(t *testing.T) {
	for v, want := range map[string]bool{
		"A=1": true, "PATH=/x": true, "LD_X=1": false, "LDFLAGS=x": true, "_RLD_LIST=x": false, "IFS=": false, "IFSX=": false,
		"TMPDIR=/t": true, "TMPDIRX=": false, "ENVIRONMENT=BATCH": true, "ENVX=": false, "BASH_ENV=": false, "BASH_FUNC_a()=() { x": false,
		"F=() { :;}": false, "F=()": true, "LANG=C": true, "LANG=de_DE@euro": true, "LANGUAGE=de:en": false, "LC_ALL=a/b": false, "LC_9=x": true,
		"LANG=\xc3": false, "TERM=vt100": true, "TERMCAP=x": false, "JAVA_TOOL_OPTIONS=x": false, "KRB5CCNAME=x": true, "KRB5_CONFIG=x": false,
	} {
		if got := harmless(v); got != want {
			t.Errorf("harmless(%q) = %v; want %v", v, got, want)
		}
	}
}

// TestWritten holds the table to what it promises: nothing in it is on the list
// of what is harmful, and nothing is what a program looks at by itself.
func TestWritten(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range written {
		if seen[w.name] || w.name != "ENVIRONMENT" && hasPrefix(w.name, harmful) || hasPrefix(w.name, language) {
			t.Errorf("%s must not be in the table, or not twice", w.name)
		}
		seen[w.name] = true
	}
	for _, name := range []string{"TMPDIR", "TMP", "HOME", "SHELL", "PATH", "TZ", "USER", "PWD", "HOST", "TERM"} {
		if seen[name] {
			t.Errorf("%s must not be in the table", name)
		}
	}
}

func TestPrivileged(t *testing.T) {
	own := IDs{UID: 1, GID: 2, Groups: []int{2, 3}}
	for _, c := range []struct {
		kind   Kind
		target IDs
		want   bool
	}{
		{Prolog, IDs{UID: 1, GID: 2, Groups: []int{2, 3}}, false},
		{Prolog, IDs{UID: 1, GID: 3, Groups: []int{3}}, false},
		{Prolog, IDs{UID: 1, GID: 2, Groups: []int{2, 4}}, true},
		{Prolog, IDs{UID: 1, GID: 0, Groups: []int{2}}, true},
		{Epilog, IDs{UID: 9, GID: 2, Groups: []int{2}}, true},
		{Epilog, IDs{UID: 0, GID: 2, Groups: []int{2}}, true},
		{Job, IDs{UID: 0, GID: 0, Groups: []int{0}}, false}, // purged instead
	} {
		s := starter{order: Order{Kind: c.kind}, owner: own, target: &c.target, places: owner.Places{}}
		if got := s.privileged(); got != c.want {
			t.Errorf("privileged(%d, %+v) = %v; want %v", c.kind, c.target, got, c.want)
		}
	}
}
