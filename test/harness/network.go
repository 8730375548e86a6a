package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
)

// Network is hosts with a network, a name and an /etc of their own, in namespaces, joined by
// a switch. They see the processes, the files and the time of this machine. Needs root and ip.
// Nothing of it has a name outside, so that nothing is left once its processes have ended,
// which they do with the test.
type Network struct {
	Hosts []*Host
	bin   string
	wires *space // of the switch
}

// Host is one of a network.
type Host struct {
	Name   string
	IP     net.IP
	Dir    string   // of its execd; Dir/etc is /etc/paddock there
	Env    []string // of its execd; nil: that of the test
	Daemon *Daemon  // nil: it was not started
	net    *Network
	space  *space
	wire   string     // the switch's end of its link
	ends   []*os.File // of its link, if that is a line
}

// ErrNoNetwork is why there is no network on this machine.
var ErrNoNetwork = errors.New("no hosts with a network of their own")

// NewNetwork makes a network whose hosts have everything below a directory, and the
// accounts of this machine and those of lines of passwd(5). Execd runs on none of them yet.
func NewNetwork(bin, dir string, names []string, accounts ...string) (_ *Network, err error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: they need root", ErrNoNetwork)
	}
	n := &Network{bin: bin}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	if n.wires, err = newSpace(dir, []string{"--net"}, `ip link add br0 type bridge && ip link set br0 up`); err != nil {
		return nil, err
	}
	var table bytes.Buffer
	table.WriteString("127.0.0.1 localhost\n")
	for i, name := range names {
		fmt.Fprintf(&table, "%v %s\n", address(i), name)
	}
	for i, name := range names {
		h := &Host{Name: name, Dir: filepath.Join(dir, name), net: n, wire: "wire" + strconv.Itoa(i), IP: address(i)}
		n.Hosts = append(n.Hosts, h)
		if err := h.make(table.Bytes(), accounts); err != nil {
			return nil, fmt.Errorf("cannot make host %s: %w", name, err)
		}
	}
	return n, nil
}

// address returns that of a host.
func address(i int) net.IP { return net.IPv4(10, 64, 45, byte(i+1)) }

// make makes a host and its link.
func (h *Host) make(table []byte, accounts []string) error {
	etc := h.Dir + ".etc"
	if err := os.MkdirAll(filepath.Join(h.Dir, "etc"), 0o755); err != nil {
		return err
	}
	if _, err := OtherAccounts(etc, "paddock", accounts...); err != nil {
		return err
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(etc, "hosts"), table, 0o644),
		os.RemoveAll(filepath.Join(etc, "paddock")),
		os.Symlink(filepath.Join(h.Dir, "etc"), filepath.Join(etc, "paddock")))
	if err != nil {
		return err
	}
	h.space, err = newSpace(h.Dir, []string{"--net", "--uts", "--mount"}, `hostname "$0" && mount --bind "$1" /etc && ip link set lo up`, h.Name, etc)
	if err != nil {
		return err
	}
	wires := h.net.wires
	return errors.Join(
		wires.run("ip", "link", "add", h.wire, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(h.space.pid())),
		h.plug())
}

// plug joins the ends of the link of a host with the switch and with the host.
func (h *Host) plug() error {
	return errors.Join(
		h.net.wires.run("ip", "link", "set", h.wire, "master", "br0", "up"),
		h.space.run("ip", "addr", "add", h.IP.String()+"/16", "dev", "eth0"),
		h.space.run("ip", "link", "set", "eth0", "up"))
}

// Link plugs the link of a host in, or out.
func (h *Host) Link(up bool) error {
	return h.net.wires.run("ip", "link", "set", h.wire, map[bool]string{true: "up", false: "down"}[up])
}

// Enter returns a command line that runs the one behind it on the host.
func (h *Host) Enter() []string { return h.space.enter() }

// Start starts execd on the host, in root mode.
func (h *Host) Start() (err error) {
	h.Daemon, err = Start(Options{Bin: h.net.bin, Dir: h.Dir, Mode: "-root", Via: h.Enter(), Env: h.Env, Notify: h.Dir + ".notify"})
	return err
}

// Write writes a file of the configuration of a host.
func (h *Host) Write(name, text string) error {
	path := filepath.Join(api.DevPlaces(h.Dir).Config, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// As an editor does it, so that no half of it is read.
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	if name != fileHost {
		if err := os.Chmod(path+".new", 0o644); err != nil {
			return err
		}
	}
	return os.Rename(path+".new", path)
}

// fileHost has the key of a host.
const fileHost = "host.pem"

// Pool runs execd -pool on the first host.
func (n *Network) Pool(words ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(n.bin, "execd"), append([]string{"-root", n.Hosts[0].Dir, "-pool"}, words...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("execd -pool %s: %w: %s", strings.Join(words, " "), err, stderr.Bytes())
	}
	return string(out), err
}

// Share makes a pool in which the first host submits, and the others execute.
func (n *Network) Share() error {
	_, err := n.Pool("new", n.Hosts[0].Name)
	for _, h := range n.Hosts[1:] {
		err = errors.Join(err, h.Certify("-execute"))
	}
	return err
}

// Up waits until the first host knows that all others are up.
func (n *Network) Up() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*Patience)
	defer cancel()
	var reply api.PeersReply
	err := WaitFor(2*Patience, "all hosts to be up", func() (bool, error) {
		reply = api.PeersReply{}
		err := n.Hosts[0].Daemon.Client.Call(ctx, api.VerbPeers, &api.PeersRequest{}, &reply)
		up := 0
		for i := range reply.Peers {
			if reply.Peers[i].State == api.PeerUp {
				up++
			}
		}
		return up == len(n.Hosts)-1, err
	})
	if err != nil {
		err = fmt.Errorf("%w: %+v", err, reply.Peers)
	}
	return err
}

// Certify gives a host another certificate.
func (h *Host) Certify(role string) error {
	text, err := h.net.Pool("host", h.Name, role)
	if err != nil {
		return err
	}
	return h.Write(fileHost, text)
}

// Close ends the execds of a network and what they have left, and the network with them.
func (n *Network) Close() {
	for _, h := range n.Hosts {
		if h.Daemon != nil {
			h.Daemon.Kill()
		}
		KillLeft(h.Dir)
		for _, f := range h.ends {
			f.Close()
		}
		h.space.close()
	}
	n.wires.close()
}

// space is namespaces, which are there as long as its process is.
type space struct {
	flags []string
	cmd   *exec.Cmd
	stdin io.Closer
}

// newSpace makes namespaces by the flags of unshare(1), in which a shell command has run when
// it returns; args are those of the command, from $0.
func newSpace(dir string, flags []string, command string, args ...string) (*space, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	words := slices.Concat(flags, []string{"sh", "-c", command + " && echo ready && exec cat"}, args)
	s := &space{flags: flags, cmd: exec.Command("unshare", words...)}
	s.cmd.Dir = dir // so that Processes finds it
	var stderr bytes.Buffer
	s.cmd.Stderr = &stderr
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoNetwork, err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		_ = s.cmd.Wait()
		return nil, fmt.Errorf("%w: %s", ErrNoNetwork, bytes.TrimSpace(stderr.Bytes()))
	}
	return s, nil
}

func (s *space) pid() int { return s.cmd.Process.Pid }

func (s *space) enter() []string {
	return slices.Concat([]string{"nsenter", "--target", strconv.Itoa(s.pid())}, s.flags, []string{"--"})
}

func (s *space) run(words ...string) error {
	argv := append(s.enter(), words...)
	return run(argv[0], argv[1:]...)
}

// close ends the process. Other processes may be in the namespaces.
func (s *space) close() {
	if s == nil {
		return
	}
	_ = s.stdin.Close()
	_ = unix.Kill(s.pid(), unix.SIGKILL)
	_ = s.cmd.Wait() // it was killed
}
