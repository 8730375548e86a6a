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
	// What an execd of format 1 has left is read, and its own from then on.
	if err := os.WriteFile(root.Path(spool.FileFormat), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.CheckFormat(), root.MarkFormat()); err != nil {
		t.Errorf("format 1: %v", err)
	}
	if text, err := os.ReadFile(root.Path(spool.FileFormat)); string(text) != "2\n" {
		t.Errorf("format 1 has become %q, %v; want 2", text, err)
	}
	for text, another := range map[string]bool{"0\n": true, "3\n": true, "999\n": true, "": false, "two\n": false, "\x00": false} {
		if err := os.WriteFile(root.Path(spool.FileFormat), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := root.CheckFormat()
		if err == nil || errors.Is(err, spool.ErrFormat) != another {
			t.Errorf("%q: %v; want a refusal of the format: %v", text, err, another)
		}
		if want := "the spool has " + strings.TrimSpace(text) + ", this execd uses 2"; another && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
