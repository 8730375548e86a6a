package atomicfile

import (
	"os"
	syncs "sync"
)

// A Group lets many goroutines share the cost of syncing: while one batch is
// on its way to the disk, those who come wait together and make up the next.
// The zero value is ready to use. A Group has no goroutine of its own; one of
// those who wait does the work for all.
type Group struct {
	// Parallel bounds how many files are synced at once; 0 means 8. The file
	// system's journal then commits them together.
	Parallel int

	mu   syncs.Mutex
	busy bool   // a leader is at work; guarded by mu
	next *batch // whose leader is not yet at work; guarded by mu
}

// A target is a file or a directory to sync.
type target struct {
	file *os.File
	dir  string
}

type batch struct {
	calls map[target]*call
	lead  chan struct{} // tells one of the waiting to lead this batch
}

// A call is one sync with all who wait for it.
type call struct {
	target
	done     chan struct{}
	err      error // readable once done is closed
	panicked any   // likewise
}

// Sync returns when everything that was written to the file before the call is
// on disk. All who wait for the same file get the same error; after one, what
// was written since the last success must be taken for lost, since the kernel
// reports it once and forgets it.
func (g *Group) Sync(f *os.File) error {
	if err := g.wait(target{file: f}); err != nil {
		return cannot("sync", f.Name(), err)
	}
	return nil
}

// SyncDir is Sync for the names in a directory.
func (g *Group) SyncDir(path string) error {
	if err := g.wait(target{dir: path}); err != nil {
		return cannot("sync", path, err)
	}
	return nil
}

func (g *Group) wait(t target) error {
	g.mu.Lock()
	b := g.next
	if b == nil {
		b = &batch{calls: map[target]*call{}, lead: make(chan struct{}, 1)}
		g.next = b
	}
	c := b.calls[t]
	if c == nil {
		c = &call{target: t, done: make(chan struct{})}
		b.calls[t] = c
	}
	if !g.busy {
		g.busy = true
		b.lead <- struct{}{}
	}
	g.mu.Unlock()

	// Nobody leaves before the batch is done, so whoever takes the lead leads
	// a batch that is still whole.
	select {
	case <-c.done:
	case <-b.lead:
		g.run(b)
		<-c.done
	}
	if c.panicked != nil {
		panic(c.panicked)
	}
	return c.err
}

// run syncs a batch and passes the lead on.
func (g *Group) run(b *batch) {
	g.mu.Lock()
	g.next = nil // later comers may have written after this moment
	g.mu.Unlock()

	workers := g.Parallel
	if workers <= 0 {
		workers = 8
	}
	workers = min(workers, len(b.calls))
	todo := make(chan *call, len(b.calls))
	for _, c := range b.calls {
		todo <- c
	}
	close(todo)
	var wg syncs.WaitGroup
	for range workers - 1 {
		wg.Go(func() { work(todo) })
	}
	work(todo)
	wg.Wait()

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next != nil {
		g.next.lead <- struct{}{}
	} else {
		g.busy = false
	}
}

func work(todo <-chan *call) {
	for c := range todo {
		c.sync()
	}
}

func (c *call) sync() {
	defer close(c.done)
	// An injected crash is one of those who wait, not of the leader.
	defer func() { c.panicked = recover() }()
	if c.file != nil {
		c.err = syncData(c.file)
	} else {
		c.err = syncDir(c.dir)
	}
}
