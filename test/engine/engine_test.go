// Package engine holds the tests of paddock-pg with a real PostgreSQL, which `make engine` installs: real
// execds that take jobs from a database while they, the hook server and the database are killed, and
// what the database allows whom; and of pilots in jobs of a real Slurm and a real Grid Engine. It runs as root. Nobody imports it.
package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"paddock/test/harness"
)

var scale = flag.Float64("scale", 0.01, "size: 1 means 10,000 jobs, 20 kills of execd, 20 of the hook server and 10 of PostgreSQL, and 1,000 forged reports")

var (
	top    string // below which everything is made
	bin    string // the binaries
	server *harness.Postgres
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	flag.Parse()
	if os.Getenv("PADDOCK_ENGINE") == "" || os.Getuid() != 0 {
		fmt.Println("engine: not run: it needs root and a PostgreSQL, which make engine installs")
		return 0
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "engine: %v\n", err)
		return max(code, 1)
	}
	return code
}

func run(m *testing.M) (code int, err error) {
	if top, err = harness.Base("engine"); err != nil {
		return 1, err
	}
	bin = filepath.Join(top, "bin")
	if err := harness.Build(bin); err != nil {
		return 1, err
	}
	if server, err = harness.NewPostgres(filepath.Join(top, "pg")); err != nil {
		return 1, err
	}
	if err = server.Start(); err == nil {
		code = m.Run()
	}
	err = errors.Join(err, server.Stop())
	if code != 0 && os.Getenv("PADDOCK_KEEP") != "" {
		return code, errors.Join(err, harness.Keep(top))
	}
	return code, errors.Join(err, os.RemoveAll(top))
}

// part returns n in proportion to the size, and some at least.
func part(n, least int) int { return max(int(float64(n)**scale), least) }

// database is one of a test's own, with the schema.
type database struct {
	name string
	t    *testing.T
}

// logins are the accounts that tests connect as, with their role; postgres is the superuser.
var logins = map[string]string{
	"ann": "paddock_submit", "bob": "paddock_submit", "hosts": "paddock_host", "hosts2": "paddock_host", "reader": "paddock_read", "boss": "paddock_admin",
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{name: strings.ToLower(strings.NewReplacer("/", "_").Replace(t.Name())), t: t}
	super := connect(t, "postgres", "postgres")
	must(t, exec1(super, "create database "+d.name))
	d.tool("postgres", "init")
	for login, role := range logins {
		var there bool
		must(t, super.QueryRow(t.Context(), "select exists (select from pg_roles where rolname = $1)", login).Scan(&there))
		if !there {
			must(t, exec1(super, fmt.Sprintf("create role %s login in role %s", login, role)))
		}
	}
	return d
}

func exec1(c *pgx.Conn, sql string, args ...any) error {
	_, err := c.Exec(context.Background(), sql, args...)
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, login, name string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), connection(login, name)) // also while a test cleans up
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func connection(login, name string) string {
	return fmt.Sprintf("host=%s user=%s dbname=%s", server.Dir, login, name)
}

// as connects as an account.
func (d *database) as(login string) *pgx.Conn { return connect(d.t, login, d.name) }

// command returns a command of paddock-pg as an account of the database.
func (d *database) command(login string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(bin, "paddock-pg"), args...)
	cmd.Env = append(os.Environ(), "PADDOCK_PG="+connection(login, d.name))
	return cmd
}

// tool runs paddock-pg as an account of the database, and returns what it prints.
func (d *database) tool(login string, args ...string) string {
	d.t.Helper()
	out, err := d.command(login, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("paddock-pg %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// add adds jobs, whose ads are separated by empty lines, and returns their numbers.
func (d *database) add(login, ads string, options ...string) (ids []int64) {
	d.t.Helper()
	cmd := d.command(login, append([]string{"add"}, options...)...)
	cmd.Stdin = strings.NewReader(ads)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("paddock-pg add: %v\n%s", err, out)
	}
	for word := range strings.FieldsSeq(string(out)) {
		id, err := strconv.ParseInt(word, 10, 64)
		must(d.t, err)
		ids = append(ids, id)
	}
	return ids
}

// value returns what a query says, as a text.
func value(t *testing.T, c *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	var v *string
	if err := c.QueryRow(t.Context(), "select (("+sql+")::text)", args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if v == nil {
		return ""
	}
	return *v
}

// await waits until a query says what it should.
func await(t *testing.T, c *pgx.Conn, want, sql string, args ...any) {
	t.Helper()
	got := ""
	if err := harness.WaitFor(2*harness.Patience, want+" of "+sql, func() (bool, error) {
		got = value(t, c, sql, args...)
		return got == want, nil
	}); err != nil {
		t.Fatalf("%v: it is %q", err, got)
	}
}

// host is an execd that takes jobs from a database.
type host struct {
	*harness.Daemon
	base string
	o    harness.Options
}

// newHost starts an execd with some slots.
func newHost(t *testing.T, d *database, name string, slots int, knobs ...string) *host {
	t.Helper()
	h := &host{base: filepath.Join(top, d.name+"_"+name)}
	h.o = harness.Options{Bin: bin, Dir: filepath.Join(h.base, "pd")}
	h.write(t, "pg.conf", fmt.Sprintf("connection %s\nhost %s\nrenew %s/execd -renew -dev %s\n", connection("hosts", d.name), name, bin, h.o.Dir))
	h.write(t, "serve", fmt.Sprintf("#!/bin/sh\nexec %s/paddock-pg -config %s/pg.conf serve\n", bin, h.base))
	h.write(t, "pd/etc/queues/all.q", fmt.Sprintf("qname all.q\nslots %d\n", slots))
	h.write(t, "pd/etc/hooks.conf", "STARTD_JOB_HOOK_KEYWORD = PG\nPG_HOOK_SERVER = "+h.base+"/serve\n"+
		"FETCH_WORK_AHEAD = TRUE\nFetchWorkDelay = State == \"Claimed\" && Activity != \"Idle\" ? 3600 : 0\n"+strings.Join(knobs, "\n")+"\n")
	h.start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, h.Log())
		}
		if !h.Exited() {
			if err := h.Stop(); err != nil {
				t.Error(err)
			}
		}
		left, err := harness.LeftBehind(h.o.Dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
			harness.KillLeft(h.o.Dir)
		}
	})
	return h
}

func (h *host) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(h.base, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, harness.WriteExecutable(path, text))
}

func (h *host) start(t *testing.T) {
	t.Helper()
	var err error
	if h.Daemon, err = harness.Start(h.o); err != nil {
		t.Fatal(err)
	}
}

// killServer kills the hook server, if one runs.
func (h *host) killServer(t *testing.T) {
	t.Helper()
	if pid := serverPID(t, h); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// serverPID returns the process of the hook server, 0 if there is none.
func serverPID(t *testing.T, h *host) int {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, path := range found {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), h.base+"/pg.conf\x00serve") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// connectQuietly returns nil if the database is away.
func connectQuietly(t *testing.T, d *database) *pgx.Conn {
	c, err := pgx.Connect(t.Context(), connection("postgres", d.name))
	if err != nil {
		return nil
	}
	return c
}

// execd runs the command execd.
func (h *host) execd(args ...string) ([]byte, error) {
	return exec.Command(filepath.Join(bin, "execd"), args...).CombinedOutput()
}
