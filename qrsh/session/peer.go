package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// isOwners reports whether a connection comes from a process of the same user
// on this host, by the kernel's table of connections. Every user of the host
// can reach the port, and the first one to connect would get the daemon.
func isOwners(conn *net.TCPConn) bool {
	theirs := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	ours := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		if uid, ok := socketOwner(string(b), unmapped(theirs), unmapped(ours)); ok {
			return uid == os.Getuid()
		}
	}
	return false
}

// connected are the states of an open connection, and of one whose owner has
// closed the sending side and still reads.
var connected = []string{"01", "04", "05"}

// closed is the inode of a socket that no process has any more. The table says
// that such a socket is root's.
const closed = "0"

// socketOwner looks up the connection between two addresses in a table, and
// returns the uid of its owner.
func socketOwner(table string, local, remote netip.AddrPort) (int, bool) {
	for line := range strings.Lines(table) {
		// Number, local, remote, state, queues, timer, retransmits, uid, timeouts, inode.
		f := strings.Fields(line)
		if len(f) < 10 || !slices.Contains(connected, f[3]) || f[9] == closed {
			continue
		}
		l, err1 := parseAddress(f[1])
		r, err2 := parseAddress(f[2])
		uid, err3 := strconv.ParseUint(f[7], 10, 32)
		if err1 == nil && err2 == nil && err3 == nil && l == local && r == remote {
			return int(uid), true
		}
	}
	return 0, false
}

// parseAddress reads an address of the tables: words of 32 bits in native byte
// order, and a port.
func parseAddress(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, fmt.Errorf("cannot read address %q", s)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("cannot read address %q: %w", s, err)
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	address, _ := netip.AddrFromSlice(b)
	return unmapped(netip.AddrPortFrom(address, uint16(n))), nil
}

// unmapped returns an address of IPv4 as such.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
