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
// user's jobs work there. Before that it removes what killed runs have left: their
// directories, with the processes and mounts below them, their control groups and users.
func Base(suite string) (string, error) {
	sweep(suite)
	dir := filepath.Join(os.TempDir(), "paddock-"+OfRun(suite))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// OfRun returns a name that only this run of a suite has: two at once do not collide,
// and what a killed one has left can be told by it.
func OfRun(suite string) string { return suite + strconv.Itoa(os.Getpid()) }

// kept is the name of a file in a directory that is to stay when its run has ended.
const kept = "kept"

// Keep has a directory of Base stay.
func Keep(dir string) error { return os.WriteFile(filepath.Join(dir, kept), nil, 0o644) }

// sweep removes what runs that have ended have left. It reports no errors: another run
// may do the same at this time, and what belongs to another user stays.
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
