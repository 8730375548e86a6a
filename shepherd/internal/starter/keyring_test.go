package starter

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keyProbe is a script that prints the number of its session keyring, and whether
// it finds from it what execd has: a key of its session and one of root's.
var keyProbe = fmt.Sprintf(`perl -e '
my ($type, $mine, $roots) = ("user", "paddock-session", "paddock-root");
printf "%%d %%d %%d\n", syscall(%[1]d, 0, -3, 0), map { syscall(%[1]d, 10, -3, $type, $_, 0) > 0 } $mine, $roots'
`, unix.SYS_KEYCTL)

// secrets has this thread join a session as a login makes it: a keyring with a key,
// and with root's own, which has another.
func secrets() error {
	// The name NULL, which package unix cannot give.
	if err := raw(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); err != nil {
		return err
	}
	// Whose link is all that a session has of a user's keyring.
	_, err1 := unix.KeyctlInt(unix.KEYCTL_LINK, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_SESSION_KEYRING, 0, 0)
	_, err2 := unix.AddKey("user", "paddock-session", []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING)
	_, err3 := unix.AddKey("user", "paddock-root", []byte("secret"), unix.KEY_SPEC_USER_KEYRING)
	return firstOf(err1, err2, err3)
}

// TestKeyrings has everything around a job find nothing from its session that is
// another's, and leave nothing there.
func TestKeyrings(t *testing.T) {
	r := newRig(t)
	r.before = secrets
	r.set("script_file=" + r.script(keyProbe))
	orders := map[string]Order{
		"job":             {Name: "job"},
		"prolog":          {Kind: Prolog, Argv: []string{r.base + "/procedure"}},
		"root's epilog":   {Kind: Epilog, User: "root", Argv: []string{r.base + "/procedure"}},
		"pe_start":        {Kind: PEStart, Argv: []string{r.base + "/procedure"}},
		"method":          {Kind: Method, Argv: []string{r.base + "/procedure >>" + r.base + "/out/o"}},
		"what renews AFS": {Kind: Coshepherd, Argv: []string{"/bin/sh", "-c", r.base + "/procedure >>" + r.base + "/out/o"}},
	}
	r.set("pe_stdout_path="+r.base+"/out/o", "pe_stderr_path="+r.base+"/out/e")
	seen := map[string]string{}
	for name, o := range orders {
		r.empty("out/o")
		r.ran(o)
		got := strings.Fields(r.read("out/o"))
		if len(got) != 3 || got[0] == "-1" || got[1] != "0" || got[2] != "0" {
			t.Errorf("%s: session keyring, finds execd's, finds root's: %q", name, got)
			continue
		}
		if other := seen[got[0]]; other != "" {
			t.Errorf("%s has the session keyring of %s", name, other)
		}
		seen[got[0]] = name
	}
	// What comes with an AFS token has that of the shepherd, in which the token is.
	r.set("use_afs=1")
	r.empty("out/o")
	r.ran(orders["job"])
	if got := strings.Fields(r.read("out/o")); len(got) != 3 || got[1] != "1" {
		t.Errorf("with an AFS token: %q; want the shepherd's keyring", got)
	}
}

// TestNoKeyrings runs jobs where a sandbox keeps the keyrings of the kernel from
// all of us, and says so.
func TestNoKeyrings(t *testing.T) {
	r := newRig(t)
	r.set("script_file=" + r.script("echo ran\n"))
	for errno, text := range map[unix.Errno]string{unix.EPERM: "Operation not permitted", unix.ENOSYS: "Function not implemented"} {
		r.before = func() error { return forbidKeyctl(errno) }
		r.empty("out/o")
		e := r.ran(Order{Name: "job"})
		if got := r.read("out/o"); got != "ran\n" || !strings.Contains(e.trace, "no session keyring of its own: "+text) {
			t.Errorf("%v: the job printed %q\n%s", errno, got, e.trace)
		}
	}
}

// forbidKeyctl has keyctl fail for this thread and what it starts.
func forbidKeyctl(errno unix.Errno) error {
	const number = 0 // of a system call, in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_KEYCTL, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	runtime.KeepAlive(filter)
	return err
}

// TestKeysAreScarce waits for a kernel that is short of keys, which nobody is to
// blame for.
func TestKeysAreScarce(t *testing.T) {
	for _, scarce := range []unix.Errno{unix.EDQUOT, unix.ENOMEM} {
		calls := 0
		note, err := ownKeyring(time.Hour, func() error {
			if calls++; calls < 3 {
				return scarce
			}
			return nil
		})
		if note != "" || err != nil || calls != 3 {
			t.Errorf("%v twice: %q, %v after %d calls", scarce, note, err, calls)
		}
		note, err = ownKeyring(0, func() error { return scarce })
		if note != "" || err == nil || !strings.Contains(err.Error(), errnoText(scarce)) {
			t.Errorf("%v for good: %q, %v", scarce, note, err)
		}
	}
	s := &starter{}
	for kind, want := range map[Kind]int{Job: 25, Prolog: 25, PEStart: 25, PEStop: 14, Epilog: 14, Method: 14} {
		s.order = Order{Kind: kind, State: 14}
		if f := s.noKeys(errors.New("no")); f.Number != want {
			t.Errorf("kind %d fails with %d; want %d", kind, f.Number, want)
		}
	}
}

// TestInheritable has a job start without the capabilities that a program's file
// could wake.
func TestInheritable(t *testing.T) {
	r := newRig(t)
	r.before = func() error {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		if err := unix.Capget(&head, &sets[0]); err != nil {
			return err
		}
		sets[0].Inheritable = 1 << unix.CAP_NET_RAW
		return unix.Capset(&head, &sets[0])
	}
	r.set("script_file=" + r.script("sed -n 's,^Cap[IPEA][nrfm][hmfb]:.,,p' /proc/self/status\n"))
	r.ran(Order{Name: "job"})
	if got := r.read("out/o"); got != strings.Repeat("0000000000000000\n", 4) {
		t.Errorf("the job's capabilities, inheritable, permitted, effective, ambient: %q", got)
	}
}
