package harness

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
)

// places has the control groups that hold those of jobs, by the directory of the
// execd that made them.
var places = struct {
	sync.Mutex
	byDir map[string]string
}{byDir: map[string]string{}}

var placeInLog = regexp.MustCompile(`control groups: \S+ at (\S+) \(`)

// groupsInLog returns the name of the group that execd has made for those of jobs, ""
// if it has none, from its log.
func groupsInLog(dir string) string {
	text, err := os.ReadFile(LogName(dir))
	if err != nil {
		return ""
	}
	all := placeInLog.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		return ""
	}
	return filepath.Base(string(all[len(all)-1][1]))
}

// remember notes the groups of an execd that has started: one that is killed
// leaves them.
func remember(dir string) {
	if name := groupsInLog(dir); strings.HasPrefix(name, "paddock-") { // any other is shared
		places.Lock()
		defer places.Unlock()
		places.byDir[dir] = name
	}
}

// removeGroups removes the control groups of execds below dir, which must not
// run any more, in all hierarchies.
func removeGroups(dir string) error {
	places.Lock()
	defer places.Unlock()
	tops, err := groupTops()
	for from, name := range places.byDir {
		if from != dir && !strings.HasPrefix(from, dir+"/") {
			continue
		}
		for _, top := range tops {
			err = errors.Join(err, removeGroup(filepath.Join(top, name)))
		}
		delete(places.byDir, from)
	}
	return err
}

// GroupsLeft lists the control groups of runs that the execd of a directory has, or has
// left.
func GroupsLeft(dir string) (left []string, err error) {
	name := groupsInLog(dir)
	if !strings.HasPrefix(name, "paddock-") {
		return nil, nil
	}
	tops, err := groupTops()
	for _, top := range tops {
		groups, _ := filepath.Glob(filepath.Join(top, name, "[0-9]*.[0-9]*"))
		left = append(left, groups...)
	}
	return left, err
}

// groupTops returns the groups below which an execd that was started here makes
// its own: in each hierarchy the top and the group of this process.
func groupTops() ([]string, error) {
	mounts, err1 := os.ReadFile("/proc/self/mountinfo")
	own, err2 := os.ReadFile("/proc/self/cgroup")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	var tops []string
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(line, " - ")
		if !strings.HasPrefix(after, "cgroup") {
			continue
		}
		mount := strings.Fields(before)[4]
		tops = append(tops, mount)
		for line := range strings.Lines(string(own)) {
			if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 && f[2] != "/" {
				tops = append(tops, filepath.Join(mount, f[2])) // in a hierarchy of others it does not exist
			}
		}
	}
	return tops, nil
}

// removeGroup removes a group with all below it, whose last processes may take a
// moment to go.
func removeGroup(dir string) error {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	return WaitFor(Patience, "control group "+dir+" to go", func() (bool, error) {
		var dirs []string
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			err = errors.Join(err, unix.Rmdir(dir))
		}
		return err == nil, err
	})
}

// ranges are the additional group ids of the execds that were started here.
var ranges = struct {
	sync.Mutex
	byDir map[string]string
}{byDir: map[string]string{}}

var gidRange = regexp.MustCompile(`(?m)^gid_range\s`)

// ownGIDs sees that the configuration below dir has a gid_range. By these numbers an
// execd and its shepherds know a job's processes and kill them, whoever else has
// them: a host has one execd in root mode, and here several run at once, each of
// which would begin with the same number.
func ownGIDs(dir string) error {
	name := filepath.Join(api.DevPlaces(dir).Config, "sge_conf")
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if gidRange.Match(text) {
		return nil
	}
	ranges.Lock()
	defer ranges.Unlock()
	line := ranges.byDir[dir]
	if line == "" {
		// Far from those of accounts. A run beside this one has another process id.
		const each, dirs, runs = 5000, 64, 4096
		first := 1_000_000 + (os.Getpid()%runs*dirs+len(ranges.byDir)%dirs)*each
		line = fmt.Sprintf("gid_range %d-%d\n", first, first+each-1)
		ranges.byDir[dir] = line
	}
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		line = "\n" + line
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}
