package spool_test

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"paddock/spool"
)

const aBoot = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"

func TestLease(t *testing.T) {
	for _, c := range []struct {
		lease spool.Lease
		text  string
	}{
		{spool.Lease{Boot: aBoot, End: 182733*time.Second + 410*time.Millisecond}, aBoot + " 182733.41\n"},
		{spool.Lease{Boot: aBoot, End: 7 * time.Second}, aBoot + " 7.00\n"},
		{spool.Lease{Boot: aBoot, End: 90 * time.Millisecond}, aBoot + " 0.09\n"},
		{spool.Lease{Boot: aBoot, End: (1<<31 - 1) * time.Second}, aBoot + " 2147483647.00\n"},
	} {
		if got := string(c.lease.Append(nil)); got != c.text {
			t.Errorf("%v is written as %q, want %q", c.lease, got, c.text)
		}
		if got, err := spool.ParseLease([]byte(c.text)); err != nil || got != c.lease {
			t.Errorf("%q is read as %v, %v", c.text, got, err)
		}
	}
	for _, text := range []string{
		"", "\n", aBoot, aBoot + "\n", aBoot + " 7.00", aBoot + " 7\n", aBoot + " 7.0\n", aBoot + " 7.000\n", aBoot + " 07.00\n", aBoot + " -7.00\n",
		aBoot + " 7.0x\n", aBoot + " +7.00\n", aBoot + " 7.00\n\n", aBoot + " 7.00 \n", aBoot + "  7.00\n", aBoot[1:] + " 7.00\n", "X" + aBoot[1:] + " 7.00\n",
		aBoot + " 2147483648.00\n", aBoot + " 99999999999999999999.00\n", "1 KILL\n",
	} {
		if l, err := spool.ParseLease([]byte(text)); !errors.Is(err, spool.ErrSyntax) {
			t.Errorf("%q is read as %v, %v", text, l, err)
		}
	}
}

// An empty file is none: a directory that is used again has empty files.
func TestNoLease(t *testing.T) {
	d := spool.OpenDir(t.TempDir())
	if _, err := d.Lease(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := d.Write(spool.FileLease, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lease(); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestBootID(t *testing.T) {
	id, err := spool.BootID()
	if err != nil {
		t.Fatal(err)
	}
	if l, err := spool.ParseLease(spool.Lease{Boot: id}.Append(nil)); err != nil || l.Boot != id {
		t.Errorf("%q does not go into a lease: %v", id, err)
	}
}

func FuzzLease(f *testing.F) {
	for _, s := range []string{"", aBoot + " 182733.41\n", aBoot + " 0.00\n", aBoot + " 0.9\n", aBoot + " 00.10\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := spool.ParseLease(b)
		if err != nil {
			return
		}
		if got := string(l.Append(nil)); got != string(b) {
			t.Fatalf("%q is written back as %q", b, got)
		}
	})
}
