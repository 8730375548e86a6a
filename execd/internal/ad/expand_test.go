package ad

import (
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/classad"
	"paddock/execd/api"
)

func expandAds(t testing.TB) (job, slot *classad.Ad) {
	t.Helper()
	job, err := classad.ParseOld("ClusterId = 7\nRack = 3\nWants = TARGET.Memory / 4\n")
	if err != nil {
		t.Fatal(err)
	}
	slot, err = classad.ParseOld(`Name = "slot1@node"
Machine = "node"
OpSys = "LINUX"
Memory = 2048
LoadAvg = 0.5
Half = MY.Memory / 2
For = TARGET.ClusterId
Big = MY.Memory > 1
Quoted = "say \"$$(OpSys)\" c:\"
Nothing = undefined
Wrong = 1 + "a"
Bell = strcat("a", "` + "\x01" + `")
Long = "` + strings.Repeat("x", maxExpansion+1) + `"
ClaimId = "secret"
Pair = { 1, "two" }
`)
	if err != nil {
		t.Fatal(err)
	}
	return job, slot
}

// A reference becomes the value that the slot has, its default, or what its expression is
// between job and slot; what is no reference stays.
func TestExpandText(t *testing.T) {
	job, slot := expandAds(t)
	for _, c := range []struct{ text, want, err string }{
		{"plain $HOME $(date) $$ $$HOME", "plain $HOME $(date) $$ $$HOME", ""},
		{"a.$$(OpSys).$$(MACHINE)", "a.LINUX.node", ""},
		{"$$$(Memory)$", "$2048$", ""},
		{"$$(LoadAvg) $$(Half) $$(For) $$(Big)", "0.5 1024 7 true", ""},
		{"$$(Pair)", `{ 1,"two" }`, ""},
		{"$$(Quoted)", `say "$$(OpSys)" c:\`, ""}, // what was inserted is no reference
		{"$$(GPUs:0) $$(GPUs:) $$(Memory:1) $$(Nothing:a b:c)", "0  2048 a b:c", ""},
		{"$$(DOLLARDOLLAR)(OpSys) $$(dollardollar)", "$$(OpSys) $$", ""},
		{"$$([Memory + Rack]) $$([TARGET.Memory / 2]) $$([MY.Wants])", "2051 1024 512", ""},
		{`$$([strcat("a", "])", OpSys)])!`, "a])LINUX!", ""},
		{"$$([ {1,2}[1] ])", "2", ""},
		{"$$([1 +]) $$(a b) $$( OpSys) $$() $$(:x) $$(1) $$(", "$$([1 +]) $$(a b) $$( OpSys) $$() $$(:x) $$(1) $$(", ""},
		{"x$$(GPUs)", "", "cannot expand $$(GPUs): slot1@node has no GPUs"},
		{"$$(Nothing)", "", "cannot expand $$(Nothing): slot1@node has no Nothing"},
		{"$$([TARGET.GPUs + 1])", "", "cannot expand $$([TARGET.GPUs + 1]): it is undefined for slot1@node"},
		{"$$(ClaimId)", "", "cannot expand $$(ClaimId): slot1@node has no ClaimId"},
		{"$$([TARGET.ClaimId])", "", "cannot expand $$([TARGET.ClaimId]): it is undefined for slot1@node"},
		{"$$(Long)", "", "cannot expand $$(Long): slot1@node has 4097 bytes for it, at most 4096 are possible"},
		{"$$(Bell)", "", "cannot expand $$(Bell): slot1@node has characters for it that cannot be shown"},
		{"$$(Wrong:1)", "", "cannot expand $$(Wrong:1): it is an error for slot1@node: "},
	} {
		r := &api.SubmitRequest{Name: "x", Binary: true, Command: "x", Args: []string{c.text}}
		list, err := Expand(r, job, slot, time.Unix(1, 0))
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s: %v, want %s", c.text, err, c.err)
			}
			continue
		}
		is := Expanded(r, nil, list)
		if err != nil || !slices.Equal(is.Args, []string{c.want}) || (len(list) == 0) != (c.text == c.want) {
			t.Errorf("%s: %q, %v; want %q", c.text, is.Args, err, c.want)
		}
	}
}

// What was expanded is kept in attributes that say the same when they are read again.
func TestExpand(t *testing.T) {
	job, slot := expandAds(t)
	r := &api.SubmitRequest{
		Name: "x", Binary: true, Command: "run.$$(OpSys)",
		Args:       []string{"a b", "", "it's\n$$(Memory)\xff", "-x"},
		Attributes: []string{"Rack=3", `On = strcat("$$(Machine)", "\"$$(Memory)\"", 'a"$$(b)')`, `UserLog="$$(Machine)"`, `E="c:\$$(OpSys)\"`},
	}
	if !Refers(r) {
		t.Error("it does not refer to its slot")
	}
	list, err := Expand(r, job, slot, time.Unix(1, 0))
	want := []api.Text{
		`MATCH_EXP_Cmd="run.LINUX"`,
		"MATCH_EXP_Arguments=\"'a b' '' 'it''s\\n2048\xff' -x\"",
		`MATCH_EXP_On=strcat("node","\"2048\"",'a"$$(b)')`,
		`MATCH_EXP_E="c:\\LINUX\\"`,
	}
	if err != nil || !slices.Equal(list, want) {
		t.Fatalf("%q, %v", list, err)
	}
	is := Expanded(r, r.Attributes, list)
	if is.Command != "run.LINUX" || !slices.Equal(is.Args, []string{"a b", "", "it's\n2048\xff", "-x"}) ||
		!slices.Equal(is.Attributes, []string{"Rack=3", `On=strcat("node","\"2048\"",'a"$$(b)')`, `UserLog="$$(Machine)"`, `E="c:\LINUX\"`}) {
		t.Errorf("%q %q %q", is.Command, is.Args, is.Attributes)
	}
	if r.Command != "run.$$(OpSys)" || r.Attributes[0] != "Rack=3" || !strings.HasPrefix(r.Attributes[1], "On = ") {
		t.Errorf("the request has become %+v", r)
	}
	// What was altered since is not what was expanded.
	now := *r
	now.Attributes = []string{`On="$$(Machine)"`, "Rack=4"}
	if is := Expanded(&now, r.Attributes, list); !slices.Equal(is.Attributes, now.Attributes) {
		t.Errorf("%q", is.Attributes)
	}
	// A script is run by its name in the spool.
	script := &api.SubmitRequest{Name: "x", Command: "$$(OpSys)"}
	if list, err := Expand(script, job, slot, time.Unix(1, 0)); Refers(script) || len(list) > 0 || err != nil {
		t.Errorf("%q, %v", list, err)
	}
}

// What a job could not have had without references it cannot have by them.
func TestExpandTooMuch(t *testing.T) {
	job, slot := expandAds(t)
	cost, err := classad.Parse("1" + strings.Repeat(" + 0", 1000))
	if err != nil {
		t.Fatal(err)
	}
	slot = slot.With(classad.Attr{Name: "Most", Expr: classad.String(strings.Repeat("y", maxExpansion)).Expr()}, classad.Attr{Name: "Cost", Expr: cost})
	many := make([]string, 300)
	for i := range many {
		many[i] = "$$(Most)"
	}
	for _, r := range []*api.SubmitRequest{
		{Binary: true, Command: "$$(Most)x"},
		{Args: many},
		{Args: []string{strings.Repeat("$$(Most)", 40)}},
		{Attributes: []string{`A="$$(Most)$$(Most)"`}},
		{Args: []string{strings.Repeat("$$([/*", 1000) + strings.Repeat("])", 10)}},
		{Args: []string{strings.Repeat("$$(Cost)", 2000)}},
	} {
		r.Name = "x"
		if list, err := Expand(r, job, slot, time.Unix(1, 0)); err == nil || len(err.Error()) > 300 {
			t.Errorf("%.80q, %v", list, err)
		}
	}
}

func FuzzExpand(f *testing.F) {
	job, slot := expandAds(f)
	for _, s := range []string{"$$(OpSys)", "$$([Memory])", `"$$(Quoted)"`, "$$(a:b)", "$$([{1}[0]])", "'$$(x)'", `strcat("$$(OpSys)", 'n"')`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := &api.SubmitRequest{Name: "x", Args: []string{text, "y"}, Attributes: []string{"A=" + text}}
		if strings.ContainsRune(text, 0) {
			return
		}
		if _, err := Attributes(r.Attributes); err != nil {
			r.Attributes = nil
		}
		list, err := Expand(r, job, slot, time.Unix(1, 0))
		if err != nil {
			return
		}
		is := Expanded(r, r.Attributes, list)
		if len(is.Args) != 2 || is.Args[1] != "y" || len(is.Attributes) != len(r.Attributes) {
			t.Fatalf("%q became %q %q", text, is.Args, is.Attributes)
		}
		if _, err := Attributes(is.Attributes); err != nil {
			t.Fatalf("%q became %q: %v", text, is.Attributes, err)
		}
		if !Refers(r) && len(list) > 0 {
			t.Fatalf("%q became %q", text, list)
		}
	})
}
