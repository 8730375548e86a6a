package admin

import (
	"testing"

	"paddock/qsub/internal/command"
	"paddock/qsub/internal/qtest"
)

func call(t *testing.T, stdin string, args ...string) qtest.Result {
	t.Helper()
	return qtest.Call(t, &command.Program{Tables: []command.Table{Commands}}, stdin, args...)
}
