package option

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Completions returns the files of packaging/completions by name, one for each
// shell. Options that are refused are not offered.
func Completions() map[string]string {
	return map[string]string{
		"paddock.bash": bash(),
		"_paddock":     zsh(),
		"paddock.fish": fish(),
	}
}

const generated = "# Written by `go generate ./qsub/...` from the table of options.\n"

// offered returns the options of a command to complete.
func offered(c Command) []*Option {
	var list []*Option
	for _, o := range Of(c) {
		if !o.Refused {
			list = append(list, o)
		}
	}
	return list
}

// completion is a program that has completion.
type completion struct {
	name    string
	command Command // 0: one that is no client command of this binary
	options []*Option
}

// completed returns the client commands, execd and qweb.
func completed() []completion {
	var list []completion
	for _, c := range Commands() {
		list = append(list, completion{c.String(), c, offered(c)})
	}
	execd, qweb := completion{name: "execd"}, completion{name: "qweb"}
	for i := range execdOptions {
		execd.options = append(execd.options, &execdOptions[i])
	}
	for i := range qwebOptions {
		qweb.options = append(qweb.options, &qwebOptions[i])
	}
	return append(list, execd, qweb)
}

// names returns the programs in one line.
func names() string {
	var list []string
	for _, p := range completed() {
		list = append(list, p.name)
	}
	return strings.Join(list, " ")
}

// execdOptions are the options of execd. A test compares them with execd -help.
var execdOptions = []Option{
	{Name: "-boot", Help: "have your execd started when the host boots"},
	{Name: "-check", Help: "look for damage in the spool"},
	{Name: "-config", Args: one("dir"), Kind: Dir, Help: "with -pilot: the directory with its hooks.conf"},
	{Name: "-debug", Help: "log more"},
	{Name: "-dev", Args: one("dir"), Kind: Dir, Help: "run as this user, with everything below a directory"},
	{Name: "-drain", Help: "start no more jobs"},
	{Name: "-end", Args: one("time"), Kind: Text, Help: "with -pilot: when it ends, as 2027-01-31T18:00:00Z"},
	{Name: "-fast", Help: "with -vacate: kill what runs at once"},
	{Name: "-fetch", Help: "ask for work now"},
	{Name: "-grace", Args: one("time"), Kind: Text, Help: "with -pilot: leave so long before the end, as 2m"},
	{Name: "-help", Help: "show help"},
	{Name: "-json", Help: "with -status: print JSON"},
	{Name: "-off", Help: "with -drain: start jobs again; with -boot: undo it"},
	{Name: "-pilot", Help: "run as a job of a batch system, for work that is fetched"},
	{Name: "-pool", Args: one("new|host|revoke|list"), Kind: Text, Help: "make certificates for hosts that trust each other"},
	{Name: "-renew", Help: "ask now whether fetched work may go on"},
	{Name: "-repair", Help: "with -check: move what is damaged away"},
	{Name: "-root", Args: one("dir"), Kind: Dir, Help: "run in root mode below a directory, for tests"},
	{Name: "-speed", Args: one("graceful|quick|fast"), Kind: Text, Help: "with -drain: end what runs"},
	{Name: "-status", Help: "ask the running execd how it does"},
	{Name: "-t", Help: "check the configuration"},
	{Name: "-vacate", Help: "have what runs in slots leave them"},
	{Name: "-version", Help: "print the version"},
	{Name: "-wait", Help: "with -drain: return when no job runs"},
}

// qwebOptions are the options of qweb. A test compares them with qweb -help.
var qwebOptions = []Option{
	{Name: "-help", Help: "show help"},
	{Name: "-idle", Args: one("time"), Kind: Text, Help: "end when nobody has looked for so long, as 30m"},
	{Name: "-port", Args: one("port"), Kind: Text, Help: "serve on this port of 127.0.0.1"},
	{Name: "-socket", Args: one("path"), Kind: File, Help: "serve on a Unix socket, for a web server"},
	{Name: "-version", Help: "print the version"},
}

// lists are what arguments are completed with: the name of a list, the command
// that prints it, and the names of the arguments.
var lists = []struct {
	name, command string
	args          []string
}{
	// The numbers of unfinished jobs.
	{"jobs", `qstat -u '*' 2>/dev/null | awk 'NR > 2 && !seen[$1]++ {print $1}'`, []string{"job_list", "job_queue_list"}},
	{"queues", `qconf -sql 2>/dev/null`, []string{"queue", "queue_list"}},
	{"pes", `qconf -spl 2>/dev/null`, []string{"pe_name", "pe_list", "pe_name_list"}},
}

// listOf returns the list with which an argument of this name is completed; ""
// for none.
func listOf(arg string) string {
	for _, l := range lists {
		if slices.Contains(l.args, arg) {
			return l.name
		}
	}
	return ""
}

// choices returns the words that an argument may be, if its name lists them;
// else nil.
func choices(o *Option, arg string) []string {
	if o.Kind == YesNo {
		return []string{"y", "n"}
	}
	if !strings.Contains(arg, "|") {
		return nil
	}
	return slices.DeleteFunc(strings.Split(arg, "|"), func(word string) bool { return word == "interval" || word == "char" })
}

// offers returns the words or the list with which the first argument of an
// option is completed.
func offers(o *Option) (words []string, list string) {
	if len(o.Args) == 0 {
		return nil, ""
	}
	return choices(o, o.Args[0]), listOf(o.Args[0])
}

// ofJobs are the commands whose operands are unfinished jobs.
const ofJobs = Qdel | Qhold | Qrls | Qmod | Qalter | Qresub | Qwait | Qlog

func bash() string {
	var b strings.Builder
	b.WriteString("# bash completion of the client commands and execd.\n" + generated + `
`)
	for _, l := range lists {
		fmt.Fprintf(&b, "_paddock_%s() { %s; }\n", l.name, l.command)
	}
	b.WriteString(`
_paddock() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=
  COMPREPLY=()
  case ${COMP_WORDS[0]##*/}:$prev in
`)
	// Options that are completed alike share a line of the case statement.
	for _, p := range completed() {
		by := map[string][]string{}
		for _, o := range p.options {
			what := ""
			switch words, list := offers(o); {
			case words != nil:
				what = fmt.Sprintf("words='%s'", strings.Join(words, " "))
			case o.Kind == File:
				what = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return"
			case o.Kind == Dir:
				what = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); return"
			case o.Kind == Vars:
				what = "mapfile -t COMPREPLY < <(compgen -e -- \"$cur\"); return"
			case list != "":
				what = fmt.Sprintf("words=\" $(_paddock_%s)\"", list)
				if o.Kind == List { // another option may follow
					what = "[[ $cur == -* ]] || " + what
				}
			case o.Kind == Flag || o.Kind == List:
				continue
			default:
				what = "return"
			}
			by[what] = append(by[what], p.name+":"+o.Name)
		}
		for _, what := range slices.Sorted(maps.Keys(by)) {
			fmt.Fprintf(&b, "  %s) %s ;;\n", strings.Join(by[what], "|"), what)
		}
	}
	b.WriteString("  esac\n  [[ -n $words ]] || case ${COMP_WORDS[0]##*/}:$cur in\n")
	var operands []string
	for _, p := range completed() {
		var list []string
		for _, o := range p.options {
			list = append(list, o.Name)
		}
		fmt.Fprintf(&b, "  %s:-*) words='%s' ;;\n", p.name, strings.Join(list, " "))
		if p.command&ofJobs != 0 {
			operands = append(operands, p.name+":*")
		}
	}
	fmt.Fprintf(&b, "  %s) words=$(_paddock_jobs) ;;\n", strings.Join(operands, "|"))
	b.WriteString(`  qsub:*) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
`)
	b.WriteString("complete -F _paddock " + names() + "\n")
	return b.String()
}

func zsh() string {
	var b strings.Builder
	b.WriteString("#compdef " + names() + "\n# zsh completion of the client commands and execd.\n" + generated + "\n")
	for _, l := range lists {
		fmt.Fprintf(&b, "_paddock_%s() { compadd -- $(%s) }\n", l.name, l.command)
	}
	b.WriteString("\ncase $service in\n")
	for _, p := range completed() {
		fmt.Fprintf(&b, "%s) _arguments \\\n", p.name)
		for _, o := range p.options {
			repeat := ""
			if o.Repeat {
				repeat = "*"
			}
			var arg strings.Builder
			for _, name := range o.Args {
				action := " "
				switch words, list := choices(o, name), listOf(name); {
				case words != nil:
					action = "(" + strings.Join(words, " ") + ")"
				case o.Kind == File:
					action = "_files"
				case o.Kind == Dir:
					action = "_files -/"
				case o.Kind == Vars:
					action = "_parameters -g '*export*'"
				case list != "":
					action = "_paddock_" + list
				}
				colon := ":"
				if o.Kind == List {
					colon = "::"
				}
				fmt.Fprintf(&arg, "%s%s:%s", colon, strings.ReplaceAll(name, ":", `\:`), action)
			}
			fmt.Fprintf(&b, "  %s \\\n", zshQuote(fmt.Sprintf("%s%s[%s]%s", repeat, o.Name, strings.NewReplacer("[", `\[`, "]", `\]`).Replace(o.Help), arg.String())))
		}
		switch {
		case p.command == Qsub:
			b.WriteString("  '*:script:_files' ;;\n")
		case p.command&ofJobs != 0:
			b.WriteString("  '*:job:_paddock_jobs' ;;\n")
		default:
			b.WriteString("  && return ;;\n")
		}
	}
	b.WriteString("esac\n")
	return b.String()
}

func zshQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func fish() string {
	var b strings.Builder
	b.WriteString("# fish completion of the client commands and execd.\n" + generated + "\n")
	for _, l := range lists {
		fmt.Fprintf(&b, "function __paddock_%s\n    %s\nend\n", l.name, l.command)
	}
	b.WriteString("\n")
	for _, p := range completed() {
		if p.command != Qsub {
			fmt.Fprintf(&b, "complete -c %s -f\n", p.name)
		}
		for _, o := range p.options {
			args := ""
			switch words, list := offers(o); {
			case words != nil:
				args = " -x -a '" + strings.Join(words, " ") + "'"
			case o.Kind == File:
				args = " -r -F"
			case o.Kind == Dir:
				args = " -x -a '(__fish_complete_directories)'"
			case o.Kind == Vars:
				args = " -x -a '(set -nx)'"
			case list != "" && o.Kind != List:
				args = " -x -a '(__paddock_" + list + ")'"
			case o.Kind == Text:
				args = " -x"
			}
			fmt.Fprintf(&b, "complete -c %s -o %s%s -d '%s'\n", p.name, zshQuote(o.Name[1:]), args, fishEscape(o.Help))
			if _, list := offers(o); list != "" && o.Kind == List { // or another option follows
				fmt.Fprintf(&b, "complete -c %s -n 'test (commandline -opc)[-1] = %s' -a '(__paddock_%s)'\n", p.name, o.Name, list)
			}
		}
		if p.command&ofJobs != 0 {
			fmt.Fprintf(&b, "complete -c %s -a '(__paddock_jobs)'\n", p.name)
		}
	}
	return b.String()
}

func fishEscape(s string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) }
