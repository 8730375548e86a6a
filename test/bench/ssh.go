package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"paddock/test/harness"
)

// sshServer is an OpenSSH server of the bench's own: an ordinary process of the bench's user,
// with keys and a configuration of its own.
type sshServer struct {
	cmd    *exec.Cmd
	log    string
	client []string // the command that logs in there
}

// startSSH starts a server as Debian's package configures one, apart from where its files
// are, on a host; via is what enters that, if it is another.
func (b *bench) startSSH(host string, via ...string) (*sshServer, error) {
	dir := filepath.Join(b.base, "sshd-"+host)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chown(dir, b.user.UID, b.user.GID); err != nil {
		return nil, err
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, key := range []string{"host", "user"} {
		if out, err := b.asUser("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key)).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("cannot make a key: %w\n%s", err, out)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	hostKey, err := os.ReadFile(path("host.pub"))
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("ListenAddress %s\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nSubsystem sftp internal-sftp\n",
		net.JoinHostPort(host, port), path("host"), path("user.pub"))
	for name, text := range map[string]string{"config": config, "known": "[" + host + "]:" + port + " " + string(hostKey)} {
		if err := os.WriteFile(path(name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	// It wants to know where it is: it executes itself.
	sshd, err := exec.LookPath("sshd")
	if errors.Is(err, exec.ErrNotFound) {
		sshd, err = exec.LookPath("/usr/sbin/sshd")
	}
	if err != nil {
		return nil, err
	}
	s := &sshServer{log: path("log"), client: []string{
		"ssh", "-F", "/dev/null", "-p", port, "-i", path("user"), "-o", "UserKnownHostsFile=" + path("known"),
		"-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes", host,
	}}
	words := []string{sshd, "-D", "-f", path("config"), "-E", s.log}
	if s.cmd = b.ofUser(exec.Command(words[0], words[1:]...)); len(via) > 0 {
		words = slices.Concat(via, b.dropping(), words)
		s.cmd = exec.Command(words[0], words[1:]...)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	err = harness.WaitFor(harness.Patience, "sshd to listen", func() (bool, error) {
		return bytes.Contains(s.said(), []byte("Server listening on")), nil
	})
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// stop ends the server.
func (s *sshServer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// dropping is what has a command line behind it run as the bench's user.
func (b *bench) dropping() []string {
	return []string{"setpriv", fmt.Sprintf("--reuid=%d", b.user.UID), fmt.Sprintf("--regid=%d", b.user.GID), "--clear-groups", "--"}
}

// asUser returns a command that is run as the bench's user.
func (b *bench) asUser(args ...string) *exec.Cmd { return b.ofUser(limited(longest, args...)) }

// ofUser makes a command one of the bench's user.
func (b *bench) ofUser(cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + b.user.Home, "USER=" + b.user.Name, "LOGNAME=" + b.user.Name}
	cmd.Dir = b.user.Home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user.Credential()}
	return cmd
}

// sshTime runs qrsh beside ssh: a command that does nothing, and much data in
// both directions.
func (b *bench) sshTime() error {
	d, err := b.startOurs("ssh", 1)
	if err != nil {
		return err
	}
	defer d.Kill()
	server, err := b.startSSH("127.0.0.1")
	if err != nil {
		return err
	}
	defer server.stop()
	if err := b.sshTrue(d, server); err != nil {
		return fmt.Errorf("%w\n%s", err, server.said())
	}
	if err := b.sshData(d, server); err != nil {
		return fmt.Errorf("%w\n%s", err, server.said())
	}
	return d.Stop()
}

// said returns what the server has logged.
func (s *sshServer) said() []byte {
	text, _ := os.ReadFile(s.log)
	return text
}

func (b *bench) sshTrue(d *harness.Daemon, server *sshServer) error {
	var took [2][]time.Duration
	for n := range b.size(41, 3) {
		for i, cmd := range []*exec.Cmd{b.asUser(append(server.client, "true")...), b.ours(d, "qrsh", "true")} {
			begin := time.Now()
			out, err := cmd.CombinedOutput()
			elapsed := time.Since(begin)
			if err != nil {
				return fmt.Errorf("cannot run %s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
			}
			if n > 0 {
				took[i] = append(took[i], elapsed)
			}
		}
	}
	b.report(row{
		what: "qrsh true, beside OpenSSH's ssh true", unit: "ms",
		theirs: milliseconds(median(took[0])), ours: milliseconds(median(took[1])), limit: 0.08,
	})
	return nil
}

// tally counts and sums up what is written to it.
type tally struct {
	bytes int64
	sum   uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (t *tally) Write(b []byte) (int, error) {
	t.bytes += int64(len(b))
	t.sum = crc32.Update(t.sum, castagnoli, b)
	return len(b), nil
}

func (t tally) String() string { return fmt.Sprintf("%d bytes, sum %08x", t.bytes, t.sum) }

// tallyInput prints the tally of standard input: it is a job that takes data.
func tallyInput() error {
	var t tally
	if _, err := io.CopyBuffer(&t, struct{ io.Reader }{os.Stdin}, make([]byte, 1<<16)); err != nil {
		return err
	}
	fmt.Println(t)
	return nil
}

// sshData carries a gigabyte out of a job and one into it.
func (b *bench) sshData(d *harness.Daemon, server *sshServer) error {
	file, times, want, err := b.data()
	if err != nil {
		return err
	}
	self, err := b.self()
	if err != nil {
		return err
	}
	out := "cat" + strings.Repeat(" "+file, times)
	in := self + " -tally"
	var took [2][2][]time.Duration
	for n := range b.size(6, 2) {
		for i, start := range []func(line string) *exec.Cmd{
			func(line string) *exec.Cmd { return b.asUser(append(server.client, line)...) },
			func(line string) *exec.Cmd { return b.ours(d, "qrsh", line) },
		} {
			from, err := receive(start(out), want)
			if err != nil {
				return err
			}
			to, err := send(start(in), file, times, want)
			if err != nil {
				return err
			}
			if n > 0 {
				took[0][i], took[1][i] = append(took[0][i], from), append(took[1][i], to)
			}
		}
	}
	for i, what := range []string{"1 GB from a qrsh job, beside ssh", "1 GB into a qrsh job, beside ssh"} {
		b.report(row{what: what, unit: "s", theirs: median(took[i][0]).Seconds(), ours: median(took[i][1]).Seconds(), limit: 1})
	}
	return b.lost(d, file)
}

// self is a copy of this program where the user finds it: go run has it in a
// directory that is closed to others.
func (b *bench) self() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	path = filepath.Join(b.base, "bench")
	return path, harness.WriteExecutable(path, string(program))
}

// data makes a file, and says how often it is a gigabyte, and that one's tally.
func (b *bench) data() (file string, times int, want tally, err error) {
	part := make([]byte, b.size(1<<26, 1<<20))
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(part)
	file, times = filepath.Join(b.base, "data"), 16
	for range times {
		_, _ = want.Write(part)
	}
	return file, times, want, os.WriteFile(file, part, 0o644)
}

// receive runs a command and takes what it writes.
func receive(cmd *exec.Cmd, want tally) (time.Duration, error) {
	begin := time.Now()
	got, err := output(cmd)
	elapsed := time.Since(begin)
	if err == nil && got != want {
		err = fmt.Errorf("%v has delivered %v instead of %v", cmd.Args[0], got, want)
	}
	return elapsed, err
}

// output returns the tally of a command's standard output.
func output(cmd *exec.Cmd) (got tally, err error) {
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	r, w, err := os.Pipe()
	if err != nil {
		return got, err
	}
	defer r.Close()
	// When the command is killed, something that it has started may still hold it.
	if err := r.SetReadDeadline(time.Now().Add(longest + harness.Patience/2)); err != nil {
		return got, err
	}
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		return got, err
	}
	_, err = io.CopyBuffer(&got, struct{ io.Reader }{r}, make([]byte, 1<<16))
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return got, fmt.Errorf("cannot run %s: %w\n%s", cmd.Args[0], err, complaint.Bytes())
	}
	return got, nil
}

// send runs a command that prints the tally of what it is given: a file, so many
// times.
func send(cmd *exec.Cmd, file string, times int, want tally) (time.Duration, error) {
	source := exec.Command("cat", strings.Fields(strings.Repeat(file+" ", times))...)
	pipe, err := source.StdoutPipe()
	if err != nil {
		return 0, err
	}
	var answer bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pipe, &answer, &answer
	begin := time.Now()
	if err := source.Start(); err != nil {
		return 0, err
	}
	err = cmd.Start()
	pipe.Close() // or the source would wait for a reader that has ended
	if err == nil {
		err = cmd.Wait()
	}
	elapsed := time.Since(begin)
	if err := errors.Join(err, source.Wait()); err != nil {
		return 0, fmt.Errorf("cannot run %s: %w\n%s", cmd.Args[0], err, answer.Bytes())
	}
	if got := strings.TrimSpace(answer.String()); got != want.String() {
		return 0, fmt.Errorf("%v was given %v and has taken %v", cmd.Args[0], want, got)
	}
	return elapsed, nil
}

// lost reports how much of 200 MB does not arrive.
func (b *bench) lost(d *harness.Daemon, file string) error {
	const whole = 200 << 20
	line := fmt.Sprintf("cat %s %s %s %s | head -c %d", file, file, file, file, min(whole, b.size(whole, 1<<20)))
	theirs, err := output(b.theirs(longest, "qrsh '"+line+"'"))
	if err != nil { // what has arrived counts
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
	}
	ours, err := output(b.ours(d, "qrsh", line))
	if err != nil {
		return err
	}
	lost := func(t tally) float64 { return float64(b.size(whole, 1<<20)) - float64(t.bytes) }
	b.report(row{what: "bytes lost of 209,715,200 from a qrsh job", unit: "B", theirs: lost(theirs), ours: lost(ours), absolute: true})
	return nil
}
