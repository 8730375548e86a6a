package soak

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// Who takes part: numbers that every host has users of, and numbers that are nobody's.
const (
	waiter, waiterToo        = 1, 2
	looker, deleter, dripper = 3, 4, 5
	victim                   = 65534
	strangers                = 3_000_000_000
)

// What another user has to get of execd meanwhile, at full size.
const (
	mostLatency = time.Second
	mostMemory  = 200 << 10 // kB
)

// TestHostileUsers has five users, and many whom the host does not know, do at the same
// time what they can to keep another one from execd: ask about all jobs 5,000 times in
// one request, delete them so, keep connections open, and send requests a byte at a
// time. The other user submits, looks and deletes meanwhile.
func TestHostileUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it takes several users")
	}
	words, conns, slow, held, rounds := part(5000, 1100), part(10500, 300), part(2000, 40), part(5000, 50), part(60, 3)
	base, err := os.MkdirTemp(top, "") //nolint:usetesting // kept when the test fails
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &soak{base: base, dir: filepath.Join(base, "pd"), bin: filepath.Join(base, "bin"), mode: "-root", via: []string{"prlimit", "--nofile=20000:20000"}}
	t.Cleanup(func() { s.cleanUp(t) })
	s.prepare(t)
	if err := os.WriteFile(filepath.Join(s.dir, "etc", "sge_conf"), []byte("min_uid 0\nmin_gid 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	for range held {
		s.submit(t, "-h", "-N", "held", "-b", "y", "true")
	}

	a := &attack{t: t, refused: map[api.Code]int{}, socket: api.DevPlaces(s.dir).Socket}
	ctx, cancel := context.WithCancel(t.Context())
	a.ctx = ctx
	defer a.over.Wait()
	defer cancel()
	wait := fmt.Sprintf(`{"job":%d}`, 1)
	a.flood(waiter, conns, harness.Posted(api.VerbWait, len(wait))+wait)
	a.flood(waiterToo, conns, harness.Posted(api.VerbWait, len(wait))+wait)
	a.drip(dripper, slow)
	a.ask(looker, api.VerbDetail, api.DetailRequest{Jobs: harness.Stars(words)}, api.DetailRequest{Jobs: harness.Stars(100)})
	a.ask(deleter, api.VerbDelete, api.DeleteRequest{Jobs: harness.Stars(words), Users: []string{"*"}}, api.DeleteRequest{Jobs: harness.Stars(100), Users: []string{"*"}})
	a.knock()

	slowest := map[string]time.Duration{}
	run := func(args ...string) string {
		t.Helper()
		begin := time.Now()
		out, err := s.commandAs(victim, args...)
		if err != nil {
			t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, out, s.log())
		}
		slowest[args[0]] = max(slowest[args[0]], time.Since(begin))
		return strings.TrimSpace(out)
	}
	var jobs []string
	for range rounds {
		jobs = append(jobs, run("qsub", "-terse", "-o", "/dev/null", "-j", "y", "-wd", "/", "-b", "y", "true"))
		waits := run("qsub", "-terse", "-h", "-b", "y", "-wd", "/", "true")
		run("qstat")
		run("qdel", waits)
	}
	if err := harness.WaitFor(harness.Patience, "all jobs to be accounted, and root's to be left", func() (bool, error) {
		return s.accounted(t) == len(jobs) && s.left(t) == held, nil
	}); err != nil {
		t.Error(err)
	}
	cancel()
	a.over.Wait()
	booked, err := harness.Accounting(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range jobs {
		if booked[n+".0"] != 1 {
			t.Errorf("job %s has %d accounting lines; want one", n, booked[n+".0"])
		}
	}
	memory, err := harness.StatusField(s.daemon.PID(), "VmHWM")
	if err != nil {
		t.Fatal(err)
	}
	var figures []string
	for _, name := range slices.Sorted(maps.Keys(slowest)) {
		figures = append(figures, fmt.Sprintf("%s %.0f ms", name, float64(slowest[name])/1e6))
		if *scale >= 1 && slowest[name] > mostLatency {
			t.Errorf("%s took %v; want at most %v", name, slowest[name], mostLatency)
		}
	}
	if *scale >= 1 && memory > mostMemory {
		t.Errorf("execd took %d MB; want at most %d", memory>>10, mostMemory>>10)
	}
	if err := s.daemon.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("at the longest %s; execd took %d MB; %d jobs accounted; refused %v, answered %d, unknown users turned away %d",
		strings.Join(figures, ", "), memory>>10, len(jobs), a.refused, a.answered, a.knocked)
}

// commandAs runs a client command as a user.
func (s *soak) commandAs(uid uint32, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, args[0]), args[1:]...)
	cmd.Env, cmd.Dir = append(os.Environ(), "PADDOCK_DIR="+s.dir, "HOME=/"), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// attack is what hostile users do until its context is done.
type attack struct {
	t      *testing.T
	ctx    context.Context
	socket string
	over   sync.WaitGroup

	refused map[api.Code]int // connections

	mu       sync.Mutex
	answered int // guarded by mu; requests, in whatever way
	knocked  int // guarded by mu; of users whom the host does not know
}

// flood opens connections, and keeps those open that execd keeps.
func (a *attack) flood(uid, n int, text string) (open []net.Conn) {
	a.t.Helper()
	const atOnce = 1000 // or this process would have as many open as it may
	for n > 0 {
		conns, err := harness.Flood(a.socket, uid, min(n, atOnce), text)
		if err != nil {
			a.t.Fatal(err)
		}
		n -= len(conns)
		if _, _, err := harness.Post(a.ctx, a.socket, 0, api.VerbStatus, struct{}{}); err != nil {
			a.t.Fatal(err)
		}
		conns, said := harness.Sift(conns)
		open = append(open, conns...)
		for code, count := range said {
			a.refused[code] += count
		}
	}
	a.over.Go(func() {
		<-a.ctx.Done()
		harness.CloseAll(open)
	})
	return open
}

// drip has a user send many requests, of each a byte in 5 s.
func (a *attack) drip(uid, n int) {
	conns := a.flood(uid, n, harness.Posted(api.VerbSubmit, 1<<20))
	a.over.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			for _, c := range conns {
				_, _ = io.WriteString(c, " ") // it may be closed by now
			}
			select {
			case <-a.ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

// ask has a user send requests as fast as they are answered, on four connections.
func (a *attack) ask(uid int, verb string, requests ...any) {
	for i := range 4 {
		a.over.Go(func() {
			for n := i; a.ctx.Err() == nil; n++ {
				if _, _, err := harness.Post(a.ctx, a.socket, uid, verb, requests[n%len(requests)]); err != nil && a.ctx.Err() == nil {
					a.t.Errorf("%s: %v", verb, err)
					return
				}
				a.mu.Lock()
				a.answered++
				a.mu.Unlock()
			}
		})
	}
}

// knock has users connect whom the host does not know, one after the other.
func (a *attack) knock() {
	a.over.Go(func() {
		for uid := strangers; a.ctx.Err() == nil; uid++ {
			status, _, err := harness.Post(a.ctx, a.socket, uid, api.VerbStatus, struct{}{})
			if a.ctx.Err() != nil {
				return
			}
			if err != nil || status == 200 {
				a.t.Errorf("user %d: %d, %v; want him turned away", uid, status, err)
				return
			}
			a.mu.Lock()
			a.knocked++
			a.mu.Unlock()
		}
	})
}
