package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// TestManualSandbox types the sessions of sandbox(7) and compares what comes out with what
// stands there.
func TestManualSandbox(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("hosts of their own need root")
	}
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man/man7/paddock-pool.7"))
	if err != nil {
		t.Fatal(err)
	}
	const prompt = "login1# "
	_, session, _ := strings.Cut(string(page), "\n.Bd -literal\n")
	session, _, _ = strings.Cut(session, ".Ed\n")
	hosts := newNamespaces(t, "login1", "node1")
	ssh := "#!/bin/sh\nhost=$1\nshift\nexec " + hosts["login1"].enterFrom("$host", hosts) + " sh -c \"$*\"\n"
	tools := place(t, "tools")
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
		got = append(got, hosts["login1"].session(t, tools, command, want)...)
		command = ""
	}
	var all []string
	for line := range strings.Lines(session) {
		if typed, ok := strings.CutPrefix(line, prompt); ok {
			flush()
			command, want = typed, nil
			continue
		}
		if typed, ok := strings.CutPrefix(line, "> "); ok {
			command += typed
			continue
		}
		want = append(want, shape(line))
		all = append(all, shape(line))
	}
	flush()
	if diff := cmp.Diff(all, got); diff != "" || len(all) == 0 {
		t.Errorf("paddock-pool(7) shows something else (-page +got):\n%s\n%s", diff, hosts["node1"].Log())
	}
}

// shape returns a line without what differs from day to day.
func shape(line string) string {
	line = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2})?`).ReplaceAllString(strings.TrimSuffix(line, "\n"), "DAY$1")
	return regexp.MustCompile(` [0-9]{2}:[0-9]{2}`).ReplaceAllString(line, " TIME")
}

// namespaced is a host in namespaces of its own.
type namespaced struct {
	*harness.Daemon
	pid int // of a process that is in them
}

// enter returns the command line that runs another one on the host.
func (h *namespaced) enter() []string {
	return []string{"nsenter", "--target", strconv.Itoa(h.pid), "--net", "--uts", "--mount", "--"}
}

// enterFrom returns the same for a shell that has the name of the host in a variable.
func (*namespaced) enterFrom(variable string, hosts map[string]*namespaced) string {
	text := "nsenter --target $(case " + variable + " in"
	for name, h := range hosts {
		text += fmt.Sprintf(" %s) echo %d;;", name, h.pid)
	}
	return text + " esac) --net --uts --mount --"
}

// session runs a command as often as it takes until it prints what is wanted, for as long
// as it only looks, and returns what it has printed.
func (h *namespaced) session(t *testing.T, tools, command string, want []string) (got []string) {
	t.Helper()
	run := func() []string {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		argv := append(h.enter(), "sh", "-c", command)
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

// newNamespaces makes two hosts with a wire between them. Execd runs on each, with four
// slots, and /etc/paddock is its configuration.
func newNamespaces(t *testing.T, names ...string) map[string]*namespaced {
	t.Helper()
	hosts := map[string]*namespaced{}
	table := "127.0.0.1 localhost\n"
	for i, name := range names {
		table += fmt.Sprintf("10.64.45.%d %s\n", i+1, name)
	}
	for _, name := range names {
		dir := place(t, name)
		write(t, dir+"/etc/queues/all.q", "qname all.q\nslots 4\n", 0o644)
		if _, err := harness.OtherAccounts(dir+".etc", "nobody-at-all"); err != nil {
			t.Fatal(err)
		}
		write(t, dir+".etc/hosts", table, 0o644)
		if err := os.RemoveAll(dir + ".etc/paddock"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(dir+"/etc", dir+".etc/paddock"); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("unshare", "--net", "--uts", "--mount", "sh", "-c",
			`hostname "$0" && mount --bind "$1" /etc && ip link set lo up && echo ready && exec cat`, name, dir+".etc")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			stdin.Close()
			_ = cmd.Wait()
		})
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			t.Skipf("no namespaces: %q, %v", line, err)
		}
		hosts[name] = &namespaced{pid: cmd.Process.Pid}
		hosts[name].Daemon = &harness.Daemon{Dir: dir}
	}
	wire := []string{"ip", "link", "add", "pool0", "netns", strconv.Itoa(hosts[names[0]].pid), "type", "veth", "peer", "name", "pool0", "netns", strconv.Itoa(hosts[names[1]].pid)}
	if out, err := exec.Command(wire[0], wire[1:]...).CombinedOutput(); err != nil {
		t.Skipf("no wire between hosts: %v: %s", err, out)
	}
	for i, name := range names {
		h := hosts[name]
		for _, words := range [][]string{{"addr", "add", fmt.Sprintf("10.64.45.%d/24", i+1), "dev", "pool0"}, {"link", "set", "pool0", "up"}} {
			argv := slices.Concat(h.enter(), []string{"ip"}, words)
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: ip %v: %v: %s", name, words, err, out)
			}
		}
		d, err := harness.Start(harness.Options{Bin: bin, Dir: h.Dir, Mode: "-root", Via: h.enter(), Env: plainEnv(h.Dir), Notify: h.Dir + ".notify"})
		if err != nil {
			t.Fatal(err)
		}
		h.Daemon = d
		t.Cleanup(func() {
			if err := d.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	return hosts
}
