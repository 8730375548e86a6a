package parent

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/shepherd/internal/control"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// lockFD is where execd passes the lock of the directory, held.
const lockFD = 3

// RestartedOption tells a shepherd that it is the second start of a foreign
// one, that is one that is not our execd's: it is repeated once with the
// environment and the signal mask that our execd gives. The environment that was
// there goes through a descriptor: it may become the job's (inherit_env), and is
// in nobody's process list that way.
const RestartedOption = "-restarted"

// inheritedFD is that descriptor.
const inheritedFD = 9

// foreign reports whether this is a start that is not our execd's, and not the
// second one of it.
func (o *Options) foreign() bool {
	return !o.Restarted && (asAdmin() || !slices.Equal(unix.Environ(), spool.StartEnvironment) || !control.Blocked())
}

// restart repeats a foreign start; it returns only if it cannot. sge_execd
// starts its shepherds with the admin user as effective user: the second start
// has root's ids throughout, and what is to be the admin user's is given to him.
func restart(o Options) error {
	if err := keepEnvironment(); err != nil {
		return errors.New("cannot keep the environment: " + err.Error())
	}
	mask := control.Mask()
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, nil); err != nil {
		return errors.New("cannot block signals: " + err.Error())
	}
	if asAdmin() {
		// Of this thread alone, which is the one that exec keeps.
		for _, trap := range []uintptr{unix.SYS_SETRESUID, unix.SYS_SETRESGID} {
			if _, _, errno := unix.RawSyscall(trap, 0, 0, 0); errno != 0 {
				return errors.New("cannot become root again: " + errno.Error())
			}
		}
	}
	starter.QuietRuntime()
	argv := []string{"shepherd", RestartedOption}
	if o.Detail {
		argv = append(argv, "-detail")
	}
	if o.NoStock != "" {
		argv = append(argv, NoStockOption, o.NoStock)
	}
	err := syscall.Exec("/proc/self/exe", append(argv, o.Dir), spool.StartEnvironment)
	return errors.New("cannot start again: " + err.Error())
}

// keepEnvironment puts what was given to us where the second start finds it.
func keepEnvironment() error {
	fd, err := unix.MemfdCreate("environment", 0)
	if err == nil {
		_, err = unix.Write(fd, spool.AppendArgs(nil, given()))
	}
	if err != nil || fd == inheritedFD {
		return err
	}
	defer unix.Close(fd)
	return unix.Dup3(fd, inheritedFD, 0)
}

// asAdmin reports whether we were started as sge_execd does it, with the admin
// user as effective user and root as the real one.
func asAdmin() bool { return unix.Getuid() == 0 && unix.Geteuid() != 0 }

// given returns the environment we were started with.
func given() []string {
	environ := unix.Environ()
	if asAdmin() { // the Go runtime takes it for a setuid program's, and adds this
		environ = slices.DeleteFunc(environ, func(v string) bool { return strings.HasPrefix(v, "GOTRACEBACK=") })
	}
	return environ
}

// errNoJob is that of a start in a directory that is nobody's.
var errNoJob = errors.New("it is no job's directory: there is no " + spool.FileConfig + " and no " + spool.FileEnvironment)

// takeLock takes the lock of the directory, which is the proof that a shepherd
// lives. execd took it before it started us, so that there is no moment without
// it; passed says so. Where nobody did, somebody may have called the shepherd by hand,
// and anywhere: nothing is written where there is nothing of a job.
func takeLock(dir spool.Dir) (lock *os.File, passed bool, err error) {
	var got, want unix.Stat_t
	if unix.Fstat(lockFD, &got) == nil && unix.Lstat(spool.FileLock, &want) == nil &&
		got.Dev == want.Dev && got.Ino == want.Ino {
		// Ours already, unless somebody passed a descriptor without the lock.
		if unix.Flock(lockFD, unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, true, spool.ErrLocked
		}
		return os.NewFile(lockFD, spool.FileLock), true, nil
	}
	config, err1 := dir.Has(spool.FileConfig)
	environment, err2 := dir.Has(spool.FileEnvironment)
	if err1 == nil && err2 == nil && !config && !environment {
		return nil, false, errNoJob
	}
	lock, err = dir.Lock()
	return lock, false, err
}
