package starter

import (
	"slices"
	"strings"

	"paddock/shepherd/internal/command"
	"paddock/spool"
)

// privileged reports whether the starter becomes something that has a right the
// job's owner lacks: another user, root, or one who is in a group the owner is
// not in. Such a program must not start from an environment the owner can
// shape (CVE-2012-0208 was LD_LIBRARY_PATH in root's prolog). As for the owner
// himself, his environment can do to his procedures only what he could do
// without them.
func (s *starter) privileged() bool {
	t, o := s.target, &s.owner
	if !s.order.Kind.procedure() {
		return false
	}
	if t.UID != o.UID || t.UID == 0 || t.GID == 0 {
		return true
	}
	return slices.ContainsFunc(t.Groups, func(g int) bool { return !slices.Contains(o.Groups, g) })
}

// safePath is the PATH of privileged procedures: what the administrator installs
// programs in. The job's begins with its TMPDIR.
const safePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// written is what a privileged procedure gets from the file environment. The
// rule is that execd itself writes the variable last, in every job, so that
// -v and -V cannot give it another value; one that execd writes in some jobs
// only must be backed by a key of config, because in all others its value is
// the user's. And nothing but the script itself may make use of it: a name that
// a library, a shell or a tool looks at by itself is not here.
//
// So these are not:
//
//   - TMPDIR and TMP, although execd writes them: mktemp, sort, compilers and
//     here-documents create files there without being asked, and the directory
//     is the owner's, who can put links in their way. (Grid Engine takes away
//     TMPDIR and forgets TMP, which Python uses as well.)
//   - HOME, SHELL and PATH of the owner: programs read what they find in HOME
//     and execute it (Python's usercustomize), or start SHELL, which is what the
//     user gave with -S. HOME and SHELL are those of whom the procedure runs as.
//     USER and LOGNAME stay the owner's, as in Grid Engine, to tell for whom the
//     procedure works; they are taken from config.
//   - TZ, TERM, LANG and LC_*: names of files for the C library.
//   - SGE_QMASTER_PORT, SGE_EXECD_PORT, DISPLAY, QRSH_*, SGE_RSH_COMMAND, HOST:
//     execd writes them sometimes or never.
//
// SGE_ROOT, SGE_CELL, SGE_ARCH, ARC and SGE_BINARY_PATH are what scripts find
// settings and commands by and then run: every execd since 6.0 writes them last
// and in every job, and so does ours.
var written = []struct {
	name string
	only string // key of config without which execd does not write it
}{
	{"JOB_ID", ""},
	{"JOB_NAME", ""}, // the user's choice, as such known to whoever reads it
	{"JOB_SCRIPT", ""},
	{"REQUEST", ""},
	{"REQNAME", ""},
	{"QUEUE", ""},
	{"HOSTNAME", ""},
	{"ENVIRONMENT", ""},
	{"RESTARTED", ""},
	{"NSLOTS", ""},
	{"NHOSTS", ""},
	{"NQUEUES", ""},
	{"PE", spool.KeyPE},
	{"PE_HOSTFILE", spool.KeyPEHostfile},
	{"ARC", ""},
	{"SGE_ARCH", ""},
	{"SGE_ROOT", ""},
	{"SGE_CELL", ""},
	{"SGE_BINARY_PATH", ""},
	{"SGE_ACCOUNT", ""},
	{"SGE_JOB_SPOOL_DIR", ""},
	{"SGE_TASK_ID", ""},
	{"SGE_TASK_FIRST", ""},
	{"SGE_TASK_LAST", ""},
	{"SGE_TASK_STEPSIZE", ""},
	{"SGE_CKPT_ENV", spool.KeyCkptJob},
	{"SGE_CKPT_DIR", spool.KeyCkptJob},
	// Where the job came from: the O says that these are the submitter's.
	{"SGE_O_HOST", ""},
	{"SGE_O_LOGNAME", ""},
	{"SGE_O_HOME", ""},
	{"SGE_O_WORKDIR", ""},
}

// fromNothing returns the environment of a privileged procedure.
func (s *starter) fromNothing() environment {
	e := newEnvironment()
	given := newEnvironment(s.given)
	e.set("PATH", safePath)
	setPlain(&e, "HOME", s.target.Home, "/")
	setPlain(&e, "SHELL", s.shell, "/bin/sh")
	setPlain(&e, "USER", s.owner.Name, "")
	setPlain(&e, "LOGNAME", s.owner.Name, "")
	for _, w := range written {
		if w.only != "" {
			if v, _ := s.config.Lookup(w.only); command.IsNone(v) || v == "0" {
				continue
			}
		}
		if v, ok := given.lookup(w.name); ok {
			setPlain(&e, w.name, v, "")
		}
	}
	return e
}

// setPlain sets a variable unless its value, or what stands for an empty one,
// has a control character: a newline makes two lines of one where a script
// writes or reads lists, and none of these values has a use for one.
func setPlain(e *environment, name, value, empty string) {
	if value == "" {
		value = empty
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] == 0x7f {
			return
		}
	}
	e.set(name, value)
}

// harmful are the beginnings of names that change what a program does before
// its first line, or where it looks for its parts. They are taken from what
// root owns or what runs in root's group: Grid Engine's list, with exported
// shell functions, which it lacks.
var harmful = []string{
	"LD_", "_RLD_", "GCONV_PATH", "GETCONF_DIR", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "MALLOC_TRACE", "NIS_PATH",
	"NLSPATH", "RESOLV_HOST_CONF", "RES_OPTIONS", "TMPDIR", "TZDIR", "IFS", "SHELLOPTS", "PS4", "PATH_LOCALE",
	"TERMINFO", "TERMPATH", "TERMCAP", "ENV", "BASH_ENV", "KRB5_CONFIG", "KRB5_KTNAME", "JAVA_TOOL_OPTIONS",
	"BASH_FUNC_",
}

// language are the beginnings of names whose values may be names of files.
var language = []string{"LANG", "LINGUAS", "LC_"}

// unharmed is what execd writes itself, though its name is on the list: one for
// nothing but its first letters, the other a directory made for this job, whose
// owner is root.
var unharmed = []string{"ENVIRONMENT", "TMPDIR"}

// harmless reports whether a variable may stay in the environment of root's
// own jobs.
func harmless(v string) bool {
	name, value, _ := strings.Cut(v, "=")
	switch {
	case slices.Contains(unharmed, name):
		return true
	case strings.HasPrefix(value, "() {"): // a function for a shell before 2014
		return false
	case hasPrefix(name, language):
		return localeLike(v)
	}
	return !hasPrefix(name, harmful)
}

func hasPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// localeLike reports whether an assignment is of letters, digits and what else
// the names of locales have: no slash.
func localeLike(v string) bool {
	for i := range len(v) {
		c := v[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || (c < '0' || c > '9') && !strings.ContainsRune("-_,+@.=", rune(c))) {
			return false
		}
	}
	return true
}
