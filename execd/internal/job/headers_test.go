package job

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
)

// TestHeaders decodes headers after others that are like them, and wants of each what it would be
// alone.
func TestHeaders(t *testing.T) {
	number := 0
	written := func(change func(h *header)) string {
		number++
		h := &header{
			Format: Format, Job: number, Owner: "alice", UID: 1001, Group: "users", GID: 100, Groups: []string{"users"}, SubmitGID: 100,
			Submitted: time.Unix(1e9+int64(number), 0).UTC(),
			Request:   api.SubmitRequest{Name: "a", Binary: true, Command: "true", Hard: []api.Resource{{Name: "h_rt", Value: "60"}}},
		}
		change(h)
		line, err := encode(h)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(line), "\n")
	}
	like := func() string { return written(func(*header) {}) }
	replaced := func(old, by string) string { return strings.Replace(like(), old, by, 1) }
	args := func(list ...string) string { return written(func(h *header) { h.Request.Args = list }) }
	lines := []string{
		like(), like(), args("1"), args("2", `"job":5,"submitted":{[`), args(`\`, `"`),
		written(func(h *header) { h.Request.Name = "b" }), like(),
		written(func(h *header) { h.Owner, h.UID = "bob", 1002 }), like(),
		written(func(h *header) { h.Request.Tasks = api.Tasks{First: 1, Last: 9, Step: 2} }),
		written(func(h *header) { h.Request.Tasks, h.Request.Only = api.Tasks{First: 1, Last: 9, Step: 2}, "3" }),
		written(func(h *header) { h.WaitsFor, h.Success = []int{1}, []dependency{{2, false}} }),
		written(func(h *header) { h.Success = []dependency{{2, false}} }), like(),
		written(func(h *header) { h.Request.Work = &api.Work{Holder: "h", Identity: "1"} }),
		written(func(h *header) { h.Request.Interactive = &api.Interactive{Display: ":1"} }), like(),
		replaced(`"job":`, `"job":9,"job":`), replaced(`"job":`, `"job":-`), replaced(`"job":`, `"job": `),
		replaced(`"submitted":"2`, `"submitted":"x`), replaced(`"owner":"alice"`, `"owner":""`),
		replaced(`"command"`, `"args":["a,"command"`), replaced(`"command"`, `"args":[],"args":[1],"command"`),
		replaced(`"request":{`, `"request":{{`), replaced(`"request"`, `"Request"`), replaced(`"format":1`, `"format":2`),
		like()[:40], "{}", "[]", "", like(),
	}
	var hs headers
	for i, line := range lines {
		what := func(h *digest, terms *Terms, err error) string {
			if err != nil {
				return err.Error()
			}
			text, err := json.Marshal([]any{h, terms.request()})
			return fmt.Sprint(string(text), err)
		}
		if d := cmp.Diff(what(new(headers).decode([]byte(line))), what(hs.decode([]byte(line)))); d != "" {
			t.Errorf("line %d after others, %s (-alone +after):\n%s", i, line, d)
		}
	}
	if len(hs.requests) != 6 || len(hs.others) != 2 {
		t.Errorf("%d requests and %d others are known; want those that differ, 6 and 2", len(hs.requests), len(hs.others))
	}
}
