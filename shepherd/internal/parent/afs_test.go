package parent

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/starter"
)

// afs gives the rig a token and the two programs.
func (r *rig) afs(setToken, coshepherd string) *rig {
	r.t.Helper()
	if err := os.WriteFile(r.dir.Path(starter.TokenFile), []byte("secret"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return r.set("use_afs=1", "token_extend_time=3600",
		"set_token_cmd="+r.script("settoken", setToken), "coshepherd="+r.script("coshepherd", coshepherd))
}

// TestAFS runs a job as another user with a token, which is set and renewed by
// root's programs. All have the session keyring in which a token is kept, and which
// is that of no other run.
func TestAFS(t *testing.T) {
	t.Parallel()
	needRoot(t, "becomes another user")
	ring := fmt.Sprintf("perl -e 'print syscall(%d, 0, -3, 0)'", unix.SYS_KEYCTL) // its number
	same := "test $(" + ring + `) = "$(cat ring)" || echo another keyring >>log; `
	r := newRig(t, "until grep -q renewing log; do sleep 0.4; done; "+same+"echo job >>log").set(other...).set("job_owner=o'wner")
	r.env = append(r.env, "LD_PRELOAD=/no/such/library")
	r.afs(`echo "$(cat) $(id -u) $PATH [$LD_PRELOAD]" >>`+r.base+"/out/log; chmod 666 "+r.base+"/out/log; "+ring+" >"+r.base+"/out/ring",
		"trap 'echo over >>"+r.base+"/out/log; exit' TERM; echo renewing >>"+r.base+"/out/log; while :; do sleep 0.4; done")
	r.set("epilog=" + r.script("epilog", same))
	r.ended(r.run(), 0, 0)
	if mine, _ := unix.KeyctlInt(unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_SESSION_KEYRING, 0, 0, 0); fmt.Sprint(mine) == r.output("ring") {
		t.Errorf("the run has the keyring of its execd, %d", mine)
	}
	want := strings.Join([]string{
		"settoken o'wner 3600", "secret 0 /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin []",
		"coshepherd " + r.base + "/bin/settoken o'wner 3600", "renewing", "job", "epilog", "over",
	}, "; ")
	if got := r.log(); got != want {
		t.Errorf("log %q; want %q", got, want)
	}
	r.noneLeft()
}

// TestAFSDeaf kills a coshepherd that does not heed TERM, with what it started.
func TestAFSDeaf(t *testing.T) {
	t.Parallel()
	needRoot(t, "finds processes by the environment of root's")
	r := newRig(t, "until grep -q deaf log; do sleep 0.4; done")
	r.afs("", "trap '' TERM; sleep 1000 & echo deaf >>"+r.base+"/out/log; wait")
	r.ended(r.run(), 0, 0)
	r.noneLeft()
}

// TestAFSIncomplete runs nothing without all that is needed.
func TestAFSIncomplete(t *testing.T) {
	for _, c := range []struct{ drop, want string }{
		{"coshepherd", "AFS with incomplete specification requested"},
		{"set_token_cmd", "AFS with incomplete specification requested"},
		{"token_extend_time", "AFS with incomplete specification requested"},
		{starter.TokenFile, "can't read AFS token"},
	} {
		t.Run(c.drop, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "echo job >>log").afs("", "").set("epilog=/bin/false")
			_ = os.Remove(r.dir.Path(c.drop))
			for line := range strings.Lines(string(r.config.Append(nil))) {
				if !strings.HasPrefix(line, c.drop+"=") {
					r.raw = append(r.raw, line...)
				}
			}
			r.ended(r.run(), 29, -1)
			if got := r.errors(); got != c.want {
				t.Errorf("error %q; want %q", got, c.want)
			}
			if got := r.log(); got != "" {
				t.Errorf("log %q; want nothing run", got)
			}
		})
	}
}

// TestAFSTokenLate ends a set_token_cmd that hangs.
func TestAFSTokenLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, "echo job >>log").afs("exec sleep 1000", "").set("script_timeout=1")
	r.ended(r.run(), 29, -1)
	if got := r.errors(); !strings.Contains(got, "script_timeout") {
		t.Errorf("error %q; want script_timeout in it", got)
	}
}

// noneLeft waits until nothing of the run is left, what was killed included.
func (r *rig) noneLeft() {
	r.t.Helper()
	for _, pid := range r.marked() {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000); n != 1 {
			r.t.Errorf("process %d is left (%v)", pid, err)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		unix.Close(fd)
	}
}
