package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"paddock/test/harness"
)

// classesOfQueue is how many classes of jobs wait.
const classesOfQueue = 50

// engineTime measures the queue in PostgreSQL: what a claim takes, made as the hook server makes it, and what a job takes by
// the hook server as execd asks it.
func (b *bench) engineTime() (err error) {
	pg, err := harness.NewPostgres(filepath.Join(b.base, "pg"))
	if err != nil {
		return err
	}
	if err := pg.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	few, err := b.newQueue(pg, "few")
	if err != nil {
		return err
	}
	defer few.close()
	many, err := b.newQueue(pg, "many")
	if err != nil {
		return err
	}
	defer many.close()
	ready, rounds, claims := b.size(1_000_000, 5_000), b.size(5, 1), b.size(500, 100)
	if err := many.fill(ready); err != nil {
		return err
	}
	var ofFew, ofMany, ofEight []time.Duration
	for range rounds {
		if err := few.fill(1000); err != nil {
			return err
		}
		for _, m := range []struct {
			q     *queueBench
			conns int
			all   *[]time.Duration
		}{{few, 1, &ofFew}, {many, 1, &ofMany}, {many, 8, &ofEight}} {
			took, err := m.q.claim(m.conns, claims)
			if err != nil {
				return err
			}
			*m.all = append(*m.all, took)
		}
	}
	perSecond := func(d time.Duration) float64 { return float64(claims) / d.Seconds() }
	what := fmt.Sprintf(" with %d ready in %d classes", ready, classesOfQueue)
	b.report(row{what: "claims a second" + what, unit: "/s", ours: perSecond(median(ofMany)), alone: true, limit: 1000, atLeast: true})
	b.report(row{what: "the same by eight connections", unit: "/s", ours: perSecond(median(ofEight)), alone: true, limit: 1500, atLeast: true})
	b.report(row{what: "a claim, by that with 1,000 ready", unit: "ms", theirs: milliseconds(median(ofFew)) / float64(claims), ours: milliseconds(median(ofMany)) / float64(claims), limit: 1.3})
	if err := b.besideRiver(pg, many); err != nil {
		return err
	}
	return b.held(pg, many)
}

// besideRiver measures jobs that are claimed and finished, by eight at a time.
func (b *bench) besideRiver(pg *harness.Postgres, q *queueBench) error {
	jobs := b.size(5000, 200)
	river := filepath.Join(b.base, "river")
	build := exec.Command("go", "build", "-o", river, ".")
	build.Dir = filepath.Join(harness.Root(), "test", "bench", "river")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the peer: %w\n%s", err, out)
	}
	if err := sql(pg.Connection("postgres", "postgres"), "create database river"); err != nil {
		return err
	}
	out, err := exec.Command(river, "-dsn", pg.Connection("postgres", "river"), "-jobs", strconv.Itoa(jobs), "-workers", "8").Output()
	if err != nil {
		return fmt.Errorf("the peer: %w", err)
	}
	theirs, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		return err
	}
	took, err := q.each(8, jobs, func(n int) error {
		ad, err := q.fetch(n)
		if err != nil {
			return err
		}
		return q.finish(n, ad)
	})
	if err != nil {
		return err
	}
	// River matches nothing, gives no lease and fences nothing: the limit only tells when that gets dearer.
	b.report(row{what: "claimed and finished a second by eight, beside River", unit: "/s", theirs: theirs, ours: float64(jobs) / took.Seconds(), limit: 0.15, atLeast: true})
	return nil
}

// held measures claims while a transaction is held open, so that nothing dead can be removed.
func (b *bench) held(pg *harness.Postgres, q *queueBench) error {
	const rate = 200 // jobs a second
	lasts := time.Duration(b.size(600, 2)) * time.Second
	conn, err := pgx.Connect(context.Background(), pg.Connection("postgres", q.database))
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for _, statement := range []string{"begin isolation level repeatable read", "select count(*) from paddock.queue"} {
		if _, err := conn.Exec(context.Background(), statement); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var working sync.WaitGroup
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	end := time.Now().Add(lasts)
	// A slot asks again when it is free, and not before.
	slots := make(chan int, 40)
	for n := range cap(slots) {
		slots <- n
	}
	for time.Now().Before(end) {
		<-tick.C
		slot := <-slots
		working.Go(func() {
			defer func() { slots <- slot }()
			begin := time.Now()
			ad, err := q.fetch(slot)
			one := time.Since(begin)
			if err == nil {
				err = q.finish(slot, ad)
			}
			mu.Lock()
			defer mu.Unlock()
			took, failed = append(took, one), errors.Join(failed, err)
		})
	}
	working.Wait()
	if failed != nil {
		return failed
	}
	b.report(row{
		what: fmt.Sprintf("a claim, 99th of 100, %d jobs after a transaction began", len(took)), unit: "ms",
		ours: milliseconds(percentile(took, 99)), alone: true, limit: 30,
	})
	return nil
}

// sql runs a statement.
func sql(connection, statement string, args ...any) error {
	c, err := pgx.Connect(context.Background(), connection)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	_, err = c.Exec(context.Background(), statement, args...)
	return err
}

// queueBench is a queue and the hook server of a host.
type queueBench struct {
	database   string
	connection string // of the superuser
	server     *exec.Cmd
	in         io.WriteCloser
	next       atomic.Int64 // the number of a call, and of a slot
	mu         sync.Mutex   // held by who writes a frame
	open       sync.Map     // by number: a channel for the answer
	ends       chan end
}

// end is one of a job that is to be told.
type end struct {
	ad    string
	heard chan<- error
}

// newQueue makes a database and starts a hook server with eight connections.
func (b *bench) newQueue(pg *harness.Postgres, name string) (*queueBench, error) {
	q := &queueBench{database: name, connection: pg.Connection("postgres", name), ends: make(chan end, 100)}
	db, err := b.newDatabase(pg, name)
	if err != nil {
		return nil, err
	}
	db.Close(context.Background())
	conf := filepath.Join(b.base, name+".conf")
	if err := os.WriteFile(conf, []byte("connection "+q.connection+"\nconnections 8\nhost bench\nrenew true\n"), 0o644); err != nil {
		return nil, err
	}
	q.server = exec.Command(filepath.Join(b.bin, "paddock-pg"), "-config", conf, "serve")
	q.server.Stderr = os.Stderr
	out, err := q.server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if q.in, err = q.server.StdinPipe(); err != nil {
		return nil, err
	}
	if err := q.server.Start(); err != nil {
		return nil, err
	}
	go q.read(out)
	go q.report()
	_, err = io.WriteString(q.in, "HELLO 1\n")
	return q, err
}

func (q *queueBench) close() {
	close(q.ends)
	q.in.Close()
	_ = q.server.Wait()
}

// read hands answers to who waits for them.
func (q *queueBench) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		var number int64
		var status, size int
		if n, _ := fmt.Sscanf(line, "DONE %d %d %d", &number, &status, &size); n != 3 {
			continue // HELLO
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(r, text); err != nil {
			return
		}
		if answer, ok := q.open.LoadAndDelete(number); ok {
			answer.(chan string) <- string(text)
		}
	}
}

// call makes a call of a hook and returns what it printed.
func (q *queueBench) call(hook, word, input string) (string, error) {
	number := q.next.Add(1)
	answer := make(chan string, 1)
	q.open.Store(number, answer)
	head := fmt.Sprintf("CALL %d %s %d", number, hook, len(input))
	if word != "" {
		head += " " + word
	}
	q.mu.Lock()
	_, err := io.WriteString(q.in, head+"\n"+input)
	q.mu.Unlock()
	if err != nil {
		return "", err
	}
	select {
	case text := <-answer:
		return text, nil
	case <-time.After(harness.Patience):
		return "", fmt.Errorf("%s is not answered", hook)
	}
}

func slotAd(n int) string {
	return fmt.Sprintf("Name = \"slot1_%d@bench\"\nMachine = \"bench\"\nState = \"Unclaimed\"\nActivity = \"Idle\"\nCpus = 1\nMemory = 4000\nDisk = 100000000\n", n)
}

// fetch has a slot ask for work, and returns the ad of what it is given.
func (q *queueBench) fetch(slot int) (string, error) {
	ad, err := q.call("FETCH_WORK", "", slotAd(slot))
	if err == nil && ad == "" {
		err = errors.New("there is no work")
	}
	return ad, err
}

// finish accepts work and reports its end.
func (q *queueBench) finish(slot int, ad string) error {
	if _, err := q.call("REPLY_FETCH", "accept", ad+"\n-----\n"+slotAd(slot)); err != nil {
		return err
	}
	heard := make(chan error, 1)
	q.ends <- end{ad + "\nExitCode = 0\n", heard}
	return <-heard
}

// report tells the ends of jobs as execd does: one call at a time, with all that wait for it.
func (q *queueBench) report() {
	for first := range q.ends {
		words, ads, heard := "exit", first.ad, []chan<- error{first.heard}
		for len(q.ends) > 0 {
			e := <-q.ends
			words, ads, heard = words+" exit", ads+"\n-----\n"+e.ad, append(heard, e.heard)
		}
		_, err := q.call("REPORT_WORK", words, ads)
		for _, h := range heard {
			h <- err
		}
	}
}

// each calls something n times, some at a time, and returns what all took.
func (q *queueBench) each(atOnce, n int, do func(n int) error) (time.Duration, error) {
	begin := time.Now()
	var next atomic.Int64
	errs := make([]error, atOnce)
	var working sync.WaitGroup
	for i := range atOnce {
		working.Go(func() {
			for k := next.Add(1); k <= int64(n) && errs[i] == nil; k = next.Add(1) {
				errs[i] = do(int(k))
			}
		})
	}
	working.Wait()
	return time.Since(begin), errors.Join(errs...)
}

// claim has slots claim a job each over some connections at a time, as many hosts.
func (q *queueBench) claim(conns, n int) (time.Duration, error) {
	hosts := make(chan *claimer, conns)
	for i := range conns {
		h, err := newClaimer(q.connection, fmt.Sprint("host", i))
		if err != nil {
			return 0, err
		}
		defer h.conn.Close(context.Background())
		if err := h.claim(q.next.Add(1)); err != nil { // what it knows of the classes it knows once a second
			return 0, err
		}
		hosts <- h
	}
	return q.each(conns, n, func(int) error {
		h := <-hosts
		defer func() { hosts <- h }()
		return h.claim(q.next.Add(1))
	})
}

// claimer claims jobs over one connection.
type claimer struct {
	conn    *pgx.Conn
	host    string
	classes []int32 // in the order of their lows
	lows    []int64 // by class: no job is before
}

func (h *claimer) Len() int           { return len(h.lows) }
func (h *claimer) Less(i, j int) bool { return h.lows[i] < h.lows[j] }
func (h *claimer) Swap(i, j int) {
	h.lows[i], h.lows[j] = h.lows[j], h.lows[i]
	h.classes[i], h.classes[j] = h.classes[j], h.classes[i]
}

func newClaimer(connection, host string) (*claimer, error) {
	conn, err := pgx.Connect(context.Background(), connection+" default_query_exec_mode=exec")
	if err != nil {
		return nil, err
	}
	h := &claimer{conn: conn, host: host}
	if err := conn.QueryRow(context.Background(), "select array_agg(id order by id) from paddock.class").Scan(&h.classes); err != nil {
		return nil, errors.Join(err, conn.Close(context.Background()))
	}
	h.lows = make([]int64, len(h.classes))
	return h, nil
}

// claim has a slot claim a job.
func (h *claimer) claim(slot int64) error {
	var ad string
	var heads []*int64
	if err := h.conn.QueryRow(context.Background(), "select ad, heads from paddock.claim_many($1, $2, $3, $4)",
		h.host, []string{fmt.Sprint(slot)}, h.classes, h.lows).Scan(&ad, &heads); err != nil {
		return fmt.Errorf("cannot claim: %w", err)
	}
	for i, head := range heads {
		if head != nil {
			h.lows[i] = *head
		}
	}
	sort.Stable(h)
	return nil
}

// fill has so many jobs be ready, in classes that the slots of this benchmark may all have. Those that were left
// by an earlier call go.
func (q *queueBench) fill(n int) error {
	ad := "Cmd = \"/bin/true\"\nIwd = \"/tmp\"\nOut = \"/dev/null\"\nErr = \"/dev/null\"\n" +
		"Environment = \"" + strings.Repeat("x", 500) + "\"\n"
	c, err := pgx.Connect(context.Background(), q.connection)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	for _, statement := range []string{
		"truncate paddock.job, paddock.ready, paddock.lease, paddock.waiting",
		fmt.Sprintf("insert into paddock.class (sig, queue, owner, cpus, memory_mb, disk_kb, gpus, ad) "+
			"select sha256(n::text::bytea), 'default', 'nobody', 1, n, 1, 0, 'requestmemory = ' || n from generate_series(1, %d) n on conflict do nothing", classesOfQueue),
		fmt.Sprintf("insert into paddock.job (class, owner, queue, submitted, priority, rank, ad) "+
			"select c.id, 'nobody', 'default', now(), 0, n, '%s' || 'RequestMemory = ' || c.memory_mb from generate_series(1, %d) n "+
			"join paddock.class c on c.memory_mb = n %% %d + 1", ad, n, classesOfQueue),
		"insert into paddock.ready (class, rank, id) select class, rank, id from paddock.job",
		"vacuum analyze paddock.job, paddock.ready, paddock.class",
		"checkpoint",
	} {
		if _, err := c.Exec(context.Background(), statement); err != nil {
			return fmt.Errorf("cannot fill the queue: %w", err)
		}
	}
	return nil
}
