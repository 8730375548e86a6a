package atomicfile

import "sync/atomic"

// An Op is a step that changes the disk or makes a change last.
type Op string

// The steps. Each is announced with the path it is about, which for a
// temporary file is that of the file it will become, as far as it is known.
const (
	OpCreate Op = "create"
	OpWrite  Op = "write"
	OpSync   Op = "sync"
	OpRename Op = "rename"
	OpMkdir  Op = "mkdir"
	OpChmod  Op = "chmod"
	OpRemove Op = "remove"
)

var hook atomic.Pointer[func(op Op, path string) error]

// Inject makes every step call the hook first, from whatever goroutine does
// the step, and fail with the error it returns. The hook may panic to end the
// code under test as a crash would. The function it returns takes the hook
// away. It is for tests only; see package spooltest.
func Inject(h func(op Op, path string) error) (restore func()) {
	old := hook.Swap(&h)
	return func() { hook.Store(old) }
}

// Step announces a step that the caller is about to do by other means than
// this package and returns the error with which it shall fail.
func Step(op Op, path string) error {
	if h := hook.Load(); h != nil {
		return (*h)(op, path)
	}
	return nil
}

var readHook atomic.Pointer[func(path string) error]

// InjectRead makes whoever is about to read a file of a spool call the hook first,
// and fail with the error it returns. It is for tests only.
func InjectRead(h func(path string) error) (restore func()) {
	old := readHook.Swap(&h)
	return func() { readHook.Store(old) }
}

// Reading announces that a file is about to be read, and returns the error with
// which that shall fail.
func Reading(path string) error {
	if h := readHook.Load(); h != nil {
		return (*h)(path)
	}
	return nil
}
