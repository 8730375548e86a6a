package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/execd/api"
	"paddock/test/harness"
)

// Users that every host has, and numbers that are nobody's.
const (
	daemonUser = 1
	strangers  = 3_000_000_000
)

// TestOneUserExhaustsNobody has users do what they can to keep another one from execd.
// While each attack stands the other user submits, looks and deletes.
func TestOneUserExhaustsNobody(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("needs root: it takes several users")
	}
	f := makeField(t, true, "slots 2\n")
	if err := os.WriteFile(filepath.Join(f.dir, "etc", "sge_conf"), []byte("min_uid 0\nmin_gid 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Few descriptors: of 400, 100 are for clients, of which one user may have 50 and the
	// next 25.
	f.via = []string{"prlimit", "--nofile=400"}
	f.start()
	socket := api.DevPlaces(f.dir).Socket
	const held = 30
	for range held {
		f.submit("-h", "-b", "y", "-N", "held", "true")
	}
	// others is what the other user does meanwhile; every job of his is accounted in
	// the end.
	others := func(while string) {
		t.Helper()
		job := f.submit("-b", "y", "-N", "mine", "true")
		if out, err := f.command("qstat"); err != nil || strings.Count(out, " held ") != held {
			t.Errorf("%s: qstat: %v\n%s", while, err, out)
		}
		f.over(job, "0 0")
		waits := f.submit("-h", "-b", "y", "true")
		if out, err := f.command("qdel", fmt.Sprint(waits)); err != nil {
			t.Errorf("%s: qdel: %v\n%s", while, err, out)
		}
	}
	post := func(uid int, verb string, request any) (int, string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		status, text, err := harness.Post(ctx, socket, uid, verb, request)
		if err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		return status, string(text)
	}

	// Words that mean all jobs: too many are refused, and the most that there may be
	// tell of each job once.
	for verb, ask := range map[string]func([]string) any{
		api.VerbDetail: func(w []string) any { return api.DetailRequest{Jobs: w} },
		api.VerbDelete: func(w []string) any { return api.DeleteRequest{Jobs: w, Users: []string{"*"}} },
		api.VerbModify: func(w []string) any { return api.ModifyRequest{Action: api.ActionSuspend, Jobs: w} },
		api.VerbAlter: func(w []string) any {
			return api.AlterRequest{Jobs: w, Users: []string{"*"}, Fields: []api.Field{api.FieldPriority}}
		},
	} {
		if status, text := post(nobody, verb, ask(harness.Stars(5000))); status != 422 || !strings.Contains(text, "5000 words are too many, at most 1000") {
			t.Errorf("%s of 5,000 words: %d, %.200s; want it refused", verb, status, text)
		}
		if status, text := post(nobody, verb, ask(harness.Stars(200))); status != 422 || !strings.Contains(text, "200 patterns are too many, at most 100") {
			t.Errorf("%s of 200 patterns: %d, %.200s; want it refused", verb, status, text)
		}
		if status, text := post(nobody, verb, ask(harness.Stars(100))); status != 200 || len(text) > held*10_000 {
			t.Errorf("%s of 100 patterns: %d, %d bytes; want each job once", verb, status, len(text))
		}
	}
	if status, text := post(nobody, api.VerbJobs, api.JobsRequest{Users: harness.Stars(5000)}); status != 422 {
		t.Errorf("jobs of 5,000 patterns: %d, %.200s", status, text)
	}

	// Connections that wait, more than there are descriptors.
	flood := func(uid, n int, text string) []net.Conn {
		t.Helper()
		conns, err := harness.Flood(socket, uid, n, text)
		t.Cleanup(func() { harness.CloseAll(conns) })
		if err != nil {
			t.Fatal(err)
		}
		return conns
	}
	request := `{"job":1}`
	wait := harness.Posted(api.VerbWait, len(request)) + request
	first, next := flood(nobody, 300, wait), flood(daemonUser, 300, wait)
	others("600 connections wait")
	for _, one := range []struct {
		conns []net.Conn
		open  int
	}{{first, 50}, {next, 25}} {
		open, said := harness.Sift(one.conns)
		// Some that were used before may have been closed late.
		if len(open) > one.open || len(open) < one.open/2 || said[api.CodeTryAgain] != len(one.conns)-len(open) {
			t.Errorf("%d connections are open, refused %v; want %d open, the others refused as too many", len(open), said, one.open)
		}
	}
	// What is over counts no more.
	harness.CloseAll(first)
	harness.CloseAll(next)
	f.until("there is room again", func() bool {
		status, _ := post(nobody, api.VerbStatus, struct{}{})
		return status == 200
	})

	// Requests that come a byte at a time, of users that the host does not know and of
	// one that it does.
	slow := harness.Posted(api.VerbSubmit, 100_000) + "{"
	var conns []net.Conn
	for i := range 10 {
		conns = append(conns, flood(strangers+i, 16, slow)...)
	}
	known := flood(nobody, 40, slow)
	others("200 requests are not sent to their end")
	said := map[api.Code]int{}
	f.until("users that the host does not know are refused", func() bool {
		var more map[api.Code]int
		conns, more = harness.Sift(conns)
		for code, n := range more {
			said[code] += n
		}
		return len(conns) == 0
	})
	if said[api.CodeDenied] == 0 || said[api.CodeDenied]+said[api.CodeTryAgain] != 160 {
		t.Errorf("users that the host does not know: refused %v; want all of 160, as unknown or for now", said)
	}
	if open, said := harness.Sift(known); len(open) != len(known) {
		t.Errorf("of %d requests %d are waited for, the others %v", len(known), len(open), said)
	}
	harness.CloseAll(known)

	// Answers that nobody reads, and one that somebody stops reading.
	detail := `{"jobs":["*"]}`
	flood(nobody, 40, harness.Posted(api.VerbDetail, len(detail))+detail)
	jobs := `{"users":["*"],"more":true}`
	flood(daemonUser, 20, harness.Posted(api.VerbJobs, len(jobs))+jobs)
	others("60 answers are not read")
	// execd ends in order all the same, and in time, with a request on its way.
	flood(nobody, 3, slow)
	if err := f.d.Stop(); err != nil {
		t.Error(err)
	}
}
