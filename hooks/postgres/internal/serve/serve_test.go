package serve

import (
	"context"
	"testing"

	"paddock/hooks/postgres/internal/engine"
)

// TestCalledOff has calls end before the database has answered: execd is not to take a report for heard.
func TestCalledOff(t *testing.T) {
	e, err := engine.New(&engine.Config{Connection: "host=/nonexistent", Connections: 1, Host: "here"}, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := &server{engine: e, log: func(line string) { t.Errorf("logged: %s", line) }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ad := "GlobalJobId = \"7.1@00000000\"\nName = \"slot1@here\"\nState = \"Unclaimed\"\n"
	for hook, want := range map[string]int{"REPORT_WORK": 1, "RENEW_CLAIM": 75, "REPLY_FETCH": 1, "FETCH_WORK": 0} {
		status, output := s.answer(ctx, call{hook: hook, words: []string{"exit"}, input: []byte(ad)})
		if status != want || len(output) > 0 {
			t.Errorf("%s: %d %q; want %d", hook, status, output, want)
		}
	}
}
