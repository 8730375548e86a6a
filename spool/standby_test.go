package spool_test

import (
	"bytes"
	"testing"

	"paddock/spool"
)

func FuzzParseAssignment(f *testing.F) {
	f.Add([]byte("shepherd-1.1\x00/spool/active_jobs/1.1"))
	f.Add([]byte("\x00/"))
	f.Add([]byte("x\x00relative"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := spool.ParseAssignment(b)
		if err != nil {
			return
		}
		if again := a.Append(nil); !bytes.Equal(again, b) || a.Dir[0] != '/' {
			t.Errorf("%q is read as %+v, which is sent as %q", b, a, again)
		}
	})
}
