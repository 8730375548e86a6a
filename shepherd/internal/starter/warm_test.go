package starter

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
)

func TestAnonymous(t *testing.T) {
	for _, tc := range []struct {
		line       string
		begin, end uintptr
		ok         bool
	}{
		{"7f4fff14c000-7f4fff1ac000 rw-p 00000000 00:00 0 \n", 0x7f4fff14c000, 0x7f4fff1ac000, true},
		{"7f4fff14c000-7f4fff1ac000 rw-p 00000000 00:00 0                          [anon: Go: heap]\n", 0x7f4fff14c000, 0x7f4fff1ac000, true},
		{"00676000-006af000 rw-p 00000000 00:00 0 \n", 0, 0, false},                                                     // data of the program
		{"00666000-00676000 rw-p 00266000 fe:00 10937090                           /usr/bin/shepherd\n", 0, 0, false},   // the same
		{"7ffeefdf3000-7ffeefe14000 rw-p 00000000 00:00 0                          [stack]\n", 0, 0, false},             // which fork needs
		{"7f33ad1a0000-7f33ae1a0000 rw-s 00000000 00:01 24791                      /dev/zero (deleted)\n", 0, 0, false}, // a plan
		{"7f57efc00000-7f57f1c00000 ---p 00000000 00:00 0 \n", 0, 0, false},                                             // nothing is there
		{"7f57efc00000-7f57f1c00000 rw-p 00000000 fe:00 3                          /tmp/a file [anon\n", 0, 0, false},   // a file's
		{"7ffd9fbd1000-7ffd9fbd3000 r-xp 00000000 00:00 0                          [vdso]\n", 0, 0, false},              // the kernel's
		{"7f57efc00000-17f57f1c00000000000 rw-p 00000000 00:00 0 \n", 0, 0, false},                                      // no number
		{"", 0, 0, false},
	} {
		begin, end, ok := anonymous([]byte(tc.line))
		if ok != tc.ok || ok && (begin != tc.begin || end != tc.end) {
			t.Errorf("anonymous(%q) = %x, %x, %v", tc.line, begin, end, ok)
		}
	}
}

// What is forked after Warm has the stack that it goes on with, wherever in the heap that is.
func TestForkAfterWarm(t *testing.T) {
	if info, ok := debug.ReadBuildInfo(); !ok || slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"}) {
		t.Skip("this test is linked with C, the shepherd is not")
	}
	var ballast [][]byte
	for range 4 { // each takes half of an arena of Go's heap
		ballast = append(ballast, make([]byte, 32<<20))
	}
	Warm()
	launch := func() {
		p, err := Launch(Place{Group: -1, Inherited: -1})
		if err != nil {
			t.Error(err)
			return
		}
		if err := p.await(); err != nil {
			t.Errorf("the process is not ready: %v", err)
		}
		p.Dismiss()
	}
	var deep func(n int)
	deep = func(n int) {
		var room [1 << 10]byte
		if room[n&1] = byte(n); n > 0 {
			deep(n - 1)
		} else {
			launch()
		}
		runtime.KeepAlive(&room)
	}
	for n := range 12 {
		var group sync.WaitGroup
		group.Go(func() { deep(1<<n - 1) }) // on a stack of its own, which grows by moving
		group.Wait()
	}
	runtime.KeepAlive(ballast)
}
