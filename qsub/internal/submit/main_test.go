package submit

import (
	"testing"

	"paddock/qsub/internal/command"
	"paddock/qsub/internal/qtest"
)

var program = command.Program{Tables: []command.Table{Commands}}

func call(t *testing.T, stdin string, args ...string) qtest.Result {
	t.Helper()
	return qtest.Call(t, &program, stdin, args...)
}
