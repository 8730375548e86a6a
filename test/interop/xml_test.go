package interop

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/test/harness"
	"paddock/test/structure"
)

// xmlDifference is one that is meant between the XML of Grid Engine's qstat and
// qhost and ours.
type xmlDifference struct {
	page string // what it is and why, as it stands in qstat(1)
	// line matches the lines that differ, which begin with their path. They are
	// not compared, or when byValue only without their values, or when byOrder in
	// any order.
	line             *regexp.Regexp
	byValue, byOrder bool
}

// xmlDifferences is the list of section XML of qstat(1), in its order.
var xmlDifferences = []xmlDifference{
	{page: `
Text is escaped as XML wants it; Grid Engine 8.1.9 writes
.Li %lt;
for
.Li < .`},
	{byValue: true, line: regexp.MustCompile(`/(JAT_ntix|JB_nurg|JB_nppri|JB_rrcontr|JB_wtcontr)=`), page: `
.Cm JAT_ntix , JB_nurg , JB_nppri , JB_rrcontr
and
.Cm JB_wtcontr
tell what the priority is made of here, also while a job is held; what belongs to tickets, projects,
deadlines and advance reservations, which there are not, is 0 or empty.`},
	{line: regexp.MustCompile(`/messages/element\b`), page: `
.Cm messages
has the reasons of
.Fl j ,
for each job apart, with their numbers of Grid Engine where it has the same one, else 0.`},
	{byValue: true, line: regexp.MustCompile(`/QIM_message=`), page: `
.Cm QIM_message
is the reason as execd has it.`},
	{byOrder: true, line: regexp.MustCompile(`/resource(?:value)? `), page: `
.Cm resource
and
.Cm resourcevalue
of a host are in the order in which Grid Engine learns of them first; after a restart it has those first that never change.`},
}

// TestDifferencesXML compares the list in qstat(1) with the one here.
func TestDifferencesXML(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man", "man1", "qstat.1"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), ".Sh XML\n")
	_, section, _ = strings.Cut(section, ".Bl -bullet\n")
	section, _, end := strings.Cut(section, ".El\n")
	if !end {
		t.Fatal("qstat(1) has no list of differences of the XML")
	}
	var want strings.Builder
	for _, d := range xmlDifferences {
		want.WriteString(".It" + d.page + "\n")
	}
	if section != want.String() {
		t.Errorf("qstat(1) lists other differences; the list is\n.Bl -bullet\n%s.El", want.String())
	}
}

// xmlSide is Grid Engine or ours.
type xmlSide struct {
	name string
	host string
	run  func(line string) (string, error) // a line of shell, as the user
	jobs map[string]string                 // names, by number
}

// xmlJobs are submitted to both, in this order. $ and the name of an earlier
// one stands for its number.
var xmlJobs = []struct{ name, options string }{
	{"run", `-l h_rt=1000 xml-wait.sh one 'two three' 'a&b>"c' "it's"`},
	{"arr", "-t 1-9:2 -tc 2 -r y xml-wait.sh"},
	{"par", "-pe xmliop 2-3 xml-wait.sh"},
	{"ended", "-b y true"},
	{"inerror", "-wd /nonexistent xml-wait.sh"},
	{"heldarr", "-h -t 1-4 xml-wait.sh"},
	{"dep", "-hold_jid $run,arr xml-wait.sh"},
	{"depad", "-t 1-9:2 -hold_jid_ad $arr xml-wait.sh"},
	{"susp", "-b y -shell n sleep 600"},
	{"full", "-e /tmp/e -i /dev/null -j y -l h_rt=0:1:0,mem_free=1.5M,s_rt=infinity -soft -l arch=lx-amd64,num_proc=1 -q xml.iop,all.q" +
		" -hard -q xml.iop@* -masterq xml.iop -pe xmliop 1-2,4 -p -5 -R y -ckpt xmliop -c sx -m be -M a@b,c -a 203001020304.05" +
		" -ac c=1=2,d -S /bin/bash -v A=1,B='x y',C,E= -notify -r y -binding linear:1 -A acc -cwd xml-wait.sh 1 2"},
	{"a.b-c>d&e'f]]>", "-h -b y -shell n -r n sleep 600"},
	{"lt<", "-h -b y true"},
	{"stride", "-h -binding pe striding:2:1:0,1 -m a -w e xml-wait.sh"},
	{"explicit", "-h -binding env explicit:0,0:0,1 -m s -w w xml-wait.sh"},
	{"offset", "-h -binding linear:2:0,1 -ckpt xmliop -c 00:10:00 xml-wait.sh"},
	{"strauto", "-h -binding striding:2:1 -pe 'xml*' 4- xml-wait.sh"},
	{"types", "-h -l calendar=x,cpu=1.5,mem_total=2G,virtual_free=1k xml-wait.sh '' ' '"},
}

// xmlForms are the commands whose output is compared.
var xmlForms = func() []string {
	forms := []string{
		"qstat -j 999999999,nosuchname", "qstat -s z", "qstat -g c -q xml.iop", "qstat -g c -ext -q xml.iop",
		"qstat -f -explain aAcE", "qstat -F slots,qname,h_rt,h_vmem", "qstat -f -ne",
		"qhost -h HOST -F num_proc,arch -u USER", "qhost", "qhost -q", "qhost -j -u USER", "qhost -q -j -u USER", "qhost -ncb",
		"qstat -u nobody", "qstat -f -u nobody",
	}
	for _, options := range []string{
		"", " -r", " -ext", " -urg", " -pri", " -ext -urg", " -ext -pri", " -ext -urg -pri", " -t", " -g t", " -g d", " -r -ncb", " -ext -urg -pri -r -t",
	} {
		forms = append(forms, "qstat"+options, "qstat -f"+options)
	}
	for _, states := range []string{"p", "r", "s", "hu", "hj", "rs"} {
		forms = append(forms, "qstat -s "+states)
	}
	for _, j := range xmlJobs {
		if j.name == "full" {
			forms = append(forms, "qstat -ncb -j $full")
		}
		if j.name != "ended" {
			forms = append(forms, "qstat -j $"+j.name)
		}
	}
	return forms
}()

// testXML submits the same jobs to Grid Engine and to us and compares what
// qstat and qhost print of them as XML, by structure and by value. Both have
// the structure by which the clients are tested.
func testXML(t *testing.T) {
	grammar, err := structure.Read(filepath.Join(harness.Root(), "qsub", "internal", "show", "testdata", "xml.txt"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := xmlSides(t)
	sides := []*xmlSide{theirs, ours}
	for _, s := range sides {
		s.submit(t)
	}
	for _, s := range sides {
		s.settle(t)
	}
	used := map[int]bool{}
	for _, form := range xmlForms {
		t.Run(form, func(t *testing.T) {
			var lines [2][]string
			for i, s := range sides {
				out, err := s.run(s.command(form))
				if err != nil {
					t.Fatalf("%s: %v\n%s", s.name, err, out)
				}
				if s == theirs && strings.Contains(out, "%lt;") {
					out = strings.ReplaceAll(out, "%lt;", "&lt;")
					used[0] = true
				}
				for _, problem := range grammar.Check([]byte(out)) {
					t.Errorf("%s: %s", s.name, problem)
				}
				root, err := structure.Parse([]byte(out))
				if err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				lines[i] = s.lines(root)
			}
			if len(lines[0]) < 2 {
				t.Errorf("Grid Engine printed only %q", lines[0])
			}
			for i, d := range xmlDifferences {
				if d.line == nil {
					continue
				}
				var apart [2][]string
				for side := range lines {
					apart[side] = d.cut(&lines[side])
				}
				if d.byOrder {
					used[i] = true // it need not be there
					slices.Sort(apart[0])
					slices.Sort(apart[1])
					if diff := cmp.Diff(apart[0], apart[1]); diff != "" {
						t.Errorf("(-theirs +ours):\n%s", diff)
					}
				}
				if !slices.Equal(apart[0], apart[1]) {
					used[i] = true
				}
			}
			if diff := cmp.Diff(strings.Join(lines[0], "\n"), strings.Join(lines[1], "\n")); diff != "" {
				t.Errorf("(-theirs +ours):\n%s", diff)
			}
		})
	}
	for i, d := range xmlDifferences {
		if !used[i] {
			t.Errorf("nothing shows the difference %s", d.page)
		}
	}
}

// cut takes what differs out of lines and returns it.
func (d *xmlDifference) cut(lines *[]string) (apart []string) {
	var rest []string
	for _, line := range *lines {
		if !d.line.MatchString(line) {
			rest = append(rest, line)
			continue
		}
		apart = append(apart, line)
		if d.byValue {
			name, _, _ := strings.Cut(line, "=")
			rest = append(rest, name)
		}
	}
	*lines = rest
	return apart
}

// xmlSides makes the queue, the parallel environment and the checkpointing
// environment of the test in Grid Engine, and starts ours with the same.
func xmlSides(t *testing.T) (theirs, ours *xmlSide) {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nsleep 600\n"
	if err := os.WriteFile(filepath.Join(user.Home, "xml-wait.sh"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	standard, err := ge.Run("qconf", "-sq", "all.q")
	if err != nil {
		t.Fatal(err)
	}
	objects := []struct{ add, remove, name, file, text string }{
		{"-Ap", "-dp", "xmliop", "pes/xmliop", "pe_name xmliop\nslots 99\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\n" +
			"allocation_rule $pe_slots\ncontrol_slaves FALSE\njob_is_first_task FALSE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n"},
		{"-Ackpt", "-dckpt", "xmliop", "ckpts/xmliop", "ckpt_name xmliop\ninterface application-level\nckpt_command none\nmigr_command none\n" +
			"restart_command none\nclean_command none\nckpt_dir /tmp\nsignal usr1\nwhen sx\n"},
		{"-Aq", "-dq", "xml.iop", "queues/xml.iop", merge(standard, "qname xml.iop\nhostlist gehost\nslots 20\npe_list xmliop\nckpt_list xmliop\nload_thresholds NONE\n")},
	}
	in := t.TempDir()
	if err := os.Chmod(in, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, o := range slices.Backward(objects) { // a run that was killed left some of it
		_, _ = ge.Run("qconf", o.remove, o.name)
	}
	dir := filepath.Join(base, "xml", "pd")
	for i, o := range objects {
		file := filepath.Join(in, fmt.Sprint(i))
		config := filepath.Join(api.DevPlaces(dir).Config, o.file)
		if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{file: o.text, config: strings.ReplaceAll(o.text, "gehost", host)} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ge.Run("qconf", o.add, file); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := harness.WaitFor(patience, "Grid Engine to remove "+o.name, func() (bool, error) {
				_, err := ge.Run("qconf", o.remove, o.name)
				return err == nil, nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	theirs = &xmlSide{name: "Grid Engine", host: "gehost", run: func(line string) (string, error) { return ge.As(user.Name, line) }}
	t.Cleanup(func() {
		if _, err := ge.Run("qdel", "-f", "-u", user.Name); err != nil {
			t.Error(err)
		}
	})
	if err := harness.WaitFor(patience, "Grid Engine to have its queue", func() (bool, error) {
		out, err := ge.Run("qstat", "-f")
		return strings.Contains(out, "xml.iop@gehost"), err
	}); err != nil {
		t.Fatal(err)
	}
	d := startOurs(t, "xml", "finished_jobs 100")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.Log())
		}
	})
	ours = &xmlSide{name: "ours", host: host, run: func(line string) (string, error) { return asUser(d.Dir, "cd && "+line) }}
	t.Cleanup(func() {
		if _, err := ours.run("qdel -u " + user.Name); err != nil {
			t.Error(err)
		}
		if err := harness.WaitFor(patience, "the jobs to end", func() (bool, error) {
			jobs, err := d.Jobs()
			return len(jobs) == 0, err
		}); err != nil {
			t.Error(err)
		}
	})
	return theirs, ours
}

// command returns a form as a command line.
func (s *xmlSide) command(form string) string {
	words := strings.Fields(form)
	for i, w := range words {
		switch {
		case w == "HOST":
			words[i] = s.host
		case w == "USER":
			words[i] = user.Name
		case w[0] == '$':
			words[i] = s.number(w[1:])
		}
	}
	return strings.Join(slices.Insert(words, 1, "-xml"), " ")
}

// number returns the number of a job.
func (s *xmlSide) number(name string) string {
	for number, n := range s.jobs {
		if n == name {
			return number
		}
	}
	return ""
}

func (s *xmlSide) submit(t *testing.T) {
	t.Helper()
	s.jobs = map[string]string{}
	for _, j := range xmlJobs {
		options := regexp.MustCompile(`\$\w+`).ReplaceAllStringFunc(j.options, func(name string) string { return s.number(name[1:]) })
		name := "'" + strings.ReplaceAll(j.name, "'", `'\''`) + "'"
		out, err := s.run("qsub -terse -o /dev/null -e /dev/null -q xml.iop -N " + name + " " + options)
		if err != nil {
			t.Fatalf("%s: %v\n%s", s.name, err, out)
		}
		number, _, _ := strings.Cut(strings.TrimSpace(lastLine(out)), ".")
		s.jobs[number] = j.name
	}
}

func lastLine(text string) string {
	text = strings.TrimRight(text, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// settle waits until all jobs are where the test wants them.
func (s *xmlSide) settle(t *testing.T) {
	t.Helper()
	wait := func(want map[string]string) {
		t.Helper()
		var got map[string]string
		if err := harness.WaitFor(patience, s.name+" to have its jobs in their states", func() (bool, error) {
			out, err := s.run("qstat -xml")
			if err != nil {
				return false, err
			}
			root, err := structure.Parse([]byte(strings.ReplaceAll(out, "%lt;", "&lt;")))
			if err != nil {
				return false, err
			}
			got = states(root)
			return maps.Equal(got, want), nil
		}); err != nil {
			t.Fatalf("%v\n%s", err, cmp.Diff(want, got))
		}
	}
	want := map[string]string{
		"run": "r", "arr": "r,r,qw", "par": "r", "inerror": "Eqw", "heldarr": "hqw", "dep": "hqw", "depad": "hqw", "susp": "r", "full": "qw",
	}
	for _, j := range xmlJobs {
		if j.name != "ended" && want[j.name] == "" {
			want[j.name] = "hqw"
		}
	}
	wait(want)
	if out, err := s.run("qmod -sj " + s.number("susp")); err != nil {
		t.Fatalf("%s: %v\n%s", s.name, err, out)
	}
	want["susp"] = "s"
	wait(want)
	// What a job consumes comes later than its start.
	if err := harness.WaitFor(patience, s.name+" to know what jobs consume", func() (bool, error) {
		for _, name := range []string{"run", "arr", "par", "susp"} {
			out, err := s.run("qstat -xml -j " + s.number(name))
			if tasks := strings.Count(out, "<JAT_task_number>"); err != nil || tasks == 0 || strings.Count(out, "<UA_name>maxvmem<") != tasks {
				return false, err
			}
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// states returns the states of jobs, by name.
func states(n *structure.Node) map[string]string {
	found := map[string]string{}
	var visit func(n *structure.Node)
	visit = func(n *structure.Node) {
		if n.Name != "job_list" {
			for _, child := range n.Children {
				visit(child)
			}
			return
		}
		value := map[string]string{}
		for _, child := range n.Children {
			value[child.Name] = child.Text
		}
		if have := found[value["JB_name"]]; have != "" {
			value["state"] = have + "," + value["state"]
		}
		found[value["JB_name"]] = value["state"]
	}
	visit(n)
	return found
}

// lines returns a document as lines, an element each, without what must differ:
// hosts, numbers of jobs, times, what is measured, and what belongs to others.
func (s *xmlSide) lines(n *structure.Node) []string {
	s.unify(n)
	var list []string
	var visit func(path string, n *structure.Node)
	visit = func(path string, n *structure.Node) {
		path += "/" + n.Name
		line := path
		for _, a := range n.Attr {
			line += fmt.Sprintf(" %s=%q", a.Name.Local, a.Value)
		}
		if len(n.Children) == 0 {
			line += "=" + n.Text
		}
		list = append(list, line)
		for _, child := range n.Children {
			visit(path, child)
		}
	}
	visit("", n)
	return list
}

// xmlJobNumbers are elements and attributes whose values are numbers of jobs.
var xmlJobNumbers = []string{
	"JB_job_number", "JRE_job_number", "JRE_job_name", "ULNG_value", "predecessor_jobs_req", "predecessor_jobs", "ad_predecessor_jobs_req",
	"ad_predecessor_jobs", "JB_exec_file", "jobid", "job@name",
}

// xmlMeasured are elements whose values nobody can foretell, but for their form.
var xmlMeasured = []string{
	"JAT_start_time", "JB_submission_time", "load_avg", "load", "cpu_usage", "mem_usage", "io_usage", "UA_value", "hostvalue", "JAT_prio", "start_time", "priority",
}

// unify replaces what must differ.
func (s *xmlSide) unify(n *structure.Node) {
	replace := func(name, value string) string {
		if slices.Contains(xmlJobNumbers, name) {
			dir, number := filepath.Split(value)
			if job := s.jobs[number]; job != "" {
				value = dir + "$" + job
			}
		}
		if slices.Contains(xmlMeasured, name) && value != "0" {
			if name == "hostvalue" {
				value = strings.TrimRight(value, "KMGT")
			}
			value = regexp.MustCompile(`\d+(\.\d)?`).ReplaceAllString(regexp.MustCompile(`\d`).ReplaceAllString(value, "0"), "0$1")
		}
		value = strings.ReplaceAll(value, bin+":", "") // in PATH
		return regexp.MustCompile(`\b`+regexp.QuoteMeta(s.host)+`\b`).ReplaceAllString(value, "HOST")
	}
	what := n.Name
	for i := range n.Attr {
		a := &n.Attr[i]
		name := a.Name.Local
		if name == "name" {
			name = n.Name + "@name"
			if n.Name == "jobvalue" {
				what = a.Value
			}
		}
		a.Value = replace(name, a.Value)
	}
	n.Text = replace(what, n.Text)
	for _, child := range n.Children {
		s.unify(child)
	}
	n.Children = slices.DeleteFunc(n.Children, func(child *structure.Node) bool {
		switch child.Name {
		case "queue": // and those of others
			return child.Attr[0].Value != "xml.iop"
		case "Queue-List":
			return child.Children[0].Text != "xml.iop@HOST"
		case "job_list": // those of an earlier test that have finished
			return child.Children[0].Text[0] != '$'
		}
		return false
	})
	// Others' jobs, and other priorities, may come in between.
	if n.Name == "job_info" || n.Name == "queue_info" {
		slices.SortStableFunc(n.Children, func(a, b *structure.Node) int { return strings.Compare(sortKey(a), sortKey(b)) })
	}
}

// sortKey is what jobs of a listing are sorted by: name and tasks.
func sortKey(n *structure.Node) string {
	key := ""
	for _, child := range n.Children {
		if child.Name == "JB_name" || child.Name == "tasks" {
			key += child.Text + "\x00"
		}
	}
	return key
}
