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

// jobs reports whether the argument of an option is a list of unfinished jobs.
func jobs(o *Option) bool {
	return len(o.Args) == 1 && (o.Args[0] == "job_list" || o.Args[0] == "job_queue_list")
}

// ofJobs are the commands whose operands are unfinished jobs.
const ofJobs = Qdel | Qhold | Qrls | Qmod | Qalter | Qresub | Qwait | Qlog

// listJobs is a shell command that prints the numbers of unfinished jobs.
const listJobs = `qstat -u '*' 2>/dev/null | awk 'NR > 2 && !seen[$1]++ {print $1}'`

func bash() string {
	var b strings.Builder
	b.WriteString("# bash completion of the client commands.\n" + generated + `
_paddock_jobs() { ` + listJobs + `; }

_paddock() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=
  COMPREPLY=()
  case ${COMP_WORDS[0]##*/}:$prev in
`)
	// The names of one line of the case statement, by what they complete.
	for _, c := range Commands() {
		by := map[string][]string{}
		for _, o := range offered(c) {
			what := ""
			switch {
			case o.Kind == YesNo:
				what = "words='y n'"
			case o.Kind == File:
				what = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return"
			case o.Kind == Dir:
				what = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); return"
			case o.Kind == Vars:
				what = "mapfile -t COMPREPLY < <(compgen -e -- \"$cur\"); return"
			case jobs(o):
				what = "words=$(_paddock_jobs)"
			case o.Kind == Flag || o.Kind == List:
				continue
			default:
				what = "return"
			}
			by[what] = append(by[what], fmt.Sprintf("%s:%s", c, o.Name))
		}
		for _, what := range slices.Sorted(maps.Keys(by)) {
			fmt.Fprintf(&b, "  %s) %s ;;\n", strings.Join(by[what], "|"), what)
		}
	}
	b.WriteString("  *) case ${COMP_WORDS[0]##*/}:$cur in\n")
	for _, c := range Commands() {
		var list []string
		for _, o := range offered(c) {
			list = append(list, o.Name)
		}
		fmt.Fprintf(&b, "    %s:-*) words='%s' ;;\n", c, strings.Join(list, " "))
	}
	b.WriteString(`    qdel:*|qhold:*|qrls:*|qmod:*|qwait:*|qlog:*) words=$(_paddock_jobs) ;;
    qsub:*) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    esac ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
`)
	b.WriteString("complete -F _paddock")
	for _, c := range Commands() {
		b.WriteString(" " + c.String())
	}
	b.WriteString("\n")
	return b.String()
}

func zsh() string {
	var b strings.Builder
	b.WriteString("#compdef")
	for _, c := range Commands() {
		b.WriteString(" " + c.String())
	}
	b.WriteString("\n# zsh completion of the client commands.\n" + generated + `
_paddock_jobs() { compadd -- $(` + listJobs + `) }

case $service in
`)
	for _, c := range Commands() {
		fmt.Fprintf(&b, "%s) _arguments \\\n", c)
		for _, o := range offered(c) {
			repeat := ""
			if o.Repeat {
				repeat = "*"
			}
			var arg strings.Builder
			for _, name := range o.Args {
				action := " "
				switch {
				case o.Kind == YesNo:
					action = "(y n)"
				case o.Kind == File:
					action = "_files"
				case o.Kind == Dir:
					action = "_files -/"
				case o.Kind == Vars:
					action = "_parameters -g '*export*'"
				case jobs(o):
					action = "_paddock_jobs"
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
		case c == Qsub:
			b.WriteString("  '*:script:_files' ;;\n")
		case c&ofJobs != 0:
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
	b.WriteString("# fish completion of the client commands.\n" + generated + `
function __paddock_jobs
    ` + listJobs + `
end

`)
	for _, c := range Commands() {
		if c != Qsub {
			fmt.Fprintf(&b, "complete -c %s -f\n", c)
		}
		for _, o := range offered(c) {
			args := ""
			switch {
			case o.Kind == YesNo:
				args = " -x -a 'y n'"
			case o.Kind == File:
				args = " -r -F"
			case o.Kind == Dir:
				args = " -x -a '(__fish_complete_directories)'"
			case o.Kind == Vars:
				args = " -x -a '(set -nx)'"
			case jobs(o):
				args = " -x -a '(__paddock_jobs)'"
			case o.Kind == Text:
				args = " -x"
			}
			fmt.Fprintf(&b, "complete -c %s -o %s%s -d '%s'\n", c, zshQuote(o.Name[1:]), args, fishEscape(o.Help))
		}
		if c&ofJobs != 0 {
			fmt.Fprintf(&b, "complete -c %s -a '(__paddock_jobs)'\n", c)
		}
	}
	return b.String()
}

func fishEscape(s string) string { return strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) }
