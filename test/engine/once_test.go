package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/test/harness"
)

// TestOnce has jobs run on two hosts while their execds, their hook servers and PostgreSQL are killed: each of
// them runs once, and all ends are heard.
func TestOnce(t *testing.T) {
	total, kills, stops := part(10000, 200), part(20, 2), part(10, 1)
	d := newDatabase(t)
	dir := filepath.Join(top, d.name)
	must(t, os.Mkdir(dir, 0o777))
	must(t, os.Chmod(dir, 0o777))
	// A run holds a lock, which does not outlive it.
	unit := filepath.Join(dir, "unit")
	must(t, harness.WriteExecutable(unit, "#!/bin/sh\ncd "+dir+"\nexec 9>lock.$1\nflock -n 9 || echo $1 >>double\necho $1 >>ran\n"))
	var ads strings.Builder
	for i := range total {
		fmt.Fprintf(&ads, "Cmd = \"%s\"\nArguments = \"%d\"\n\n", unit, i)
	}
	hosts := []*host{newHost(t, d, "one", 4), newHost(t, d, "two", 4)}
	began := time.Now()
	d.add("ann", ads.String())

	ended := func() (n int) {
		for range 100 { // while the database is there
			c := connectQuietly(t, d)
			if c == nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			err := c.QueryRow(t.Context(), "select count(*) from paddock.done").Scan(&n)
			c.Close(t.Context())
			if err == nil {
				return n
			}
		}
		return n
	}
	// Something is killed whenever another part of the jobs is over.
	acts := make([]func(), 0, 2*kills+stops)
	for range kills {
		acts = append(acts, func() {
			h := hosts[rand.IntN(2)]
			h.Kill()
			h.start(t)
		}, func() { hosts[rand.IntN(2)].killServer(t) })
	}
	for range stops {
		acts = append(acts, func() {
			must(t, server.Stop())
			must(t, server.Start())
		})
	}
	rand.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
	for i, act := range acts {
		want := total * (i + 1) / (len(acts) + 1)
		if err := harness.WaitFor(5*harness.Patience, fmt.Sprintf("%d jobs to be over", want), func() (bool, error) { return ended() >= want, nil }); err != nil {
			t.Fatalf("%v: %d are", err, ended())
		}
		act()
	}
	if err := harness.WaitFor(10*harness.Patience, "all jobs to be over", func() (bool, error) { return ended() == total, nil }); err != nil {
		t.Fatalf("%v: %d of %d are", err, ended(), total)
	}
	t.Logf("%d jobs in %.1f s, with %d kills of execd, %d of the hook server and %d of PostgreSQL", total, time.Since(began).Seconds(), kills, kills, stops)

	ran, err := os.ReadFile(filepath.Join(dir, "ran"))
	must(t, err)
	times := map[string]int{}
	for line := range strings.FieldsSeq(string(ran)) {
		times[line]++
	}
	for i := range total {
		if n := times[fmt.Sprint(i)]; n != 1 {
			t.Errorf("job %d ran %d times", i, n)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "double")); err == nil {
		t.Error("two runs of a job were there at once")
	}
	super := d.as("postgres")
	if got := value(t, super, "select count(*) filter (where outcome = 'ok') || ' ' || count(distinct id) from paddock.done"); got != fmt.Sprintf("%d %d", total, total) {
		t.Errorf("succeeded, and over: %s; want all %d", got, total)
	}
	for _, table := range []string{"job", "ready", "waiting", "lease", "depend"} {
		if n := value(t, super, "select count(*) from paddock."+table); n != "0" {
			t.Errorf("table %s has %s rows left", table, n)
		}
	}
}
