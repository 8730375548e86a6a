package daemon

import (
	"errors"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/spool/spooltest"
)

// Shares that cannot be read for now are not forgotten: they would be written over.
func TestUnreadShares(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{root: root, log: slog.New(slog.DiscardHandler)}
	if err := d.loadShares(); err != nil {
		t.Errorf("without a file: %v", err)
	}
	defer spooltest.FailReads(t, "/"+spool.FileShares, unix.EMFILE)()
	if err := d.loadShares(); !errors.Is(err, unix.EMFILE) {
		t.Errorf("loadShares() = %v; want an error", err)
	}
}

// Nor is the format of the spool taken for another.
func TestUnreadFormat(t *testing.T) {
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err == nil {
		err = root.MarkFormat()
	}
	if err != nil {
		t.Fatal(err)
	}
	restore := spooltest.FailReads(t, "/"+spool.FileFormat, unix.EIO)
	err = claimSpool(root, slog.New(slog.DiscardHandler))
	restore()
	aside, listErr := root.ListCorrupt()
	if !errors.Is(err, unix.EIO) || listErr != nil || len(aside) != 0 || root.CheckFormat() != nil {
		t.Errorf("claimSpool() = %v, and aside is %v, %v", err, aside, listErr)
	}
}
