package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"paddock/test/harness"
)

// queueWord makes of this binary what is run in the machine of TestPowerCutsQueue.
const queueWord = "queue"

// queueScript is the first process of that machine. What PostgreSQL links is on the disk.
const queueScript = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
` + diskScript + programs + `/vm.test ` + queueWord + `
poweroff -f
`

const (
	clusterDir = mounted + "/pg"
	superuser  = "host=" + clusterDir + " user=postgres dbname=postgres"
)

// queueUnit is the job: its process is in a file of its number while it runs, and it leaves a line in a file of
// everybody's, which no power cut takes away once dd has returned. Busybox of Debian has no flock.
const queueUnit = `#!/bin/busybox sh
id=$(sed -n 's/^GlobalJobId = "\([0-9]*\)\..*/\1/p' "$_CONDOR_JOB_AD")
mark() { echo "<$id>" | dd of=` + mounted + `/$1 oflag=append conv=notrunc,fsync 2>/dev/null; }
test -s /tmp/run.$id && test -d /proc/$(cat /tmp/run.$id) && mark double
echo $$ >/tmp/run.$id
mark marks || exit 1
test "$(cat /tmp/run.$id)" = $$ || mark double
: >/tmp/run.$id
`

// queueMark is a mark in a line: of others a power cut has left a piece.
var queueMark = regexp.MustCompile(`<([0-9]+)>\n`)

// TestPowerCutsQueue has the power of a machine fail in which two hosts take jobs from a database, at random
// moments: while jobs are added, given out, run and reported, and while all recover from the cut before. All
// that were added succeed, once, no two runs of one are there at once, and none runs that has ended.
func TestPowerCutsQueue(t *testing.T) {
	cuts, rng := powerCuts(t, 10, 1)

	q := &queuePlant{t: t, base: t.TempDir(), added: map[string]bool{}, over: map[string]bool{}}
	q.prepare()
	for n := range cuts {
		// The first machine has all up after some 1,500 operations, others after some 700, and a job takes some dozen.
		operations := 500 + rng.IntN(3000)
		switch {
		case n == 0:
			operations += 2000
		case n%3 == 2: // while they recover
			operations = 1 + rng.IntN(500)
		}
		q.boot(operations)
		unflushed, lost := q.disk.lose(rng, []float64{0, 0.5, 1}[rng.IntN(3)])
		t.Logf("cut %d: after %d operations, %d of %d unflushed sectors lost; %d jobs added; %s", n+1, operations, lost, unflushed, len(q.added), strings.Join(q.story, "; "))
		if t.Failed() {
			return
		}
	}
	q.boot(0)
	t.Logf("%s", strings.Join(q.story, "; "))
	t.Logf("%d jobs were added, and %d have ended; %d runs were cut short", len(q.added), len(q.over), q.evictions)
	if len(q.over) == 0 || !q.settled {
		t.Error("no jobs have ended, or the last machine has not looked")
	}
}

// queuePlant is a disk, and what the machines that had it said.
type queuePlant struct {
	t    *testing.T
	base string
	disk *disk

	added     map[string]bool // whose addition was acknowledged
	over      map[string]bool // that have ended
	evictions int             // runs that were cut short, of those

	// Of the latest machine.
	story   []string
	settled bool
}

// prepare makes the disk, with a cluster on it that has the schema, the programs, and what they link.
func (q *queuePlant) prepare() {
	t := q.t
	content, root := filepath.Join(q.base, "content"), filepath.Join(q.base, "root")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(path, text string) {
		t.Helper()
		must(os.MkdirAll(filepath.Dir(path), 0o755))
		must(os.WriteFile(path, []byte(text), 0o755))
	}
	must(os.Mkdir(content, 0o755))
	must(os.Chmod(filepath.Dir(q.base), 0o755)) // postgres goes through it
	account, err := user.Lookup("postgres")
	if err != nil {
		t.Skip("needs PostgreSQL: Debian's package is postgresql")
	}
	bin := filepath.Join(content, "paddock")
	must(harness.Build(bin))
	must(harness.BuildTest(filepath.Join(bin, "vm.test"), "."))
	pg, err := harness.NewPostgres(filepath.Join(content, "pg"))
	must(err)
	must(pg.Start())
	for _, args := range [][]string{{"init"}, {"queue", "default", "lease=60 s", "grace=5 s", "max_evictions=1000"}} {
		out, err := exec.Command(filepath.Join(bin, "paddock-pg"), append([]string{"-d", pg.Connection("postgres", "postgres")}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("paddock-pg %v: %v\n%s", args, err, out)
		}
	}
	must(pg.Stop())
	for i, host := range []string{"one", "two"} {
		dir := filepath.Join(content, host)
		write(dir+"/etc/sge_conf", fmt.Sprintf("gid_range %d-%d\n", 20000+100*i, 20099+100*i))
		write(dir+"/etc/queues/all.q", "qname all.q\nslots 2\ntmpdir /tmp\n")
		write(dir+"/etc/hooks.conf", "RESERVED_DISK = 0\nFETCH_OWNERS = alice\nSTARTD_JOB_HOOK_KEYWORD = PG\nPG_HOOK_SERVER = "+mounted+"/"+host+"/serve\n"+
			"FETCH_WORK_AHEAD = TRUE\nFetchWorkDelay = State == \"Claimed\" && Activity != \"Idle\" ? 3600 : 0\n")
		write(dir+"/pg.conf", "connection "+superuser+"\nhost "+host+"\nrenew "+programs+"/execd -renew -root "+mounted+"/"+host+"\n")
		write(dir+"/serve", "#!/bin/sh\nexec "+programs+"/paddock-pg -config "+mounted+"/"+host+"/pg.conf serve\n")
	}
	write(content+"/unit", queueUnit)
	for _, name := range []string{"marks", "double"} {
		write(filepath.Join(content, name), "")
		must(os.Chmod(filepath.Join(content, name), 0o666))
	}

	write(root+"/init", queueScript)
	write(root+"/bin/getent", getent)
	write(root+"/etc/passwd", passwd+"paddock:x:990:990::/:/bin/sh\npostgres:x:"+account.Uid+":"+account.Gid+"::/:/bin/sh\n")
	write(root+"/etc/group", group+"paddock:x:990:\npostgres:x:"+account.Gid+":\n")
	must(os.Chmod(root, 0o755))
	must(os.Symlink(mounted+programs, root+programs))
	server, extra := serverFiles(t)
	for _, path := range append(extra, server) {
		to := filepath.Join(content, "sys", path)
		must(os.MkdirAll(filepath.Dir(to), 0o755))
		if out, err := exec.Command("cp", "-rL", path, to).CombinedOutput(); err != nil {
			t.Fatalf("cannot copy %s: %v\n%s", path, err, out)
		}
	}
	for _, top := range []string{"usr", "lib", "lib64"} {
		must(os.Symlink(mounted+"/sys/"+top, filepath.Join(root, top)))
	}
	must(os.WriteFile(filepath.Join(content, "server"), []byte(server), 0o644))
	q.disk = diskOf(t, content, "384M")
}

// serverFiles returns the program of the server, and what else of the host it needs.
func serverFiles(t *testing.T) (server string, extra []string) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Skip("needs PostgreSQL: Debian's package is postgresql")
	}
	server = slices.Max(found)
	version := filepath.Base(filepath.Dir(filepath.Dir(server)))
	libraries := filepath.Join(filepath.Dir(filepath.Dir(server)), "lib")
	extra = []string{
		filepath.Join(libraries, "plpgsql.so"), filepath.Join(libraries, "dict_snowball.so"),
		filepath.Join("/usr/share/postgresql", version), "/usr/share/zoneinfo/Etc",
	}
	out, err := exec.Command("ldd", server).Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/lib") || strings.HasPrefix(word, "/usr/lib") {
			extra = append(extra, word)
		}
	}
	return server, extra
}

// boot runs a machine until the power fails after so many operations of the disk, or, when that is 0, until
// all jobs are over.
func (q *queuePlant) boot(operations int) {
	q.story, q.settled = nil, false
	if err := os.WriteFile(filepath.Join(q.base, "root", sofar), fmt.Append(nil, operations == 0), 0o644); err != nil {
		q.t.Fatal(err)
	}
	runUntil(q.t, q.base, q.disk, operations, q.hear, "VM_MEM=1024")
}

// hear takes in what the machine says.
func (q *queuePlant) hear(text string) {
	word, rest, _ := strings.Cut(text, " ")
	f := strings.Fields(rest)
	switch {
	case word == "up" || word == "ready" || word == "database":
		q.story = append(q.story, text)
	case word == "cut":
	case word == "added" && len(f) == 1:
		q.added[f[0]] = true
	case word == "done" && len(f) == 5: // a job, how it has ended, its ends, runs that were cut short, and marks
		evictions, _ := strconv.Atoi(f[3])
		marks, _ := strconv.Atoi(f[4])
		if f[1] != "ok" || f[2] != "1" || marks < 1 || marks > evictions+1 {
			q.t.Errorf("job %s: %s, %s ends, %d runs cut short, and %d marks", f[0], f[1], f[2], evictions, marks)
		}
		if !q.over[f[0]] {
			q.over[f[0]] = true
			q.evictions += evictions
		}
	case word == "settled" && len(f) == 1: // so many jobs have ended
		q.settled = true
		q.story = append(q.story, text)
		if n, _ := strconv.Atoi(f[0]); n < len(q.over) {
			q.t.Errorf("%d ends are there, and %d were", n, len(q.over))
		}
		for id := range q.added {
			if !q.over[id] {
				q.t.Errorf("job %s was added, and is lost", id)
			}
		}
	default:
		q.t.Errorf("the machine says: %s", text)
	}
}

// loadQueue is what the machine runs.
func loadQueue() {
	say("up")
	if err := powerQueue(); err != nil {
		say("bad %s", strings.ReplaceAll(err.Error(), "\n", " | "))
	}
	os.Exit(0)
}

func powerQueue() error {
	last := read(sofar) == "true"
	if out, err := command("dmesg"); err != nil || strings.Contains(out, "EXT4-fs error") {
		return fmt.Errorf("the file system is damaged: %v\n%s", err, out)
	}
	if err := endLine(mounted + "/marks"); err != nil {
		return err
	}
	before, err := overBefore()
	if err != nil {
		return err
	}
	db, err := startServer()
	if err != nil {
		return err
	}
	ctx := context.Background()
	var hosts []*running
	for _, host := range []string{"one", "two"} {
		h, err := startDaemon(mounted + "/" + host)
		if err != nil {
			return err
		}
		hosts = append(hosts, h)
	}
	stuck := func(what string) error {
		for _, h := range hosts {
			what += "\n" + h.log()
		}
		return errors.New(what)
	}
	left := ""
	for end := time.Now().Add(5 * patience); ; time.Sleep(100 * time.Millisecond) {
		if err := db.QueryRow(ctx, `select (select count(*) from paddock.job) + (select count(*) from paddock.lease) || ' jobs and leases: ' ||
			coalesce((select string_agg(l::text, ' ') from paddock.lease l), '')`).Scan(&left); err != nil {
			return err
		}
		if strings.HasPrefix(left, "0 ") {
			break
		}
		if time.Now().After(end) {
			return stuck("not all jobs have ended: " + left)
		}
	}
	if double := read(mounted + "/double"); double != "" {
		return fmt.Errorf("two runs of a job were there at once: %q", double)
	}
	marks := map[string]int{}
	for _, m := range queueMark.FindAllStringSubmatch(read(mounted+"/marks"), -1) {
		marks[m[1]]++
	}
	for id, n := range before {
		if marks[id] != n {
			return fmt.Errorf("job %s had ended, and ran again", id)
		}
	}
	rows, err := db.Query(ctx, "select id, min(outcome), count(*), max(evictions) from paddock.done group by id order by id")
	if err != nil {
		return err
	}
	n := 0
	var remembered strings.Builder
	var id, ends, evictions int
	var outcome string
	if _, err := pgx.ForEachRow(rows, []any{&id, &outcome, &ends, &evictions}, func() error {
		n++
		key := strconv.Itoa(id)
		say("done %d %s %d %d %d", id, outcome, ends, evictions, marks[key])
		fmt.Fprintln(&remembered, key, marks[key])
		return nil
	}); err != nil {
		return err
	}
	if err := remember(remembered.String()); err != nil {
		return err
	}
	say("settled %d", n)
	if last {
		return nil
	}
	return addAll(db, stuck)
}

// ends is where a machine leaves for the next what has ended, with the marks of each.
const ends = mounted + "/ends"

func overBefore() (map[string]int, error) {
	before := map[string]int{}
	for line := range strings.Lines(read(ends)) {
		var id string
		var n int
		if _, err := fmt.Sscan(line, &id, &n); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", ends, err)
		}
		before[id] = n
	}
	return before, nil
}

// remember writes what overBefore reads; no power cut takes it away.
func remember(text string) error {
	f, err := os.Create(ends + ".new")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(ends+".new", ends)
}

// startServer starts PostgreSQL and returns a connection to it.
func startServer() (*pgx.Conn, error) {
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	log, err := os.Create("/tmp/pg.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	server := exec.Command(read(mounted+"/server"), "-D", clusterDir+"/data", "-k", clusterDir, "-c", "listen_addresses=", "-c", "fsync=on",
		"-c", "max_wal_size=32MB", "-c", "shared_buffers=16MB", "-c", "dynamic_shared_memory_type=mmap")
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := server.Start(); err != nil {
		return nil, err
	}
	gone := make(chan error, 1)
	go func() { gone <- server.Wait() }()
	begun := time.Now()
	for {
		db, err := pgx.Connect(context.Background(), superuser)
		if err == nil {
			say("database after %v", time.Since(begun).Round(time.Millisecond))
			return db, nil
		}
		select {
		case end := <-gone:
			return nil, fmt.Errorf("the database has not started: %v: %s", end, read("/tmp/pg.log"))
		case <-time.After(100 * time.Millisecond):
		}
		if time.Since(begun) > patience {
			return nil, fmt.Errorf("the database does not answer: %w: %s", err, read("/tmp/pg.log"))
		}
	}
}

// addAll adds jobs until the power fails, and says each whose addition was acknowledged.
func addAll(db *pgx.Conn, stuck func(string) error) error {
	for end := time.Now().Add(patience); ; {
		var waiting int
		if err := db.QueryRow(context.Background(), "select count(*) from paddock.job").Scan(&waiting); err != nil {
			return err
		}
		if waiting >= backlog {
			if time.Now().After(end) {
				return stuck("no job ends")
			}
			time.Sleep(20 * time.Millisecond)
			continue
		}
		end = time.Now().Add(patience)
		var id int
		if err := db.QueryRow(context.Background(), `select paddock.submit(E'Cmd = "`+mounted+`/unit"\nIwd = "/tmp"\nOut = "/dev/null"\nErr = "/dev/null"',
			owner => 'alice')`).Scan(&id); err != nil {
			return err
		}
		say("added %d", id)
	}
}
