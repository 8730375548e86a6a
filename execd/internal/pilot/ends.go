package pilot

import (
	"bytes"
	"context"
	"os"

	"github.com/fsnotify/fsnotify"

	"paddock/execd/api/accounting"
)

// Ended returns a function for Life.Ended, which reads an accounting file.
func Ended(file string) func() []accounting.Record {
	var at int64
	return func() (list []accounting.Record) {
		f, err := os.Open(file)
		if err != nil {
			return nil // no job has ended yet
		}
		defer f.Close()
		text := make([]byte, accounting.MaxLine)
		for {
			n, _ := f.ReadAt(text, at)
			end := bytes.LastIndexByte(text[:n], '\n') + 1
			if end == 0 {
				return list
			}
			for line := range bytes.Lines(text[:end]) {
				if r, err := accounting.Parse(bytes.TrimSuffix(line, []byte("\n"))); err == nil {
					list = append(list, r)
				}
			}
			at += int64(end)
		}
	}
}

// Told returns a function for Life.Told: the directories have a file for each end that is
// still to be told.
func Told(dirs ...string) func(context.Context) {
	return func(ctx context.Context) {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			<-ctx.Done()
			return
		}
		defer w.Close()
		for _, dir := range dirs {
			_ = w.Add(dir) // one that is missing has none
		}
		for Untold(dirs...) > 0 {
			select {
			case <-w.Events:
			case _, open := <-w.Errors:
				if !open {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// Untold returns how many ends are still to be told.
func Untold(dirs ...string) (n int) {
	for _, dir := range dirs {
		list, _ := os.ReadDir(dir)
		n += len(list)
	}
	return n
}
