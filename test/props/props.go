// Package props holds what the tests of single packages share: the real shepherd,
// programs to run, and a log that several goroutines write. It is the standard
// library and nothing else, so that every test can have it.
package props

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// BuildShepherd builds the real shepherd, as which no test's binary can stand in
// where it starts itself again.
func BuildShepherd(path string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", path, "paddock/shepherd")
	// Without cgo also where the race detector, which needs it, runs the test.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the shepherd: %w\n%s", err, out)
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
