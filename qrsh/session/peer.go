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

// isOwners reports whether a connection comes from a process of the user that we
// run as, on this host: the kernel's tables have its other end. Every user of the
// host can reach the port, and the first to come would have the daemon.
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

// connected are what the tables have for a connection that exists, and for one of
// which the owner has ended his side: he has nothing more to say, and still reads.
var connected = []string{"01", "04", "05"}

// closed is what they have as inode where nobody has the socket any more: it is
// still spoken for, and by then said to be root's.
const closed = "0"

// socketOwner looks in a table of connections for the one between two addresses,
// as its owner sees it, and returns his uid.
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

// parseAddress reads an address of the tables: words of 32 bits in the
// processor's order, and a port.
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
