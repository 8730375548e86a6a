package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Postgres is a PostgreSQL of a test's own, which listens on a socket alone, and writes as durably as by default.
type Postgres struct {
	Dir string // of the socket and all else
	bin string
	who *syscall.Credential
}

// NewPostgres makes one in a new directory. Root alone can: it runs as the account postgres of Debian's package.
func NewPostgres(dir string) (*Postgres, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	account, err := user.Lookup("postgres")
	if len(found) == 0 || err != nil {
		return nil, errors.New("there is no PostgreSQL: Debian's package is postgresql")
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	p := &Postgres{Dir: dir, bin: slices.Max(found), who: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, uid, gid)); err != nil {
		return nil, err
	}
	return p, p.run("initdb", "-D", dir+"/data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")
}

func (p *Postgres) run(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.who, Setpgid: true}
	log, err := os.OpenFile(filepath.Join(p.Dir, "commands"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log // a file, since the server inherits it
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s: %w\n%s", name, err, text)
	}
	return nil
}

// Start starts it, and returns when it takes connections.
func (p *Postgres) Start() error {
	return p.run("pg_ctl", "-D", p.Dir+"/data", "-w", "-t", "60", "-l", p.Dir+"/log", "-o", "-k "+p.Dir+" -c listen_addresses='' -c fsync=on", "start")
}

// Stop ends it as a crash would, but for the disk.
func (p *Postgres) Stop() error {
	return p.run("pg_ctl", "-D", p.Dir+"/data", "-w", "-m", "immediate", "stop")
}

// PID returns the process that all others of the server have come of.
func (p *Postgres) PID() (int, error) {
	text, err := os.ReadFile(filepath.Join(p.Dir, "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(line)
}

// Connection is the connection string of an account to a database.
func (p *Postgres) Connection(login, database string) string {
	return fmt.Sprintf("host=%s user=%s dbname=%s", p.Dir, login, database)
}
