package daemon

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// timerSlack is how late, in nanoseconds, a sleep of execd may end.
const timerSlack = 1e6

// coalesceTimers has all threads of execd, and those to come, wake up from sleep later than
// usual. As long as anything happens a thread of the Go runtime wakes up every 20 µs to see
// whether a system call takes long; a host that runs short jobs spends more on that than on
// starting them. execd may write for threads besides this one if it is root. Without it all
// is the same but slower.
func coalesceTimers() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0)
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if f, err := os.OpenFile("/proc/"+t.Name()+"/timerslack_ns", os.O_WRONLY, 0); err == nil {
			_, _ = fmt.Fprint(f, int(timerSlack))
			f.Close()
		}
	}
}
