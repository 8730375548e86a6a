package parent

import (
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// Interactive kinds under a foreign execd speak a protocol of Grid Engine's own
// with its clients. They are handed over to its own shepherd: this process
// becomes that one, before anything was touched.

// NoStockOption tells the second start of a foreign one why the first could not
// hand over; a word follows.
const NoStockOption = "-no-stock"

// stockName is the file name of Grid Engine's own shepherd.
const stockName = "sge_shepherd"

// handed is the processor time, in seconds, after which a timer would ring that
// is set before the job is handed over. It never does; a process that finds it
// running has been here before, by way of a wrapper. Like the process number,
// such a timer outlives exec, and unlike a variable or a descriptor nobody who
// is started from here inherits it.
const handed = 999_999_937

// handOver becomes Grid Engine's own shepherd if the directory is one of its
// execd's with an interactive job. It returns if it is not, or if that cannot be
// started: then NoStock says why.
func (o *Options) handOver() {
	if !wantsStock(spool.OpenDir(o.Dir)) {
		return
	}
	if was, err := unix.Getitimer(unix.ItimerVirtual); err == nil && was.Value.Sec > handed/2 {
		o.NoStock = "what was started as such is a way back to this one"
		return
	}
	environ := given()
	var why []string
	for _, place := range stockPlaces(environ) {
		path, err := trusted(place)
		if err == nil {
			err = o.become(path, environ)
		}
		why = append(why, place+": "+err.Error())
	}
	o.NoStock = strings.Join(why, "; ")
}

// wantsStock reports whether the directory is one to be handed over. A config
// that cannot be read is none: what is wrong with it is told elsewhere, and one
// with two values for a key may be a user's attempt at root, since Grid Engine's
// shepherd takes the last.
func wantsStock(dir spool.Dir) bool {
	c, err := dir.Config()
	if err != nil {
		return false
	}
	_, ours := c.Lookup(spool.KeyFormat)
	script, _ := c.Lookup(spool.KeyScriptFile)
	return !ours && interactive(script)
}

// stockPlaces returns where Grid Engine's own shepherd may be.
func stockPlaces(environ []string) []string {
	value := func(name string) string {
		for _, v := range environ {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
	var places []string
	if root := value("SGE_ROOT"); strings.HasPrefix(root, "/") {
		arch := value("SGE_ARCH")
		if arch == "" || strings.Contains(arch, "/") {
			arch = "lx-" + runtime.GOARCH
		}
		places = []string{root + "/bin/" + arch + "/" + stockName, root + "/utilbin/" + arch + "/" + stockName}
	}
	return append(places, "/usr/lib/gridengine/"+stockName)
}

// trusted returns the path of a program without links in it, or why it must not
// be run. As root nothing is run that anybody but root could have put there, or
// the admin user, as whom sge_execd starts us: he writes config, by which he can
// have anything run as root. The program itself must be root's.
func trusted(place string) (string, error) {
	fd, err := unix.Open(place, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var st, mine unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if err := unix.Stat("/proc/self/exe", &mine); err != nil {
		return "", err
	}
	var b [unix.PathMax]byte
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), b[:])
	if err != nil {
		return "", err
	}
	path := string(b[:n])
	users := []uint32{0, uint32(unix.Getuid())}
	switch {
	case st.Dev == mine.Dev && st.Ino == mine.Ino:
		return "", errors.New("it is this shepherd itself")
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
		return "", errors.New("not a program")
	case !slices.Contains(users, st.Uid):
		return "", errors.New(path + " belongs to uid " + strconv.Itoa(int(st.Uid)))
	case st.Mode&0o022 != 0:
		return "", errors.New("others may write to " + path)
	}
	users = append(users, uint32(unix.Geteuid()))
	for dir := path; dir != "/"; {
		dir = dir[:max(strings.LastIndexByte(dir, '/'), 1)]
		if err := unix.Lstat(dir, &st); err != nil {
			return "", err
		}
		if !slices.Contains(users, st.Uid) {
			return "", errors.New(dir + " belongs to uid " + strconv.Itoa(int(st.Uid)))
		}
		// In a sticky directory nobody can replace what is another's.
		if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
			return "", errors.New("others may write to " + dir)
		}
	}
	return path, nil
}

// become executes the program in the job's directory, with all that was given
// to us. -bg is what sge_execd gives its own shepherd and not a shepherd_cmd:
// without it the trace goes to the standard output, too, which in the process
// that becomes the job is the way to the client, and the job is lost.
func (o *Options) become(path string, environ []string) error {
	if err := unix.Chdir(o.Dir); err != nil {
		return err
	}
	o.Dir = "."
	timer := unix.Itimerval{Value: unix.Timeval{Sec: handed}}
	if _, err := unix.Setitimer(unix.ItimerVirtual, timer); err != nil {
		return err
	}
	argv := o.Argv
	if !slices.Contains(argv, "-bg") {
		argv = append(slices.Clip(argv), "-bg")
	}
	err := syscall.Exec(path, argv, environ)
	_, _ = unix.Setitimer(unix.ItimerVirtual, unix.Itimerval{})
	return err
}
