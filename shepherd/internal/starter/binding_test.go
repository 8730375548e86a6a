package starter

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"paddock/spool"
)

func TestParseBinding(t *testing.T) {
	for v, want := range map[string][]core{
		"":                            nil,
		"NULL":                        nil,
		"none":                        nil,
		"NONE":                        nil,
		"env_striding:1:1:0,0:SCc":    nil,
		"pe_linear:2:0,0":             nil,
		"explicit:0,0:ScC":            {{0, 0}},
		"explicit:0,0:0,1:1,3:SCCSCc": {{0, 0}, {0, 1}, {1, 3}},
		"explicit:0,1":                {{0, 1}},
		"explicit:0,1:":               {{0, 1}},
	} {
		if got, err := parseBinding(v); err != nil || !slices.Equal(got.cores, want) || got.cpus != nil {
			t.Errorf("parseBinding(%q) = %+v, %v; want %v", v, got, err, want)
		}
	}
	for _, v := range []string{
		"explicit:", "explicit", "explicit:ScC", "linear:1", "explicit:0:0", "explicit:0,0:x:0,1", "explicit:a,b", "explicit:-1,0", "explicit:+1,0",
		"explicit:0,8192", "explicit:0,0,0", "explicit: 0,0", "explicit::0,0", "explicit:99999999999999999999,0", "Explicit:0,0",
	} {
		if got, err := parseBinding(v); err == nil {
			t.Errorf("parseBinding(%q) = %+v; want an error", v, got)
		}
	}
}

func TestReadBinding(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want binding
		bad  bool
	}{
		{nil, binding{}, false},
		{[]string{"binding=explicit:1,2"}, binding{cores: []core{{1, 2}}}, false},
		{[]string{"binding=explicit:x"}, binding{}, true},
		{[]string{"binding_instance=set", "binding_to_use=ScCSCC", "binding_cpuset=0-1"}, binding{cpus: []int{0, 1}}, false},
		{[]string{"binding_instance=NONE", "binding_cpuset=NONE"}, binding{}, false},
		{[]string{"binding_instance=env", "binding_cpuset=0-1"}, binding{cpus: []int{0, 1}, inform: true}, false},
		{[]string{"binding_instance=set", "binding_to_use=NONE", "binding_cpuset=none"}, binding{}, false},
		{[]string{"binding_instance=set", "binding_to_use=ScCSCC", "binding_cpuset=NONE"}, binding{}, true},
		{[]string{"binding_instance=pe", "binding_cpuset=0-1"}, binding{}, false},
		{[]string{"binding_instance=set", "binding_cpuset=a"}, binding{}, true},
	} {
		config := &spool.Config{}
		for _, kv := range c.set {
			k, v, _ := strings.Cut(kv, "=")
			if err := config.Set(k, v); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := readBinding(config); (err != nil) != c.bad || !c.bad && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, %v; want %+v", c.set, got, err, c.want)
		}
	}
}

// FuzzBinding sees that what is taken for a list of cores is one.
func FuzzBinding(f *testing.F) {
	for _, v := range []string{"NULL", "explicit:0,0:1,1:ScCScC", "env_linear:1", "explicit:0,0:", "explicit:00,1"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		if b, err := parseBinding(v); err == nil && !b.none() {
			again := "explicit"
			for _, c := range b.cores {
				again += ":" + strconv.Itoa(c.socket) + "," + strconv.Itoa(c.core)
			}
			if b2, err := parseBinding(again); err != nil || !slices.Equal(b.cores, b2.cores) {
				t.Errorf("parseBinding(%q) = %v, but %q is %v, %v", v, b.cores, again, b2.cores, err)
			}
		}
	})
}

// fakeCPUs makes a directory as the kernel's: for each processor socket, die
// (-1 for none) and core.
func fakeCPUs(t *testing.T, online string, cpus map[int][3]int) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("online", online)
	for cpu, p := range cpus {
		dir := "cpu" + strconv.Itoa(cpu) + "/topology/"
		write(dir+"physical_package_id", strconv.Itoa(p[0]))
		write(dir+"core_id", strconv.Itoa(p[2]))
		if p[1] >= 0 {
			write(dir+"die_id", strconv.Itoa(p[1]))
		}
	}
	return root
}

func TestTopology(t *testing.T) {
	for _, c := range []struct {
		name   string
		online string
		cpus   map[int][3]int
		want   topology
	}{
		{"one", "0", map[int][3]int{0: {0, -1, 0}}, topology{{{0}}}},
		{
			"two sockets with threads, numbers with gaps", "0-7",
			map[int][3]int{0: {1, 0, 9}, 1: {7, 0, 0}, 2: {1, 0, 4}, 3: {7, 0, 5}, 4: {1, 0, 9}, 5: {7, 0, 0}, 6: {1, 0, 4}, 7: {7, 0, 5}},
			topology{{{2, 6}, {0, 4}}, {{1, 5}, {3, 7}}},
		},
		{
			"two dies that number their cores alike", "0-3",
			map[int][3]int{0: {0, 0, 0}, 1: {0, 0, 1}, 2: {0, 1, 0}, 3: {0, 1, 1}},
			topology{{{0}, {1}, {2}, {3}}},
		},
		{"one is off", "0,2", map[int][3]int{0: {0, 0, 0}, 2: {0, 0, 2}}, topology{{{0}, {2}}}},
		{"no socket known", "0-1", map[int][3]int{0: {-1, -1, 0}, 1: {-1, -1, 1}}, topology{{{0}, {1}}}},
	} {
		if got, err := readTopology(fakeCPUs(t, c.online, c.cpus)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	for name, root := range map[string]string{
		"nothing":      t.TempDir(),
		"bad list":     fakeCPUs(t, "all", nil),
		"not there":    fakeCPUs(t, "0-1", map[int][3]int{0: {0, 0, 0}}),
		"empty online": fakeCPUs(t, "", nil),
	} {
		if got, err := readTopology(root); err == nil {
			t.Errorf("%s: %v; want an error", name, got)
		}
	}
	if got, err := readTopology(sysCPU); err != nil || len(got) == 0 || len(got[0]) == 0 {
		t.Errorf("this host's: %v, %v", got, err)
	}
}

func TestProcessors(t *testing.T) {
	top := topology{{{2, 6}, {0, 4}}, {{1, 5}}}
	for _, c := range []struct {
		cores []core
		want  []int
	}{
		{[]core{{0, 0}}, []int{2, 6}},
		{[]core{{1, 0}, {0, 1}, {1, 0}}, []int{0, 1, 4, 5}},
	} {
		if got, err := top.processors(c.cores); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("processors(%v) = %v, %v; want %v", c.cores, got, err, c.want)
		}
	}
	for _, c := range []core{{0, 2}, {2, 0}} {
		if got, err := top.processors([]core{c}); err == nil {
			t.Errorf("processors(%v) = %v; want an error", c, got)
		}
	}
}

// TestBound binds a job, a procedure and a method to the last processor that
// this test may use, by its core and by its number.
func TestBound(t *testing.T) {
	mine, err := affinity(0)
	if err != nil {
		t.Fatal(err)
	}
	list := mine.list()
	last := list[len(list)-1]
	top, err := readTopology(sysCPU)
	if err != nil {
		t.Skip(err)
	}
	var key string
	var want []int // all threads of its core
	for s := range top {
		for c, cpus := range top[s] {
			if slices.Contains(cpus, last) {
				key = strconv.Itoa(s) + "," + strconv.Itoa(c)
				for _, cpu := range cpus {
					if mine.has(cpu) {
						want = append(want, cpu)
					}
				}
			}
		}
	}
	r := newRig(t).set("binding=explicit:" + key + ":SCC")
	path := r.script("sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status; echo $SGE_BINDING")
	r.set("script_file="+path, "stdout_path="+r.base+"/out/o")
	bound := func(o Order, want []int) string {
		t.Helper()
		e := r.ran(o)
		text := strings.TrimSuffix(r.read("out/o"), "\n")
		allowed, env, _ := strings.Cut(text, "\n")
		got, err := spool.ParseCPUs(allowed)
		if err != nil || !slices.Equal(got, want) || env != joinInts(want) {
			t.Errorf("bound to %q, SGE_BINDING %q; want %v\n%s", allowed, env, want, e.trace)
		}
		if err := os.Remove(r.base + "/out/o"); err != nil {
			t.Fatal(err)
		}
		return e.trace
	}
	trace := bound(Order{Name: "job"}, want)
	if line := "do_core_binding: job is bound to processors " + joinInts(want) + "\n"; !strings.Contains(trace, line) {
		t.Errorf("trace lacks %q:\n%s", line, trace)
	}
	bound(Order{Kind: Prolog, Name: "prolog", Argv: []string{path}}, want)
	bound(Order{Kind: Epilog, Name: "epilog", User: "root", Argv: []string{path}}, want)
	bound(Order{Kind: Method, Name: "m", Argv: []string{path + " >o"}}, want)
	r.without("binding").set("binding_instance=set", "binding_cpuset="+strconv.Itoa(last)+",8191")
	bound(Order{Name: "job"}, []int{last})

	// What cannot be done is said, and the job runs where it may.
	for _, b := range []string{"explicit:99,0:S", "explicit:x", "linear:1"} {
		r := newRig(t).set("binding=" + b)
		if e := r.ran(Order{Name: "job"}); !strings.Contains(e.trace, "]: do_core_binding: ") || !strings.Contains(e.trace, ", job is not bound\n") {
			t.Errorf("%s: trace lacks that it cannot be done:\n%s", b, e.trace)
		}
	}
	for _, b := range []string{"NULL", "env_linear:1", "pe_striding:1:1"} {
		r := newRig(t).set("binding=" + b)
		if e := r.ran(Order{Name: "job"}); strings.Contains(e.trace, "do_core_binding") {
			t.Errorf("%s: trace speaks of binding:\n%s", b, e.trace)
		}
	}
}
