package main

import (
	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
)

// piece is how many bytes of a file are on their way to the disk at a time.
const piece = 4 << 20

// flush has what is in the sandbox written to the disk, a piece at a time. A sync of the
// file system sends it all at once, and whoever has something small recorded there waits
// for all of it: on ext4 the journal does.
func (w *worker) flush() error {
	return w.walk(source{dir: order.Files, name: ".", path: "."}, func(dir int, name string, st *unix.Stat_t) {
		w.beat.Add(1)
		if kind(st) != unix.S_IFREG || volume(st) == 0 && st.Size < piece { // blocks are given as it is written
			return
		}
		fd, err := source{dir: dir, name: name}.open(w.stay)
		if err != nil {
			return // the sync writes it as well
		}
		defer unix.Close(fd)
		const whole = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
		_ = eachExtent(fd, 0, st.Size, func(at, end int64) error {
			for ; at < end; at += piece {
				if err := unix.SyncFileRange(fd, at, min(piece, end-at), whole); err != nil {
					return err
				}
				w.beat.Add(1)
			}
			return nil
		})
	})
}
