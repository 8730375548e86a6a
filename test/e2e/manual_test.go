package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// TestManualSandbox types the sessions of sandbox(7) and compares what comes out with what
// stands there.
func TestManualSandbox(t *testing.T) {
	parallel(t)
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man/man7/sandbox.7"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	var want []string
	for _, block := range strings.Split(string(page), "\n.Bd -literal")[1:] {
		_, block, _ = strings.Cut(block, "\n")
		block, _, _ = strings.Cut(block, ".Ed\n")
		if !strings.HasPrefix(block, "$ ") {
			continue // no session
		}
		for line := range strings.Lines(block) {
			typed, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				typed, ok = strings.CutPrefix(line, "> ")
			}
			if ok {
				script.WriteString(typed)
				continue
			}
			want = append(want, strings.TrimSuffix(line, "\n"))
		}
	}
	dir := place(t, "manual")
	d, err := harness.Start(harness.Options{Bin: bin, Dir: filepath.Join(dir, "pd"), Env: plainEnv(dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	work := filepath.Join(dir, "ann")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	cmd.Dir, cmd.Env = work, append(plainEnv(dir), "PADDOCK_DIR="+d.Dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	got := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(out), work, "/home/ann")), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sandbox(7) shows something else (-page +got):\n%s", diff)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// TestManualPool types the session of paddock-pool(7) on two hosts, each with a network, a
// name and an /etc of its own, where execd runs already.
func TestManualPool(t *testing.T) {
	parallel(t)
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man/man7/paddock-pool.7"))
	if err != nil {
		t.Fatal(err)
	}
	const prompt = "login1# "
	_, session, _ := strings.Cut(string(page), "\n.Bd -literal\n")
	session, _, _ = strings.Cut(session, ".Ed\n")
	network, err := harness.NewNetwork(bin, place(t, "pool"), []string{"login1", "node1"})
	if errors.Is(err, harness.ErrNoNetwork) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	tools := place(t, "tools")
	ssh := "#!/bin/sh\nhost=$1\nshift\ncase $host in\n"
	for _, h := range network.Hosts {
		write(t, h.Dir+"/etc/queues/all.q", "qname all.q\nslots 4\n", 0o644)
		h.Env = plainEnv(h.Dir)
		if err := h.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Daemon.Stop(); err != nil {
				t.Error(err)
			}
		})
		ssh += h.Name + ") exec " + strings.Join(h.Enter(), " ") + " sh -c \"$*\" ;;\n"
	}
	ssh += "esac\n"
	login, node := network.Hosts[0], network.Hosts[1]
	if err := harness.WriteExecutable(tools+"/ssh", ssh); err != nil {
		t.Fatal(err)
	}
	var command string
	var want []string
	var got []string
	flush := func() {
		if command == "" {
			return
		}
		got = append(got, typed(t, login, tools, command, want)...)
		command = ""
	}
	var all []string
	for line := range strings.Lines(session) {
		if word, ok := strings.CutPrefix(line, prompt); ok {
			flush()
			command, want = word, nil
			continue
		}
		if word, ok := strings.CutPrefix(line, "> "); ok {
			command += word
			continue
		}
		want = append(want, shape(line))
		all = append(all, shape(line))
	}
	flush()
	if diff := cmp.Diff(all, got); diff != "" || len(all) == 0 {
		t.Errorf("paddock-pool(7) shows something else (-page +got):\n%s\n%s", diff, node.Daemon.Log())
	}
}

// shape returns a line without what differs from day to day.
func shape(line string) string {
	line = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2})?`).ReplaceAllString(strings.TrimSuffix(line, "\n"), "DAY$1")
	return regexp.MustCompile(` [0-9]{2}:[0-9]{2}`).ReplaceAllString(line, " TIME")
}

// typed runs a command as often as it takes until it prints what is wanted, for as long
// as it only looks, and returns what it has printed.
func typed(t *testing.T, h *harness.Host, tools, command string, want []string) (got []string) {
	t.Helper()
	run := func() []string {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		argv := append(h.Enter(), "sh", "-c", command)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = append(plainEnv(h.Dir), "PATH="+tools+":"+bin+":/usr/sbin:/usr/bin:/sbin:/bin", "PADDOCK_DIR=")
		if strings.HasPrefix(command, "qhost ") {
			cmd.Env = append(cmd.Env, "PADDOCK_DIR="+h.Dir)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Logf("%s: %v", command, err)
		}
		var lines []string
		for line := range strings.Lines(string(out)) {
			lines = append(lines, shape(line))
		}
		return lines
	}
	if !strings.HasPrefix(command, "qhost ") {
		return run()
	}
	_ = harness.WaitFor(patience, command, func() (bool, error) { // what it prints last tells more
		got = run()
		return slices.Equal(got, want), nil
	})
	return got
}
