package hook

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A hook that prints for a long time, slowly enough, does not fill the log.
func TestLinesOfOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &lines{log: slog.New(slog.NewTextHandler(&out, nil)), label: "job 1.1", hook: "PRE"}
		const printed = 3 * maxLines
		for range printed {
			l.add([]byte("again\n"))
			time.Sleep(lineEvery)
		}
		l.end()
		if n := strings.Count(out.String(), "text="); n != maxLines {
			t.Errorf("%d lines are logged; want %d", n, maxLines)
		}
		if want := fmt.Sprintf("lines=%d not logged", printed-maxLines); !strings.Contains(out.String(), want) {
			t.Errorf("nothing says %q", want)
		}
	})
}
