// Package interop holds the comparisons with a real Grid Engine 8.1.9, which
// it installs and brings up on this machine: its shepherd and ours on the same
// job directory, and the same job under its execd and ours. It runs by `make
// interop`, as root. Nobody imports it.
package interop

import (
	"flag"
	"fmt"
	"os"
	osuser "os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

var (
	base string // below which everything is made
	bin  string // our binaries
	ge   *harness.GridEngine
	user *harness.User
	// group is the number of one of the user's supplementary groups.
	group string
)

// patience bounds every wait. Grid Engine delays signals by ten seconds, and its
// execd, started again, looks after the shepherds that it finds once a minute.
const patience = 4 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv("PADDOCK_INTEROP") == "" {
		// What needs neither root nor Grid Engine is run all the same.
		flag.Parse()
		if err := flag.Set("test.run", "^TestDifferences"); err != nil {
			panic(err)
		}
		code := m.Run()
		fmt.Println("interop: the rest is not run: it installs a real Grid Engine, as root; use make interop")
		os.Exit(code)
	}
	defaultSignals()
	// The tests wait most of the time.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "interop: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// TestDaemons runs what has one Grid Engine for all, one part after the other: its
// daemons with their configuration and jobs. The other tests are beside it.
func TestDaemons(t *testing.T) {
	t.Parallel()
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		// It takes away what it has left of Grid Engine's configuration if it was killed.
		{"Qconf", testQconf},
		{"Commands", testCommands},
		{"Configuration", testConfiguration},
		{"SameJob", testSameJob},
		{"SpoolFiles", testSpoolFiles},
		{"XML", testXML},
		{"Pilot", testPilot},
		// Its execd learns late that its own shepherd is to be used again.
		{"UnderGridEngine", testUnderGridEngine},
		{"ForeignShepherd", testForeignShepherd},
	} {
		t.Run(part.name, part.run)
	}
}

// qconf runs Grid Engine's qconf and returns what it prints.
func qconf(t *testing.T, args ...string) string {
	t.Helper()
	out, err := ge.Run(append([]string{"qconf"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// defaultSignals undoes what whoever started the test ignores of the C library's
// own signals, which nothing else can: GNU make passes it on, and the job of
// Grid Engine's shepherd would have it, too.
func defaultSignals() {
	var action struct { // the kernel's, SIG_DFL
		handler  uintptr
		flags    uint64
		restorer uintptr
		mask     uint64
	}
	for sig := uintptr(32); sig <= 33; sig++ {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}

func run(m *testing.M) (code int, err error) {
	if ge, err = harness.UseGridEngine(); err != nil {
		return 1, err
	}
	defer ge.Release()
	if base, err = harness.Base("interop"); err != nil {
		return 1, err
	}
	bin = filepath.Join(base, "bin")
	if err := harness.Build(bin); err != nil {
		return 1, err
	}
	if user, err = harness.AddUser("paddock-interop", "paddock-iop-a", "paddock-iop-b"); err != nil {
		return 1, err
	}
	if err := heal(); err != nil {
		return 1, err
	}
	g, err := osuser.LookupGroup(user.Groups[0])
	if err != nil {
		return 1, err
	}
	group = g.Gid
	code = m.Run()

	left, err := harness.LeftBehind(base)
	if err != nil {
		return code, err
	}
	harness.KillLeft(base)
	// Grid Engine now and then leaves a process of a job that was to run again.
	if err := harness.KillUser(user.UID); err != nil {
		return code, err
	}
	if err := user.Remove(); err != nil {
		return code, err
	}
	if len(left) > 0 {
		return code, fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	if code != 0 && os.Getenv("PADDOCK_KEEP") != "" {
		fmt.Fprintf(os.Stderr, "interop: kept %s\n", base)
		return code, harness.Keep(base)
	}
	return code, os.RemoveAll(base)
}

// heal takes away what a run that was killed has left in Grid Engine, which
// outlives it: jobs, objects, and what it had set for its time.
func heal() error {
	_, _ = ge.Run("qdel", "-f", "-u", "*") // there may be none
	if err := harness.WaitFor(patience, "the jobs of another run to go", func() (bool, error) {
		out, err := ge.Run("qstat", "-u", "*")
		return out == "", err
	}); err != nil {
		return err
	}
	for _, o := range [][2]string{ // what refers to others comes before them
		{"-sql", "-dq"}, {"-spl", "-dp"}, {"-sckptl", "-dckpt"}, {"-shgrpl", "-dhgrp"}, {"-sprjl", "-dprj"}, {"-sul", "-dul"},
	} {
		list, _ := ge.Run("qconf", o[0]) // it fails when there is none
		for name := range strings.FieldsSeq(list) {
			if strings.Contains(name, "iop") || strings.HasPrefix(strings.TrimPrefix(name, "@"), "odd") { // a name that these tests give
				_, _ = ge.Run("qconf", o[1], name)
			}
		}
	}
	for name, value := range map[string]string{
		"shepherd_cmd": "none", "load_report_time": "00:00:40",
		"reporting_params": "accounting=true reporting=false flush_time=00:00:15 joblog=false sharelog=00:00:00",
	} {
		if _, err := ge.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}

// listed is a difference that is meant, and why.
type listed map[string]string
