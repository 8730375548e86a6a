package conf

import (
	"bytes"
	"strings"
	"testing"
)

func TestRewrite(t *testing.T) {
	const text = "# queue\nqname   all.q\n\n  slots\t4 \n# of users\nuser_lists  a, \\\n            b, \\\n c\nrerun FALSE"
	for _, tt := range []struct {
		name string
		set  map[string]string
		want string
	}{
		{"nothing", nil, text},
		{"one", map[string]string{"slots": "8"}, strings.Replace(text, "\t4 \n", "\t8\n", 1)},
		{"continued", map[string]string{"user_lists": "d"}, strings.Replace(text, "a, \\\n            b, \\\n c\n", "d\n", 1)},
		{"last", map[string]string{"rerun": "TRUE"}, strings.Replace(text, "FALSE", "TRUE\n", 1)},
		{"added", map[string]string{"seq_no": "3", "h_rt": "60"}, text + "\nh_rt 60\nseq_no 3\n"},
		{"removed", map[string]string{"user_lists": "", "shell": ""}, strings.Replace(text, "user_lists  a, \\\n            b, \\\n c\n", "", 1)},
		{"several", map[string]string{"qname": "x.q", "slots": "1,[@big=9]"}, strings.NewReplacer("all.q", "x.q", "\t4 \n", "\t1,[@big=9]\n").Replace(text)},
	} {
		got, err := Rewrite([]byte(text), tt.set)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\n%q; want\n%q", tt.name, err, got, tt.want)
		}
	}
	// A parameter without a value, and one that stands twice.
	got, err := Rewrite([]byte("slots\nslots 3\n"), map[string]string{"slots": "2"})
	if err != nil || string(got) != "slots 2\n" {
		t.Errorf("twice: %q, %v; want one line", got, err)
	}
	for name, value := range map[string]string{"a b": "1", "": "1", "#a": "1", "a": "x\ny", "b": `x\`, "c": " x", "d\\": "1"} {
		if got, err := Rewrite(nil, map[string]string{name: value}); err == nil {
			t.Errorf("Rewrite(%q: %q) = %q; want an error", name, value, got)
		}
	}
	if _, err := Rewrite([]byte("a\x00"), nil); err == nil {
		t.Error("Rewrite of a binary file: no error")
	}
}

// FuzzRewrite sets a parameter in any text: it is set then, and all others are
// as they were.
func FuzzRewrite(f *testing.F) {
	f.Add([]byte("# a\nslots 4\\\n 5\n\nname x"), "slots", "8")
	f.Add([]byte("a\\"), "b", "1")
	f.Fuzz(func(t *testing.T, data []byte, name, value string) {
		out, err := Rewrite(data, map[string]string{name: value})
		if err != nil {
			return
		}
		want, _ := parse("file", data)
		got, err := parse("file", out)
		if err != nil {
			t.Fatalf("%v of %q", err, out)
		}
		texts := func(entries []entry) (others, this []string) {
			for _, e := range entries {
				if e.name == name {
					this = append(this, e.value)
				} else {
					others = append(others, e.name+" "+e.value)
				}
			}
			return others, this
		}
		wantOthers, _ := texts(want)
		gotOthers, this := texts(got)
		if strings.Join(wantOthers, "\n") != strings.Join(gotOthers, "\n") {
			t.Errorf("others: %q, were %q", gotOthers, wantOthers)
		}
		if value == "" && this != nil || value != "" && (len(this) != 1 || this[0] != value) {
			t.Errorf("%s = %q in %q; want %q", name, this, out, value)
		}
		if again, err := Rewrite(out, map[string]string{name: value}); err != nil || !bytes.Equal(again, out) {
			t.Errorf("again: %q, %v; was %q", again, err, out)
		}
	})
}
