package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"paddock/test/harness"
)

// hookMedian matches the line of a benchmark of package hook.
var hookMedian = regexp.MustCompile(`(?m)^Benchmark(Kept|Served)\S*\s.*\s([0-9.]+) median-ms`)

// hookTime measures what a call of a hook of execd's own takes, by a process and then by a hook
// server. Execd is not there for it: its calls are those of the benchmarks of package
// hook.
func (b *bench) hookTime() error {
	cmd := exec.Command("go", "test", "./execd/internal/hook", "-run", "^$", "-bench", "^Benchmark(Kept|Served)$",
		"-benchtime", fmt.Sprintf("%dx", b.size(1000, 20)), "-count", strconv.Itoa(b.size(5, 1)))
	cmd.Dir = harness.Root()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	took := map[string][]time.Duration{}
	for _, m := range hookMedian.FindAllStringSubmatch(string(out), -1) {
		d, err := time.ParseDuration(m[2] + "ms")
		if err != nil {
			return err
		}
		took[m[1]] = append(took[m[1]], d)
	}
	kept, served := took["Kept"], took["Served"]
	if len(kept) == 0 || len(served) == 0 {
		return errors.New("the benchmarks have printed no median:\n" + string(out))
	}
	b.report(row{
		what: "call of a hook by a server, beside a process", unit: "ms", theirs: milliseconds(median(kept)), ours: milliseconds(median(served)), absolute: true, limit: 0.3,
	})
	return nil
}
