package e2e

import (
	"path/filepath"
	"testing"
)

// TestUsage has jobs that hold 200 MB for some seconds and write a larger file,
// which the system caches: what is accounted is what they hold.
func TestUsage(t *testing.T) {
	eachTier(t, "slots 2\n", func(t *testing.T, f *field, kind string) {
		f.plan("")
		f.script("holds", `head -c 400000000 /dev/zero >$TMPDIR/file
exec perl -e '$x = "a"; $x x= 200_000_000; $end = time + 4; 1 while time < $end'
`)
		holds := filepath.Join(f.pub, "holds")
		for _, job := range []int{f.submit(holds), f.submit("-l", "h_vmem=1G", holds)} {
			list := f.over(job, "0 0")
			if len(list) != 1 {
				continue
			}
			const held = 200_000_000
			r := list[0]
			if r.MaxVMem < held || r.MaxVMem > held*5/4 {
				t.Errorf("job %d: maxvmem %.0f; want %d and a little more", job, r.MaxVMem, held)
			}
			if r.RuMaxRSS < held>>10 || r.RuMaxRSS > held*5/4>>10 {
				t.Errorf("job %d: ru_maxrss %.0f KiB", job, r.RuMaxRSS)
			}
			// The memory by the time that it was worked in, as far as that was seen.
			if most := r.CPU * r.MaxVMem / (1 << 30); r.Mem < most/4 || r.Mem > most {
				t.Errorf("job %d: mem %.2f GBs, and %.1f s of processor time; want up to %.2f", job, r.Mem, r.CPU, most)
			}
			t.Logf("%s: cpu %.2f mem %.3f maxvmem %.0f ru_maxrss %.0f", kind, r.CPU, r.Mem, r.MaxVMem, r.RuMaxRSS)
		}
	})
}
