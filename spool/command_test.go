package spool_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/spool"
)

func TestCommand(t *testing.T) {
	for _, c := range []spool.Command{
		{Dir: "/home/x", Argv: []string{"/bin/sh", "sh", "-c", "echo a\nb "}, Env: []string{"A=b", "C="}},
		{Dir: "/", Argv: []string{"", ""}},
		{Dir: "/home/x", Env: []string{"A=1"}}, // a login shell
		{},
	} {
		got, err := spool.ReadCommand(bytes.NewReader(append(c.Append(nil), "more"...)))
		if err != nil || !cmp.Equal(c, got, equalEmpty) {
			t.Errorf("%v is read as %v, %v", c, got, err)
		}
	}
	for _, bad := range []string{
		"", "0000000", "0000000x", "ffffffff", "-0000001x", "00000000", "00000001a", "00000002/\x00", "00000003/\x00x", "00000004/\x00x\x00", "00000004/\x001\x00",
		"00000005/\x0001\x00", "00000004/\x00-\x00",
	} {
		if got, err := spool.ReadCommand(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
	if _, err := spool.ReadCommand(strings.NewReader("00000004/\x00")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a command: %v", err)
	}
}

// equalEmpty takes no words for an empty list of them.
var equalEmpty = cmp.Transformer("words", func(list []string) string { return strings.Join(list, "\x00") + strings.Repeat(".", len(list)) })

func FuzzCommand(f *testing.F) {
	f.Add([]byte("00000008/\x001\x00a\x00B=c\x00"))
	f.Add([]byte("00000004/\x000\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := spool.ReadCommand(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := spool.ReadCommand(bytes.NewReader(c.Append(nil)))
		if err != nil || !cmp.Equal(c, again, equalEmpty) {
			t.Errorf("%v is read as %v, %v", c, again, err)
		}
	})
}
