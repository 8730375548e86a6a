// Package props holds what the tests of single packages share: the real programs,
// others to run, and a log that several goroutines write. It is the standard
// library and nothing else, so that every test can have it.
package props

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// Built names the environment variable that has the directory of the real programs, where
// test/built has built them.
const Built = "PADDOCK_BIN"

// packages has the packages of the programs that tests of single packages run.
var packages = map[string]string{
	"execd": "paddock/execd", "shepherd": "paddock/shepherd", "execd-transfer": "paddock/execd/transfer", "qweb": "paddock/qsub/qweb",
}

// Build puts a real program at path, whose last element is its name: no test's binary can
// stand in for one where it starts itself again. It builds what is not built before.
func Build(path string) error {
	name := filepath.Base(path)
	if dir := os.Getenv(Built); dir != "" {
		program, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		return WriteExecutable(path, string(program))
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "urfave_cli_no_docs", "-o", path, packages[name])
	// Without cgo also where the race detector, which needs it, runs the test.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", name, err, out)
	}
	return nil
}

// WriteExecutable writes a program, a script mostly, that a test is about to
// run. No process is forked meanwhile: it would for an instant hold the file
// open for writing, and the program could not be executed ("text file busy").
func WriteExecutable(name, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		return err
	}
	return os.Chmod(name, 0o755)
}

// Log keeps what is written to it, and is read meanwhile. Its zero value is empty.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Write implements [io.Writer].
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
