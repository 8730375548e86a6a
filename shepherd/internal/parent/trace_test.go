package parent

import (
	"os"
	"strings"
	"testing"

	"paddock/spool"
)

func TestCorePlace(t *testing.T) {
	for _, c := range []struct {
		pattern string
		usesPID bool
		want    string
	}{
		{"core", false, "the core dump is core in the working directory, which was /home/u at the start"},
		{"core", true, "the core dump is core.42 in the working directory, which was /home/u at the start"},
		{"core.%p", true, "the core dump is core.42 in the working directory, which was /home/u at the start"},
		{"/cores/%e.%P.100%%", false, "the core dump is /cores/%e.42.100%"},
		{"|/usr/lib/catch %p %u", false, "the core dump was given to /usr/lib/catch"},
		{"@@/run/cores.socket", false, "the core dump was given to the socket /run/cores.socket"},
	} {
		if got := corePlace(c.pattern, c.usesPID, "/home/u", 42); got != c.want {
			t.Errorf("corePlace(%q, %t) = %q; want %q", c.pattern, c.usesPID, got, c.want)
		}
	}
}

// TestCoreDump has a job crash, with and without leave to dump core.
func TestCoreDump(t *testing.T) {
	needRoot(t, "sets hard limits")
	place, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		t.Skip("the kernel does not tell where it puts core dumps: ", err)
	}
	for limit, allowed := range map[string]bool{"INFINITY": true, "0": false} {
		t.Run(limit, func(t *testing.T) {
			dumps := allowed || place[0] == '|' // a program gets it in any case
			r := newRig(t, "kill -SEGV $$").set("s_core="+limit, "h_core="+limit)
			r.ended(r.run(), 0, 139)
			trace := r.read(spool.FileTrace)
			if got := strings.Contains(trace, "the core dump"); got != dumps {
				t.Errorf("the trace tells of a core dump: %t; want %t\n%s", got, dumps, trace)
			}
			if want := "job was ended by signal SEGV (core dumped)"; (r.errors() == want) != dumps {
				t.Errorf("error %q; want %q: %t", r.errors(), want, dumps)
			}
			if place[0] == '|' || place[0] == '/' || place[0] == '@' {
				return // it is somewhere else
			}
			found := false
			for line := range strings.Lines(trace) {
				_, file, ok := strings.Cut(line, "the core dump is ")
				file, _, _ = strings.Cut(file, " in the working directory, which was "+r.base+"/out ")
				if _, err := os.Stat(r.base + "/out/" + file); ok && err == nil {
					found = true
				}
			}
			if found != dumps {
				t.Errorf("the core dump was found where the trace says: %t; want %t\n%s", found, dumps, trace)
			}
		})
	}
}
