package api

import (
	"os"
	"path/filepath"
	"strconv"
)

// Places are the paths that execd and its clients have to agree on.
type Places struct {
	Config     string // directory of the administrator's files
	Spool      string // spool directory of this host, in root mode without the host's name
	State      string // directory of the accounting file
	Tmp        string // parent of the jobs' TMPDIR, where the queue names none
	Socket     string // the Unix socket
	Accounting string // the accounting file
	Dev        bool   // everything is below one directory (execd -dev, PADDOCK_DIR)
}

// DevPlaces returns the places of `execd -dev dir`.
func DevPlaces(dir string) Places {
	return Places{
		Config:     filepath.Join(dir, "etc"),
		Spool:      filepath.Join(dir, "spool"),
		State:      dir,
		Tmp:        filepath.Join(dir, "tmp"),
		Socket:     filepath.Join(dir, "execd.sock"),
		Accounting: filepath.Join(dir, "accounting"),
		Dev:        true,
	}
}

// RootPlaces returns the places of an execd that root started.
func RootPlaces() Places {
	return Places{
		Config:     "/etc/paddock",
		Spool:      "/var/spool/paddock",
		State:      "/var/lib/paddock",
		Tmp:        "/tmp",
		Socket:     "/run/paddock/execd.sock",
		Accounting: "/var/lib/paddock/accounting",
	}
}

// UserPlaces returns the places of an execd that an ordinary user started, by
// the XDG Base Directory specification.
func UserPlaces() Places {
	state := filepath.Join(xdg("XDG_STATE_HOME", ".local/state"), "paddock")
	run := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(run) {
		// The variable is not set under su, cron and ssh without systemd-logind.
		run = filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	}
	socket := filepath.Join(run, "paddock", "execd.sock")
	if !exists(run) {
		socket = filepath.Join(state, "execd.sock")
	}
	return Places{
		Config:     filepath.Join(xdg("XDG_CONFIG_HOME", ".config"), "paddock"),
		Spool:      filepath.Join(state, "spool"),
		State:      state,
		Tmp:        filepath.Join(state, "tmp"),
		Socket:     socket,
		Accounting: filepath.Join(state, "accounting"),
	}
}

// ClientPlaces returns the places a client command uses: those below $PADDOCK_DIR when
// it is set, else the host's when an execd of root's is there, else the user's own. Where
// neither is there, one of root's that was there may be about to come back.
func ClientPlaces() Places {
	if dir := os.Getenv("PADDOCK_DIR"); dir != "" {
		return DevPlaces(dir)
	}
	root, own := RootPlaces(), UserPlaces()
	if exists(root.Socket) || os.Getuid() == 0 || !exists(own.Socket) && exists(filepath.Dir(root.Socket)) {
		return root
	}
	return own
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// xdg returns the directory that variable names, or the one below the home
// directory; the specification wants relative paths ignored.
func xdg(variable, below string) string {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return filepath.Join(home, below)
}
