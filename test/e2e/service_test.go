package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/test/harness"
)

// journalFile makes a file that stands for a stream of the journal: JOURNAL_STREAM has its
// device and inode.
func journalFile(t *testing.T, path string) (*os.File, *syscall.Stat_t) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return f, info.Sys().(*syscall.Stat_t)
}

// managed starts an execd as a service manager does, with its standard error in a file
// that JOURNAL_STREAM says to be a stream of the journal. It calls heard with what execd
// says until that returns true.
func managed(t *testing.T, dir string, env []string, heard func(string) bool) (cmd *exec.Cmd, log string) {
	t.Helper()
	log = filepath.Join(t.TempDir(), "log")
	f, st := journalFile(t, log)
	// The kernel chooses an abstract name.
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	cmd = exec.Command(filepath.Join(bin, "execd"), "-dev", dir)
	cmd.Env = append(append(plainEnv(dir), "NOTIFY_SOCKET="+manager.LocalAddr().String(), fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino)), env...)
	cmd.Stderr, cmd.Dir = f, "/"
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	b := make([]byte, 4096)
	for said := ""; !heard(said); {
		if err := manager.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
			t.Fatal(err)
		}
		n, err := manager.Read(b)
		if err != nil {
			text, _ := os.ReadFile(log)
			t.Fatalf("execd does not say what is waited for: %v\n%s", err, text)
		}
		said = string(b[:n])
	}
	return cmd, log
}

// Who asks for signs of life gets them while the queue goes round, with the state for
// systemctl status.
func TestWatchdog(t *testing.T) {
	parallel(t)
	signs := 0
	cmd, _ := managed(t, place(t, "watchdog"), []string{"WATCHDOG_USEC=100000"}, func(said string) bool {
		if said == "WATCHDOG=1\nSTATUS=running=0 pending=0" {
			signs++
		}
		return signs == 3
	})
	stopService(t, cmd)
}

func stopService(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("execd ended with: %v", err)
	}
}

// Lines of standard error that the journal reads have a severity each, those too that
// are written before there is a log or instead of it.
func TestJournalPriorities(t *testing.T) {
	parallel(t)
	if _, err := os.Stat("/run/systemd/journal/socket"); err == nil {
		t.Skip("there is a journal, which would get the lines with fields")
	}
	dir := place(t, "priorities")
	ready := func(said string) bool { return strings.Contains(said, "READY=1") }
	cmd, log := managed(t, dir, nil, ready)
	stopService(t, cmd)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		letter := map[string]string{"3": "E", "4": "W", "6": "I"}
		m := regexp.MustCompile(`^<(\d)>\d\d:\d\d:\d\d\.\d{3} ([A-Z]) execd: `).FindStringSubmatch(line)
		if warned := regexp.MustCompile(`^<4>execd: warning: -dev as root`).MatchString(line); !warned && (m == nil || letter[m[1]] != m[2]) {
			t.Errorf("no severity, or a wrong one: %s", line)
		}
	}
	if !strings.Contains(string(text), "<6>") {
		t.Errorf("nothing was logged: %s", text)
	}

	if err := os.MkdirAll(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc", "sge_conf"), []byte("wrong 1\nbad 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "last_configuration")); err != nil {
		t.Fatal(err)
	}
	f, st := journalFile(t, log)
	for _, c := range []struct{ inode, want string }{
		{fmt.Sprint(st.Ino), `^(<4>execd: warning: .*\n)?<3>execd: .*:1: .*\n<3>execd: .*:2: .*\n$`},
		{fmt.Sprint(st.Ino + 1), `^(execd: warning: .*\n)?execd: .*:1: .*\nexecd: .*:2: .*\n$`},
	} {
		if err := f.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "execd"), "-dev", dir)
		cmd.Env, cmd.Stderr = append(plainEnv(dir), fmt.Sprintf("JOURNAL_STREAM=%d:%s", st.Dev, c.inode)), f
		err := cmd.Run()
		text, _ := os.ReadFile(log)
		if cmd.ProcessState.ExitCode() != 78 || !regexp.MustCompile(c.want).Match(text) {
			t.Errorf("execd ended with %v and wrote\n%swant %s", err, text, c.want)
		}
	}
}
