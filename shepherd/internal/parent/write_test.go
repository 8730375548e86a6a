package parent

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// other is a user without an account, and his group.
const (
	otherUID = 54321
	otherGID = 54322
)

// writeAs has the shepherd write as other, and returns what it said and its
// exit code.
func writeAs(t *testing.T, how, path, text string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "-as-user", fmt.Sprint(otherUID), fmt.Sprint(otherGID), fmt.Sprint(otherGID), how, path)
	cmd.Stdin = strings.NewReader(text)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// othersDir returns a directory in which other has a directory "his" and root a
// directory "roots".
func othersDir(t *testing.T) string {
	t.Helper()
	base, err := os.MkdirTemp("", "write") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	for _, dir := range []string{"", "/his", "/roots"} {
		if err := os.MkdirAll(base+dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(base+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(base+"/his", otherUID, otherGID); err != nil {
		t.Fatal(err)
	}
	return base
}

// What is written for a user is written with his rights: his own files, made
// for all to read, and nothing of root's, by whatever way he points there.
func TestWriteAsUser(t *testing.T) {
	needRoot(t, "becomes another user")
	base := othersDir(t)
	his := base + "/his/"
	for name, text := range map[string]string{
		"his/log": "one\n", "his/torn": "one\nha", "his/blind": "one\n", "his/ad": "old\n", "roots/file": "root's\n",
	} {
		if err := os.WriteFile(base+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(his+"fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"log", "torn", "blind", "ad", "fifo"} {
		if err := os.Chown(his+name, otherUID, otherGID); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(his+"blind", 0o200); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"link": "log", "adlink": "ad", "steal": "../roots/file", "plant": "../roots/new", "null": "/dev/null", "loop": "loop",
	} {
		if err := os.Symlink(to, his+link); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		how, path string
		code      int
		want      string // the file afterwards, or what is said
	}{
		{"-append", "his/log", 0, "one\nnew\n"},
		{"-append", "his/link", 0, "one\nnew\nnew\n"},
		{"-append", "his/made", 0, "new\n"},
		{"-append", "his/torn", 0, "one\nha\nnew\n"},
		{"-append", "his/blind", 0, "one\nnew\n"},
		{"-append", "his/steal", 1, "permission denied"},
		{"-append", "his/plant", 1, "permission denied"},
		{"-append", "his/loop", 1, "too many levels"},
		{"-append", "his/null", 1, "not a regular file"},
		{"-append", "his/fifo", 1, "not a regular file"},
		{"-append", "his", 1, "is a directory"},
		{"-append", "roots/new", 1, "permission denied"},
		{"-append", "none/new", 1, "no such file"},
		{"-write", "his/ad", 0, "new\n"},
		{"-write", "his/made", 0, "new\n"},
		{"-write", "his/adlink", 0, "new\n"},
		{"-write", "his/steal", 0, "new\n"},
		{"-write", "his/fifo", 1, "not a regular file"},
		{"-write", "his", 1, "not a regular file"},
		{"-write", "roots/file", 1, "permission denied"},
		{"-write", "roots/new", 1, "permission denied"},
	} {
		said, code := writeAs(t, c.how, base+"/"+c.path, "new\n")
		if code != c.code || code != 0 && !strings.Contains(said, c.want) {
			t.Errorf("%s %s: exit code %d, %q; want %d, %q", c.how, c.path, code, said, c.code, c.want)
		}
		if code == 0 {
			if got, err := os.ReadFile(base + "/" + c.path); string(got) != c.want || err != nil {
				t.Errorf("%s %s: the file is %q, %v; want %q", c.how, c.path, got, err, c.want)
			}
		}
	}
	var st unix.Stat_t
	for _, made := range []string{"made", "ad"} {
		if err := unix.Stat(his+made, &st); err != nil || st.Uid != otherUID || st.Gid != otherGID || st.Mode&0o7777 != 0o644 {
			t.Errorf("%s has owner %d.%d and mode %o, %v; want %d.%d, 644", made, st.Uid, st.Gid, st.Mode, err, otherUID, otherGID)
		}
	}
	if info, err := os.Lstat(his + "steal"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the link was followed: %v, %v", info, err)
	}
	if got, err := os.ReadFile(base + "/roots/file"); string(got) != "root's\n" || err != nil {
		t.Errorf("root's file is %q, %v", got, err)
	}
	for _, how := range []string{"-append", "-write"} {
		if said, code := writeAs(t, how, his+"big", strings.Repeat("x", 1<<20+1)); code != 1 || !strings.Contains(said, "more than 1048576 bytes") {
			t.Errorf("%s: exit code %d, %q; want that it is too much", how, code, said)
		}
	}
	if _, err := os.Lstat(his + "big"); err == nil {
		t.Error("a file was made for what is too much")
	}
}

// A pipe that somebody reads can be opened, and is still no file: nothing is
// written to it, nothing waits.
func TestAppendToPipe(t *testing.T) {
	needRoot(t, "becomes another user")
	path := othersDir(t) + "/his/fifo"
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if said, code := writeAs(t, "-append", path, "new\n"); code != 1 || !strings.Contains(said, "not a regular file") {
		t.Errorf("exit code %d, %q; want a refusal", code, said)
	}
	if n, err := unix.Read(fd, make([]byte, 10)); n > 0 || err == nil {
		t.Errorf("%d bytes were written to the pipe, %v", n, err)
	}
}

// On a full disk a record is there as a whole or not at all, and the old ad
// stays.
func TestWriteFullDisk(t *testing.T) {
	needRoot(t, "mounts a tmpfs")
	base := othersDir(t)
	if err := unix.Mount("tmpfs", base+"/his", "tmpfs", 0, fmt.Sprintf("size=64k,mode=0755,uid=%d,gid=%d", otherUID, otherGID)); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	defer func() { _ = unix.Unmount(base+"/his", unix.MNT_DETACH) }()
	for path, text := range map[string]string{"/his/log": "one\n", "/his/ad": "old\n"} {
		if err := os.WriteFile(base+path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(base+path, otherUID, otherGID); err != nil {
			t.Fatal(err)
		}
	}
	large := strings.Repeat("x", 100<<10)
	for how, path := range map[string]string{"-append": "/his/log", "-write": "/his/ad"} {
		if said, code := writeAs(t, how, base+path, large); code != 75 || !strings.Contains(said, "no space left") {
			t.Errorf("%s: exit code %d, %q; want that there is no space", how, code, said)
		}
	}
	for path, want := range map[string]string{"/his/log": "one\n", "/his/ad": "old\n"} {
		if got, err := os.ReadFile(base + path); string(got) != want || err != nil {
			t.Errorf("%s is %d bytes, %v; want %q", path, len(got), err, want)
		}
	}
	if entries, err := os.ReadDir(base + "/his"); len(entries) != 2 || err != nil {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if said, code := writeAs(t, "-append", base+"/his/log", "two\n"); code != 0 {
		t.Errorf("after that: exit code %d, %q", code, said)
	}
}

// Many write to one file, and every record is whole; one who locks it for good
// keeps nobody from it.
func TestAppendTogether(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/log"
	append1 := func(text string) error {
		cmd := exec.CommandContext(t.Context(), binary, "-as-user", fmt.Sprint(os.Getuid()), fmt.Sprint(os.Getgid()), fmt.Sprint(os.Getgid()), "-append", path)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	const writers, records = 4, 5
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			for range records {
				if err := append1(strings.Repeat(string(rune('a'+w)), 20000) + "\n"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if len(lines) != writers*records {
		t.Errorf("%d lines; want %d", len(lines), writers*records)
	}
	for _, line := range lines {
		if len(line) != 20000 || bytes.Count(line, line[:1]) != len(line) {
			t.Errorf("a record of %d bytes is mixed", len(line))
		}
	}
	rw, err := unix.Open(path, unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(rw)
	if err := unix.FcntlFlock(uintptr(rw), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if err := append1("last\n"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); !bytes.HasSuffix(text, []byte("\nlast\n")) || err != nil {
		t.Errorf("what was locked has no last record: %v", err)
	}
}
