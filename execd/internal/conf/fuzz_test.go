package conf

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzParse takes any file apart.
func FuzzParse(f *testing.F) {
	f.Add([]byte(printed))
	f.Add([]byte("a b\\\n c\n#\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parse("file", data)
		if err != nil {
			return
		}
		for _, e := range entries {
			if e.name == "" || strings.ContainsAny(e.name, " \t\n") || e.line < 1 || e.end <= e.line {
				t.Errorf("entry %+v", e)
			}
		}
	})
}

// fuzz reads any text as an object of one kind. Where it has no mistake, it is
// printed, and what is printed is the same object, without a mistake.
func fuzz[T any](f *testing.F, kind, files string, params []param[T], absent map[string]string) {
	paths, err := filepath.Glob(filepath.Join(realFiles, files))
	if err != nil || len(paths) == 0 {
		f.Fatalf("no examples in %s: %v", files, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	read := func(text string) ([]line, []*Problem) {
		l := testLoader()
		l.conf.UserLists = map[string]*UserList{"oddusers": {}, "oddothers": {}}
		l.groups = map[string][]string{"@odd": {"gehost"}, "@oddsub": {"@odd"}}
		for _, a := range []string{"odd_mem omem MEMORY <= YES JOB 1.5G 0", "gpu gpu RSMAP <= YES YES 0 0", "x x BOOL EXCL YES YES 0 0"} {
			attribute, err := parseAttribute(a)
			if err != nil {
				f.Fatal(err)
			}
			l.conf.Complex = append(l.conf.Complex, attribute)
		}
		entries, err := parse("file", []byte(text))
		if err != nil {
			return nil, []*Problem{{}}
		}
		lines := apply(l, "file", entries, params, new(T), absent)
		return lines, l.problems
	}
	f.Fuzz(func(t *testing.T, text string) {
		lines, problems := read(text)
		if len(problems) > 0 {
			return
		}
		var b strings.Builder
		for _, l := range lines {
			show(&b, l.name, l.written, l.form, width[kind])
		}
		again, problems := read(b.String())
		if diff := cmp.Diff(lines, again, cmp.AllowUnexported(line{}), cmpopts.IgnoreFields(line{}, "number")); diff != "" || len(problems) > 0 {
			t.Errorf("%v (-read +read again):\n%s\nprinted:\n%s", problems, diff, b.String())
		}
	})
}

func FuzzQueue(f *testing.F) {
	fuzz(f, kindQueue, "queues/*", queueParams, map[string]string{"slots": "2"})
}

func FuzzPE(f *testing.F)         { fuzz(f, kindPE, "pes/*", peParams, nil) }
func FuzzCheckpoint(f *testing.F) { fuzz(f, kindCkpt, "ckpts/*", ckptParams, nil) }
func FuzzUserList(f *testing.F)   { fuzz(f, kindUserList, "userlists/*", userListParams, nil) }
func FuzzHostGroup(f *testing.F)  { fuzz(f, kindHostGroup, "hostgroups/*", hostGroupParams, nil) }
func FuzzHost(f *testing.F)       { fuzz(f, kindHost, "hosts/*", hostParams, nil) }
func FuzzGlobal(f *testing.F)     { fuzz(f, kindConf, "sge_conf", globalParams, nil) }
func FuzzScheduling(f *testing.F) { fuzz(f, kindSched, "sched_conf", schedParams, nil) }

// FuzzComplexes reads any file complexes. Names and shortcuts are one each.
func FuzzComplexes(f *testing.F) {
	text, err := os.ReadFile(filepath.Join(realFiles, "complexes"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("gpu gpu RSMAP <= YES YES 0 0\nlic l int <= f j 0 1e3"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := testLoader()
		l.complexes("complexes", data)
		if len(l.problems) > 0 {
			return
		}
		var b strings.Builder
		l.conf.showComplex(&b)
		again := testLoader()
		again.complexes("complexes", []byte(b.String()))
		if diff := cmp.Diff(l.conf.Complex, again.conf.Complex); diff != "" || len(again.problems) > 0 {
			t.Errorf("%v (-read +read again):\n%s", again.problems, diff)
		}
		for i := range l.conf.Complex {
			a := &l.conf.Complex[i]
			if l.conf.Attribute(a.Name) != a || l.conf.Attribute(a.Shortcut) != a {
				t.Errorf("%s (%s) is not found by its names", a.Name, a.Shortcut)
			}
		}
	})
}

// FuzzValue reads any value as each kind. A list gives it back whole.
func FuzzValue(f *testing.F) {
	for _, text := range []string{"1.5G", "1:0:0", "TRUE", "4(0-3)", "2(a b)", "INFINITY", "-3", "1e3", "x", "4GB", "B"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range kinds {
			v, err := ParseValue(Kind(kind), text)
			if err != nil {
				continue
			}
			if v.Text != text || math.IsNaN(v.Number) || v.IDs != nil && len(v.IDs) != int(v.Number) {
				t.Errorf("ParseValue(%s, %q) = %+v", kind, text, v)
			}
			if Kind(kind).Number() && !slices.Equal(list("a "+text+",b"), []string{"a", text, "b"}) {
				t.Errorf("list of %q = %q", text, list("a "+text+",b"))
			}
		}
	})
}
