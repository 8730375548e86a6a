package daemon

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestWatchdogLimit(t *testing.T) {
	t.Parallel()
	self := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"60000000", self, time.Minute},
		{"60000000", "", time.Minute},
		{"60000000", "1", 0}, // of the process that has started execd
		{"", self, 0},
		{"0", self, 0},
		{"-1", self, 0},
		{"1", self, 0}, // of which nobody can do half
		{"18446744073709551615", self, 0},
		{"9223372036854775807", self, 0},
		{"a minute", self, 0},
	} {
		if got := watchdogLimit(tt.usec, tt.pid); got != tt.want {
			t.Errorf("watchdogLimit(%q, %q) = %v; want %v", tt.usec, tt.pid, got, tt.want)
		}
	}
}
