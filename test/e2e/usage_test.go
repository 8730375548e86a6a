package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"paddock/test/harness"
)

// TestUsage has jobs that hold 200 MB until that was seen and write a file, which
// the system caches: what is accounted is what they hold.
func TestUsage(t *testing.T) {
	eachTier(t, "slots 2\n", func(t *testing.T, f *field, kind string) {
		f.plan("")
		// A file in memory would be held, too: TMPDIR may be there.
		f.script("holds", `head -c 100000000 /dev/zero >`+harness.Disk(t)+`/file.$JOB_ID
exec perl -e '$x = "a"; $x x= 200_000_000; 1 while $i++ < 6_000_000; select undef, undef, undef, 0.02 until -e "PUB/seen"'
`)
		holds := filepath.Join(f.pub, "holds")
		jobs := []int{f.submit(holds), f.submit("-l", "h_vmem=1G", holds)}
		const held, most = 200_000_000, 250_000_000
		shown := regexp.MustCompile(`mem=([0-9.]+) GB s, .*maxvmem=([0-9.]+)M`)
		for _, job := range jobs {
			f.until(fmt.Sprintf("the usage of job %d", job), func() bool {
				out, _ := f.command("qstat", "-j", strconv.Itoa(job)) // what it says is looked at
				m := shown.FindStringSubmatch(out)
				if m == nil {
					return false
				}
				mem, err1 := strconv.ParseFloat(m[1], 64)
				maxvmem, err2 := strconv.ParseFloat(m[2], 64)
				return err1 == nil && err2 == nil && mem > 0.02 && maxvmem > held>>20+1
			})
		}
		if err := os.WriteFile(filepath.Join(f.pub, "seen"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, job := range jobs {
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
