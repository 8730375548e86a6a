package api

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/fill"
)

func TestSubmitRequestKeepsAllBytes(t *testing.T) {
	want := SubmitRequest{
		Name: "n", Account: "\xe4", Script: []byte("true \xff\n"), Command: "./Gr\xfc\xdfe", Args: []string{"", "a\nb", "\xff\xfe", "<&>"},
		Shell: "/bin/\x80", Cwd: "/tmp/\xe9t\xe9", Stdin: "\xc3", Stdout: "\xc3\x28", Stderr: "ok", Merge: true, Rerun: RerunNo,
		Tasks: Tasks{1, 9, 2}, MaxRun: 3, Env: []string{"A=\xff", "B=x\ny", "C=\ufffd", "D=\u2028"}, Origin: []string{"SGE_O_HOME=/h\xf6me"},
		Work: &Work{Ad: "Cmd = \"/bin/\xe9\"\n", Identity: "j\xff", Slot: "2", Claim: "<h>#1#2", Holder: "fetch"},
	}
	b, err := json.Marshal(DetailReply{Jobs: []Detail{{Request: want}}})
	if err != nil {
		t.Fatal(err)
	}
	var got DetailReply
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Jobs[0].Request); diff != "" {
		t.Errorf("after JSON (-want +got):\n%s", diff)
	}

	// What is text stays readable, and absent fields absent.
	b, err = json.Marshal(SubmitRequest{Name: "j", Command: "true", Binary: true, Env: []string{"A=b"}})
	if want := `{"name":"j","command":"true","env":["A=b"],"binary":true}`; err != nil || string(b) != want {
		t.Errorf("Marshal = %s, %v; want %s", b, err, want)
	}
	var r SubmitRequest
	if err := json.Unmarshal([]byte(`{"args":[{"base64":7}]}`), &r); err == nil {
		t.Error("Unmarshal of a bad base64: no error")
	}
}

// TestBytes holds the fields of a request against bytes that are not text: JSON keeps
// them, or they are refused.
func TestBytes(t *testing.T) {
	// Of a form that is looked at elsewhere in execd, or named in its configuration.
	elsewhere := []string{"project", "mail_to", "context", "attributes", "interactive", "work"}
	fill.Fields(func(name string, with *SubmitRequest) {
		r := *with
		v := reflect.ValueOf(&r).Elem()
		changed := false
		for i := range v.NumField() {
			if f := v.Field(i); fill.Name(v.Type().Field(i)) == name {
				changed = spoil(f)
			}
		}
		if !changed {
			return
		}
		if r.Name == "" {
			r.Name = "n"
		}
		if r.Script == nil {
			r.Script = []byte("true\n")
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var got SubmitRequest
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		refused := r.Check() != nil || r.CheckTasks() != nil
		if (refused || reflect.DeepEqual(got, r)) == slices.Contains(elsewhere, name) {
			t.Errorf("%s of a request must either have any bytes in JSON, or be checked, or stand in elsewhere", name)
		}
	})
}

// spoil sets all strings in a value to one that is not text, and reports whether there are any.
func spoil(v reflect.Value) (changed bool) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("A=\xff")
		return true
	case reflect.Slice:
		for i := range v.Len() {
			changed = spoil(v.Index(i)) || changed
		}
	case reflect.Struct:
		for _, f := range v.Fields() {
			changed = f.CanSet() && spoil(f) || changed
		}
	case reflect.Pointer:
		return spoil(v.Elem())
	}
	return changed
}

func FuzzText(f *testing.F) {
	f.Add("a")
	f.Add("\xff{")
	f.Add(`{"base64":""}`)
	f.Fuzz(func(t *testing.T, s string) {
		b, err := json.Marshal(Text(s))
		if err != nil {
			t.Fatal(err)
		}
		var got Text
		if err := json.Unmarshal(b, &got); err != nil || string(got) != s {
			t.Fatalf("%q as JSON is %s and then %q, %v", s, b, got, err)
		}
	})
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "a b", "a%b", "a,b", "a[b]", "a$b", "-x", `a"b`, "a;b", "Gr\u00fc\u00dfe", "root", strings.Repeat("x", MaxName)} {
		if err := CheckName(name); err != nil {
			t.Errorf("CheckName(%q) = %v; want nil", name, err)
		}
	}
	for name, want := range map[string]string{
		"":                             "job rejected cause there is no job_name in the request",
		"a:b":                          "Colon (':') not allowed in objectname",
		"a/b":                          "Slash ('/') not allowed in objectname",
		"a\nb":                         `Return not allowed in objectname`,
		"a\tb":                         `Tab not allowed in objectname`,
		"a@b":                          "At ('@') not allowed in objectname",
		`a\b`:                          `Backslash ('\') not allowed in objectname`,
		"a*":                           "Asterisk ('*') not allowed in objectname",
		"a?":                           "Questionmark ('?') not allowed in objectname",
		"1abc":                         `denied: "1abc" is not a valid object name (cannot start with a digit)`,
		"none":                         `Keyword ("NONE") not allowed as objectname`,
		"..":                           `denied: ".." is not a valid object name (cannot start with a dot)`,
		"a\x1b[2J":                     `denied: "a\x1b[2J" is not a valid object name (not text)`,
		"a\u202eb":                     `denied: "a\u202eb" is not a valid object name (not text)`,
		"a\xff":                        `denied: "a\xff" is not a valid object name (not text)`,
		strings.Repeat("x", MaxName+1): "job name too long, maximum allowed length is 512 characters",
	} {
		err := CheckName(name)
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeRejected || e.Text != want {
			t.Errorf("CheckName(%.20q) = %v; want %s", name, err, want)
		}
	}
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "Grüße": "Grüße", "a\x1b[1m\n": `a\x1b[1m\n`, "\xff": `\xff`, "\u009b2J": `\u009b2J`, "a\u202eb": `a\u202eb`, "\u2066x\u2069": `\u2066x\u2069`, "\u200b\ufeff": `\u200b\ufeff`, "\u2028": `\u2028`,
		"\U000e0041": `\U000e0041`, "\u0645\u06cc\u200c\u062e\u0648\u0627\u0646\u0645": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0646\u0645", "\x7f": `\x7f`, "\ufffd": "\ufffd",
	} {
		if got := Visible(text); got != want {
			t.Errorf("Visible(%q) = %q; want %q", text, got, want)
		}
	}
}

// What is shown of JSON says the same.
func TestVisibleJSON(t *testing.T) {
	for text, want := range map[string]string{
		"plain": `"plain"`, "Grüße": `"Grüße"`, "a\x1b\n": `"a\u001b\n"`, "\u009b\x7f": `"\u009b\u007f"`, "\u202ea\u2069": `"\u202ea\u2069"`,
		"\U000e0041": `"\udb40\udc41"`,
	} {
		plain, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		got := VisibleJSON(plain)
		var back string
		if err := json.Unmarshal(got, &back); string(got) != want || err != nil || back != text {
			t.Errorf("VisibleJSON(%s) = %s, which is %q, %v; want %s", plain, got, back, err, want)
		}
	}
	if got := VisibleJSON([]byte("{\n  \"\u00e4\": 1\n}\n")); string(got) != "{\n  \"\u00e4\": 1\n}\n" {
		t.Errorf("the layout is %q", got)
	}
}

func TestCheckAccount(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "sge": "", "p-1.2,x": "", "Grüße": "", strings.Repeat("x", MaxName): "",
		"a:b": "Colon (':') not allowed in objectname", "a\nb": "Return not allowed in objectname",
		"a b": `"a b" is not an account string`, "\x1b[31m": `"\x1b[31m" is not an account string`, "\x00": `"\x00" is not an account string`,
		"\u202eb": `"\u202eb" is not an account string`, "\xff": `"\xff" is not an account string`,
	} {
		err := CheckAccount(text)
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("CheckAccount(%q) = %v; want %q", text, err, want)
		}
	}
}

func TestClientNobodyThere(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	err := NewClient(socket).Call(t.Context(), VerbStatus, StatusRequest{}, &StatusReply{})
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, ErrNotSent) {
		t.Errorf("error %v; want one that matches ErrUnreachable and ErrNotSent", err)
	}
	if want := "cannot reach execd at " + socket + ": connect: no such file or directory"; err.Error() != want {
		t.Errorf("got error %q; want %q", err, want)
	}
}

func TestParseTasks(t *testing.T) {
	for text, want := range map[string]Tasks{
		"3": {First: 3, Last: 3, Step: 1}, "3-7": {First: 3, Last: 7, Step: 1}, "3-7:2": {First: 3, Last: 7, Step: 2},
		"0": {}, "7-3": {}, "1-2:0": {}, "99999999": {}, "99999999999999999999": {}, "x": {}, "": {},
	} {
		if got, err := ParseTasks(text); got != want || (err == nil) != want.IsArray() {
			t.Errorf("ParseTasks(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

// TestAlterables holds the fields of a request against those that can be altered.
func TestAlterables(t *testing.T) {
	never := []string{
		"script", "command", "binary", "no_shell", "tasks", "only", "now", "interactive", "origin", // what the job is
		"hold", "verify", "plain", "work", // of AlterRequest itself, or execd's
	}
	fill.Fields(func(name string, with *SubmitRequest) {
		copied := false
		for _, a := range Alterables {
			var to SubmitRequest
			a.Copy(&to, with)
			copied = copied || !reflect.DeepEqual(to, SubmitRequest{})
		}
		if copied == slices.Contains(never, name) {
			t.Errorf("%s of a request must either be one of Alterables, or stand in never", name)
		}
	})
}
