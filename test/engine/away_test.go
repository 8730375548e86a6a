package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"paddock/test/harness"
)

// TestFrozen has a host stand still for longer than its lease: its job runs on another one, and what it tells when it goes
// on changes nothing.
func TestFrozen(t *testing.T) {
	d := newDatabase(t)
	super := d.as("postgres")
	d.tool("boss", "queue", "default", "lease=10 s", "grace=0 s")
	one := newHost(t, d, "one", 1)
	mark := filepath.Join(one.base, "mark")
	id := d.add("ann", "Cmd = \"/bin/sh\"\nArguments = \"-c 'test -e "+mark+" && exit 0; touch "+mark+"; sleep 600; exit 3'\"")[0]
	if err := harness.WaitFor(harness.Patience, "the job to begin", func() (bool, error) {
		_, err := os.Stat(mark)
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	await(t, super, "true", "select accepted from paddock.lease")
	frozen, err := harness.Processes(one.o.Dir)
	must(t, err)
	frozen = append(frozen, harness.Process{PID: serverPID(t, one)})
	for _, p := range frozen {
		must(t, syscall.Kill(p.PID, syscall.SIGSTOP))
	}
	newHost(t, d, "two", 1)
	await(t, super, "ok two", "select outcome || ' ' || host from paddock.done")
	for _, p := range frozen {
		must(t, syscall.Kill(p.PID, syscall.SIGCONT))
	}
	await(t, super, "true", "select count(*) > 0 from paddock.event where what = 'stale' and host = 'one' and job = $1", id)
	if got := value(t, super, "select string_agg(outcome || ' ' || host || ' ' || evictions, ',') from paddock.done"); got != "ok two 1" {
		t.Errorf("it ended: %s", got)
	}
}

// TestPooler has a host reach the database by a pooler that gives each transaction another connection.
func TestPooler(t *testing.T) {
	pooler, err := exec.LookPath("pgbouncer")
	if err != nil {
		pooler = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(pooler); err != nil {
		t.Skip("there is no pgbouncer: Debian's package is pgbouncer")
	}
	d := newDatabase(t)
	super := d.as("postgres")
	dir := filepath.Join(top, d.name+"_pooler")
	must(t, os.Mkdir(dir, 0o777))
	must(t, os.Chmod(dir, 0o777))
	conf := filepath.Join(dir, "pgbouncer.ini")
	// With this kind of authentication all are one user of the server, whom the entry of the database names.
	must(t, os.WriteFile(conf, []byte("[databases]\n"+d.name+" = host="+server.Dir+" user=hosts\n[pgbouncer]\nunix_socket_dir = "+dir+"\nlisten_addr =\nlisten_port = 5432\n"+
		"auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\nlogfile = "+dir+"/log\n"), 0o644))
	cmd := exec.Command(pooler, "-q", conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Setpgid: true}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := harness.WaitFor(harness.Patience, "the pooler", func() (bool, error) {
		_, err := os.Stat(filepath.Join(dir, ".s.PGSQL.5432"))
		return err == nil, nil
	}); err != nil {
		t.Fatalf("%v\n%s", err, read(t, filepath.Join(dir, "log")))
	}
	ids := d.add("ann", strings.Repeat(ad+"\n\n", 40))
	h := &host{base: filepath.Join(top, d.name+"_one")}
	h.write(t, "pooled.conf", fmt.Sprintf("connection host=%s user=hosts dbname=%s\nhost one\nlisten off\nconnections 4\n", dir, d.name))
	h.write(t, "pooled", "#!/bin/sh\nexec "+bin+"/paddock-pg -config "+h.base+"/pooled.conf serve\n")
	newHost(t, d, "one", 4, "PG_HOOK_SERVER = "+h.base+"/pooled")
	await(t, super, fmt.Sprint(len(ids)), "select count(*) from paddock.done where outcome = 'ok'")
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
