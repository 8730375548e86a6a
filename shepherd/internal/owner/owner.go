// Package owner looks up the ids of a user by name, for directories of an execd
// that writes names alone. It reads the system's files and, for users that are not
// in them, asks getent. The shepherd and its starter import it.
package owner

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// User is what the system says of a user.
type User struct {
	Name   string
	UID    int
	GID    int
	Groups []int // supplementary groups with the primary one, sorted
	Home   string
	Shell  string // of a login, "" for none
}

// ErrUnknown says that nobody knows the user.
var ErrUnknown = errors.New("no such user")

// Places are the sources that are asked; the zero value is the system's own.
type Places struct {
	Passwd, Group string        // files
	Getent        string        // program; "" means the first of the usual places
	Limit         time.Duration // for one question to getent
}

const defaultLimit = 10 * time.Second

func (p Places) withDefaults() Places {
	if p.Passwd == "" {
		p.Passwd = "/etc/passwd"
	}
	if p.Group == "" {
		p.Group = "/etc/group"
	}
	if p.Getent == "" {
		p.Getent = "/usr/bin/getent"
	}
	if p.Limit == 0 {
		p.Limit = defaultLimit
	}
	return p
}

// Lookup returns the user of the given name with all its groups.
func (p Places) Lookup(name string) (User, error) {
	p = p.withDefaults()
	if name == "" || bytes.ContainsAny([]byte(name), ":\n\x00") || name[0] == '-' {
		return User{}, ErrUnknown
	}
	if u, ok := p.inPasswd(name); ok {
		u.Groups = []int{u.GID}
		err := eachLine(p.Group, func(line []byte) bool {
			if g, ok := lists(line, name); ok {
				u.Groups = append(u.Groups, g)
			}
			return true
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return User{}, errors.New("cannot read " + p.Group + ": " + err.Error())
		}
		slices.Sort(u.Groups)
		u.Groups = slices.Compact(u.Groups)
		return u, nil
	}
	b, err := p.ask("passwd", name)
	if err != nil {
		return User{}, err
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	u, ok := parsePasswd(line, name)
	if !ok {
		return User{}, ErrUnknown
	}
	b, err = p.ask("initgroups", name)
	if err != nil {
		return User{}, err
	}
	u.Groups = parseInitgroups(b, u.GID)
	return u, nil
}

// Shell returns the login shell of a user, "" if the passwd file does not have
// one. Nobody else is asked: it is for messages alone.
func (p Places) Shell(name string) string {
	u, _ := p.withDefaults().inPasswd(name)
	return u.Shell
}

// inPasswd returns the entry of a name in the passwd file.
func (p Places) inPasswd(name string) (u User, ok bool) {
	err := eachLine(p.Passwd, func(line []byte) bool {
		u, ok = parsePasswd(line, name)
		return !ok
	})
	return u, ok && err == nil
}

// parsePasswd returns what a line in passwd(5) format says of a name.
func parsePasswd(line []byte, name string) (User, bool) {
	if first, _, _ := bytes.Cut(line, []byte{':'}); string(first) != name {
		return User{}, false
	}
	var f [7][]byte
	n := 0
	for found := true; found && n < len(f); n++ {
		f[n], line, found = bytes.Cut(line, []byte{':'})
	}
	if n < 6 {
		return User{}, false
	}
	uid, err1 := ParseID(string(f[2]))
	gid, err2 := ParseID(string(f[3]))
	if err1 != nil || err2 != nil {
		return User{}, false
	}
	return User{Name: name, UID: uid, GID: gid, Home: string(f[5]), Shell: string(f[6])}, true
}

// lists returns the group of a line in group(5) format, if the line lists a name.
func lists(line []byte, name string) (gid int, ok bool) {
	_, line, _ = bytes.Cut(line, []byte{':'})
	_, line, _ = bytes.Cut(line, []byte{':'})
	id, members, ok := bytes.Cut(line, []byte{':'})
	if !ok {
		return 0, false
	}
	members, _, _ = bytes.Cut(members, []byte{':'})
	for member := range bytes.SplitSeq(members, []byte{','}) {
		if string(member) == name {
			g, err := ParseID(string(id))
			return g, err == nil
		}
	}
	return 0, false
}

// parseInitgroups parses the line of getent initgroups: the name, then gids.
func parseInitgroups(b []byte, gid int) []int {
	groups := []int{gid}
	for i, f := range bytes.Fields(b) {
		if g, err := ParseID(string(f)); i > 0 && err == nil {
			groups = append(groups, g)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// ParseID parses a user or group number. The largest one means "leave it as
// it is" to the kernel, which made root of "user -1" in sudo (CVE-2019-14287).
func ParseID(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 1<<32-1 {
		return 0, errors.New("bad id " + strconv.Quote(s))
	}
	return int(n), nil
}

// ask runs getent and returns what it prints. A directory service that does
// not answer must not hang a job for ever.
func (p Places) ask(database, key string) ([]byte, error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	defer unix.Close(pipe[0])
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(pipe[1])
		return nil, err
	}
	pidfd := -1
	pid, err := syscall.ForkExec(p.Getent, []string{"getent", database, key}, &syscall.ProcAttr{
		Env:   []string{"PATH=/usr/bin:/bin"},
		Files: []uintptr{uintptr(null), uintptr(pipe[1]), uintptr(null)},
		Sys:   &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	unix.Close(null)
	unix.Close(pipe[1])
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, ErrUnknown
		}
		return nil, errors.New("cannot run " + p.Getent + ": " + err.Error())
	}
	defer unix.Close(pidfd)
	var (
		out   []byte
		buf   [4096]byte
		until = time.Now().Add(p.Limit)
		ended bool
	)
	from := int32(pipe[0])
	for !ended && time.Now().Before(until) {
		fds := []unix.PollFd{{Fd: from, Events: unix.POLLIN}, {Fd: int32(pidfd), Events: unix.POLLIN}}
		ts := unix.NsecToTimespec(int64(max(time.Until(until), 0)))
		if _, err := unix.Ppoll(fds, &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
		ended = fds[1].Revents != 0
		for {
			n, err := unix.Read(pipe[0], buf[:])
			if n <= 0 {
				if err == nil {
					from = -1 // its end stays readable for ever
				}
				break
			}
			out = append(out, buf[:n]...)
		}
	}
	if !ended {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	var ws unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case !ended:
		return nil, errors.New("getent " + database + " does not answer")
	case err != nil:
		return nil, err
	case ws.ExitStatus() != 0:
		return nil, ErrUnknown
	}
	return out, nil
}

// buffer is where lines are read to: how much memory a shepherd takes does not depend
// on how many users there are.
var buffer [4 << 10]byte

// eachLine calls do with each line of a file, until that returns false.
func eachLine(path string, do func(line []byte) bool) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	room, left := buffer[:], 0 // and how much of a line is in it
	for {
		if left == len(room) {
			room = append(room, make([]byte, len(room))...)
		}
		n, err := unix.Read(fd, room[left:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		rest := room[:left+n]
		for len(rest) > 0 {
			line, more, whole := bytes.Cut(rest, []byte{'\n'})
			if !whole && n > 0 {
				break
			}
			if !do(line) {
				return nil
			}
			rest = more
		}
		if n == 0 {
			return nil
		}
		left = copy(room, rest)
	}
}
