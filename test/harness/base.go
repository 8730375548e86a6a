package harness

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Base makes the directory below which one run of a suite has everything. The second
// user's jobs work there. It takes away before what runs that were killed have left:
// their directories, with what runs and is mounted below them, their control groups and
// users.
func Base(suite string) (string, error) {
	sweep(suite)
	dir := filepath.Join(os.TempDir(), "paddock-"+OfRun(suite))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// OfRun returns a name that nobody has but this run of a suite: two at once do not
// meet, and what one leaves that is killed is known for it.
func OfRun(suite string) string { return suite + strconv.Itoa(os.Getpid()) }

// kept is in a directory that is to stay when its run has ended.
const kept = "kept"

// Keep has a directory of Base stay.
func Keep(dir string) error { return os.WriteFile(filepath.Join(dir, kept), nil, 0o644) }

// sweep takes away what is left of runs that have ended. Another run may do so at the
// same time, and what is another user's stays, so that a failure is nobody's.
func sweep(suite string) {
	ofRun := regexp.MustCompile("^(?:paddock-)?" + suite + "([0-9]+)$")
	ended := func(name string) bool {
		match := ofRun.FindStringSubmatch(name)
		if match == nil {
			return false
		}
		_, err := os.Stat("/proc/" + match[1])
		return os.IsNotExist(err)
	}
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "paddock-"+suite+"*"))
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, kept)); err == nil || !ended(filepath.Base(dir)) {
			continue
		}
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			if execd, ok := strings.CutSuffix(path, ".log"); ok {
				remember(execd)
			}
			return nil
		})
		KillLeft(dir)
		mounts, _ := Mounts(dir)
		for _, m := range slices.Backward(mounts) {
			_ = unix.Unmount(m, unix.MNT_DETACH)
		}
		if mounts, err := Mounts(dir); err == nil && len(mounts) == 0 {
			_ = os.RemoveAll(dir)
		}
	}
	if os.Getuid() != 0 {
		return
	}
	users, groups := names("/etc/passwd"), names("/etc/group")
	for _, name := range users {
		if !ended(name) {
			continue
		}
		u := &User{Name: name}
		for _, g := range groups {
			if strings.HasPrefix(g, name+"-") {
				u.Groups = append(u.Groups, g)
			}
		}
		if err := u.removeLeft(); err != nil {
			fmt.Fprintf(os.Stderr, "cannot remove user %s, which another run has left: %v\n", name, err)
		}
	}
}

// names returns the names in a file of accounts.
func names(file string) (all []string) {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, ":")
		all = append(all, name)
	}
	return all
}
