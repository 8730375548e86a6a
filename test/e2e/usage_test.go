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
			const held, most = 200_000_000, 250_000_000
			list := f.over(job, "0 0")
			if len(list) != 1 {
				continue
			}
			r := list[0]
			t.Logf("%s: cpu %.2f mem %.3f maxvmem %.0f ru_maxrss %.0f", kind, r.CPU, r.Mem, r.MaxVMem, r.RuMaxRSS)
			if r.MaxVMem < held || r.MaxVMem > most {
				t.Errorf("job %d: maxvmem %.0f; want %d and a little more", job, r.MaxVMem, held)
			}
			if r.RuMaxRSS < held>>10 || r.RuMaxRSS > most>>10 {
				t.Errorf("job %d: ru_maxrss %.0f KiB", job, r.RuMaxRSS)
			}
			// How much was seen depends on how busy the host is, which bounds how
			// often execd looks; the sums are rounded.
			if r.Mem <= 0 || r.Mem > 1.01*r.CPU*r.MaxVMem/(1<<30) {
				t.Errorf("job %d: mem %.3f GBs in %.2f s of processor time", job, r.Mem, r.CPU)
			}
		}
	})
}
