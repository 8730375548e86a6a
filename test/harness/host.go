package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// UsersLock is held by whoever changes the accounts of this host, or copies them.
const UsersLock = "/run/lock/paddock-test-users.lock"

// User is an account made for a test run.
type User struct {
	Name     string
	Home     string
	UID, GID int
	Groups   []string // supplementary groups made with it
}

// InThread does something with the effective uid of a user in this thread alone: so a test connects a socket, or
// listens, as somebody else. Root only.
func InThread(uid int, do func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid int) {
		const same = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
			panic(errno)
		}
	}
	become(uid)
	defer become(0)
	do()
}

// Credential returns the ids of a process of the user's, for [syscall.SysProcAttr],
// without his supplementary groups. The number of his own group need not be his: another one
// may have had it already.
func (u *User) Credential() *syscall.Credential {
	return &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
}

// AddUser makes an account with a home directory below /home and the given
// supplementary groups, which it makes too. One that a killed run left behind
// is replaced. Needs root.
func AddUser(name string, groups ...string) (*User, error) {
	unlock, err := Lock(UsersLock)
	if err != nil {
		return nil, err
	}
	defer unlock()
	u := &User{Name: name, Groups: groups}
	if err := u.removeKilled(); err != nil {
		return nil, err
	}
	for _, g := range groups {
		if err := run("groupadd", g); err != nil {
			return nil, err
		}
	}
	args := []string{"-m", "-U", "-s", "/bin/sh", "-c", "Paddock test user"}
	if len(groups) > 0 {
		args = append(args, "-G", strings.Join(groups, ","))
	}
	if err := run("useradd", append(args, name)...); err != nil {
		return nil, err
	}
	// The user's own ids, not somebody's with the same name in a cache.
	user, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("cannot look up the new user: %w", err)
	}
	u.Home = user.HomeDir
	if u.UID, err = strconv.Atoi(user.Uid); err != nil {
		return nil, err
	}
	if u.GID, err = strconv.Atoi(user.Gid); err != nil {
		return nil, err
	}
	return u, nil
}

// Remove removes the account, its groups and its home directory.
func (u *User) Remove() error {
	unlock, err := Lock(UsersLock)
	if err != nil {
		return err
	}
	defer unlock()
	return u.remove()
}

// removeLeft removes an account that a killed run has left.
func (u *User) removeLeft() error {
	unlock, err := Lock(UsersLock)
	if err != nil {
		return err
	}
	defer unlock()
	return u.removeKilled()
}

// removeKilled removes the account once its processes are killed.
func (u *User) removeKilled() error {
	if old, err := user.Lookup(u.Name); err == nil {
		uid, _ := strconv.Atoi(old.Uid)
		if err := KillUser(uid); err != nil {
			return err
		}
	}
	return u.remove()
}

func (u *User) remove() error {
	var errs []error
	if _, err := user.Lookup(u.Name); err == nil {
		// Userdel refuses while a process of the user's that has ended was not yet
		// waited for.
		errs = append(errs, WaitFor(Patience, "the end of user "+u.Name, func() (bool, error) {
			err := run("userdel", "-r", u.Name)
			if _, gone := user.Lookup(u.Name); gone != nil {
				return true, nil
			}
			return false, err
		}))
	}
	for _, g := range u.Groups {
		if _, err := user.LookupGroup(g); err == nil {
			errs = append(errs, run("groupdel", g))
		}
	}
	return errors.Join(errs...)
}

// KillUser kills all processes of a user of the tests.
func KillUser(uid int) error {
	if uid < 1 {
		return fmt.Errorf("uid %d is no user of the tests", uid)
	}
	return WaitFor(Patience, fmt.Sprintf("the processes of uid %d to go", uid), func() (bool, error) {
		processes, err := filepath.Glob("/proc/[0-9]*")
		none := true
		for _, path := range processes {
			var st unix.Stat_t
			pid, _ := strconv.Atoi(filepath.Base(path))
			if unix.Stat(path, &st) == nil && int(st.Uid) == uid && pid > 0 {
				none = false
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		return none, err
	})
}

// run runs a command of the administrator's. Its output is in the error when it fails,
// and else dropped (userdel complains about a mail box that was never there).
func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot run %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Lock takes an exclusive lock on a file, which it makes when it is not there,
// and waits for whoever has it.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// Process is a process found in /proc.
type Process struct {
	PID        int
	Exe        string
	Args       string
	cwd, spool string
}

func (p Process) String() string { return fmt.Sprintf("process %d %s (%s)", p.PID, p.Exe, p.Args) }

// OfHost reports whether the process is there also while no job is: execd, and the shepherd
// that it keeps on standby.
func (p Process) OfHost() bool {
	name := filepath.Base(p.Exe)
	return name == "execd" || name == "shepherd" && strings.HasPrefix(p.Args, "shepherd "+spool.StandbyOption)
}

// Processes lists the processes of a test: those whose binary or working
// directory is below dir, the execd that was told to use it, and what jobs
// started whose spool is there.
func Processes(dir string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p := inspect(pid); p.belongsTo(dir) && !dying(pid) {
			found = append(found, p)
		}
	}
	return found, nil
}

// Standing tells what each process of a test does, and what the shepherds of its jobs have done, for one that
// has waited in vain.
func Standing(dir string) string {
	var b strings.Builder
	processes, err := Processes(dir)
	if err != nil {
		return err.Error()
	}
	for _, p := range processes {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		_, state, _ := strings.Cut(string(status), "State:\t")
		state, _, _ = strings.Cut(state, "\n")
		waits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", p.PID))
		fmt.Fprintf(&b, "%v: %s, in %s\n", p, state, waits)
	}
	traces, _ := filepath.Glob(filepath.Join(dir, "spool", "active_jobs", "*", spool.FileTrace))
	for _, name := range traces {
		trace, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "%s:\n%s", name, trace)
	}
	return b.String()
}

// inspect reads what /proc says of a process. All of it stays empty when the
// process has just ended or is a stranger's: then it is none of ours.
func inspect(pid int) Process {
	p := fmt.Sprintf("/proc/%d/", pid)
	exe, _ := os.Readlink(p + "exe")
	cwd, _ := os.Readlink(p + "cwd")
	args, _ := os.ReadFile(p + "cmdline")
	environ, _ := os.ReadFile(p + "environ")
	var spool string
	for kv := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(kv, []byte("SGE_JOB_SPOOL_DIR=")); ok {
			spool = string(value)
		}
	}
	return Process{
		PID: pid, Exe: strings.TrimSuffix(exe, " (deleted)"), spool: spool, cwd: cwd,
		Args: strings.TrimSpace(string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))),
	}
}

// dying reports whether a process is about to end, or was killed: on a busy host it may
// be seen for a while, though nothing of it runs any more.
func dying(pid int) bool {
	const exiting = 0x4 // PF_EXITING of the kernel
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := bytes.Cut(stat, []byte(") ")) // a name with this in it is none of ours
	f := strings.Fields(string(rest))
	if len(f) < 7 {
		return true // it has gone meanwhile
	}
	if flags, err := strconv.ParseUint(f[6], 10, 64); err == nil && flags&exiting != 0 {
		return true
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		if set, err := strconv.ParseUint(value, 16, 64); err == nil && set&(1<<(unix.SIGKILL-1)) != 0 {
			return true
		}
	}
	return false
}

func (p Process) belongsTo(dir string) bool {
	return strings.HasPrefix(p.Exe, dir+"/") || strings.HasPrefix(p.spool, dir+"/") ||
		strings.HasPrefix(p.cwd+"/", dir+"/") ||
		filepath.Base(p.Exe) == "execd" && strings.Contains(p.Args+"/", dir+"/")
}

// LeftBehind lists what a run should have cleaned up: processes, and mounts
// below its directory. It waits for processes that are about to end, such as a shepherd
// whose job is over.
func LeftBehind(dir string) (left []string, err error) {
	_ = WaitFor(Patience, "nothing to be left", func() (bool, error) {
		left, err = remains(dir)
		return len(left) == 0, err
	})
	return left, err
}

// remains is what LeftBehind finds at one moment.
func remains(dir string) ([]string, error) {
	processes, err := Processes(dir)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, p := range processes {
		left = append(left, p.String())
	}
	mounts, err := Mounts(dir)
	for _, m := range mounts {
		left = append(left, "mount "+m)
	}
	return left, err
}

// Mounts lists what is mounted at a directory and below it.
func Mounts(dir string) (mounts []string, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4]+"/", dir+"/") {
			mounts = append(mounts, f[4])
		}
	}
	return mounts, err
}

// KillLeft ends the processes that Processes lists and removes the control groups
// of execds that are gone: after a test has failed, the machine is to be clean
// all the same.
func KillLeft(dir string) {
	processes, err := Processes(dir)
	if err != nil {
		return
	}
	for _, p := range processes {
		// The process is killed by a pidfd, and looked at again behind it: the number
		// may be that of another process by now.
		fd, err := unix.PidfdOpen(p.PID, 0)
		if err != nil {
			continue
		}
		if inspect(p.PID).belongsTo(dir) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		unix.Close(fd)
	}
	if err := removeGroups(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// StatusField returns a number of /proc/PID/status.
func StatusField(pid int, name string) (int, error) {
	return statusField(fmt.Sprintf("/proc/%d/status", pid), name)
}

func statusField(file, name string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		}
	}
	return 0, fmt.Errorf("no %s in %s", name, file)
}

// Switches counts, for execd and every shepherd that belongs to dir, how often
// its threads gave up the processor of their own accord: a process that waits
// does not.
func Switches(bin, dir string) (map[int]int, error) {
	processes, err := Processes(dir)
	if err != nil {
		return nil, err
	}
	counts := make(map[int]int)
	for _, p := range processes {
		if filepath.Dir(p.Exe) != bin {
			continue
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.PID))
		if err != nil {
			return nil, err
		}
		for _, t := range threads {
			// A thread that ended in between has nothing to count.
			if n, err := statusField(t, "voluntary_ctxt_switches"); err == nil {
				counts[p.PID] += n
			}
		}
	}
	return counts, nil
}

// Settle returns when execd and the shepherds of dir have done nothing for a
// while: what they had to do is done.
func Settle(bin, dir string) error {
	last := -1
	return WaitFor(Patience, "execd and its shepherds to settle", func() (bool, error) {
		now, err := Switches(bin, dir)
		total := 0
		for _, n := range now {
			total += n
		}
		quiet := total == last
		last = total
		if !quiet {
			<-time.After(300 * time.Millisecond)
		}
		return quiet, err
	})
}
