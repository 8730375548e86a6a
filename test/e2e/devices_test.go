package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDevices has jobs that were granted one of two units with a device, both or
// none, and all try to open both.
func TestDevices(t *testing.T) {
	if second == nil {
		t.Skip("needs root: it makes device nodes")
	}
	for name, via := range tiers {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			f := makeField(t, true, "slots 4\ncomplex_values gpu=2(gpu0[device=PUB/zero] gpu1[devices=PUB/full;PUB/both:r])\nprolog root@PUB/before\n")
			f.via = via
			for name, minor := range map[string]uint32{"zero": 5, "full": 7, "both": 8} {
				path := filepath.Join(f.pub, name)
				err := unix.Mknod(path, unix.S_IFCHR, int(unix.Mkdev(1, minor)))
				if err == nil {
					err = os.Chmod(path, 0o666)
				}
				if err != nil {
					t.Skip("needs the right to make device nodes: ", err)
				}
			}
			if err := os.WriteFile(filepath.Join(f.dir, "etc", "complexes"), []byte("gpu gpu RSMAP <= YES JOB 0 0\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			f.plan("")
			f.script("before", "exit 0\n")
			f.script("opens", `
for node in zero full both; do
	(: <PUB/$node) 2>PUB/err.$JOB_ID.$node && echo $node r
	(: >PUB/$node) 2>/dev/null && echo $node w
done >PUB/new.$JOB_ID
mv PUB/new.$JOB_ID PUB/opened.$JOB_ID
echo "$SGE_HGR_gpu." >PUB/units.$JOB_ID
while ! test -e PUB/go; do sleep 0.4; done
`)
			if out, err := f.check(); err != nil || strings.Contains(out, "device") {
				t.Errorf("execd -t: %v\n%s", err, out)
			}
			f.start()
			log := f.d.Log()
			list := f.pub + "/both " + f.pub + "/full " + f.pub + "/zero"
			kept := strings.Contains(log, "devices are kept from jobs that were not granted them: "+list)
			if name == "none" && kept || !kept && !strings.Contains(log, "devices are not kept from any job: the control groups of this host cannot do that: "+list) {
				t.Errorf("the log does not say what becomes of devices:\n%s", log)
			}
			if name != "none" && !kept {
				t.Skip("needs control groups that limit devices")
			}
			const all = "zero r\nzero w\nfull r\nfull w\nboth r\nboth w\n"
			opens := filepath.Join(f.pub, "opens")
			expect := func(want string, args ...string) int {
				t.Helper()
				job := f.submit(append(args, opens)...)
				if name == "none" {
					want = all
				}
				f.until("the job has tried", func() bool { return f.has(fmt.Sprintf("units.%d", job)) })
				if got := f.read(fmt.Sprintf("opened.%d", job)); got != want {
					t.Errorf("a job with units %q can open\n%swant\n%s%s", f.read(fmt.Sprintf("units.%d", job)), got, want, f.read(fmt.Sprintf("err.%d.zero", job)))
				}
				return job
			}
			jobs := []int{
				expect("", "-N", "without"),
				expect("zero r\nzero w\n", "-l", "gpu=1"),
				expect("full r\nfull w\nboth r\n", "-l", "gpu=1"),
			}
			if err := os.WriteFile(filepath.Join(f.pub, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			for _, job := range jobs {
				f.over(job, "0 0")
			}
			jobs = []int{expect("zero r\nzero w\nfull r\nfull w\nboth r\n", "-l", "gpu=2")}
			f.over(jobs[0], "0 0")
			if err := f.d.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
