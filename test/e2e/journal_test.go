package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/test/harness"
)

// TestJournalRights has work of another user's write its event log and its last ad,
// and run its scripts: with his rights, and nobody else's.
func TestJournalRights(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("writing as somebody else needs root")
	}
	dir := place(t, "journal")
	his, ours := filepath.Join(dir, "his"), filepath.Join(dir, "ours")
	for _, d := range []string{filepath.Join(dir, "etc", "queues"), his, ours} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(his, second.UID, second.GID); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"queues/all.q": "qname all.q\nslots 1\n", "hooks.conf": "FETCH_OWNERS = " + second.Name + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := deskIn(t, dir, "-root")
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	claim, err := d.Client.Claim(ctx, api.ClaimRequest{Slot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	run := func(files string) {
		t.Helper()
		ad := fmt.Sprintf("Cmd = \"/bin/sh\"\nArguments = \"-c 'id -un >>steps'\"\nPreCmd = \"/bin/sh\"\nPreArguments = \"-c 'echo before >>steps'\"\n"+
			"PostCmd = \"/bin/sh\"\nPostArguments = \"-c 'echo after >>steps'\"\nOwner = %q\nIwd = %q\n%s", second.Name, his, files)
		var reply api.ActivateReply
		if err := harness.WaitFor(harness.Patience, "the claim to be idle", func() (bool, error) {
			var err error
			reply, err = claim.Activate(ctx, api.ActivateRequest{Ad: ad})
			return err == nil, err
		}); err != nil {
			t.Fatalf("%v\n%s", err, d.Log())
		}
		if err := d.WaitJob(reply.Job); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(name string) string {
		t.Helper()
		var text []byte
		if err := harness.WaitFor(harness.Patience, name, func() (bool, error) {
			var err error
			text, err = os.ReadFile(name)
			return len(text) > 0, err
		}); err != nil {
			t.Fatalf("%v\n%s", err, d.Log())
		}
		return string(text)
	}

	run("StarterUserLog = \"log\"\nOutputAd = \"last.ad\"\n")
	if ad := wait(filepath.Join(his, "last.ad")); !strings.Contains(ad, "\nExitCode = 0\n") {
		t.Errorf("the last ad:\n%s", ad)
	}
	log := wait(filepath.Join(his, "log"))
	var events []string
	for line := range strings.Lines(log) {
		if len(line) > 3 && line[0] == '0' {
			events = append(events, line[:3])
		}
	}
	if diff := cmp.Diff([]string{"001", "005"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s\n%s", diff, log)
	}
	if got, want := wait(filepath.Join(his, "steps")), "before\n"+second.Name+"\nafter\n"; got != want {
		t.Errorf("the steps are %q; want %q", got, want)
	}
	for _, name := range []string{"log", "last.ad", "steps"} {
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(his, name), &st); err != nil || int(st.Uid) != second.UID || int(st.Gid) != second.GID {
			t.Errorf("%s belongs to %d:%d, %v; want %d:%d", name, st.Uid, st.Gid, err, second.UID, second.GID)
		}
	}

	// Where he may not write nothing is written for him, and his job runs.
	began := time.Now()
	run(fmt.Sprintf("StarterUserLog = %q\nOutputAd = %q\n", filepath.Join(ours, "log"), filepath.Join(ours, "last.ad")))
	if left, err := os.ReadDir(ours); err != nil || len(left) > 0 {
		t.Errorf("%v, %v in a directory of ours after %v; want nothing", left, err, time.Since(began))
	}
	if got, want := wait(filepath.Join(his, "steps")), strings.Repeat("before\n"+second.Name+"\nafter\n", 2); got != want {
		t.Errorf("the steps are %q; want %q", got, want)
	}
	if err := harness.WaitFor(harness.Patience, "the log of execd to say so", func() (bool, error) {
		return strings.Contains(d.Log(), "event log: "), nil
	}); err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	if err := claim.Release(ctx); err != nil {
		t.Error(err)
	}
}
