package account

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/execd/api/accounting"
)

// TestLast reads the end of a file in which a line is cut and another is none.
func TestLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "accounting")
	b := New(path, nil)
	if got, err := b.Last(1000); len(got) > 0 || err != nil {
		t.Errorf("of no file there are %v, %v", got, err)
	}
	var text []byte
	for n := 1; n <= 9; n++ {
		r := accounting.Record{QName: "all.q", Hostname: "node7", Owner: "alice", JobName: strings.Repeat("x", 100), JobNumber: n}
		var err error
		if text, err = accounting.Append(text, r); err != nil {
			t.Fatal(err)
		}
		if n == 5 {
			text = append(text, "# a comment\n\n"...)
		}
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int]int{len(text): 9, len(text) * 2: 9, len(text) - 1: 8, len(text)/9*2 - 20: 1, 10: 0} {
		got, err := b.Last(int64(most))
		if err != nil || len(got) != want {
			t.Errorf("of the last %d bytes there are %d records, %v; want %d", most, len(got), err, want)
		}
		if len(got) > 0 && got[len(got)-1].JobNumber != 9 {
			t.Errorf("the last is job %d", got[len(got)-1].JobNumber)
		}
	}
}
