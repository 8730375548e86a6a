package interop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"paddock/execd/api"
	"paddock/test/harness"
)

// outcome is what a command line came to.
type outcome struct {
	Stdout, Stderr string
	Exit           int
}

// side is one of the two that are compared: Grid Engine, or ours.
type side struct {
	name string
	dir  string            // where its commands run; both names are equally long
	env  []string          // besides what both have
	jobs map[string]string // the numbers of jobs, by what scripts call them
}

// pair runs each command line of a script on both sides.
type pair struct {
	sides [2]*side
	users map[string]*harness.User
	met   map[*commandDifference]bool
}

const (
	theirs = iota
	ours
)

// testCommands has scripts of command lines run under Grid Engine and under
// ours, in the same situation. What is printed, where, and the exit codes are the same but for what is listed.
func testCommands(t *testing.T) {
	p := newPair(t)
	for _, s := range commandScripts {
		t.Run(s.name, func(t *testing.T) {
			wrong := p.run(t, &s)
			if len(wrong) > 0 && !t.Failed() {
				// A command of Grid Engine's fails now and then, or its scheduler misses a job.
				t.Logf("the first time:\n%s", strings.Join(wrong, "\n"))
				wrong = p.run(t, &s)
			}
			for _, text := range wrong {
				t.Error(text)
			}
		})
	}
	if t.Failed() {
		return // then one may not have come to its line
	}
	for _, d := range commandDifferences {
		if !p.met[d] && !d.sometimes {
			t.Errorf("a difference that is listed was not met:%s", d.page)
		}
	}
}

// newPair starts an execd of ours in the namespaces of the real Grid Engine, so that both
// have the same host, with the same queues.
func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{users: map[string]*harness.User{"": user}, met: map[*commandDifference]bool{}}
	other, err := harness.AddUser("paddock-iop-other")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Remove(); err != nil {
			t.Error(err)
		}
	})
	p.users["other"] = other
	t.Cleanup(func() {
		if err := os.RemoveAll(filepath.Join(base, "commands")); err != nil {
			t.Error(err)
		}
	})
	for i, name := range []string{"ge", "pd"} {
		s := &side{name: name, dir: filepath.Join(base, "commands", name), jobs: map[string]string{}}
		if err := os.MkdirAll(filepath.Join(s.dir, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(s.dir, user.UID, user.GID); err != nil {
			t.Fatal(err)
		}
		p.sides[i] = s
	}
	// Which commands are meant must not be seen in PATH.
	for _, name := range []string{"qsub", "qalter", "qresub", "qstat", "qdel", "qhold", "qrls", "qmod", "qhost", "qselect", "qconf", "qacct"} {
		for i, dir := range []string{"/usr/bin", bin} {
			if err := os.Symlink(filepath.Join(dir, name), filepath.Join(p.sides[i].dir, "bin", name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.configure(t)
	return p
}

// ownQueue and ownPE are what the scripts have for themselves.
const (
	ownQueue = "qname one.iop\nslots 1\nseq_no 5\npe_list pe.iop\nrerun TRUE\n"
	ownPE    = "pe_name pe.iop\nslots 10\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\n" +
		"allocation_rule $pe_slots\ncontrol_slaves FALSE\njob_is_first_task TRUE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n"
)

// configure makes the objects of the scripts in Grid Engine and starts ours with what it
// prints of them and of its own.
func (p *pair) configure(t *testing.T) {
	t.Helper()
	dir := filepath.Join(p.sides[ours].dir, "execd")
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(api.DevPlaces(dir).Config, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The accounting file is written at once, not after fifteen seconds.
	set(t, "reporting_params", "accounting=true reporting=false flush_time=00:00:01 joblog=false sharelog=00:00:00")
	all := qconf(t, "-sq", "all.q")
	file("queues/all.q", all)
	file("pes/make", strings.Replace(ownPE, "pe.iop", "make", 1)) // it is named there
	file("managers", qconf(t, "-sm"))
	for name := range strings.FieldsSeq(qconf(t, "-sul")) {
		file("userlists/"+name, qconf(t, "-su", name))
	}
	for _, o := range []struct{ add, remove, show, name, file, text string }{
		{"-Ap", "-dp", "-sp", "pe.iop", "pes/pe.iop", ownPE},
		{"-Aq", "-dq", "-sq", "one.iop", "queues/one.iop", merge(all, ownQueue)},
	} {
		_, _ = ge.Run("qconf", o.remove, o.name) // a run that was killed left it
		qconf(t, o.add, file(o.file, o.text))
		t.Cleanup(func() {
			if _, err := ge.Run("qconf", o.remove, o.name); err != nil {
				t.Error(err)
			}
		})
		file(o.file, qconf(t, o.show, o.name))
	}
	// By these numbers either would kill the other's jobs.
	file("sge_conf", regexp.MustCompile(`(?m)^gid_range .*\n`).ReplaceAllString(qconf(t, "-sconf"), ""))
	file("sched_conf", qconf(t, "-ssconf"))
	file("complexes", qconf(t, "-sc"))
	// Numbers of jobs have the same width in tables.
	last, err := ge.Run("cat", "/var/spool/gridengine/qmaster/jobseqnum")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(api.DevPlaces(dir).Spool, 0o755); err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(last))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(api.DevPlaces(dir).Spool, "job_seq_num"), []byte(strconv.Itoa(number-1)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := harness.Start(harness.Options{Bin: bin, Dir: dir, Mode: "-root", Via: ge.Command("become").Args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	p.sides[ours].env = []string{"PADDOCK_DIR=" + dir}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(d.Log())
		}
	})
}

// command is a line of a script.
type command struct {
	as     string // "", "root" or "other"
	name   string // of the job that it submits, or ""
	text   string
	differ []string
	wait   string // instead: the state that the job name is waited for to have
}

func parseCommands(text string) []command {
	var list []command
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "# "):
			continue
		case strings.HasPrefix(line, "! "):
			last := &list[len(list)-1]
			last.differ = append(last.differ, strings.Fields(line[2:])...)
			continue
		case strings.HasPrefix(line, "wait "):
			f := strings.Fields(line)
			list = append(list, command{name: f[1], wait: f[2]})
			continue
		}
		c := command{text: line}
		for _, as := range []string{"root", "other"} {
			if rest, ok := strings.CutPrefix(c.text, as+": "); ok {
				c.as, c.text = as, rest
			}
		}
		if name, rest, ok := strings.Cut(c.text, " = "); ok && !strings.Contains(name, " ") {
			c.name, c.text = name, rest
		}
		list = append(list, c)
	}
	return list
}

// run does what a script says and returns what is not as it is to be.
func (p *pair) run(t *testing.T, s *commandScript) (wrong []string) {
	t.Helper()
	commands := parseCommands(s.lines)
	defer p.clear(t)
	for i := range commands {
		c := &commands[i]
		if c.wait != "" {
			if err := p.both(func(_ int, s *side) error { return p.await(s, c.name, c.wait) }); err != nil {
				return append(wrong, err.Error()) // the situation is another than was meant
			}
			continue
		}
		var is [2]outcome
		if err := p.both(func(k int, s *side) (err error) {
			is[k], err = p.do(s, c.as, c.text)
			return err
		}); err != nil {
			return append(wrong, err.Error())
		}
		for k, s := range p.sides {
			if f := submittedAs.FindStringSubmatch(is[k].Stdout); f != nil {
				s.jobs[cmp.Or(c.name, fmt.Sprintf("line %d", i))] = f[1] + f[2]
			} else if c.name != "" {
				return append(wrong, fmt.Sprintf("%s: %s: no number of a job: %+v", s.name, c.text, is[k]))
			}
		}
		for k, s := range p.sides {
			is[k].Stdout, is[k].Stderr = s.plain(is[k].Stdout), s.plain(is[k].Stderr)
		}
		wrong = append(wrong, p.compare(c, is)...)
	}
	return wrong
}

// compare returns what of the outcomes of a command is not as it is to be.
func (p *pair) compare(c *command, is [2]outcome) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, d := range commandDifferences {
		if d.always {
			before := is
			is[theirs], is[ours] = d.alike(is[theirs], is[ours])
			p.met[d] = p.met[d] || before != is
		}
	}
	for _, name := range c.differ {
		k := slices.IndexFunc(commandDifferences, func(d *commandDifference) bool { return d.name == name })
		if k < 0 {
			say("%s: no difference is called %s", c.text, name)
			continue
		}
		d := commandDifferences[k]
		before := is
		is[theirs], is[ours] = d.alike(is[theirs], is[ours])
		if before == is && !d.sometimes {
			say("%s: there is no difference %s any more", c.text, name)
		}
		p.met[d] = true
	}
	if is[theirs] != is[ours] {
		say("%s (-Grid Engine +ours):\n%s%s%s", c.text, changed("stdout", is[theirs].Stdout, is[ours].Stdout),
			changed("stderr", is[theirs].Stderr, is[ours].Stderr), changed("exit", strconv.Itoa(is[theirs].Exit), strconv.Itoa(is[ours].Exit)))
	}
	return wrong
}

// changed returns the lines in which two texts differ.
func changed(what, ge, pd string) string {
	if ge == pd {
		return ""
	}
	was, is := strings.SplitAfter(ge, "\n"), strings.SplitAfter(pd, "\n")
	var b strings.Builder
	line := func(sign byte, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%s %c%q\n", what, sign, text)
		}
	}
	for len(was) > 0 {
		k := slices.Index(is, was[0])
		if k < 0 {
			line('-', was[0])
		} else {
			for _, text := range is[:k] {
				line('+', text)
			}
			is = is[k+1:]
		}
		was = was[1:]
	}
	for _, text := range is {
		line('+', text)
	}
	return b.String()
}

// both calls f for both sides, theirs and ours, at once.
func (p *pair) both(f func(int, *side) error) error {
	var wg sync.WaitGroup
	var errs [2]error
	for k, s := range p.sides {
		wg.Go(func() { errs[k] = f(k, s) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// do runs a command line on a side as one of the users.
func (p *pair) do(s *side, as, line string) (outcome, error) {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(s.jobs))) {
		line = strings.ReplaceAll(line, "@"+name, s.jobs[name])
	}
	args := []string{"become"}
	home, login := "/root", "root"
	if u := p.users[as]; u != nil {
		id, group := strconv.Itoa(u.UID), strconv.Itoa(u.GID)
		args = append(args, "setpriv", "--reuid", id, "--regid", group, "--init-groups")
		home, login = u.Home, u.Name
	}
	args = append(args, "env", "-i", "-C", s.dir, "SGE_ROOT=/var/lib/gridengine", "SGE_CELL=default", "HOME="+home, "LOGNAME="+login, "USER="+login,
		"SHELL=/bin/sh", "PATH="+filepath.Join(s.dir, "bin")+":/usr/bin:/bin", "LC_ALL=C")
	args = append(append(args, s.env...), "sh", "-c", line)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	whole := ge.Command(args...)
	cmd := exec.CommandContext(ctx, whole.Path, whole.Args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The shell's children hold the pipes, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if ctx.Err() != nil {
		return outcome{}, fmt.Errorf("%q of %s does not end", line, s.name)
	}
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return outcome{}, fmt.Errorf("cannot run %q: %w", line, err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}, nil
}

// await waits until a job is in a state: those of its lines in qstat, or gone, when
// the accounting file has it, too.
func (p *pair) await(s *side, name, state string) error {
	return harness.WaitFor(patience, fmt.Sprintf("job %s of %s to be in state %s", name, s.name, state), func() (bool, error) {
		is, err := p.state(s, name)
		if is != "" || state != "gone" || err != nil {
			return is == state, err
		}
		o, err := p.do(s, "", "qacct -j @"+name)
		return o.Exit == 0, err
	})
}

// state returns the states of a job's lines in qstat.
func (p *pair) state(s *side, name string) (string, error) {
	o, err := p.do(s, "root", "qstat -u '*'")
	if err != nil || o.Exit != 0 {
		return "?", err
	}
	var states []string
	for line := range strings.Lines(o.Stdout) {
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != s.jobs[name] {
			continue
		}
		if f[4] == "qw" && f[1] == "0.00000" {
			return "not seen by the scheduler", nil
		}
		states = append(states, f[4])
	}
	slices.Sort(states)
	return strings.Join(slices.Compact(states), ","), nil
}

// clear deletes all jobs of the users and waits until they are gone.
func (p *pair) clear(t *testing.T) {
	if err := p.both(func(_ int, s *side) error {
		clear(s.jobs)
		users := user.Name + "," + p.users["other"].Name
		if _, err := p.do(s, "root", "qdel -u "+users); err != nil {
			return err
		}
		return harness.WaitFor(patience, "the jobs of "+s.name+" to go", func() (bool, error) {
			o, err := p.do(s, "root", "qstat -u "+users)
			return o.Stdout == "" && o.Exit == 0, err
		})
	}); err != nil {
		t.Error(err)
	}
}

var (
	aligned     = regexp.MustCompile(`(?m)^ +(<\w+> )`)
	submittedAs = regexp.MustCompile(`(?m)^Your (?:immediate )?job(?:-array)? (\d+)|^(\d+)(?:$|\.\d+-)`)
	volatile    = []struct {
		pattern *regexp.Regexp
		instead string
	}{
		{regexp.MustCompile(`\d\d/\d\d/\d{4} \d\d:\d\d:\d\d`), "DD/MM/YYYY HH:MM:SS"},
		{regexp.MustCompile(`(?m)^(?:qalter|qresub|qhold|qrls): `), "qalter: "}, // who is called as what
		// It depends on when Grid Engine's scheduler has run.
		{regexp.MustCompile(` 0\.\d{4}[1-9]\d? | 0\.\d{0,3}[1-9]\d+ `), " PRIOR   "},
		{regexp.MustCompile(`(BI?P?C? +\d+/\d+/\d+ +)\d+\.\d+ +`), "${1}LOAD "},
		{regexp.MustCompile(`(?m)^(one.iop +)\d+\.\d\d( +\d+){6} $`), "${1}LOAD$2"},
		{regexp.MustCompile(`(?m)^(gehost +\S+)(?: +[\d.]+)+(?: +[\d.]+[KMGT]?){4}$`), "$1 NUMBERS"},
		{regexp.MustCompile(`[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}`), "DAY MON DD HH:MM:SS YYYY"},
	}
)

// plain takes what may differ out of a text: numbers of jobs, times and directories.
func (s *side) plain(text string) string {
	for _, v := range volatile { // before numbers of jobs: one may be a year
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	for name, number := range s.jobs {
		text = regexp.MustCompile(`\b`+number+`\b`).ReplaceAllString(text, "<"+name+">")
	}
	// The two may have numbers of another length.
	text = aligned.ReplaceAllString(text, "$1")
	text = strings.ReplaceAll(text, s.dir, "<dir>")
	return text
}
