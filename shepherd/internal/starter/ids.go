package starter

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/owner"
	"paddock/spool"
)

// IDs are the numbers a job runs with.
type IDs struct {
	Name   string
	UID    int
	GID    int
	Groups []int // supplementary groups, the primary one included
	Home   string
}

// ParseIDs returns the ids written as three words: uid, gid, and the
// supplementary groups separated by commas.
func ParseIDs(uid, gid, groups string) (IDs, error) {
	var (
		ids IDs
		err error
	)
	if ids.UID, err = owner.ParseID(uid); err != nil {
		return IDs{}, err
	}
	if ids.GID, err = owner.ParseID(gid); err != nil {
		return IDs{}, err
	}
	for g := range strings.SplitSeq(groups, ",") {
		n, err := owner.ParseID(g)
		if err != nil {
			return IDs{}, err
		}
		ids.Groups = append(ids.Groups, n)
	}
	if !slices.Contains(ids.Groups, ids.GID) {
		ids.Groups = append(ids.Groups, ids.GID)
	}
	return ids, nil
}

// Foreign reports whether a configuration was not written by our execd: then
// names have to be resolved here, and the admin user owns the results.
func Foreign(c *spool.Config) bool {
	_, ours := c.Lookup(spool.KeyUID)
	return !ours
}

// Owner returns the ids of the job's owner, from the numbers of our execd or
// by name.
func Owner(c *spool.Config, places owner.Places) (IDs, error) {
	name, err := c.String(spool.KeyJobOwner)
	if err != nil {
		return IDs{}, err
	}
	var ids IDs
	if Foreign(c) {
		u, err := lookUp(places, name)
		if err != nil {
			return IDs{}, err
		}
		ids = IDs{UID: u.UID, GID: u.GID, Groups: u.Groups, Home: u.Home}
	} else {
		uid, err1 := c.String(spool.KeyUID)
		gid, err2 := c.String(spool.KeyGID)
		if err := firstOf(err1, err2); err != nil {
			return IDs{}, err
		}
		groups, ok := c.Lookup(spool.KeyGroups)
		if !ok || groups == "" {
			groups = gid
		}
		if ids, err = ParseIDs(uid, gid, groups); err != nil {
			return IDs{}, errors.New("cannot read the ids of user " + name + ": " + err.Error())
		}
		ids.Home, _ = c.Lookup(spool.KeyHome)
	}
	ids.Name = name
	if g, ok := c.Lookup(spool.KeyQsubGID); ok && g != "" && !strings.EqualFold(g, "no") {
		if ids.GID, err = owner.ParseID(g); err != nil {
			return IDs{}, errors.New("cannot use " + spool.KeyQsubGID + ": " + err.Error())
		}
		// Grid Engine takes whatever number is there, and an execd that believes
		// its clients passes on whatever they said.
		if !slices.Contains(ids.Groups, ids.GID) {
			return IDs{}, errors.New("cannot use " + spool.KeyQsubGID + ": user " + name + " is not in group " + g)
		}
	}
	return ids, nil
}

// Become gives up every right of this process for those of ids, for good, and
// proves it, and with them what execd has from whoever started it: its session
// keyring, its inheritable capabilities and a protection when memory runs out. All
// threads change their ids, since the process goes on as Go. An ordinary user can
// only become himself.
func Become(ids IDs) error {
	if unix.Geteuid() != 0 {
		if ids.UID != unix.Geteuid() {
			return errors.New("cannot become user " + strconv.Itoa(ids.UID) + ": not root")
		}
		return nil
	}
	_ = unprotect(fileOOM) // one that stays protected is no reason not to do it
	if err := dropInheritable(); err != nil {
		return err
	}
	if _, err := OwnKeyring(); err != nil {
		return err
	}
	// Groups first: afterwards there is no right to change them.
	if err := syscall.Setgroups(ids.Groups); err != nil {
		return errors.New("cannot set groups: " + errnoText(err))
	}
	if err := syscall.Setresgid(ids.GID, ids.GID, ids.GID); err != nil {
		return errors.New("cannot set group " + strconv.Itoa(ids.GID) + ": " + errnoText(err))
	}
	if err := syscall.Setresuid(ids.UID, ids.UID, ids.UID); err != nil {
		return errors.New("cannot set user " + strconv.Itoa(ids.UID) + ": " + errnoText(err))
	}
	if !prove(uint32(ids.UID), uint32(ids.GID), gids(ids.Groups), make([]uint32, len(ids.Groups)+1)) {
		return errors.New("cannot become user " + strconv.Itoa(ids.UID) + ": rights were left")
	}
	return nil
}

// dropInheritable takes from this thread the capabilities that a program with some
// in its file would add to, and with them those that are kept by any program. An
// execd has them from a container that was started carelessly.
func dropInheritable() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	err := unix.Capget(&head, &sets[0])
	if err == nil && (sets[0].Inheritable|sets[1].Inheritable) != 0 {
		sets[0].Inheritable, sets[1].Inheritable = 0, 0
		err = unix.Capset(&head, &sets[0])
	}
	if err != nil {
		return failedTo("drop inheritable capabilities", err)
	}
	return nil
}

func gids(groups []int) []uint32 {
	out := make([]uint32, len(groups))
	for i, g := range groups {
		out[i] = uint32(g)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// The following calls change the calling thread only. In the starter
// that is the one that becomes the job: exec ends all others, and keeps what
// this one has. They allocate nothing, see exec.

func setGroups(groups []uint32) error {
	var p unsafe.Pointer
	if len(groups) > 0 {
		p = unsafe.Pointer(&groups[0])
	}
	return raw(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0)
}

func setResGID(r, e, s uint32) error {
	return raw(unix.SYS_SETRESGID, uintptr(r), uintptr(e), uintptr(s))
}

func setResUID(r, e, s uint32) error {
	return raw(unix.SYS_SETRESUID, uintptr(r), uintptr(e), uintptr(s))
}

func raw(trap, a, b, c uintptr) error {
	if _, _, errno := unix.RawSyscall(trap, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

const keep = ^uint32(0)

// prove reports whether the ids are as wanted and there is no way back: it
// tries. groups must be sorted, room must be longer than it.
func prove(uid, gid uint32, groups, room []uint32) bool {
	var r, e, s uint32
	three := func(trap uintptr, want uint32) bool {
		_, _, errno := unix.RawSyscall(trap, uintptr(unsafe.Pointer(&r)), uintptr(unsafe.Pointer(&e)), uintptr(unsafe.Pointer(&s)))
		return errno == 0 && r == want && e == want && s == want
	}
	if uid != 0 {
		if setResUID(keep, 0, keep) == nil || setResUID(0, 0, 0) == nil {
			return false
		}
		if gid != 0 && (setResGID(keep, 0, keep) == nil || setResGID(0, 0, 0) == nil) {
			return false
		}
		if setGroups(groups) == nil {
			return false
		}
	}
	if !three(unix.SYS_GETRESUID, uid) || !three(unix.SYS_GETRESGID, gid) {
		return false
	}
	n, _, errno := unix.RawSyscall(unix.SYS_GETGROUPS, uintptr(len(room)), uintptr(unsafe.Pointer(&room[0])), 0)
	if errno != 0 || int(n) != len(groups) {
		return false
	}
	// The kernel returns them sorted.
	for i, g := range groups {
		if room[i] != g {
			return false
		}
	}
	return true
}
