package main

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// What a plugin has started from any of its threads counts as work of the plugin.
func TestCounters(t *testing.T) {
	const threads = 3
	var started, over sync.WaitGroup
	enough := make(chan struct{})
	for range threads {
		started.Add(1)
		over.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			cmd := exec.Command("sleep", "1000")
			err := cmd.Start()
			started.Done()
			if err != nil {
				t.Error(err)
				return
			}
			<-enough
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	started.Wait()
	if n := strings.Count(counters(os.Getpid()), "rchar"); n != 1+threads {
		t.Errorf("%d processes are counted; want %d", n, 1+threads)
	}
	close(enough)
	over.Wait()
}
