package conf

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseValue(t *testing.T) {
	for _, tt := range []struct {
		kind Kind
		text string
		want float64 // NaN: a mistake, that says ids
		ids  string
	}{
		{KindInt, "12", 12, ""},
		{KindInt, "-3", -3, ""},
		{KindInt, "infinity", math.Inf(1), ""},
		{KindInt, "1.5", math.NaN(), "want a whole number"},
		{KindInt, "1K", math.NaN(), "want a whole number"},
		{KindInt, "", math.NaN(), "want a text"},
		{KindDouble, "1.75", 1.75, ""},
		{KindDouble, "1e3", 1000, ""},
		{KindDouble, "nan", math.NaN(), "want a number"},
		{KindDouble, "inf", math.NaN(), "want a number"},
		{KindDouble, "0x10", math.NaN(), "want a number"},
		{KindMemory, "100", 100, ""},
		{KindMemory, "1.5K", 1536, ""},
		{KindMemory, "2k", 2000, ""},
		{KindMemory, "3m", 3e6, ""},
		{KindMemory, "3M", 3 << 20, ""},
		{KindMemory, "1g", 1e9, ""},
		{KindMemory, "24105.558594M", 24105.558594 * (1 << 20), ""},
		{KindMemory, "2G", 2 << 30, ""},
		{KindMemory, "1t", 1e12, ""},
		{KindMemory, "1T", 1 << 40, ""},
		{KindMemory, "INFINITY", math.Inf(1), ""},
		{KindMemory, "-1G", math.NaN(), "want a number with k"},
		{KindMemory, "G", math.NaN(), "want a number with k"},
		{KindMemory, "1e3", math.NaN(), "want a number with k"},
		{KindTime, "90", 90, ""},
		{KindTime, "1:0:0", 3600, ""},
		{KindTime, "1::1", 3601, ""},
		{KindTime, "INFINITY", math.Inf(1), ""},
		{KindTime, "1:0", math.NaN(), "want seconds, h:m:s"},
		{KindTime, "1.5", math.NaN(), "want seconds, h:m:s"},
		{KindBool, "TRUE", 1, ""},
		{KindBool, "false", 0, ""},
		{KindBool, "1", 1, ""},
		{KindBool, "maybe", math.NaN(), "want TRUE or FALSE"},
		{KindBool, "INFINITY", math.NaN(), "want TRUE or FALSE"},
		{KindString, "lx-*|sol*", 0, ""},
		{KindString, "a\nb", math.NaN(), "want a text in one line"},
		{KindHost, "gehost", 0, ""},
		{KindRSMap, "2", 2, ""},
		{KindRSMap, "4(gpu0 gpu1 a b-c)", 4, "gpu0 gpu1 a b-c"},
		{KindRSMap, "4(0-3)", 4, "0 1 2 3"},
		{KindRSMap, "3(0-1 7)", 3, "0 1 7"},
		{KindRSMap, "3(a b)", math.NaN(), "has the names of 2 units, not of 3"},
		{KindRSMap, "2(a a)", math.NaN(), "names a unit twice"},
		{KindRSMap, "2(a b", math.NaN(), "do not end with )"},
		{KindRSMap, "1(a[x=y])", math.NaN(), `unit a: "x=y" is not device=PATH: units have no other properties`},
		{KindRSMap, "1(a[device=/dev/a,x=y])", math.NaN(), `is not device=PATH: units have no other properties`},
		{KindRSMap, "1(a[device=dev/a])", math.NaN(), `unit a: "dev/a" is not the absolute path of a device`},
		{KindRSMap, "1(a[device=/dev/../etc/a])", math.NaN(), `is not the absolute path of a device`},
		{KindRSMap, "1(a[device=/dev/a:x])", math.NaN(), `unit a: "x" is none of the modes r, w and rw`},
		{KindRSMap, "1(a[device=/dev/a)", math.NaN(), `unit a: "device=/dev/a" does not end with ]`},
		{KindRSMap, "2(a[device=/dev/a] b[devices=/dev/b:r;/dev/c])", 2, "a b"},
		{KindRSMap, "1(0-99999999)", math.NaN(), ""},
		{KindRSMap, "99999999", math.NaN(), "is not a RSMAP"},
		{KindRSMap, "-1", math.NaN(), "is not a RSMAP"},
		{Kind("FLOAT"), "1", math.NaN(), "is not a kind of attribute"},
	} {
		v, err := ParseValue(tt.kind, tt.text)
		switch {
		case math.IsNaN(tt.want) && tt.text == "1(0-99999999)":
			// Not expanded: it is the name of one unit.
			if err != nil || len(v.IDs) != 1 {
				t.Errorf("ParseValue(%s, %q) = %+v, %v; want one unit", tt.kind, tt.text, v, err)
			}
		case math.IsNaN(tt.want):
			if err == nil || !strings.Contains(err.Error(), tt.ids) {
				t.Errorf("ParseValue(%s, %q) = %+v, %v; want %q", tt.kind, tt.text, v, err, tt.ids)
			}
		case err != nil || v.Text != tt.text || v.Number != tt.want || strings.Join(v.IDs, " ") != tt.ids:
			t.Errorf("ParseValue(%s, %q) = %+v, %v; want %v with %q", tt.kind, tt.text, v, err, tt.want, tt.ids)
		}
	}
}

func TestComplexes(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		{"gpu gpu RSMAP <= YES JOB 0 10", ""},
		{"lic l INT <= y y 1 0\nx x BOOL EXCL f j 0 0", ""},
		{"h_vmem h_vmem MEMORY <= YES YES 1G 0", ""},
		{"a a STRING == YES NO NONE 0 extra", `complexes:1: 9 columns; want name`},
		{"#\na a FLOAT == YES NO NONE 0", `complexes:2: unknown complex attribute type "FLOAT"`},
		{"a a INT => YES NO 0 0", `relop: "=>" is none of`},
		{"a a INT <= MAYBE NO 0 0", `requestable: "MAYBE" is none of`},
		{"a a INT <= YES SOME 0 0", `consumable: "SOME" is none of`},
		{"a a INT <= YES NO 0 much", `urgency: "much" is not a number`},
		{"a a STRING == YES YES NONE 0", `Complex "a" of type "STRING" cannot be a consumable`},
		{"a a STRING <= YES NO NONE 0", `Complex "a" has an invalid relational operator`},
		{"a a BOOL <= YES NO 0 0", `Complex "a" has an invalid relational operator`},
		{"a a BOOL == YES YES 0 0", `Exclusive complex "a" must have EXCL as relational operator`},
		{"a a BOOL EXCL YES NO 0 0", `Exclusive complex "a" must be a consumable`},
		{"a a INT EXCL YES YES 0 0", `Complex "a" must be BOOL to use EXCL as relational operator`},
		{"a a INT >= YES YES 0 0", `Consumable "a" can have only <= as an relational operator`},
		{"a a INT <= FORCED YES 3 0", `Consumable "a" cannot have a (non-zero) default value because it is forced.`},
		{"a a INT <= YES NO 3 0", `Complex "a" cannot have a (non-zero) default value`},
		{"a a INT <= YES YES abc 0", `default: "abc" is not a INT`},
		{"a a RSMAP <= YES NO 0 0", `a RSMAP must be a consumable`},
		{"a a RSMAP <= YES YES 1(x) 0", `default: "1(x)" names units`},
		{"a=b a INT <= YES NO 0 0", `"a=b" is not a name of an attribute`},
		{"a h_vmem INT <= YES NO 0 0", `complexes:1: complex with name a or shortcut h_vmem already exists`},
		{"b x INT <= YES NO 0 0\nd x INT <= YES NO 0 0", `complexes:2: complex with name d or shortcut x already exists`},
		{"a a INT <= YES NO 0 0\na b INT <= YES NO 0 0", `complexes:2: a is already set in line 1`},
		{"h_vmem h_vmem INT <= YES NO 0 0", `h_vmem: the type cannot be changed, it is MEMORY`},
	} {
		dir := t.TempDir()
		write(t, dir, "complexes", tt.lines+"\n")
		c, err := load(dir)
		switch {
		case tt.want != "":
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q: %v; want %q", tt.lines, err, tt.want)
			}
		case err != nil:
			t.Errorf("%q: %v", tt.lines, err)
		case len(c.Complex) < 52:
			t.Errorf("%q: %d attributes; want the standard ones, too", tt.lines, len(c.Complex))
		}
	}
}

func TestAttribute(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "complexes", "gpu g RSMAP <= y j 0 1.5\nh_vmem h_vmem MEMORY <= f y 0 0\n")
	c, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := &Attribute{"gpu", "g", KindRSMap, "<=", RequestableYes, ConsumableJob, "0", 1.5}
	for _, name := range []string{"gpu", "g"} {
		if diff := cmp.Diff(want, c.Attribute(name)); diff != "" {
			t.Errorf("Attribute(%s) (-want +got):\n%s", name, diff)
		}
	}
	if a := c.Attribute("h_vmem"); a.Consumable != ConsumableYes || a.Requestable != RequestableForced {
		t.Errorf("h_vmem = %+v; want the file's", a)
	}
	if a := c.Attribute("no"); a != nil {
		t.Errorf("Attribute(no) = %+v; want none", a)
	}
}

func TestComplexValues(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		values     Values
	}{
		{"NONE", "", Values{}},
		{"gpu=2(a b),mf=1G", "", Values{"gpu": {"2(a b)", 2, []string{"a", "b"}, nil}, "mem_free": {"1G", 1 << 30, nil, nil}}},
		{"gpu=2(a[device=/dev/a,] b)", "units have no other properties", nil},
		{"gpu=2(a[device=/dev/a:r;/dev/ctl] b)", "", Values{"gpu": {
			"2(a[device=/dev/a:r;/dev/ctl] b)", 2,
			[]string{"a", "b"},
			map[string][]Device{"a": {{"/dev/a", true, false}, {"/dev/ctl", true, true}}},
		}}},
		{"gpu=0", "", Values{"gpu": {"0", 0, nil, nil}}},
		{"gpu=2", "complex_values: gpu: 2 does not name the units", nil},
		{"mem_free", `complex_values: "mem_free" is not name=value`, nil},
		{"mem_fre=1G", `Complex attribute "mem_fre" does not exist, did you mean "mem_free"?`, nil},
		{"mem_free=much", `complex_values: mem_free: "much" is not a MEMORY`, nil},
		{"mem_free=1G,mf=2G", "complex_values: mem_free is already set", nil},
		{"slots=3", "complex_values: slots has a parameter of its own", nil},
	} {
		dir := t.TempDir()
		write(t, dir, "complexes", "gpu gpu RSMAP <= YES YES 0 0\n")
		write(t, dir, "queues/all.q", "complex_values "+tt.text+"\n")
		c, err := load(dir)
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), "all.q:1: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v; want %q", tt.text, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
		} else if diff := cmp.Diff(tt.values, c.Queues[0].Complex); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, diff)
		}
	}
}
