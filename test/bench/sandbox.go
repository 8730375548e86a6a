package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// sandboxTime measures how long output takes from a sandbox to where it belongs, on
// disk, beside the commands that a user would give. Grid Engine does not do that.
func (b *bench) sandboxTime() error {
	far, err := os.MkdirTemp("/dev/shm", "paddock-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(far)
	if err := os.Chmod(far, 0o755); err != nil {
		return err
	}
	near := filepath.Join(b.base, "sandbox")
	for _, dir := range []string{near, near + "/to", near + "/say", near + "/big", far + "/big", far + "/small"} {
		if err := b.mine(dir); err != nil {
			return err
		}
	}
	megabytes, files := b.size(1000, 10), b.size(10000, 100)
	for _, dir := range []string{near, far} {
		if err := b.fill(dir+"/big/file", megabytes<<20); err != nil {
			return err
		}
	}
	for i := range files {
		dir := fmt.Sprintf("%s/small/%d", far, i/100)
		if err := errors.Join(b.mine(dir), b.fill(fmt.Sprintf("%s/%d", dir, i), 4096)); err != nil {
			return err
		}
	}
	to := near + "/to"
	most := 0
	for _, m := range []struct {
		what, from, theirs string
		limit              float64
		pipe               bool
	}{
		{fmt.Sprintf("%d MB renamed into place, beside cp && sync", megabytes), near + "/big", "cp " + near + "/big/file " + to + " && sync", 0.05, false},
		{fmt.Sprintf("%d MB from another file system, beside the same", megabytes), far + "/big", "cp " + far + "/big/file " + to + " && sync", 1.1, false},
		{fmt.Sprintf("%d files of 4 kB, beside cp -a && sync", files), far + "/small", "cp -a " + far + "/small/. " + to + " && sync", 1.2, false},
		// Both ends hash every byte, which tar does not.
		{fmt.Sprintf("%d MB through pack | unpack, beside tar | tar && sync", megabytes), far + "/big", tarPipe(far+"/big", to), 2.5, true},
		{fmt.Sprintf("%d files of 4 kB through the same, beside the same", files), far + "/small", tarPipe(far+"/small", to), 1.2, true},
	} {
		var theirs, ours []time.Duration
		for range b.size(7, 1) {
			syscall.Sync()
			begin := time.Now()
			cmd := limited(longest, "sh", "-c", m.theirs)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user.Credential()}
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%s", m.theirs, err, out)
			}
			theirs = append(theirs, time.Since(begin))
			if err := b.empty(to, ""); err != nil {
				return err
			}
			way := func() (time.Duration, int, error) { return b.transfer(m.from, near+"/say", to) }
			if m.pipe {
				way = func() (time.Duration, int, error) { return b.pipe(m.from, to) }
			}
			took, memory, err := way()
			if err != nil {
				return err
			}
			ours, most = append(ours, took), max(most, memory)
			back := ""
			if m.from == near+"/big" {
				back = m.from
			}
			if err := errors.Join(b.empty(to, back), b.empty(near+"/say", "")); err != nil {
				return err
			}
		}
		b.report(row{what: m.what, unit: "ms", theirs: milliseconds(median(theirs)), ours: milliseconds(median(ours)), limit: m.limit})
	}
	b.report(row{what: "memory of execd-transfer meanwhile", unit: "MB", ours: float64(most) / 1024, alone: true, limit: 10})
	return nil
}

// mine makes a directory of the user's.
func (b *bench) mine(dir string) error {
	return errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, b.user.UID, b.user.GID))
}

// fill makes a file of the user's, which no file system makes smaller.
func (b *bench) fill(path string, size int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	part := make([]byte, min(size, 1<<20))
	for n := 0; n < size && err == nil; n += len(part) {
		for i := 0; i < len(part); i += 64 {
			part[i], part[i+1], part[i+2] = byte(n), byte(n>>8), byte(i>>6)
		}
		_, err = f.Write(part)
	}
	return errors.Join(err, f.Close(), os.Chown(path, b.user.UID, b.user.GID))
}

// empty removes all that is in a directory, or moves it back.
func (b *bench) empty(dir, back string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if back != "" {
			err = errors.Join(err, os.Rename(path, filepath.Join(back, e.Name())))
		} else {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	syscall.Sync()
	return err
}

// transfer has all that is in a directory sent to another, and returns the most memory
// in kB that was seen.
func (b *bench) transfer(from, say, to string) (took time.Duration, memory int, err error) {
	orders, err := json.Marshal(map[string]any{
		"id": "0123456789abcdef", "base": `"/"`, "turn": true, "send": map[string]string{"select": "all", "to": fmt.Sprintf("%q", to)},
	})
	if err != nil {
		return 0, 0, err
	}
	out, err := os.CreateTemp(b.base, "report")
	if err != nil {
		return 0, 0, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := limited(longest, filepath.Join(b.bin, "execd-transfer"), "copy")
	cmd.Env = []string{"GOMAXPROCS=1"}
	cmd.Stdin = strings.NewReader(string(orders))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user.Credential()}
	cmd.ExtraFiles = []*os.File{out, out}
	for _, dir := range []string{from, say} {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, 0, err
		}
		f := os.NewFile(uintptr(fd), dir)
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	if memory, err = watched(cmd); err != nil {
		text, _ := os.ReadFile(out.Name())
		err = fmt.Errorf("execd-transfer: %w\n%s", err, text)
	}
	return time.Since(begin), memory, err
}

// tarPipe is what a user would give instead of pack and unpack.
func tarPipe(from, to string) string {
	return "tar -C " + from + " -cf - . | tar -C " + to + " -xf - && sync"
}

// pipe has all that is in a directory come to another by way of pack and unpack, and
// returns the most memory in kB that was seen of unpack.
func (b *bench) pipe(from, to string) (took time.Duration, memory int, err error) {
	program := filepath.Join(b.bin, "execd-transfer")
	pack, unpack := limited(longest, program, "pack", from), limited(longest, program, "unpack", to)
	r, w, err := os.Pipe()
	if err != nil {
		return 0, 0, err
	}
	pack.Stdout, unpack.Stdin = w, r
	for _, cmd := range []*exec.Cmd{pack, unpack} {
		cmd.Env = []string{"GOMAXPROCS=1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user.Credential()}
	}
	begin := time.Now()
	err = errors.Join(pack.Start(), unpack.Start(), r.Close(), w.Close())
	if err != nil {
		return 0, 0, err
	}
	memory, err = watched(unpack)
	return time.Since(begin), memory, errors.Join(err, pack.Wait())
}

// watched waits for a process, and returns the most memory in kB that was seen.
func watched(cmd *exec.Cmd) (memory int, err error) {
	pid := cmd.Process.Pid
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if n, err := harness.StatusField(pid, "VmHWM"); err == nil && isTransfer(pid) {
				memory = max(memory, n)
			}
		case err = <-ended:
			return memory, err
		}
	}
}

// isTransfer reports whether a process is not the one any more that forked it.
func isTransfer(pid int) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && filepath.Base(path) == "execd-transfer"
}
