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
	if b, err := readFile(p.Passwd); err == nil {
		if u, ok := parsePasswd(b, name); ok {
			b, err := readFile(p.Group)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return User{}, errors.New("cannot read " + p.Group + ": " + err.Error())
			}
			u.Groups = parseGroups(b, name, u.GID)
			return u, nil
		}
	}
	b, err := p.ask("passwd", name)
	if err != nil {
		return User{}, err
	}
	u, ok := parsePasswd(b, name)
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
	b, err := readFile(p.withDefaults().Passwd)
	if err != nil {
		return ""
	}
	u, _ := parsePasswd(b, name)
	return u.Shell
}

// parsePasswd returns the entry of a name in passwd(5) format.
func parsePasswd(b []byte, name string) (User, bool) {
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		f := bytes.Split(line, []byte(":"))
		if len(f) < 6 || string(f[0]) != name {
			continue
		}
		uid, err1 := ParseID(string(f[2]))
		gid, err2 := ParseID(string(f[3]))
		if err1 != nil || err2 != nil {
			continue
		}
		u := User{Name: name, UID: uid, GID: gid, Home: string(f[5])}
		if len(f) > 6 {
			u.Shell = string(f[6])
		}
		return u, true
	}
	return User{}, false
}

// parseGroups returns the groups in group(5) format that list name, and gid.
func parseGroups(b []byte, name string, gid int) []int {
	groups := []int{gid}
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		f := bytes.Split(line, []byte(":"))
		if len(f) < 4 {
			continue
		}
		for member := range bytes.SplitSeq(f[3], []byte(",")) {
			if string(member) == name {
				if g, err := ParseID(string(f[2])); err == nil {
					groups = append(groups, g)
				}
			}
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
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

func readFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	b := make([]byte, 0, st.Size+1)
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			return b, nil
		}
		b = b[:len(b)+n]
	}
}
