package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// pool is two hosts that share work: login submits to node. Both are on this machine, and
// known by names of their own.
type pool struct {
	*holder // of node
	login   *desk
	node    *desk
	port    string
}

// knobsOf are those of the two hosts.
type knobsOf struct{ login, node string }

// newPool has two hosts, as root in root mode.
func newPool(t *testing.T, knobs knobsOf) *pool {
	t.Helper()
	p := &pool{port: freePort(t)}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	login, node := place(t, "login"), place(t, "node")
	mode, via := "-dev", []string(nil)
	if second != nil {
		mode = "-root"
		var err error
		if via, err = hookAccount[true](); err != nil {
			t.Fatal(err)
		}
	}
	for dir, text := range map[string]string{login: knobs.login, node: "ADDRESS = 127.0.0.1:" + p.port + "\n" + knobs.node} {
		write(t, dir+"/etc/queues/all.q", "qname all.q\nslots 2\n", 0o644)
		write(t, dir+"/etc/hooks.conf", text, 0o644)
		write(t, dir+"/u/.keep", "", 0o644)
		if second != nil {
			write(t, dir+"/etc/sge_conf", "min_uid 100\nmin_gid 0\n", 0o644)
			if err := os.Chown(dir+"/u", second.UID, second.GID); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(t, login+"/etc/peers", "node "+"127.0.0.1:"+p.port+" execute\n", 0o644)
	p.pool(t, login, "new", "login")
	write(t, node+"/etc/host.pem", p.pool(t, login, "host", "node", "-execute"), 0o600)
	p.node = deskIn(t, node, mode, via...)
	p.login = deskIn(t, login, mode, via...)
	p.holder = &holder{p.node, ctx}
	return p
}

// pool runs execd -pool.
func (p *pool) pool(t *testing.T, dir string, words ...string) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(bin, "execd"), append([]string{"-dev", dir, "-pool"}, words...)...).Output()
	if err != nil {
		t.Fatalf("execd -pool %q: %v", words, err)
	}
	return string(out)
}

// write writes a file, with the directories above it.
func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// freePort returns a port that nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// state waits until login knows a state of node, and returns what it knows.
func (p *pool) state(want api.PeerState, text string) (s api.PeerStatus) {
	p.t.Helper()
	if err := harness.WaitFor(patience, "node to be "+string(want)+" "+text, func() (bool, error) {
		var reply api.PeersReply
		if err := p.login.Client.Call(p.ctx, api.VerbPeers, &api.PeersRequest{}, &reply); err != nil {
			return false, err
		}
		i := slices.IndexFunc(reply.Peers, func(s api.PeerStatus) bool { return s.Name == "node" })
		if i < 0 {
			return false, errors.New("login does not know node")
		}
		s = reply.Peers[i]
		return s.State == want && strings.Contains(s.Error, text), nil
	}); err != nil {
		p.t.Fatalf("%v: %+v\n%s\n%s", err, s, p.login.Log(), p.node.Log())
	}
	return s
}

// asUser runs a function as a user who may claim on both hosts.
func (p *pool) asUser(f func()) {
	p.t.Helper()
	if second == nil {
		f()
		return
	}
	p.second(f)
}

// A program on one host claims a slot of another, runs jobs there as its user, renews,
// suspends and gives it back, all by its own execd.
func TestPeerClaims(t *testing.T) {
	parallel(t)
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	p := newPool(t, knobsOf{login: "CLAIM_USERS = *\n"})
	s := p.state(api.PeerUp, "")
	if s.Slots != 2 || s.Free != 2 || s.Until.Before(time.Now()) {
		t.Errorf("%+v", s)
	}
	p.asUser(func() {
		remote := p.login.Client.On("node")
		c, err := remote.Claim(p.ctx, api.ClaimRequest{})
		if err != nil {
			t.Error(err)
			return
		}
		for _, command := range []string{"id -u >u/ran", "exec sleep 1000"} {
			if _, err := c.Activate(p.ctx, api.ActivateRequest{Request: p.sh(command)}); err != nil {
				t.Errorf("%s: %v", command, err)
				return
			}
			if command[0] == 'i' {
				if permit, err := c.Deactivate(p.ctx, api.JobDone); err != nil || !permit.Start {
					t.Errorf("waited for its end: %+v, %v", permit, err)
				}
			}
		}
		if state, err := c.Suspend(p.ctx); err != nil || state.Activity != "Suspended" {
			t.Errorf("suspended: %+v, %v", state, err)
		}
		if state, err := c.Continue(p.ctx); err != nil || state.Activity != "Busy" {
			t.Errorf("continued: %+v, %v", state, err)
		}
		reply, err := remote.RenewAll(p.ctx, api.RenewAllRequest{IDs: []api.ClaimID{c.Reply.ID, withSecret(c.Reply.ID)}})
		list := reply.Claims
		if err != nil || len(list) != 2 || list[0].Error != nil || list[0].Lease < 10 || list[1].Error == nil || list[1].Error.Refusal != api.RefusedUnknown {
			t.Errorf("renewed: %+v, %v", list, err)
		}
		if permit, err := c.Deactivate(p.ctx, api.Forcible); err != nil || !permit.Start {
			t.Errorf("ended: %+v, %v", permit, err)
		}
		if err := c.Release(p.ctx); err != nil {
			t.Error(err)
		}
	})
	p.until(1, "Claimed/Idle queue")
	p.outlives()
	ran, err := os.ReadFile(p.node.dir + "/u/ran")
	uid := os.Getuid()
	if second != nil {
		uid = second.UID
	}
	if err != nil || string(ran) != fmt.Sprintln(uid) {
		t.Errorf("the job said %q, %v; want %d", ran, err, uid)
	}
	// What a host is asked for, and what its state is, the commands show.
	free := regexp.MustCompile(`(?m)^node +127\.0\.0\.1:[0-9]+ +up .* 2 +2 `)
	if err := harness.WaitFor(patience, "both slots of node to be free", func() (bool, error) {
		return free.MatchString(p.login.run("qhost", "-peers")), nil
	}); err != nil {
		t.Errorf("%v\n%s", err, p.login.run("qhost", "-peers"))
	}
	if out := p.login.run("qhost", "-slots", "-h", "node"); strings.Count(out, "all.q") != 2 {
		t.Errorf("qhost -slots -h node:\n%s", out)
	}
}

// outlives fails the test unless a claim outlives the execd of either host, and stays the
// host's that has made it.
func (p *pool) outlives() {
	p.t.Helper()
	var id api.ClaimID
	p.asUser(func() {
		c, err := p.login.Client.On("node").Claim(p.ctx, api.ClaimRequest{})
		if err != nil {
			p.t.Error(err)
			return
		}
		id = c.Reply.ID
	})
	p.node.Daemon.Kill()
	p.state(api.PeerDown, "")
	p.asUser(func() {
		_, err := p.login.Client.On("node").ClaimOf(id).Renew(p.ctx)
		if codeOf(err) != api.CodeAway || !strings.Contains(err.Error(), "cannot reach execd at node: ") {
			p.t.Errorf("where the host is away: %v", err)
		}
	})
	p.node.begin()
	p.login.Daemon.Kill()
	p.login.begin()
	p.state(api.PeerUp, "")
	p.asUser(func() {
		if _, err := p.node.Client.ClaimOf(id).Renew(p.ctx); second != nil && api.RefusalOf(err) != api.RefusedUnknown {
			p.t.Errorf("by the user on the other host: %v", err)
		}
		c := p.login.Client.On("node").ClaimOf(id)
		if state, err := c.Renew(p.ctx); err != nil || state.State != "Claimed" {
			p.t.Errorf("after the restarts: %+v, %v", state, err)
		}
		if err := c.Release(p.ctx); err != nil {
			p.t.Error(err)
		}
	})
	p.until(1, "Claimed/Idle queue")
}

// What changes in the files of a pool is in force at once, also for hosts that are
// connected, and what an administrator should look at is told.
func TestPeerChanges(t *testing.T) {
	parallel(t)
	if second == nil && os.Geteuid() == 0 {
		t.Skip("work of other hosts never runs as root")
	}
	p := newPool(t, knobsOf{})
	p.state(api.PeerUp, "")
	status := func(want string) {
		t.Helper()
		var reply api.StatusReply
		if err := harness.WaitFor(patience, "status to have "+want, func() (bool, error) {
			reply = api.StatusReply{}
			err := p.node.Client.Call(p.ctx, api.VerbStatus, api.StatusRequest{}, &reply)
			ofPool := slices.DeleteFunc(reply.Problems, func(a api.Alert) bool {
				return !strings.HasPrefix(a.Text, "pool ") && !strings.Contains(a.Text, "other hosts")
			})
			return err == nil && (want == "" && len(ofPool) == 0 || want != "" && len(ofPool) > 0 && strings.Contains(ofPool[0].Text, want)), err
		}); err != nil {
			t.Errorf("%v: %v\n%s", err, reply.Problems, p.node.Log())
		}
	}
	peers := p.node.dir + "/etc/peers"
	serial := strings.Fields(strings.Split(p.pool(t, p.login.dir, "list"), "\n")[1])[0]
	write(t, peers, "login submit\nrevoked "+serial+"\n", 0o644)
	p.state(api.PeerDown, "is revoked")
	write(t, peers, "login execute\n", 0o644)
	p.state(api.PeerDown, "has not the role submit")
	write(t, peers, "nonsense\n", 0o644)
	status(peers + ":1: want what the host may do")
	write(t, peers, "login submit\n", 0o644)
	status("")
	p.state(api.PeerUp, "")

	// Another certificate of either host.
	write(t, p.login.dir+"/etc/host.pem", p.pool(t, p.login.dir, "host", "login", "-submit"), 0o600)
	write(t, p.node.dir+"/etc/peers", "login submit\nrevoked "+serial+"\n", 0o644)
	p.state(api.PeerUp, "")
	write(t, p.node.dir+"/etc/host.pem", p.pool(t, p.login.dir, "host", "elsewhere", "-execute"), 0o600)
	p.logged("this host is elsewhere")
	write(t, p.login.dir+"/etc/peers", read(t, p.login.dir+"/etc/peers")+"# changed\nother submit\n", 0o644)
	p.state(api.PeerDown, "valid for elsewhere, not node")
	// A key that others can read is not used, and that is said.
	write(t, p.node.dir+"/etc/host.pem", p.pool(t, p.login.dir, "host", "node", "-execute"), 0o600)
	p.logged("this host is node")
	if err := os.Chmod(p.node.dir+"/etc/host.pem", 0o644); err != nil {
		t.Fatal(err)
	}
	status("chmod 600")
	if err := os.Chmod(p.node.dir+"/etc/host.pem", 0o600); err != nil {
		t.Fatal(err)
	}
	status("")
	p.state(api.PeerUp, "")

	// A port that is taken.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	knobs := p.node.dir + "/etc/hooks.conf"
	write(t, knobs, "ADDRESS = "+l.Addr().String()+"\n", 0o644)
	status("address already in use")
	p.state(api.PeerDown, "")
	write(t, knobs, "ADDRESS = 127.0.0.1:"+p.port+"\n", 0o644)
	status("")
	p.state(api.PeerUp, "")
	// Without a certificate nobody listens.
	if err := os.Remove(p.node.dir + "/etc/host.pem"); err != nil {
		t.Fatal(err)
	}
	if err := harness.WaitFor(patience, "nobody to listen", func() (bool, error) {
		c, err := net.Dial("tcp", "127.0.0.1:"+p.port)
		if err == nil {
			c.Close()
		}
		return err != nil, nil
	}); err != nil {
		t.Error(err)
	}
}

// A key is not printed to a terminal, where others may see it and it stays; then no
// certificate is made either.
func TestPoolKeyOnTerminal(t *testing.T) {
	parallel(t)
	dir := place(t, "terminal")
	p := &pool{}
	p.pool(t, dir, "new", "login")
	cmd := exec.Command(filepath.Join(bin, "execd"), "-dev", dir, "-pool", "host", "node", "-execute")
	terminal, err := harness.StartOnTerminal(cmd, 80, 24)
	if err != nil {
		t.Fatal(err)
	}
	code, err := terminal.Wait()
	if text := terminal.Text(); err != nil || code != 64 || strings.Contains(text, "KEY") || !strings.Contains(text, "not for a terminal") {
		t.Errorf("exit code %d, %v; it said %s", code, err, text)
	}
	if out := p.pool(t, dir, "list"); strings.Contains(out, "node") {
		t.Errorf("execd -pool list:\n%s", out)
	}
}
