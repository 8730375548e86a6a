// Package option is the option language of the client commands. One table of
// all options serves to parse the command line, '#$' lines and defaults files,
// and to make help and completion. All packages of qsub but output may import
// it; it imports only the api.
package option

import (
	"iter"
	"slices"
	"strings"
)

// Command is a client command, or a set of them.
type Command uint32

// The commands.
const (
	Qsub Command = 1 << iota
	Qstat
	Qdel
	Qhold
	Qrls
	Qmod
	Qhost
	Qselect
	Qconf
	Qacct
	Qalter
	Qresub
	Qwait
	Qlog
	Qtop

	Qrsh
	Qlogin
	Qsh

	// Elsewhere are options of Grid Engine's qrsh, qsh, qlogin and qalter that
	// qsub does not have. Defaults files are for all of these commands, and
	// qsub skips such options there.
	Elsewhere

	programs = Elsewhere - 1
)

// commands are the programs, by the names they are called by.
var commands = []struct {
	Command
	name, operands, summary string
}{
	{Qsub, "qsub", "[script [argument ...] | - [argument ...]]", "submit a batch job"},
	{Qstat, "qstat", "", "show the jobs that are not finished"},
	{Qdel, "qdel", "job[,job ...] ...", "delete jobs"},
	{Qhold, "qhold", "job[,job ...] ...", "hold jobs back"},
	{Qrls, "qrls", "job[,job ...] ...", "release jobs from holds"},
	{Qmod, "qmod", "[job | queue ...]", "change the state of jobs and queues"},
	{Qhost, "qhost", "", "show the host, its queues and jobs"},
	{Qselect, "qselect", "", "print the names of queues"},
	{Qconf, "qconf", "", "show and change the configuration"},
	{Qacct, "qacct", "", "show what finished jobs used"},
	{Qalter, "qalter", "job[,job ...] ... [-- argument ...]", "change jobs that are not finished"},
	{Qrsh, "qrsh", "[command [argument ...]]", "run a command or a shell as an interactive job"},
	{Qlogin, "qlogin", "", "run a login shell as an interactive job"},
	{Qsh, "qsh", "[-- argument ...]", "open a terminal window as an interactive job"},
	{Qresub, "qresub", "job[,job ...] ...", "submit copies of jobs"},
	{Qwait, "qwait", "job[.task][,job ...] ...", "wait for the end of jobs"},
	{Qlog, "qlog", "job[.task]", "show the output of a job"},
	{Qtop, "qtop", "", "watch jobs and the host"},
}

// Commands returns the programs.
func Commands() []Command {
	list := make([]Command, len(commands))
	for i, c := range commands {
		list[i] = c.Command
	}
	return list
}

// ByName returns the command of that name.
func ByName(name string) (Command, bool) {
	for _, c := range commands {
		if c.name == name {
			return c.Command, true
		}
	}
	return 0, false
}

// String returns the name of a single command.
func (c Command) String() string {
	for _, known := range commands {
		if known.Command == c {
			return known.name
		}
	}
	return "other commands"
}

// Operands returns the operands of a command, for its usage line.
func (c Command) Operands() string {
	for _, known := range commands {
		if known.Command == c {
			return known.operands
		}
	}
	return ""
}

// Summary returns what a command does in half a line.
func (c Command) Summary() string {
	for _, known := range commands {
		if known.Command == c {
			return known.summary
		}
	}
	return ""
}

// Kind is the kind of an option's arguments.
type Kind uint8

// The kinds.
const (
	Flag  Kind = iota // none
	YesNo             // y, yes, n, no in any case
	Text
	File // the path of a file
	Dir  // the path of a directory
	Vars // variable[=value],...
	List // the option may stand without its argument: [list]
)

// Option is one option of one or several commands.
type Option struct {
	Name     string // with its dash
	Args     []string
	Kind     Kind
	Commands Command
	// Repeat says that every occurrence counts. Otherwise the last one wins.
	Repeat bool
	// Before has the words that may stand before the argument.
	Before []string
	// Refused says that the option is one of Grid Engine's that is not
	// supported. Why is the reason; "" for not yet.
	Refused bool
	Why     string
	Help    string
}

// Usage returns the option and its arguments as they are typed.
func (o *Option) Usage() string {
	if o.Kind == List {
		return o.Name + " [" + o.Args[0] + "]"
	}
	return strings.Join(append([]string{o.Name}, o.Args...), " ")
}

// Of returns the options of a command in the order of the table: alphabetical,
// without regard to case.
func Of(c Command) []*Option { return slices.Collect(allOf(c)) }

// allOf goes through the options of a command.
func allOf(c Command) iter.Seq[*Option] {
	return func(yield func(*Option) bool) {
		for i := range table {
			if table[i].Commands&c != 0 && !yield(&table[i]) {
				return
			}
		}
		if c&Qconf != 0 {
			senseless(yield)
		}
	}
}

// Lookup returns an option of a command. Two dashes are the same as one.
func Lookup(c Command, word string) (*Option, bool) {
	if rest, ok := strings.CutPrefix(word, "--"); ok && rest != "" {
		word = "-" + rest
	}
	for o := range allOf(c) {
		if o.Name == word {
			return o, true
		}
	}
	return nil, false
}

// Suggest returns the option of a command that is most similar to word; "" if
// none is similar.
func Suggest(c Command, word string) string {
	word = strings.TrimLeft(word, "-")
	// In a short word half of the letters may differ, and in a long one two.
	best, limit := "", min(2, len(word)/2)
	for _, o := range Of(c) {
		if o.Refused {
			continue
		}
		if d := distance(word, o.Name[1:]); d <= limit && (best == "" || d < distance(word, best[1:])) {
			best = o.Name
		}
	}
	return best
}

// distance returns how many letters have to be added, removed, changed or
// swapped with their neighbours to turn a into b.
func distance(a, b string) int {
	const limit = 40 // no option is that long
	if len(a) > limit || len(b) > limit {
		return limit
	}
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
