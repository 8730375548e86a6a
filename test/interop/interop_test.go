// Package interop holds the comparisons with a real Grid Engine 8.1.9, which
// it installs and brings up on this machine: its shepherd and ours on the same
// job directory, and the same job under its execd and ours. It runs by `make
// interop`, as root. Nobody imports it.
package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/test/harness"
)

var (
	base string // below which everything is made
	bin  string // our binaries
	ge   *harness.GridEngine
	user *harness.User
)

func TestMain(m *testing.M) {
	if os.Getenv("PADDOCK_INTEROP") == "" {
		fmt.Println("interop: not run: it installs a real Grid Engine, as root; use make interop")
		os.Exit(0)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "interop: %v\n", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if ge, err = harness.UseGridEngine(); err != nil {
		return 1, err
	}
	defer ge.Release()
	if base, err = os.MkdirTemp("", "paddock-interop-"); err != nil {
		return 1, err
	}
	if err := os.Chmod(base, 0o755); err != nil {
		return 1, err
	}
	bin = filepath.Join(base, "bin")
	if err := harness.Build(bin); err != nil {
		return 1, err
	}
	if user, err = harness.AddUser("paddock-interop", "paddock-iop-a", "paddock-iop-b"); err != nil {
		return 1, err
	}
	code = m.Run()

	left, err := harness.LeftBehind(base)
	if err != nil {
		return code, err
	}
	harness.KillLeft(base)
	if err := user.Remove(); err != nil {
		return code, err
	}
	if len(left) > 0 {
		return code, fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	if code != 0 && os.Getenv("PADDOCK_KEEP") != "" {
		fmt.Fprintf(os.Stderr, "interop: kept %s\n", base)
		return code, nil
	}
	return code, os.RemoveAll(base)
}

// listed is a difference that is meant, and why.
type listed map[string]string
