package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/qtest"
)

// jsonForms are command lines with -json, of every command that has it, and where in
// the answer the list is that has nothing; "": the answer itself, "-": there is none.
var jsonForms = []struct{ line, list string }{
	{"qstat", "jobs"},
	{"qstat -f", "jobs"},
	{"qstat -s z", "jobs"},
	{"qstat -g d", "jobs"},
	{"qstat -f -g d", "jobs"},
	{"qstat -F", "queues"},
	{"qstat -explain E", "queues"},
	{"qstat -g c", "queues"},
	{"qstat -qs a", "jobs"},
	{"qstat -j", ""},
	{"qstat -j 1", "jobs"},
	{"qhost", "queues"},
	{"qhost -j", "jobs"},
	{"qhost -u x", "jobs"},
	{"qhost -q", "values"},
	{"qhost -slots", "slots"},
	{"qhost -slotad", "slots"},
	{"qselect", ""},
	{"qselect -qs a", ""},
	{"qacct", ""},
	{"qacct -j", ""},
	{"qacct -j 1", ""},
	{"qacct -o", ""},
	{"qconf -sql", "-"},
	{"qconf -reload", "changed"},
	{"qconf -dm x", "lines"},
	{"qtop", "jobs"},
	{"qwait 1", "jobs"},
	{"qalter -N x 1", "lines"},
	{"qresub 1", "submitted"},
}

// Of every command JSON is one document, in which nothing is null and a list of
// nothing is a list.
func TestJSONOfNothing(t *testing.T) {
	e := qtest.NewExecd(t)
	qtest.Write(t, filepath.Join(os.Getenv("PADDOCK_DIR"), "accounting"), "")
	// What an execd says that has nothing, in the barest form.
	for _, verb := range []string{
		api.VerbHost, api.VerbJobs, api.VerbDetail, api.VerbSlots, api.VerbShow, api.VerbReload, api.VerbConfigure, api.VerbTop, api.VerbAlter,
		api.VerbResubmit, api.VerbFind, api.VerbEnds,
	} {
		e.Replies(verb, map[string]any{"found": []api.Found{}, "missing": []string{}})
	}
	left := map[string]bool{}
	for _, c := range option.Commands() {
		for _, o := range option.Of(c) {
			if o.Name == "-json" && !o.Refused {
				left[c.String()] = true
			}
		}
	}
	for _, form := range jsonForms {
		words := strings.Fields(form.line)
		delete(left, words[0])
		got := call(t, "", append([]string{words[0], "-json"}, words[1:]...)...)
		d := json.NewDecoder(strings.NewReader(got.Out))
		var answer any
		if err := d.Decode(&answer); err != nil {
			t.Errorf("%s -json: %+v: %v", form.line, got, err)
			continue
		}
		if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
			t.Errorf("%s -json: %q is more than one document", form.line, got.Out)
		}
		if strings.Contains(got.Out, "null") {
			t.Errorf("%s -json has null: %s", form.line, got.Out)
		}
		if form.list == "-" {
			continue
		}
		if form.list != "" {
			object, _ := answer.(map[string]any)
			answer = object[form.list]
		}
		if list, ok := answer.([]any); !ok || len(list) != 0 {
			t.Errorf("%s -json: %q is %v; want an empty list in %s", form.line, form.list, answer, got.Out)
		}
	}
	for name := range left {
		t.Errorf("no form of %s is tried", name)
	}
}
