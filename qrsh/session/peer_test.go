package main

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// table is one of the kernel's, of a processor whose order is little-endian.
const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 20 4 30 10 -1
   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 12 1 0 20 4 30 10 -1
   2: 0100007F:C002 0100007F:1F90 05 00000000:00000000 00:00000000 00000000  1002        0 13 1 0 20 4 30 10 -1
   3: 0100007F:C003 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0100007F:C004 0100007F:1F90 06 00000000:00000000 00:00000000 00000000  1000        0 15 1 0 20 4 30 10 -1
   5: 0000000000000000FFFF00000100007F:C005 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1005        0 16 1
   6: 00000000000000000000000001000000:C006 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1006        0 17 1
   7: 0100007F:C007 0100007F:1F90 01
   8: nonsense
`

func TestSocketOwner(t *testing.T) {
	order := uint16(1)
	if *(*byte)(unsafe.Pointer(&order)) != 1 {
		t.Skip("the table is that of another processor")
	}
	v4, v6 := netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("[::1]:8080")
	for _, test := range []struct {
		local, remote netip.AddrPort
		want          int // -1: nobody
	}{
		{netip.MustParseAddrPort("127.0.0.1:49153"), v4, 1001}, // not who listens
		{netip.MustParseAddrPort("127.0.0.1:49154"), v4, 1002}, // has said all
		{netip.MustParseAddrPort("127.0.0.1:49155"), v4, -1},   // is gone, and would be root's
		{netip.MustParseAddrPort("127.0.0.1:49156"), v4, -1},   // is gone
		{netip.MustParseAddrPort("127.0.0.1:49157"), v4, 1005},
		{netip.MustParseAddrPort("[::1]:49158"), v6, 1006},
		{netip.MustParseAddrPort("127.0.0.1:49158"), v4, -1},
		{netip.MustParseAddrPort("127.0.0.2:49153"), v4, -1},
		{netip.MustParseAddrPort("127.0.0.1:49159"), v4, -1},
	} {
		uid, ok := socketOwner(table, test.local, test.remote)
		if !ok {
			uid = -1
		}
		if uid != test.want {
			t.Errorf("%v is user %d's; want %d", test.local, uid, test.want)
		}
	}
}

// A connection of our own is ours, of whatever family.
func TestIsOwners(t *testing.T) {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil && host == "::1" {
			t.Logf("no connection to ::1: %v", err)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		far, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		if !isOwners(far.(*net.TCPConn)) {
			b, _ := os.ReadFile("/proc/net/tcp6")
			t.Errorf("%v is not said to be ours:\n%s", far.RemoteAddr(), b)
		}
	}
}

func FuzzSocketOwner(f *testing.F) {
	for line := range strings.Lines(table) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		local, remote := netip.MustParseAddrPort("127.0.0.1:49153"), netip.MustParseAddrPort("127.0.0.1:8080")
		if uid, ok := socketOwner(text, local, remote); ok && uid < 0 {
			t.Errorf("user %d", uid)
		}
	})
}
