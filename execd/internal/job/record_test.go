package job

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/fill"
)

var (
	allStates = []State{Pending, Started, Over, Ended, Errored, Gone}
	allEvents = []Event{
		EventStarted, EventWithdrawn, EventWant, EventOver, EventStuck, EventUnstuck, EventEnded,
		EventDone, EventRequeued, EventErrored, EventDeleted,
	}
)

// Every pair of state and event either leads somewhere, and then the task is
// there, or is refused and changes nothing.
func TestEveryPairOfStateAndEvent(t *testing.T) {
	paths := map[State][]Event{
		Pending: {},
		Started: {EventStarted},
		Over:    {EventStarted, EventOver},
		Ended:   {EventStarted, EventOver, EventEnded},
		Errored: {EventErrored},
		Gone:    {EventDeleted},
	}
	event := func(e Event) *line {
		return &line{Event: e, Tasks: "1", Start: &Start{Queue: "all.q"}, End: &End{}, Want: &Want{Signal: 9}, Stuck: &Stuck{}}
	}
	stateOf := func(j *Job) State {
		switch task := j.active[1]; {
		case task != nil:
			return task.State
		case j.pending.Has(1):
			return Pending
		}
		return Gone
	}
	for _, from := range allStates {
		for _, e := range allEvents {
			j := newJob(&digest{Job: 1})
			for _, step := range paths[from] {
				if err := j.replay(event(step)); err != nil {
					t.Fatalf("%v to %v: %v", step, from, err)
				}
			}
			if got := stateOf(j); got != from {
				t.Fatalf("after %v the task is %v; want %v", paths[from], got, from)
			}
			err := j.replay(event(e))
			want, ok := next[from][e]
			if ok != (err == nil) {
				t.Errorf("%v in state %v: error %v; want allowed %v", e, from, err, ok)
			}
			if !ok {
				want = from
			}
			if got := stateOf(j); got != want {
				t.Errorf("%v in state %v leads to %v; want %v", e, from, got, want)
			}
			if running := j.started; (want == Started) != (running == 1) {
				t.Errorf("%v in state %v: %d tasks counted as started in state %v", e, from, running, want)
			}
		}
	}
	for s := range next {
		if s.String() == "" {
			t.Errorf("state %d has no name", s)
		}
	}
	if len(next) != len(allStates) {
		t.Errorf("the table has %d states; want %d", len(next), len(allStates))
	}
}

func record(t *testing.T, lines ...string) []byte {
	t.Helper()
	h := header{
		Format: Format, Job: 42, Owner: "alice", UID: 1001, Group: "users", GID: 100,
		Submitted: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC),
		Request:   api.SubmitRequest{Name: "arr", Tasks: api.Tasks{First: 1, Last: 4, Step: 1}},
	}
	head, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.Join(append([]string{string(head)}, lines...), "\n") + "\n")
}

func TestDecode(t *testing.T) {
	const (
		started = `{"event":"started","tasks":"1","time":"2026-11-21T08:00:01Z","start":{"queue":"all.q","boot":"b"}}`
		ended   = `{"event":"ended","tasks":"1","time":"2026-11-21T08:00:02Z","end":{"failed":0,"exit":3,"fate":"done","accounting":"x","place":{"inode":1,"offset":2}}}`
		done    = `{"event":"done","tasks":"1","time":"2026-11-21T08:00:02Z"}`
		requeue = `{"event":"requeued","tasks":"1","time":"2026-11-21T08:00:02Z"}`
	)
	j, whole, err := decode(record(t, started, ended, done))
	if err != nil {
		t.Fatal(err)
	}
	if got := j.pending.String(); got != "2-4:1" || j.finished != 1 || len(j.active) != 0 {
		t.Errorf("pending %q, finished %d, active %d; want 2-4:1, 1, 0", got, j.finished, len(j.active))
	}
	if want := len(record(t, started, ended, done)); whole != want {
		t.Errorf("whole = %d; want %d", whole, want)
	}

	// A line that was cut short was promised to nobody.
	data := record(t, started, ended)
	j, whole, err = decode(data[:len(data)-5])
	if err != nil || whole != len(record(t, started)) || j.active[1].State != Started {
		t.Errorf("cut short: whole %d, %v; want %d and a started task", whole, err, len(record(t, started)))
	}

	j, _, err = decode(record(t, started, ended, requeue))
	if err != nil || j.pending.Len() != 4 || j.runs[1] != 1 {
		t.Errorf("requeued: %v, pending %v, run %d; want 4 pending, run 1", err, j.pending.Len(), j.runs[1])
	}

	// A repeated event is the trace of a failed sync.
	if _, _, err = decode(record(t, started, started, ended, ended, done)); err != nil {
		t.Errorf("repeated events: %v; want none", err)
	}
}

func TestDecodeBad(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"empty", "", "the header is cut short"},
		{"no newline", `{"format":1}`, "the header is cut short"},
		{"not JSON", "garbage\n", "line 1 is not a header"},
		{"binary", "\x00\xff\n\x00\n", "line 1 is not a header"},
		{"other format", `{"format":2,"job":1}` + "\n", "format not supported: the record has 2, this execd reads 1"},
		{"no owner", `{"format":1,"job":1}` + "\n", "no owner"},
		{"bad tasks", `{"format":1,"job":1,"owner":"a","request":{"tasks":{"first":5,"last":1,"step":1}}}` + "\n", "tasks 5-1:1"},
		{"bad event", string(record(t, "{}")), "line 2"},
		{"garbage event", string(record(t, "\x00\x00")), "line 2 is not an event"},
		{"foreign task", string(record(t, `{"event":"deleted","tasks":"9"}`)), `line 2: tasks "9" are none of the job's`},
		{"impossible", string(record(t, `{"event":"done","tasks":"1"}`)), "line 2: task 1 is pending and cannot be done"},
	} {
		_, _, err := decode([]byte(tt.data))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("decode(%s) = %v; want %q", tt.name, err, tt.want)
		}
	}
}

// reread are the fields of a request that nobody looks at before the job is started, or
// but for one request: they are read from the record then. What is looked at sooner and
// is not kept is lost with a restart of execd.
var reread = []string{
	"script", "command", "args", "no_shell", "shell", "cwd", "stdin", "stdout", "stderr", "merge", "notify",
	"hold_ok", "hold_array_ok", "verify", "checkpoint_when", "mail_to", "context", "env", "origin", "plain",
	"stage_out", "stage_out_to", "when_out",
}

// TestDigest holds what is kept of a request against what is written.
func TestDigest(t *testing.T) {
	h := &header{
		Format: Format, Job: 7, Owner: "o", UID: 1, Group: "g", GID: 2, SubmitGID: 3, Groups: []string{"g", "h"},
		Submitted: time.Unix(3, 4).UTC(), links: links{WaitsFor: []int{5}, WaitsForTasks: []int{6}},
	}
	r := &h.Request
	fill.All(r)
	r.StageIn[0].Place = "s3://there/x"
	r.Name, r.Only, r.Hold, r.Env, r.Work.Identity, r.Work.Holder = "n\xff", "1", "u", []string{"A=\xfe"}, "i\xff", "alice"
	data, err := encode(h)
	if err != nil {
		t.Fatal(err)
	}
	var got digest
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if want := digestOf(h); !reflect.DeepEqual(&got, want) {
		t.Errorf("read %+v; want %+v", got, want)
	}
	if j := newJob(&got); j.Source != "alice" || j.Identity != "i\xff" {
		t.Errorf("the job is of %q, with identity %q; want %q and %q", j.Source, j.Identity, "alice", "i\xff")
	}
	names := map[string]bool{}
	for _, part := range []any{got.Request, got.Request.Terms, *got.Request.Predecessors, got.Request.needs} {
		v := reflect.ValueOf(part)
		for i := range v.NumField() {
			name := fill.Name(v.Type().Field(i))
			names[name] = true
			if name != "-" && v.Field(i).IsZero() {
				t.Errorf("%s is not kept, which has a place", v.Type().Field(i).Name)
			}
		}
	}
	terms := got.Request.terms()
	if altered := keptOf(terms.request()).terms(); !reflect.DeepEqual(altered, terms) {
		t.Errorf("an alteration of something else makes %+v of the terms %+v", altered, terms)
	}
	fill.Fields(func(name string, _ *api.SubmitRequest) {
		if names[name] == slices.Contains(reread, name) {
			t.Errorf("%s of a request must either be kept, or be read again from the record and stand in reread", name)
		}
	})
	if r := needsOf(&got.Request.needs).Request(); !reflect.DeepEqual(needsIn(r), got.Request.needs) {
		t.Errorf("needs are %+v; want %+v", needsIn(r), got.Request.needs)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"format":1,"job":1,"owner":"a","request":{"tasks":{"first":1,"last":3,"step":1}}}` + "\n" +
		`{"event":"deleted","tasks":"1-2:1"}` + "\n"))
	f.Add([]byte(`{"format":1,"job":1,"owner":"a","request":{"name":"a","tasks":{"first":1,"last":3,"step":1}},"waits_for":[7]}` + "\n" +
		`{"event":"altered","tasks":"2","change":{"fields":["-N","-hold_jid","-l"],"to":{"name":"b","command":"","hard":[{"name":"h_rt","value":"1"}]},"waits_for":[8],"hold":"u"}}` + "\n" +
		`{"event":"started","tasks":"1","start":{"queue":"q","boot":"b","needs":{"pe":"smp"}}}` + "\n"))
	f.Add([]byte("garbage\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, whole, err := decode(data)
		if h, full := present(data); err == nil && full == nil {
			// The digest that is at hand and the whole request say the same.
			if terms := keptOf(&h.Request).terms(); !reflect.DeepEqual(terms, j.Terms()) {
				t.Fatalf("the request asks for %+v, the job for %+v", terms, j.Terms())
			}
		}
		if whole < 0 || whole > len(data) {
			t.Fatalf("whole = %d of %d", whole, len(data))
		}
		if err == nil && j == nil {
			t.Fatal("no job and no error")
		}
	})
}
