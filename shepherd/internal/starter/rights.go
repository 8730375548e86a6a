package starter

import (
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/owner"
	"paddock/spool"
)

// who finds out whose the job is and whom the starter becomes.
func (s *starter) who() error {
	name := s.order.User
	if name == "" {
		name, _ = s.config.Lookup(spool.KeyJobOwner)
	}
	s.say("reading passwd information for user '", name, "'")
	var err error
	if s.owner, err = Owner(s.config, s.places); err != nil {
		return err
	}
	s.target = &s.owner
	if s.order.User == "" {
		return nil
	}
	if !s.order.Kind.procedure() {
		return errBadOrder
	}
	u, err := lookUp(s.places, name)
	if err != nil {
		return err
	}
	s.target = &IDs{Name: name, UID: u.UID, GID: u.GID, Groups: u.Groups, Home: u.Home}
	s.shell = u.Shell
	return nil
}

// lookUp returns a user by name, or an error in Grid Engine's words.
func lookUp(places owner.Places, name string) (owner.User, error) {
	u, err := places.Lookup(name)
	if err == nil {
		return u, nil
	}
	text := `can't get passwd entry for user "` + name + `"`
	if !errors.Is(err, owner.ErrUnknown) {
		text += ": " + err.Error()
	}
	return owner.User{}, errors.New(text)
}

// mayRun checks the owner of a job against the queue's minimums, and everybody
// against what an ordinary user can do. The minimums are for what users bring;
// procedures are the administrator's, and what runs beside a job has an owner
// who was let in.
func (s *starter) mayRun() error {
	if s.order.Kind == Job {
		if err := s.enough(); err != nil {
			return err
		}
	}
	if !s.root && s.target.UID != unix.Geteuid() {
		return errors.New("cannot run " + s.order.Name + " as user " + s.target.Name + " (uid " + strconv.Itoa(s.target.UID) +
			"): the shepherd runs as uid " + strconv.Itoa(unix.Geteuid()) + ", not as root")
	}
	return nil
}

func (s *starter) enough() error {
	for _, m := range []struct {
		key, what string
		id        int
	}{{spool.KeyMinUID, "uid", s.owner.UID}, {spool.KeyMinGID, "gid", s.owner.GID}} {
		least, err := s.config.Int(m.key)
		if err != nil {
			return err
		}
		if m.id < least {
			return errors.New(m.what + " of user " + s.owner.Name + " (" + strconv.Itoa(m.id) +
				") less than minimum allowed in conf (" + strconv.Itoa(least) + ")")
		}
	}
	return nil
}

// maxGroups is how many supplementary groups a process may have.
const maxGroups = 65536

// asOwner takes the owner's groups and, for a while, his uid: the way back to
// root is needed once more, for the limits and for parts that do not run as the owner, but
// files of the user are opened as the user. The real uid stays root's so that
// the user cannot signal us.
func (s *starter) asOwner() *Failure {
	mine, _ := unix.Getgroups()
	s.detailIDs("before", mine)
	if err := setPriority(s.process.PID, s.nice); err != nil {
		s.line("setpriority failed: " + errnoText(err))
	}
	if !s.root {
		s.say("setting additional gid=0")
		return nil
	}
	groups := gids(s.owner.Groups)
	add := s.addGID
	if add != 0 && len(groups) >= maxGroups {
		if v, _ := s.config.Lookup(spool.KeySkipNGroups); v != "yes" {
			return &Failure{
				Number: spool.FailedAddingGroup,
				Text:   "cannot set additional group id " + strconv.Itoa(add) + ": the user has " + strconv.Itoa(len(groups)) + " groups",
			}
		}
		add = 0
	}
	if add != 0 {
		s.owner.Groups = append(s.owner.Groups, add)
		groups = gids(s.owner.Groups)
	}
	s.say("setting additional gid=", strconv.Itoa(add))
	s.call(unix.SYS_SETGROUPS, uintptr(len(groups)), s.ids(groups))
	s.or(spool.FailedAddingGroup, "cannot set the groups of user ", s.owner.Name, ", additional group id ", strconv.Itoa(add), ": ")
	gid, uid := uintptr(s.owner.GID), uintptr(s.owner.UID)
	s.call(unix.SYS_SETRESGID, gid, gid, gid)
	s.or(s.state(), "cannot set group ", strconv.Itoa(s.owner.GID), ": ")
	s.call(unix.SYS_SETRESUID, 0, uid, 0)
	s.or(s.state(), "cannot set user ", strconv.Itoa(s.owner.UID), ": ")
	s.euid = s.owner.UID
	s.detailIDs("after", s.owner.Groups)
	return nil
}

// asRoot goes back to root's rights, which must succeed for what follows.
func (s *starter) asRoot(text string) {
	s.call(unix.SYS_SETRESUID, 0, 0, 0)
	s.or(s.state(), text)
	s.euid = 0
}

// asTarget becomes the user of what is to run, for good, and proves it: the process
// tries to go back, and its ids are read and compared.
func (s *starter) asTarget() {
	uid, gid, groups := uint32(s.target.UID), uint32(s.target.GID), gids(s.target.Groups)
	u, g, n, list := uintptr(uid), uintptr(gid), uintptr(len(groups)), s.ids(groups)
	text := s.words.join("cannot become user ", s.target.Name, ", or rights were left")
	try := func(on onError, trap uintptr, args ...uintptr) {
		s.call(trap, args...)
		s.fails(on, s.state(), s.euid, false, text)
	}
	const keep, root = uintptr(keep), 0
	// The owner's groups once more, or those of the user of a procedure.
	try(fail, unix.SYS_SETGROUPS, n, list)
	try(fail, unix.SYS_SETRESGID, g, g, g)
	try(fail, unix.SYS_SETRESUID, u, u, u)
	s.euid = s.target.UID
	if uid != 0 {
		try(mustFail, unix.SYS_SETRESUID, keep, root, keep)
		try(mustFail, unix.SYS_SETRESUID, root, root, root)
		if gid != 0 {
			try(mustFail, unix.SYS_SETRESGID, keep, root, keep)
			try(mustFail, unix.SYS_SETRESGID, root, root, root)
		}
		try(mustFail, unix.SYS_SETGROUPS, n, list)
	}
	is := func(a, b, size uintptr) {
		s.unlessEqual(s.same(a, b, size), 1, &Failure{Number: s.state(), Text: text})
	}
	three := func(trap uintptr, id uint32) {
		got := s.room(3 * 4)
		try(fail, trap, got, got+4, got+8)
		is(got, s.ids([]uint32{id, id, id}), 3*4)
	}
	three(unix.SYS_GETRESUID, uid)
	three(unix.SYS_GETRESGID, gid)
	got := s.room((n + 1) * 4)
	try(fail, unix.SYS_GETGROUPS, n+1, got)
	s.unlessEqual(s.result(), n, &Failure{Number: s.state(), Text: text})
	is(got, list, n*4) // the kernel returns them sorted
}
