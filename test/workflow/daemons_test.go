package workflow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/test/harness"
)

// site is an execd whose interactive jobs are connected by Debian's sshd and ssh,
// and the directory of the user's where its files are.
type site struct {
	*harness.Daemon
	dir string
}

// newSite makes the keys of a host and of the user, and configurations of sshd and
// ssh that know nothing else. No sshd listens: each is started for one job.
func newSite(t *testing.T) *site {
	t.Helper()
	dir := workplace(t, nil)
	s := &site{dir: dir}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	as(t, 0, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir+"/host_key")
	as(t, user.UID, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", dir+"/user_key")
	// One that is locked may not log in. Others may just make a user.
	as(t, 0, "flock", harness.UsersLock, "usermod", "-p", "*", user.Name)
	if err := os.Mkdir("/run/sshd", 0o755); err == nil {
		t.Cleanup(func() { _ = os.Remove("/run/sshd") })
	} else if !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	files := map[string]string{
		"sshd_config": "HostKey " + dir + "/host_key\nAuthorizedKeysFile " + dir + "/user_key.pub\nStrictModes no\n" +
			"PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nPidFile none\nAcceptEnv LANG\n",
		// The host is known by its name alone, whatever the port.
		"known_hosts": host + " " + read(t, dir+"/host_key.pub"),
		"ssh_config": "UserKnownHostsFile " + dir + "/known_hosts\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n" +
			"IdentityFile " + dir + "/user_key\nIdentitiesOnly yes\nIdentityAgent none\nBatchMode yes\nLogLevel ERROR\n",
		"other_config": "UserKnownHostsFile " + dir + "/known_hosts\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n" +
			"IdentityFile none\nIdentityAgent none\nBatchMode yes\n",
		"qlogin": "#!/bin/sh\nexec /usr/bin/ssh -F " + dir + "/ssh_config -tt -p \"$2\" \"$1\"\n",
	}
	for name, text := range files {
		if err := harness.WriteExecutable(filepath.Join(dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
	place := newPlace(t)
	etc := api.DevPlaces(place).Config
	sshd := "/usr/sbin/sshd -i -f " + dir + "/sshd_config"
	ssh := "/usr/bin/ssh -F " + dir + "/ssh_config"
	config := "qlogin_daemon " + sshd + "\nqlogin_command " + dir + "/qlogin\n" +
		"rlogin_daemon " + sshd + "\nrlogin_command " + ssh + " -tt\nrsh_daemon " + sshd + "\nrsh_command " + ssh + "\n"
	if err := os.WriteFile(filepath.Join(etc, "sge_conf"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	s.start(t, harness.Options{Bin: bin, Dir: place, Mode: "-root"})
	return s
}

// newPlace returns a new directory for an execd of a test's own. It has more slots than
// the test has jobs: qrsh and qsh are refused where the last one has its slot still.
func newPlace(t *testing.T) string {
	t.Helper()
	place, err := os.MkdirTemp(filepath.Dir(bin), strings.ToLower(t.Name())+"-") //nolint:usetesting // where the harness looks for what is left
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(place, 0o755); err != nil {
		t.Fatal(err)
	}
	queues := filepath.Join(api.DevPlaces(place).Config, "queues")
	if err := os.MkdirAll(queues, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(queues, "all.q"), []byte("qname all.q\nslots 20\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return place
}

// start starts the site's execd, which goes with the test.
func (s *site) start(t *testing.T, options harness.Options) {
	t.Helper()
	var err error
	if s.Daemon, err = harness.Start(options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// as runs a program as somebody.
func as(t *testing.T, uid int, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user.Credential()}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// outcome is what a command has come to.
type outcome struct {
	out, err string
	exit     int
}

// run runs a command line as the user.
func (s *site) run(t *testing.T, line string, env ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*harness.Patience) // mpirun, for one, starts slowly on a busy host
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir = s.dir
	cmd.Env = append([]string{
		"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + user.Home, "USER=" + user.Name, "LOGNAME=" + user.Name,
		"PADDOCK_DIR=" + s.Dir, "LANG=C.UTF-8", "TERM=xterm",
	}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user.Credential(), Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, diag strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() < 0 {
		t.Fatalf("%s: %v\n%s%s\nexecd:\n%s", line, err, &out, &diag, s.Log())
	}
	return outcome{out.String(), diag.String(), cmd.ProcessState.ExitCode()}
}

// last returns the last record of a job of this name. Qrsh may have ended before it is
// written, and that of another one that ran before may come after it.
func (s *site) last(t *testing.T, name string) (last accounting.Record) {
	t.Helper()
	if err := harness.WaitFor(harness.Patience, "the accounting of "+name, func() (bool, error) {
		for _, r := range records(t, s.Daemon) {
			if r.JobName == name {
				last = r
			}
		}
		return last.JobName == name, nil
	}); err != nil {
		t.Errorf("%v\nexecd:\n%s", err, s.Log())
	}
	return last
}

// want checks how a command and its job have ended.
func (s *site) want(t *testing.T, got outcome, name string, exit int) {
	t.Helper()
	r := s.last(t, name)
	failed := 0
	if exit == 143 {
		failed = 100 // died of a signal
	}
	if got.exit != exit || r.ExitStatus != exit || r.Failed != failed || r.JobName != name || r.Owner != user.Name {
		t.Errorf("exit status %d, accounted %d of %s for %s, failed %d; want %d, %s\n%s%s\nexecd:\n%s",
			got.exit, r.ExitStatus, r.JobName, r.Owner, r.Failed, exit, name, got.out, got.err, s.Log())
	}
}

// qrsh and qlogin go through sshd -i, which runs as root in the job.
func TestSSH(t *testing.T) {
	t.Parallel()
	s := newSite(t)

	got := s.run(t, `printf 'one\ntwo\n' | qrsh -cwd -v AWKWARD='x "y" $z' -verbose 'cat; pwd; echo "$JOB_ID $AWKWARD $(id -un)"; cat /proc/self/cgroup; echo diag >&2; exit 7'`)
	s.want(t, got, "cat", 7)
	for _, part := range []string{"one\ntwo\n" + s.dir + "\n1 x \"y\" $z " + user.Name + "\n", "paddock-"} {
		if !strings.Contains(got.out, part) {
			t.Errorf("it wrote %q; want %q", got.out, part)
		}
	}
	for _, part := range []string{"diag\n", "Establishing /usr/bin/ssh session to host ", "/usr/bin/ssh exited with exit code 7\n", "reading exit code from shepherd ... 7\n"} {
		if !strings.Contains(got.err, part) {
			t.Errorf("it said %q; want %q", got.err, part)
		}
	}
	s.want(t, s.run(t, `qrsh 'kill -TERM $$'`), "kill", 143)
	s.want(t, s.run(t, `head -c 3000000 /dev/urandom >noise; qrsh -N much cat <noise >back && cmp noise back`), "much", 0)
	if got = s.run(t, `echo lost | qrsh -nostdin cat`); got.out != "" {
		t.Errorf("without standard input it wrote %q", got.out)
	}

	got = s.run(t, `(echo 'tty; exit 9') | qlogin`)
	s.want(t, got, "QLOGIN", 9)
	if !strings.Contains(got.out, "/dev/pts/") {
		t.Errorf("the login shell wrote %q", got.out)
	}
	s.want(t, s.run(t, `echo 'exit 4' | qrsh`), "QRLOGIN", 4)

	// Whatever is left is killed with the job, be it as far away as it can get.
	got = s.run(t, `qrsh -N leaves 'setsid sleep 100000 </dev/null >/dev/null 2>&1 & echo $!'`)
	s.want(t, got, "leaves", 0)
	gone(t, strings.TrimSpace(got.out))

	// Deleted.
	got = s.run(t, `qrsh -N victim 'echo up; sleep 100000' >up & until grep -q up up; do sleep 0.4; done; qdel victim; wait $!`)
	if r := s.last(t, "victim"); got.exit != 137 || r.ExitStatus != 137 || !strings.Contains(got.err, "qrsh: job ") {
		t.Errorf("deleted: exit status %d, accounted %d\n%s", got.exit, r.ExitStatus, got.err)
	}

	// Who does not prove who he is runs nothing, and says so.
	config := filepath.Join(api.DevPlaces(s.Dir).Config, "sge_conf")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(read(t, config), "/ssh_config", "/other_config")), 0o644); err != nil {
		t.Fatal(err)
	}
	as(t, 0, "env", "PADDOCK_DIR="+s.Dir, bin+"/qconf", "-reload")
	got = s.run(t, `qrsh -N refused echo not here`)
	s.want(t, got, "refused", 255)
	if got.out != "" || !strings.Contains(got.err, "Permission denied") {
		t.Errorf("refused: it wrote %q, %q", got.out, got.err)
	}
}

// qsh opens xterm on the user's display. It does not wait for a slot, and so it has an
// execd where nobody else has one.
func TestWindow(t *testing.T) {
	t.Parallel()
	s := &site{dir: workplace(t, map[string]string{
		"shell": "#!/bin/sh\necho \"$DISPLAY $JOB_NAME $QUEUE ${WINDOWID:+window}\" >>seen\ntty >>seen\n",
	})}
	if err := os.Chmod(s.dir+"/shell", 0o755); err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(t.Context(), "Xvfb", "-displayfd", "1", "-screen", "0", "640x480x8", "-nolisten", "tcp", "-noreset")
	server.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + user.Home}
	server.SysProcAttr = &syscall.SysProcAttr{Credential: user.Credential()}
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	number, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Wait() })
	line, err := bufio.NewReader(number).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	display := ":" + strings.TrimSpace(line)

	s.start(t, harness.Options{Bin: bin, Dir: newPlace(t), Mode: "-root"})
	for i, command := range []string{"qsh -cwd -S " + s.dir + "/shell", "DISPLAY=:9999 qsh -display " + display + " -cwd -N window -S " + s.dir + "/shell -- -geometry 40x10"} {
		got := s.run(t, command, "DISPLAY="+display)
		name := []string{"INTERACTIVE", "window"}[i]
		var job int
		if _, err := fmt.Sscanf(got.out, "Your job %d (\""+name+"\") has been submitted", &job); err != nil || got.exit != 0 {
			t.Fatalf("exit status %d\n%s%s\nexecd:\n%s", got.exit, got.out, got.err, s.Log())
		}
		if want := fmt.Sprintf("Your interactive job %d has been successfully scheduled.\n", job); !strings.HasSuffix(got.err, want) {
			t.Errorf("it said %q; want %q", got.err, want)
		}
		if err := s.WaitJob(job); err != nil {
			t.Fatal(err)
		}
		if seen := read(t, s.dir+"/seen"); !strings.Contains(seen, display+" "+name+" all.q window\n/dev/pts/") {
			t.Errorf("the shell has seen %q", seen)
		}
		s.want(t, got, name, 0)
	}
	if got := s.run(t, "unset DISPLAY; qsh"); got.exit != 1 || got.err != "error: no DISPLAY variable found with interactive job\n" {
		t.Errorf("without a display: exit status %d, %q", got.exit, got.err)
	}
}
