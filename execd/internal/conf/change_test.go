package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/spool/atomicfile"
)

// changed does a change and returns what it tells, a line each.
func changed(t *testing.T, l *Live, req api.ConfigureRequest) []string {
	t.Helper()
	reply, err := l.Change(&req, "alice@gehost")
	var told []string
	if err != nil {
		told = append(told, "error: "+err.Error())
	}
	for _, line := range reply.Lines {
		text := line.Text
		if line.Failed {
			text = "failed: " + text
		}
		told = append(told, text)
	}
	for _, p := range reply.Problems {
		told = append(told, strings.TrimPrefix(fmt.Sprintf("%s:%d: %s", strings.TrimPrefix(p.File, l.options.Dir+"/"), p.Line, p.Text), ":"))
	}
	for _, c := range reply.Changed {
		told = append(told, "> "+c)
	}
	return told
}

// content is what a file has, "-" if it is not there.
func content(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const peText = "pe_name mpi\nslots 5\n"

// TestChange does one change after the other: what each tells, and what is in
// the file then. The configuration in force is always that of the files.
func TestChange(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "queues/all.q", "# Ours.\nqname all.q\nslots  2\n# Who may.\nowner_list bob\n")
	write(t, dir, "complexes", "# licences\nlic  l  INT <= YES YES 0 0\n")
	write(t, dir, "managers", "# staff\ncarol\n")
	l := open(t, dir)
	shown := func(kind, name string) string {
		text, err := l.Current().Show(kind, name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	replaced := func(kind, name, old, by string) string {
		text := shown(kind, name)
		if !strings.Contains(text, old) {
			t.Fatalf("%s %s has no %q:\n%s", kind, name, old, text)
		}
		return strings.Replace(text, old, by, 1)
	}
	for _, step := range []struct {
		req  api.ConfigureRequest
		want []string
		file string
		text string // of the file then; empty: not looked at
	}{
		{
			api.ConfigureRequest{Action: "add", Kind: "pe", Text: peText, Dry: true},
			[]string{`alice@gehost would add "mpi" to parallel environment list`, "> pe mpi: added"},
			"pes/mpi", "-",
		},
		{
			api.ConfigureRequest{Action: "add", Kind: "pe", Text: "# for MPI\n" + peText},
			[]string{`alice@gehost added "mpi" to parallel environment list`, "> pe mpi: added"},
			"pes/mpi", "# for MPI\n" + peText,
		},
		{
			api.ConfigureRequest{Action: "add", Kind: "pe", Text: peText},
			[]string{`error: parallel environment "mpi" already exists`},
			"pes/mpi", "# for MPI\n" + peText,
		},
		{
			api.ConfigureRequest{Action: "modify", Kind: "pe", Text: peText},
			[]string{`0: required attribute "user_lists" is missing`},
			"pes/mpi", "# for MPI\n" + peText,
		},
		{
			api.ConfigureRequest{Action: "modify", Kind: "pe", Text: peText + "bogus 1\n"},
			[]string{`3: unknown attribute name "bogus"`},
			"pes/mpi", "# for MPI\n" + peText,
		},
		{
			api.ConfigureRequest{Action: "replace", Kind: "pe", Name: "mpi", Text: "slots 7\nurgency_slots max\n"},
			[]string{`alice@gehost modified "mpi" in parallel environment list`, "> pe mpi: slots 5 -> 7", "> pe mpi: urgency_slots min -> max"},
			"pes/mpi", "# for MPI\npe_name mpi\nslots 7\nurgency_slots max\n",
		},
		{
			api.ConfigureRequest{Action: "insert", Kind: "queue", Name: "all.q", Text: "pe_list mpi\nowner_list bob,dan\n"},
			[]string{
				`No modification because "bob" already exists in "owner_list" of "all.q"`, `alice@gehost modified "all.q" in cluster queue list`,
				"> queue all.q: pe_list NONE -> mpi", "> queue all.q: owner_list bob -> bob dan",
			},
			"queues/all.q", "# Ours.\nqname all.q\nslots  2\n# Who may.\nowner_list bob dan\npe_list mpi\n",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: "pe", Name: "mpi"},
			[]string{`error: denied: Parallel environment "mpi" is still referenced in queue "all.q".`},
			"pes/mpi", "",
		},
		{
			api.ConfigureRequest{Action: "modify", Kind: "queue", Text: replaced("queue", "all.q", "slots                 2", "slots 4,[gehost=8]"), Was: shown("queue", "all.q")},
			[]string{"error: cannot modify cluster queue \"all.q\": somebody has changed it since you began to edit it"},
			"queues/all.q", "",
		},
		{
			api.ConfigureRequest{Action: "replace", Kind: "queue", Name: "all.q@gehost", Text: "slots 8"},
			[]string{`alice@gehost modified "all.q" in cluster queue list`, "> queue all.q: slots 2 -> 8"},
			"queues/all.q", "# Ours.\nqname all.q\nslots  2,[gehost=8]\n# Who may.\nowner_list bob dan\npe_list mpi\n",
		},
		{
			api.ConfigureRequest{Action: "purge", Kind: "queue", Name: "all.q@gehost", Text: "slots seq_no"},
			[]string{
				`Attribute name ("seq_no") and/or value ("gehost") not found`, `alice@gehost modified "all.q" in cluster queue list`, "> queue all.q: slots 8 -> 2",
			},
			"queues/all.q", "# Ours.\nqname all.q\nslots  2\n# Who may.\nowner_list bob dan\npe_list mpi\n",
		},
		{
			api.ConfigureRequest{Action: "delete", Kind: "queue", Name: "all.q", Text: "pe_list mpi"},
			[]string{`alice@gehost modified "all.q" in cluster queue list`, "> queue all.q: pe_list mpi -> NONE"},
			"queues/all.q", "",
		},
		{
			api.ConfigureRequest{Action: "replace", Kind: "queue", Name: "all.q", Text: "slots many"},
			[]string{`3: slots: "many" is not a number`},
			"queues/all.q", "",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: "pe", Name: "mpi"},
			[]string{`alice@gehost removed "mpi" from parallel environment list`, "> pe mpi: removed"},
			"pes/mpi", "-",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: "pe", Name: "mpi"},
			[]string{`error: denied: parallel environment "mpi" does not exist`},
			"pes/mpi", "-",
		},
		{
			api.ConfigureRequest{Action: "admit", Kind: "userlist", Name: "team", Text: "dan\nellen"},
			[]string{`added "dan" to access list "team"`, `added "ellen" to access list "team"`, "> userlist team: added"},
			"userlists/team", "name team\nentries dan,ellen\n",
		},
		{
			api.ConfigureRequest{Action: "expel", Kind: "userlist", Name: "team", Text: "dan frank"},
			[]string{`deleted user "dan" from access list "team"`, `failed: user "frank" is not in access list "team"`, "> userlist team: entries dan,ellen -> ellen"},
			"userlists/team", "name team\nentries ellen\n",
		},
		{
			api.ConfigureRequest{Action: "add", Kind: "manager", Name: "dan"},
			[]string{`alice@gehost added "dan" to manager list`, "> manager: carol -> carol dan"},
			"managers", "# staff\ncarol\ndan\n",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: "manager", Name: "carol"},
			[]string{`alice@gehost removed "carol" from manager list`, "> manager: carol dan -> dan"},
			"managers", "# staff\ndan\n",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: "manager", Name: "root"},
			[]string{`error: may not remove user "root" from manager list`},
			"managers", "# staff\ndan\n",
		},
		{
			api.ConfigureRequest{Action: "modify", Kind: "complex", Text: replaced("complex", "", "lic ", "gpu gpu INT <= YES YES 0 0\nlic ")},
			[]string{`alice@gehost added "gpu" to complex entry list`, "> complex gpu: added: gpu gpu INT <= YES YES 0 0"},
			"complexes", "# licences\nlic  l  INT <= YES YES 0 0\ngpu gpu INT <= YES YES 0 0\n",
		},
		{
			api.ConfigureRequest{Action: "modify", Kind: api.KindAttribute, Text: "name gpu\nshortcut g\ntype INT\nrelop <=\nrequestable YES\nconsumable NO\ndefault 0\nurgency 0\n"},
			[]string{`alice@gehost modified "gpu" in complex entry list`, "> complex gpu: gpu gpu INT <= YES YES 0 0 -> gpu g INT <= YES NO 0 0"},
			"complexes", "# licences\nlic  l  INT <= YES YES 0 0\ngpu g INT <= YES NO 0 0\n",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: api.KindAttribute, Name: "lic"},
			[]string{`alice@gehost removed "lic" from complex list`, "> complex lic: removed: lic l INT <= YES YES 0 0"},
			"complexes", "# licences\ngpu g INT <= YES NO 0 0\n",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: api.KindAttribute, Name: "slots"},
			[]string{`error: The built-in complex "slots" cannot be deleted`},
			"complexes", "",
		},
		{
			api.ConfigureRequest{Action: "modify", Kind: "conf", Text: "min_uid 500\nmax_u_jobs 9\n"},
			[]string{`alice@gehost modified "global" in configuration list`, "> conf: min_uid 100 -> 500", "> conf: max_u_jobs 0 -> 9"},
			"sge_conf", "max_u_jobs 9\nmin_uid 500\n",
		},
		{
			api.ConfigureRequest{Action: "modify", Kind: "sched", Text: replaced("sched", "", "maxujobs                          0", "maxujobs 3")},
			[]string{"changed scheduler configuration", "> sched: maxujobs 0 -> 3"},
			"sched_conf", "maxujobs 3\n",
		},
		{
			api.ConfigureRequest{Action: "change", Kind: "host", Name: "gehost", Text: "complex_values slots=9"},
			[]string{
				`"complex_values" of "exechost" is empty - Adding new element(s).`, `alice@gehost modified "gehost" in exechost list`,
				"> host gehost: complex_values NONE -> slots=9",
			},
			"hosts/gehost", "hostname gehost\ncomplex_values slots=9\n",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: "host", Name: "gehost"},
			[]string{`error: Host object "gehost" is still referenced in cluster queue "all.q".`},
			"hosts/gehost", "",
		},
		{
			api.ConfigureRequest{Action: "add", Kind: "hostgroup", Text: "group_name @big\nhostlist gehost other\n"},
			[]string{`alice@gehost added "@big" to host group list`, "> hostgroup @big: added"},
			"hostgroups/@big", "group_name @big\nhostlist gehost other\n",
		},
		{
			api.ConfigureRequest{Action: "replace", Kind: "queue", Name: "all.q@@big", Text: "seq_no 4"},
			[]string{`alice@gehost modified "all.q" in cluster queue list`, "> queue all.q: seq_no 0 -> 4"},
			"queues/all.q", "",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: "hostgroup", Name: "@big"},
			[]string{`error: denied: these cluster queues still reference "@big": all.q`},
			"hostgroups/@big", "",
		},
		{
			api.ConfigureRequest{Action: "remove", Kind: "queue", Name: "all.q"},
			[]string{`error: cannot remove cluster queue "all.q": without a file in ` + dir + `/queues there is cluster queue "all.q"`},
			"queues/all.q", "",
		},
		{
			api.ConfigureRequest{Action: "add", Kind: "queue", Text: "qname x.q\nhostlist elsewhere\nuser_lists nobody\n"},
			[]string{`3: Userset "nobody" does not exist`},
			"queues/x.q", "-",
		},
	} {
		got := changed(t, l, step.req)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s %s %s (-want +got):\n%s", step.req.Action, step.req.Kind, step.req.Name, diff)
		}
		if text := content(t, dir, step.file); step.text != "" && text != step.text {
			t.Errorf("%s %s %s: %s has\n%s; want\n%s", step.req.Action, step.req.Kind, step.req.Name, step.file, text, step.text)
		}
		if again, err := l.Reload(); again != nil || err != nil {
			t.Fatalf("%s %s: what is in force is not what is in the files: %q, %v", step.req.Action, step.req.Kind, again, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "userlists/team"))
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode of a new file: %v, %v; want 0644", info.Mode(), err)
	}
}

// TestChangeEverything shows each object, and puts what is shown back: nothing
// changes, in no file.
func TestChangeEverything(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/8.1.9")); err != nil {
		t.Fatal(err)
	}
	l, err := Open(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost"})
	if err != nil {
		t.Fatal(err)
	}
	for kind := range places {
		if kind == kindManager || kind == kindOperator {
			continue
		}
		objects := l.Current().List(kind)
		if kind == kindConf || kind == kindSched || kind == kindComplex {
			objects = []string{""}
		}
		for _, name := range objects {
			text, err := l.Current().Show(kind, name)
			if err != nil {
				t.Fatal(err)
			}
			if kind == kindConf {
				text = strings.TrimPrefix(text, "#global:\n")
			}
			reply, err := l.Change(&api.ConfigureRequest{Action: api.ConfigureModify, Kind: kind, Text: text}, "a@b")
			if err != nil || len(reply.Problems) > 0 || len(reply.Changed) > 0 {
				t.Errorf("%s %s: %+v, %v", kind, name, reply, err)
			}
		}
	}
	was := os.DirFS("testdata/8.1.9")
	err = fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		before, err := fs.ReadFile(was, path)
		if now := content(t, dir, path); err != nil || now != string(before) {
			t.Errorf("%s was changed: %v\n%s", path, err, cmp.Diff(string(before), now))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// everything is all that is shown of a configuration, by kind and name.
func everything(t *testing.T, c *Config) map[string]string {
	t.Helper()
	all := map[string]string{}
	for kind := range places {
		names := c.List(kind)
		switch kind {
		case kindConf, kindSched, kindManager, kindOperator:
			names = []string{""}
		case kindComplex:
			kind = api.KindAttribute
		case kindHost:
			names = append(names, "global")
		}
		for _, name := range names {
			text, err := c.Show(kind, name)
			if err != nil {
				t.Fatal(err)
			}
			all[strings.TrimSpace(kind+" "+name)] = text
		}
	}
	return all
}

// TestFirstEdit does every kind of change as the first one, on a host that has no
// files and on those that have one of a kind: whatever it is about, everything
// else prints as before, also when execd starts again.
func TestFirstEdit(t *testing.T) {
	if testing.Short() {
		t.Skip("it has no concurrency")
	}
	t.Parallel() // it reads the configuration some thousand times
	states := map[string]string{
		"": "", "queues/x.q": "qname x.q\nslots 1\nuser_lists NONE\n", "queues/all.q": "slots 3,[gehost=4]\n", "pes/mpi": "slots 4\n", "pes/smp": "slots 4\n",
		"projects/prj": "acl NONE\n", "ckpts/c": "interface userdefined\n", "userlists/team": "entries dan\n", "hostgroups/@big": "hostlist gehost\n",
		"hosts/other": "complex_values slots=1\n", "hosts/gehost": "complex_values slots=9\n", "hosts/global": "complex_values slots=9\n",
		"complexes": "lic lic INT <= YES YES 0 0\n", "managers": "dan\n", "operators": "dan\n", "sge_conf": "min_uid 50\n", "sched_conf": "maxujobs 1\n",
	}
	// The text of a modification is what is shown, with another value.
	type modification struct{ kind, name, old, by string }
	modifications := []modification{
		{kindQueue, "all.q", "priority              0", "priority 1"},
		{kindQueue, "x.q", "priority              0", "priority 1"},
		{kindPE, "smp", "control_slaves     FALSE", "control_slaves TRUE"},
		{kindPE, "mpi", "control_slaves     FALSE", "control_slaves TRUE"},
		{kindCkpt, "c", "ckpt_dir           /tmp", "ckpt_dir /var/tmp"},
		{kindUserList, "team", "dan", "bob"},
		{kindHostGroup, "@big", "gehost", "x"},
		{kindHost, "gehost", "load_scaling          NONE", "load_scaling cpu=2"},
		{kindHost, "global", "load_scaling          NONE", "load_scaling cpu=2"},
		{kindProject, "prj", "fshare 0", "fshare 1"},
		{kindConf, "", "xterm                        /usr/bin/xterm", "xterm /usr/bin/uxterm"},
		{kindSched, "", "flush_submit_sec                  0", "flush_submit_sec 1"},
		{api.KindAttribute, "lic", "shortcut    lic", "shortcut l"},
	}
	edits := []api.ConfigureRequest{
		{Action: "add", Kind: kindQueue, Name: "new.q", Text: "qname new.q\n"},
		{Action: "add", Kind: kindPE, Name: "new", Text: "pe_name new\n"},
		{Action: "add", Kind: kindCkpt, Name: "new", Text: "ckpt_name new\n"},
		{Action: "add", Kind: kindUserList, Name: "new", Text: "name new\n"},
		{Action: "add", Kind: kindHostGroup, Name: "@new", Text: "group_name @new\n"},
		{Action: "add", Kind: kindHost, Name: "new", Text: "hostname new\n"},
		{Action: "add", Kind: kindHost, Name: "gehost.example", Text: "hostname gehost.example\n"},
		{Action: "add", Kind: kindProject, Name: "new", Text: "name new\n"},
		{Action: "remove", Kind: kindProject, Name: "prj"},
		{Action: "add", Kind: kindManager, Name: "bob"},
		{Action: "add", Kind: kindOperator, Name: "bob"},
		{Action: "add", Kind: api.KindAttribute, Name: "new", Text: "name new\nshortcut new\ntype INT\nrelop <=\nrequestable YES\nconsumable NO\ndefault 0\nurgency 0\n"},
		{Action: "admit", Kind: kindUserList, Name: "team", Text: "bob"},
		{Action: "expel", Kind: kindUserList, Name: "team", Text: "dan"},
		{Action: "remove", Kind: kindManager, Name: "dan"},
		{Action: "remove", Kind: kindOperator, Name: "dan"},
		{Action: "remove", Kind: kindQueue, Name: "all.q"},
		{Action: "remove", Kind: kindQueue, Name: "x.q"},
		{Action: "remove", Kind: kindPE, Name: "smp"},
		{Action: "remove", Kind: kindPE, Name: "mpi"},
		{Action: "remove", Kind: kindCkpt, Name: "c"},
		{Action: "remove", Kind: kindUserList, Name: "team"},
		{Action: "remove", Kind: kindHostGroup, Name: "@big"},
		{Action: "remove", Kind: kindHost, Name: "other"},
		{Action: "remove", Kind: kindHost, Name: "gehost"},
		{Action: "remove", Kind: api.KindAttribute, Name: "lic"},
		{Action: "purge", Kind: kindQueue, Name: "all.q@gehost", Text: "*"},
	}
	for _, on := range []struct{ kind, name, text string }{
		{kindQueue, "all.q", "priority 1"},
		{kindQueue, "all.q", "owner_list bob"},
		{kindQueue, "all.q@gehost", "slots 1"},
		{kindQueue, "all.q", "pe_list smp"},
		{kindQueue, "x.q", "pe_list make"},
		{kindPE, "smp", "slots 3"},
		{kindPE, "mpi", "slots 3"},
		{kindProject, "prj", "fshare 2"},
		{kindCkpt, "c", "when s"},
		{kindUserList, "team", "entries dan"},
		{kindUserList, "team", "entries bob"},
		{kindHostGroup, "@big", "hostlist gehost"},
		{kindHostGroup, "@big", "hostlist x"},
		{kindHost, "gehost", "complex_values slots=9"},
		{kindHost, "gehost", "complex_values slots=8"},
		{kindHost, "global", "complex_values slots=9"},
	} {
		for _, action := range []api.Configure{api.ConfigureInsert, api.ConfigureChange, api.ConfigureDelete, api.ConfigureReplace} {
			edits = append(edits, api.ConfigureRequest{Action: action, Kind: on.kind, Name: on.name, Text: on.text})
		}
	}
	for _, m := range modifications {
		edits = append(edits, api.ConfigureRequest{Action: api.ConfigureModify, Kind: m.kind, Name: m.name})
	}
	did := map[string]bool{}
	for state, content := range states {
		for _, request := range edits {
			// The files of the others are independent of each other.
			if dir := filepath.Dir(state); state != "" && dir != "queues" && dir != "pes" && filepath.Dir(filepath.Join(places[request.Kind], "x")) != dir && places[request.Kind] != state {
				continue
			}
			dir := t.TempDir()
			if state != "" {
				write(t, dir, state, content)
			}
			l := open(t, dir)
			before := everything(t, l.Current())
			object, _, _ := strings.Cut(request.Name, "@gehost")
			if request.Kind == kindManager || request.Kind == kindOperator {
				object = ""
			}
			object = strings.TrimSpace(request.Kind + " " + object)
			label := fmt.Sprintf("%s %s (%s), with the file %q", request.Action, object, strings.TrimSpace(request.Text), state)
			if request.Action == api.ConfigureModify {
				for _, m := range modifications {
					if m.kind == request.Kind && m.name == request.Name {
						request.Text = strings.TrimPrefix(strings.Replace(before[object], m.old, m.by, 1), "#global:\n")
					}
				}
			}
			reply, err := l.Change(&request, "alice@gehost")
			if err == nil && len(reply.Problems) == 0 && len(reply.Changed) > 0 {
				did[fmt.Sprint(request.Action, " ", request.Kind)] = true
			}
			told := fmt.Sprint(reply.Changed)
			for range 2 {
				after := everything(t, l.Current())
				was := before
				if err == nil && len(reply.Problems) == 0 {
					was = maps.Clone(before)
					delete(was, object)
					delete(after, object)
				}
				if diff := cmp.Diff(was, after); diff != "" {
					t.Fatalf("%s: everything else (-before +after):\n%s", label, diff)
				}
				l = open(t, dir)
			}
			for _, line := range reply.Changed {
				if !strings.HasPrefix(line, strings.Replace(object, api.KindAttribute+" ", "complex ", 1)+":") {
					t.Errorf("%s: told %s", label, told)
				}
			}
		}
	}
	for _, request := range edits {
		what := fmt.Sprint(request.Action, " ", request.Kind)
		switch what {
		case "remove queue", "remove pe": // the one is the last, the other on the list of a queue
		case "delete pe", "delete ckpt", "delete project": // they have no lists but of users
		default:
			if !did[what] {
				t.Errorf("%s: it was never done", what)
			}
		}
	}
}

// TestChangeHostile gives names and texts that must not reach a file.
func TestChangeHostile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "queues/all.q", "")
	l := open(t, dir)
	names := []string{
		"../x", "a/b", "/etc/passwd", ".", "..", ".hidden", "x~", "#x#", "x.rpmsave", "x.dpkg-old", "", " ", "x y", "a@b", "x\x00", "x\ny", "\x1b[2J",
		strings.Repeat("x", maxObjectName+1), "@", "@@", "@../x", "$(id)", "template", "-x",
	}
	for kind := range speech {
		for _, name := range names {
			for _, action := range []api.Configure{"add", "modify", "remove", "insert", "admit", ""} {
				text := "slots 1\n"
				if s := schemas[kind]; s != nil && (action == api.ConfigureAdd || action == api.ConfigureModify) {
					text = s[0].name + " " + name + "\n"
				}
				_, _ = l.Change(&api.ConfigureRequest{Action: action, Kind: kind, Name: name, Text: text}, "a@b")
			}
		}
	}
	for _, kind := range []string{"", "../x", "queues", "Queue"} {
		if _, err := l.Change(&api.ConfigureRequest{Action: api.ConfigureAdd, Kind: kind, Text: "x 1"}, "a@b"); err == nil {
			t.Errorf("kind %q was taken", kind)
		}
	}
	if _, err := l.Change(&api.ConfigureRequest{Action: api.ConfigureAdd, Kind: "pe", Text: peText + strings.Repeat("#", api.MaxConfiguration)}, "a@b"); err == nil {
		t.Error("a text of more than the limit was taken")
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err == nil && !d.IsDir() && rel != "queues/all.q" && !slices.Contains([]string{"-x", "$(id)", "template"}, filepath.Base(path)) {
			t.Errorf("there is a file %q", rel)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := l.Reload(); err != nil {
		t.Error(err)
	}
	// What is above the directory is as it was.
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("beside the configuration are %v, %v", entries, err)
	}
}

// TestChangeConflicts edits files behind the back of a change.
func TestChangeConflicts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "queues/all.q", "slots 2\n")
	l := open(t, dir)
	text, err := l.Current().Show(kindQueue, "all.q")
	if err != nil {
		t.Fatal(err)
	}
	mine := strings.Replace(text, "slots                 2", "slots 3", 1)
	req := api.ConfigureRequest{Action: api.ConfigureModify, Kind: kindQueue, Text: mine, Was: text}

	// By hand, and not read by anybody yet.
	write(t, dir, "queues/all.q", "slots 5\n")
	want := []string{`error: cannot modify cluster queue "all.q": somebody has changed it since you began to edit it`}
	if got := changed(t, l, req); !slices.Equal(got, want) {
		t.Errorf("told %q; want %q", got, want)
	}
	// A mistake, in another file.
	write(t, dir, "sge_conf", "\nmin_uid x\n")
	want = []string{"failed: cannot change the configuration: its files have mistakes", `sge_conf:2: min_uid: "x" is not a number`}
	if got := changed(t, l, req); !slices.Equal(got, want) {
		t.Errorf("told %q; want %q", got, want)
	}
	if got := content(t, dir, "queues/all.q"); got != "slots 5\n" {
		t.Errorf("the file has %q", got)
	}
	// An editor that saves while the change is looked at.
	write(t, dir, "sge_conf", "")
	e := &edit{ConfigureRequest: &api.ConfigureRequest{Action: api.ConfigureReplace, Kind: kindQueue, Name: "all.q", Text: "slots 7"}, options: l.options}
	if e.old, err = Load(l.options); err != nil {
		t.Fatal(err)
	}
	if err := e.plan(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "queues/all.q", "slots 6\n")
	if err := e.write(&e.files[0]); err == nil || !strings.Contains(err.Error(), "changed by somebody else") {
		t.Errorf("write: %v", err)
	}
	// What is kept elsewhere.
	elsewhere := filepath.Join(t.TempDir(), "all.q")
	if err := os.Rename(filepath.Join(dir, "queues/all.q"), elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "queues/all.q")); err != nil {
		t.Fatal(err)
	}
	req = api.ConfigureRequest{Action: api.ConfigureReplace, Kind: kindQueue, Name: "all.q", Text: "slots 8"}
	if got := changed(t, l, req); len(got) != 1 || !strings.Contains(got[0], "it is a symbolic link") {
		t.Errorf("told %q of a link", got)
	}
}

// TestChangeFaults has each step on the disk fail, and the program die there:
// what is in the files is what was before, or what should be, and never
// anything else.
func TestChangeFaults(t *testing.T) {
	type died struct{}
	for _, req := range []api.ConfigureRequest{
		{Action: api.ConfigureReplace, Kind: kindQueue, Name: "all.q", Text: "slots 9"},
		{Action: api.ConfigureAdd, Kind: kindPE, Text: peText},
		{Action: api.ConfigureRemove, Kind: kindCkpt, Name: "c"},
	} {
		for n := 1; ; n++ {
			steps := 0
			for _, crash := range []bool{false, true} {
				dir := t.TempDir()
				write(t, dir, "queues/all.q", "slots 2\n")
				write(t, dir, "ckpts/c", "")
				l := open(t, dir)
				before := l.Current()
				var err error
				func() {
					steps = 0
					defer atomicfile.Inject(func(atomicfile.Op, string) error {
						if steps++; steps != n {
							return nil
						}
						if crash {
							panic(died{})
						}
						return errors.New("injected")
					})()
					defer func() {
						if r := recover(); r != nil && r != (died{}) {
							panic(r)
						}
					}()
					_, err = l.Change(&req, "a@b")
				}()
				if steps < n {
					break // it has no more
				}
				if !crash && (err == nil || l.Current() != before) {
					t.Errorf("%s %s, step %d: %v, and another configuration is in force: %t", req.Action, req.Kind, n, err, l.Current() != before)
				}
				// Whoever comes next finds one of the two.
				c, err := Load(l.options)
				if err != nil {
					t.Fatalf("%s %s, step %d: %v", req.Action, req.Kind, n, err)
				}
				if diff := changes(before, c); len(diff) > 1 {
					t.Errorf("%s %s, step %d: %q", req.Action, req.Kind, n, diff)
				}
				if !crash {
					entries, err := os.ReadDir(filepath.Join(dir, places[req.Kind]))
					for _, e := range entries {
						if atomicfile.IsTemp(e.Name()) {
							t.Errorf("%s %s, step %d left %s", req.Action, req.Kind, n, e.Name())
						}
					}
					if err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Error(err)
					}
				}
			}
			if steps < n {
				if n < 2 {
					t.Errorf("%s %s has no steps", req.Action, req.Kind)
				}
				break
			}
		}
	}
}

// TestChangeTogether has many change the same thing at once: nothing is lost.
func TestChangeTogether(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	done := make(chan []string)
	for i := range 20 {
		go func() {
			reply, err := l.Change(&api.ConfigureRequest{Action: api.ConfigureAdmit, Kind: kindUserList, Name: "team", Text: fmt.Sprintf("u%02d", i)}, "a@b")
			if err != nil {
				t.Error(err)
			}
			done <- reply.Changed
		}()
	}
	for range 20 {
		if changed := <-done; len(changed) != 1 {
			t.Errorf("changed %q", changed)
		}
	}
	if got := l.Current().UserLists["team"].Entries; len(got) != 20 {
		t.Errorf("%d users are on the list: %q", len(got), got)
	}
}

// FuzzChange changes a configuration in any way: it stays one, and all of it
// is in its directories.
func FuzzChange(f *testing.F) {
	f.Add("add", "pe", "mpi", peText)
	f.Add("modify", "queue", "", "qname all.q\nslots 3,[gehost=4]")
	f.Add("insert", "queue", "all.q@gehost", "complex_values mem_free=1G")
	f.Add("delete", "hostgroup", "@g", "hostlist gehost")
	f.Add("purge", "queue", "all.q@gehost", "*")
	f.Add("modify", "complex", "", "x x INT <= YES NO 0 0\\\n")
	f.Add("add", "attribute", "x", "name x\nshortcut x\ntype INT\nrelop <=\nrequestable YES\nconsumable NO\ndefault 0\nurgency 0\n")
	f.Add("admit", "userlist", "team", "a @b")
	f.Add("add", "manager", "dan", "")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, action, kind, name, text string) {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"queues/all.q": "# x\nslots 2,[gehost=3]\n", "hostgroups/@g": "hostlist gehost\n"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l, err := Open(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Change(&api.ConfigureRequest{Action: api.Configure(action), Kind: kind, Name: name, Text: text}, "a@b"); err != nil {
			if _, ok := errors.AsType[*api.Error](err); !ok {
				t.Fatalf("%v is not the request's fault", err)
			}
		}
		if changed, err := l.Reload(); err != nil || changed != nil {
			t.Fatalf("the files are not what is in force: %q, %v", changed, err)
		}
		known := map[string]bool{dir: true}
		for _, place := range places {
			known[filepath.Join(dir, place)] = true
		}
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if !known[path] && !known[filepath.Dir(path)] || d.IsDir() && !known[path] {
				t.Errorf("there is %q", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestChangeFirst changes what a user has nothing of, not even ~/.config.
func TestChangeFirst(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".config", "paddock")
	l, err := Open(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost"})
	if err != nil {
		t.Fatal(err)
	}
	change := &api.ConfigureRequest{Action: api.ConfigureReplace, Kind: "queue", Name: "all.q", Text: "slots 4\n"}
	if _, err := l.Change(change, "a@b"); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]fs.FileMode{filepath.Dir(dir): 0o700, dir: 0o755, filepath.Join(dir, "queues"): 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has %v (%v); want %v", path, info.Mode(), err, mode)
		}
	}
}
