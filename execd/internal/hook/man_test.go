package hook

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// row matches a hook in the table of hooks.conf(5): its name, and its limit.
var row = regexp.MustCompile(`(?m)^\.It Cm (\S+) Ta .* Ta (\S+)$`)

// TestManual holds the hooks and their limits against hooks.conf(5).
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../../man/man5/hooks.conf.5")
	if err != nil {
		t.Fatal(err)
	}
	var want, got [][2]string
	for _, n := range Names {
		limit := "interval"
		if d, ok := defaultLimit[n]; ok {
			limit = strconv.Itoa(int(d.Seconds()))
		}
		want = append(want, [2]string{string(n), limit})
	}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		got = append(got, [2]string{m[1], m[2]})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the hooks and the page differ (-table +page):\n%s", diff)
	}
}
