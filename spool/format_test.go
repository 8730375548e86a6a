package spool_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/spool"
)

func TestFormat(t *testing.T) {
	root, err := spool.OpenRoot(filepath.Join(t.TempDir(), "spool"), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := root.CheckFormat(); err != nil {
		t.Errorf("without a number: %v", err)
	}
	for range 2 {
		if err := root.MarkFormat(); err != nil {
			t.Fatal(err)
		}
		if err := root.CheckFormat(); err != nil {
			t.Errorf("its own number: %v", err)
		}
	}
	for text, another := range map[string]bool{"2\n": true, "999\n": true, "": false, "two\n": false, "\x00": false} {
		if err := os.WriteFile(root.Path(spool.FileFormat), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := root.CheckFormat()
		if err == nil || errors.Is(err, spool.ErrFormat) != another {
			t.Errorf("%q: %v; want a refusal of the format: %v", text, err, another)
		}
		if want := "the spool has " + strings.TrimSpace(text) + ", this execd uses 1"; another && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
