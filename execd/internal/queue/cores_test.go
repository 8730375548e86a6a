package queue

import "testing"

func TestCores(t *testing.T) {
	c := NewCores("SCTTCTTCTTCTTSCTTCTTCTTCTT")
	type step struct {
		text  string
		slots int
		want  string
	}
	var given []string
	for _, s := range []step{
		{"linear:2", 1, "explicit:0,0:0,1:ScttcttCTTCTTSCTTCTTCTTCTT"},
		{"linear", 3, "explicit:1,0:1,1:1,2:SCTTCTTCTTCTTScttcttcttCTT"},
		{"striding:2:1:0,2", 1, "explicit:0,2:0,3:SCTTCTTcttcttSCTTCTTCTTCTT"},
		{"linear:2", 1, ""},
		{"env linear:1", 1, "env_explicit:1,3:SCTTCTTCTTCTTSCTTCTTCTTctt"},
		{"explicit:1,3", 1, "explicit:1,3:SCTTCTTCTTCTTSCTTCTTCTTctt"},
		{"linear:1", 1, ""},
	} {
		got := c.Take(s.text, s.slots)
		if got != s.want {
			t.Errorf("Take(%q, %d) = %q; want %q", s.text, s.slots, got, s.want)
		}
		given = append(given, got)
	}
	if got, want := c.InUse(), "ScttcttcttcttScttcttcttctt"; got != want {
		t.Errorf("InUse = %s; want %s", got, want)
	}
	for _, g := range given {
		c.Give(g)
	}
	if got := c.InUse(); got != c.topology {
		t.Errorf("after all were given back InUse = %s; want %s", got, c.topology)
	}
	c.Use(given[1])
	if got, want := c.InUse(), "SCTTCTTCTTCTTScttcttcttCTT"; got != want {
		t.Errorf("after a restart InUse = %s; want %s", got, want)
	}
	if got, want := c.Take("striding:2:3", 1), "explicit:0,0:0,3:ScttCTTCTTcttSCTTCTTCTTCTT"; got != want {
		t.Errorf("striding: %q; want %q", got, want)
	}
}

func TestBadBinding(t *testing.T) {
	for _, text := range []string{
		"", "linear:0", "linear:x", "striding:2", "striding:2:0", "explicit", "explicit:1", "explicit:0,0:0,0",
		"linear:1:2", "linear:1:0,0:0,1", "set", "set linear 2", "other linear:1", "round:1",
	} {
		if err := CheckBinding(text); err == nil {
			t.Errorf("CheckBinding(%q) finds nothing wrong", text)
		}
	}
	if got := NewCores("").Take("linear:1", 1); got != "" {
		t.Errorf("without a topology Take = %q", got)
	}
}
