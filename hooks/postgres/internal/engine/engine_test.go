package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/classad"
)

func TestReadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "postgres.conf")
	for text, want := range map[string]string{
		"connection host=/x dbname=y\n# a comment\n\nqueues a,b\nconnections 3\nlisten off\nhost h\nrenew execd -renew -dev /d\n": "",
		"connections\t3":             "",
		"":                           "",
		"colour red":                 ":1: there is no parameter \"colour\"",
		"connection password = x":    ": the connection has a password",
		"connection passfile=/x":     "",
		"\nconnections 0":            ":2: connections \"0\": not a number from 1 to 16",
		"queues a b/c":               ":1: \"b/c\" is no name of a queue",
		"host a b":                   ":1: \"a b\" is no name of a host",
		"listen maybe":               ":1: listen \"maybe\": neither on nor off",
		"renew":                      ":1: renew needs a command",
		"connection postgres://u:p@": ": the connection has a password",
		"connection postgres:///d?sslmode=disable&password=p": ": the connection has a password",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(path)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.HasPrefix(err.Error(), path+want)):
			t.Errorf("%q: %v; want %q", text, err, want)
		case strings.HasPrefix(text, "connection host") && (!slices.Equal(c.Queues, []string{"a", "b"}) || c.Listen || c.Host != "h" || len(c.Renew) != 4):
			t.Errorf("%+v", c)
		}
	}
}

func newClass(t *testing.T, owner, ad string) *class {
	t.Helper()
	c := &class{id: 1, queue: "default", owner: owner, cpus: 1, memory: 1, disk: 1}
	c.read(ad)
	return c
}

func TestMay(t *testing.T) {
	ad := "Name = \"slot1@h\"\nState = \"Unclaimed\"\nActivity = \"Idle\"\nCpus = 2\nMemory = 1000\nDisk = 5000\nRack = 3\n"
	for _, c := range []struct {
		slot   string
		change func(*class)
		job    string
		want   bool
	}{
		{"", nil, "", true},
		{"", func(c *class) { c.cpus = 3 }, "", false},
		{"", func(c *class) { c.memory = 1001 }, "", false},
		{"", func(c *class) { c.disk = 5001 }, "", false},
		{"", func(c *class) { c.gpus = 1 }, "", false},
		{"GPUs = 1\n", func(c *class) { c.gpus = 1 }, "", true},
		{"", func(c *class) { c.seconds = 100 }, "", true},
		{"TimeToLive = 99\n", func(c *class) { c.seconds = 100 }, "", false},
		{"", nil, "requirements = TARGET.Rack == 3", true},
		{"", nil, "requirements = TARGET.Rack == 4", false},
		{"", nil, "requirements = Nothing", false},
		{"", nil, "rack = 3\nrequirements = MY.rack == TARGET.Rack", true},
		{"Start = TARGET.Owner == \"ann\"\n", nil, "", true},
		{"Start = TARGET.Owner == \"bob\"\n", nil, "", false},
		{"Start = TARGET.Unknown == 1\n", nil, "", true},
		{"", nil, "requirements = ", true}, // it is taken, to be held
	} {
		slotAd, _ := classad.ParseOldLenient(ad + c.slot)
		k, steps := newClass(t, "ann", c.job), ownerSteps
		if c.change != nil {
			c.change(k)
		}
		if got := readSlot(slotAd).may(k, time.Now(), &steps); got != c.want {
			t.Errorf("slot with %q, job with %q, class %+v: %v", c.slot, c.job, k, got)
		}
	}
}

// TestDear has an owner's classes be dear together: they are not looked at without end, and those of others are.
func TestDear(t *testing.T) {
	e, err := New(&Config{Connections: 1, Host: "node1"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	dear := "Requirements = A0 > 0\n"
	for i := range 12 {
		dear += fmt.Sprintf("A%d = A%d + A%d\n", i, i+1, i+1)
	}
	for id := range int32(100) {
		e.classes[id] = newClass(t, "ann", dear+"A12 = 1")
	}
	e.classes[100] = newClass(t, "bob", "Requirements = TARGET.Cpus == 2")
	ad, _ := classad.ParseOldLenient("Name = \"slot1@node1\"\nCpus = 2\n")
	ids := e.Classes(readSlot(ad))
	if n := len(ids); n < 2 || n > 50 || ids[n-1] != 100 {
		t.Errorf("the slot may have %v", ids)
	}
}

// TestCompose has whatever an ad says of owner, identity and requests not count.
func TestCompose(t *testing.T) {
	e, err := New(&Config{Connections: 1, Host: "node1"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	e.classes[1] = newClass(t, "ann", "requestcpus = 1")
	text, err := e.compose(&work{job: 5, gen: 6, class: 1, owner: "ann", term: 300, ad: "Cmd = \"/bin/true\"\nOwner = \"root\"\nOWNER = \"root\"\n" +
		"GlobalJobId = \"1.1@00000000\"\nLeaseHost = \"node2\"\nJobLeaseDuration = 9\nRequestCpus = 64\nrequestmemory = 0\n"}, "0123abcd")
	if err != nil {
		t.Fatal(err)
	}
	ad, err := classad.ParseOld(string(text))
	if err != nil {
		t.Fatal(err)
	}
	env := &classad.Env{My: ad}
	for name, want := range map[string]string{
		"Owner": `"ann"`, "GlobalJobId": `"5.6@0123abcd"`, "JobLeaseDuration": "300", "LeaseHost": `"node1"`, "RequestCpus": "1", "RequestMemory": "1", "RequestDisk": "1",
	} {
		if got := env.Attr(name).String(); got != want {
			t.Errorf("%s is %s; want %s", name, got, want)
		}
	}
	script := strings.Repeat("echo \"a\\\"\n", 100_000)
	text, err = e.compose(&work{class: 1, owner: "ann", ad: "SCRIPT = " + classad.String(script).Expr().OldString() + "\nName = \"x\"\n"}, "0123abcd")
	rest, got, line, cut := classad.CutOldString(string(text), "Script")
	if err != nil || cut != nil || line == 0 || got != script || !strings.Contains(rest, "Name = \"x\"") {
		t.Errorf("an ad with a script is %.200q: %v, %v", text, err, cut)
	}
	e.installation = "0123abcd"
	if r, err := e.runOf(t.Context(), ad); err != nil || r != (run{5, 6, "node1"}) {
		t.Errorf("%v, %v", r, err)
	}
	e.installation = "ffffffff"
	if r, err := e.runOf(t.Context(), ad); err == nil {
		t.Errorf("a run of another database is %v", r)
	}
	if _, err := e.compose(&work{ad: "Cmd = \""}, ""); err == nil {
		t.Error("half an ad was handed out")
	}
}

// TestMarks has classes looked for behind what is dead, and from the first again before long.
func TestMarks(t *testing.T) {
	e, err := New(&Config{Connections: 1, Host: "node1"}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	slotAd, _ := classad.ParseOldLenient("Name = \"slot1@here\"\nCpus = 8\nMemory = 1000\nDisk = 100000\n")
	s, now := readSlot(slotAd), time.Now()
	e.classes[1], e.classes[2] = newClass(t, "ann", "requestcpus = 1"), newClass(t, "ann", "requestcpus = 1")
	look := func(at time.Duration) string {
		ids, lows, marked := e.candidates(s, now.Add(at))
		return fmt.Sprint(ids, lows, marked)
	}
	none := fmt.Sprint([]int32{1, 2}, []int64{first, first}, false)
	if got := look(0); got != none {
		t.Errorf("at first %s", got)
	}
	mark := func(at time.Duration, heads []*int64, given map[string]*work) {
		e.mark(&want{classes: []int32{1, 2}, heads: heads, given: given}, now.Add(at))
	}
	mark(0, []*int64{new(int64(10)), new(int64(20))}, map[string]*work{"a": {gen: 7, class: 2, rank: 22}, "b": {gen: 8, class: 2, rank: 21}})
	if got := look(fresh / 4); got != "[1 2] [10 22] true" {
		t.Errorf("after marks %s", got)
	}
	mark(fresh/4, []*int64{new(int64(11)), new(int64(19))}, nil)
	if got := look(fresh / 3); got != "[1 2] [11 22] true" {
		t.Errorf("after other marks %s", got)
	}
	if got := look(3 * fresh / 2); got != none {
		t.Errorf("later %s", got)
	}
	if a, b, c := e.gen("a"), e.gen("b"), e.gen("c"); a != 7 || b != 8 || c != 0 {
		t.Errorf("slots were given runs %d, %d and %d; want 7, 8 and none", a, b, c)
	}
	if mark(2*fresh, nil, map[string]*work{"a": {class: 1, rank: 3}}); !e.unmark() || look(2*fresh) != none || e.unmark() {
		t.Error("marks were not forgotten")
	}
}

func TestResults(t *testing.T) {
	ad, _ := classad.ParseOldLenient("ExitCode = 3\nExitReason = \"" + strings.Repeat("ä", 5000) + "\"\nEnvironment = \"secret\"\nRemoteUserCpu = 1.5\nExitBySignal = false\nJobDuration = 1 + 1\n")
	got := results(ad)
	if got["ExitCode"] != int64(3) || got["RemoteUserCpu"] != 1.5 || got["ExitBySignal"] != false || len(got) != 4 || len(got["ExitReason"].(string)) > maxText+1 {
		t.Errorf("%v", got)
	}
}
