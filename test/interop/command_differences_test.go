package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"paddock/test/harness"
)

// commandDifference is one that is meant between Grid Engine's commands and ours.
type commandDifference struct {
	name string // by which scripts mark the lines that show it
	page string // what it is and why, as it stands in paddock(7)
	// always: it is in many lines, and not marked. sometimes: it need not be
	// there in each run.
	always, sometimes bool
	// alike takes the difference, and nothing else, out of two outcomes.
	alike func(ge, pd outcome) (outcome, outcome)
}

// commandDifferences make the list of section DIFFERENCES FROM GRID ENGINE of
// paddock(7), in its order.
var commandDifferences = []*commandDifference{
	{name: "usage", always: true, alike: cutting(
		`\ASGE 8\.1\.9\nusage: [^\n]*\n(?: [^\n]*\n|\n|[a-z0-9_]+ {2,}[^\n]*\n)*|(?m)^Usage: qconf -help\n`,
		`(?m)^(?:Did you mean .+\? )?Type ".*" for the options\.\n`,
	), page: `
A mistake in the options is followed by one line that says how to get help, and which option may have been meant.
Grid Engine prints the whole usage before it, or nothing.`},
	{name: "hints", always: true, alike: cutting(`\z.`,
		`(?m)^For jobs that have ended, see qacct -j .*\n|^qsub: warning: there is no job .* nothing is waited for\n|^".*" is not a \S+: want .*\n`,
	), page: `
A line after an error, or a warning on standard error, says what may have been meant or can be done: that a name of
.Fl hold_jid
is not that of a job, what a size looks like, and where to read about jobs that have ended.`},
	{name: "lists", alike: known(`^7 qsub: -t option only allows one range specification\n$`, `^0 Your job-array .*1,2,5 `), page: `
.Fl t
takes several ranges.`},
	{name: "once", alike: cutting(
		`(?m)^error: unknown resource ""\n|^invalid option argument ""\n|^unknown queue state: .*\n|^error: fread.*\n`, `: Is a directory`,
	), page: `
One mistake causes one message; Grid Engine has two for some.`},
	{name: "place", alike: cutting(`(?m)^Unable to read script file because of error: |^qsub: |^\n`, `(?m)^qsub: \S+:\d+: |"word"`), page: `
A mistake in the options of a script or a defaults file is reported with file and line, and with the word that is not an option.`},
	{name: "quote", alike: known(`^0 Your job .*\("open"\)`, `^7 qsub: \S+:1: unmatched "\n$`), page: `
A quote that is not closed is an error.`},
	{name: "files", alike: known(`^4 Unable to read script file because of error: no input read|^0 Your job`, `^2 qsub: (?:q.sh:1: )?(?:cannot read option file nope: No such file|options:1: invalid option argument)`), page: `
A file of
.Fl @
that cannot be read, or has a wrong option, is an error; Grid Engine loses what follows it.`},
	{name: "strict", alike: known(``, `^[127] (?:qsub|qalter|Unable to run job): |^1 checkpointing denied\n$`), page: `
Invalid values are errors where Grid Engine ignores them or guesses: an empty directory, range or list of holds,
a number followed by letters, a time without a value, checkpoints without a checkpointing environment.`},
	{name: "path", alike: known(`^7 qsub: Wrong path list format "" specified to -e option\n$`, `^7 qsub: Wrong path list format "" specified to -i option\n$`), page: `
The error of an empty
.Fl i
names that option, not
.Fl e .`},
	{name: "last", alike: cutting(`(?m)^qsub: warning: "-h" option has already been set, overriding previous setting\n`, `\z.`), page: `
An option that is given twice causes no warning on standard output, which scripts read; the last one counts.`},
	{name: "dash", alike: known(`^2 qsub: invalid option argument "-"\n$`, `^0 Your job|^4 Unable to read script file because of error: no input read from stdin\n$`), page: `
A script
.Li -
is standard input, as the manual of Grid Engine has it; 8.1.9 refuses it.`},
	{name: "others", alike: known(`^5 qsub: Unknown option -inherit\n\nqsub: Unknown option -verbose\n\n$`, `^0 Your job`), page: `
Options of other commands in a defaults file are ignored, since the file is for all commands.`},
	{name: "blank", alike: known(`^1 Unable to run job: Error reading answer list from qmaster\nExiting.\n$`, `^0 Your job`), page: `
The name of a job may have a blank in it.`},
	{name: "unsupported", alike: known(``, `^2 qsub: option -\S+ is not supported: `), page: `
There are no deadlines, job shares and advance reservations; options for them are refused by name.`},
	{name: "binding", alike: known(`^1 Unable to run job: job rejected: binding parameter not consistent`, `^2 qsub: -binding option contains errors: couldn't parse amount \(linear\)\n$`), page: `
A
.Fl binding
to no core at all is reported by
.Nm qsub .`},
	{name: "project", alike: cutting(
		`\(no project\) does not have the correct project to run in cluster queue`,
		`\(project \S+\) does not have the correct project to run in cluster queue|\(project \S+\) is not allowed to run in cluster queue| based on the excluded project list`,
	), page: `
.Fl w Cm v
names the project of a job that a queue does not take; Grid Engine says that it has none.`},
	{name: "named", alike: cutting(`queue none where`, `queue all\.q where`), page: `
.Nm qmod Fl rj
names the queue of a running job that is not rerunnable; Grid Engine says
.Dq none .`},
	{name: "verification", alike: func(ge, pd outcome) (outcome, outcome) {
		plain := func(o outcome) outcome {
			// Grid Engine uses up a number with each.
			o.Stderr = regexp.MustCompile(`Job \d+ `).ReplaceAllString(o.Stderr, "Job N ")
			o.Stderr = regexp.MustCompile(`Unable to run job: |@gehost|\d+ slots`).ReplaceAllString(o.Stderr, "")
			var kept strings.Builder
			for line := range strings.Lines(o.Stderr) {
				// Somebody may have queues of his own in the cluster.
				if _, name, ok := strings.Cut(line, ` queue "`); !ok || strings.HasPrefix(name, `all.q"`) || strings.HasPrefix(name, `one.iop"`) {
					kept.WriteString(line)
				}
			}
			o.Stderr = kept.String()
			return o
		}
		return plain(ge), plain(pd)
	}, page: `
What
.Fl w Cm v
prints does not use up a job number: it has the number that the next job will get.
It names queues with their host, and the
slots that exist.`},
	{name: "ranges", alike: known(`range: 7,1-3\n`, `range: 1-3,7\n`), page: `
Ranges of
.Fl pe
are shown in ascending order.`},
	{name: "now", alike: cutting(`(?m)^Your job .* has been submitted\n`, `\z.`), page: `
A job of
.Fl now Cm y
that cannot start is not submitted, and no number printed.`},
	{name: "reason", alike: cutting(`\z.`, `(?m)^Job .+ failed: .*\n`), page: `
.Fl sync Cm y
tells why a job failed.`},
	{name: "details", alike: cutting(
		`(?m)^(?:version: .*|exec_file: .*|usage +1: .*|binding +1: .*|scheduling info: .*(?:\n {28}.*)*)\n`,
		`(?m)^(?:pending tasks: .*|finished tasks: .*|holds: .*|(?:job_state|start_time|queue|usage|limits|binding) +1: .*|exec_file: .*|scheduling info: .*(?:\n {28}.*)*)\n`,
	), page: `
.Nm qstat Fl j
shows state, start, queue, limits and holds of a job, and the tasks that wait; no script where there is none, and
not how often a job was altered; and as scheduling info why this job waits, in words of its own.`},
	{name: "missing", alike: known(`^0 `, `^1 (?s:.*)\nFollowing jobs do not exist: \nnope\n(?:Of what .*\n)?$`), page: `
.Nm qstat Fl j
names each job that does not exist, even if others do.`},
	{name: "scheduler", alike: known(`^0 scheduling info`, `^0 Jobs? `), page: `
.Nm qstat Fl j
without a job says in few words why jobs wait at the moment; Grid Engine says what its scheduler last decided, also about queues.`},
	{name: "queue", alike: cutting(`\z.`, `(?m)^No cluster queue or queue instance matches the phrase "nope"\n`), page: `
.Nm qstat Fl q
and
.Nm qselect Fl q
say if no queue has that name.`},
	{name: "lonely", alike: known(`^5 Unknown option -t 1\n\n$`, `^2 error: found lonely '-t 1' option`), page: `
.Nm qhold
and
.Nm qrls
report a
.Fl t
without a job as
.Nm qdel
does.`},
	{name: "order", sometimes: true, alike: func(ge, pd outcome) (outcome, outcome) {
		return outcome{sorted(ge.Stdout), ge.Stderr, ge.Exit}, outcome{sorted(pd.Stdout), pd.Stderr, pd.Exit}
	}, page: `
The tasks of an array are reported in their order.`},
	{name: "waiting", sometimes: true, alike: func(ge, pd outcome) (outcome, outcome) {
		priority := regexp.MustCompile(`(> )[01]\.\d{5} `)
		plain := func(o outcome) outcome {
			o.Stdout = sorted(priority.ReplaceAllString(o.Stdout, "${1}PRIOR   "))
			return o
		}
		return plain(ge), plain(pd)
	}, page: `
.Nm qstat
shows the priority of a waiting job at once, and jobs in that order; Grid Engine does so when its scheduler has run.`},
	{name: "copies", alike: func(ge, pd outcome) (outcome, outcome) {
		ge.Stdout = strings.Replace(ge.Stdout, "modified hold of job <p>\n", "", 1)
		ge.Stdout = strings.Replace(ge.Stdout, `job "0"`, `job "nope"`, 1)
		return ge, pd
	}, page: `
.Nm qresub Fl h
does not claim to have modified the hold of the job that is copied; and a name in place of a number
is refused by that name, not as job 0.`},
	{name: "qdel", alike: func(ge, pd outcome) (outcome, outcome) {
		return outcome{"", ge.Stdout + ge.Stderr, ge.Exit}, pd
	}, page: `
.Nm qdel
without a job complains on standard error.`},
	{name: "dashes", alike: known(`^1 The job -zzz of user\(s\) \S+ does not exist\n$`, `^1 error: invalid option argument "-zzz"\n$`), page: `
A word that begins with a dash is an option of
.Nm qdel ,
not the name of a job.`},
}

// cutting returns what removes from both streams of the two sides what matches.
func cutting(ge, pd string) func(ge, pd outcome) (outcome, outcome) {
	cut := func(pattern string) func(outcome) outcome {
		re := regexp.MustCompile(pattern)
		return func(o outcome) outcome {
			return outcome{re.ReplaceAllString(o.Stdout, ""), re.ReplaceAllString(o.Stderr, ""), o.Exit}
		}
	}
	cutGE, cutPD := cut(ge), cut(pd)
	return func(ge, pd outcome) (outcome, outcome) { return cutGE(ge), cutPD(pd) }
}

// known returns what makes two outcomes alike that match as a whole: exit code, a blank,
// standard output and standard error.
func known(ge, pd string) func(ge, pd outcome) (outcome, outcome) {
	matchGE, matchPD := regexp.MustCompile(ge), regexp.MustCompile(pd)
	text := func(o outcome) string { return fmt.Sprintf("%d %s%s", o.Exit, o.Stdout, o.Stderr) }
	return func(ge, pd outcome) (outcome, outcome) {
		if matchGE.MatchString(text(ge)) && matchPD.MatchString(text(pd)) {
			return outcome{}, outcome{}
		}
		return ge, pd
	}
}

// sorted returns a text with its lines in order.
func sorted(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

// TestDifferencesOfCommands compares the list in paddock(7) with the one here, and
// both with the marks of the scripts.
func TestDifferencesOfCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man", "man7", "paddock.7"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), ".Sh DIFFERENCES FROM GRID ENGINE\n")
	_, section, begin := strings.Cut(section, ".Bl -bullet\n")
	section, _, end := strings.Cut(section, ".El\n")
	if !ok || !begin || !end {
		t.Fatal("paddock(7) has no list of differences")
	}
	marked := map[string]bool{}
	for _, s := range commandScripts {
		for _, c := range parseCommands(s.lines) {
			for _, name := range c.differ {
				marked[name] = true
			}
		}
	}
	var want strings.Builder
	for _, d := range commandDifferences {
		want.WriteString(".It" + d.page + "\n")
		if marked[d.name] == d.always {
			t.Errorf("difference %s is marked in a script: %t", d.name, marked[d.name])
		}
	}
	if section != want.String() {
		t.Errorf("paddock(7) lists other differences; the list is\n.Bl -bullet\n%s.El", want.String())
	}
}
