package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// completers are the shells, each with what prints, for each of the lines $ASKED, "= "
// with the line and then the words that it has for its end. $PADDOCK is the directory
// of the completions.
var completers = []struct{ shell, file, text string }{
	{"bash", "ask.bash", `
. "$PADDOCK/paddock.bash"
. "$PADDOCK/paddock-pg.bash"
while IFS= read -r line; do
  echo "= $line"
  COMPREPLY=() COMP_WORDS=($line)
  [ "$line" = "${line% }" ] || COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  compopt() { :; }
  case $line in paddock-pg*) _paddock_pg ;; *) _paddock ;; esac
  printf '%s\n' "${COMPREPLY[@]}"
done <<<"$ASKED" >"$ANSWERS"
`},
	// It completes where somebody edits a line, and this file is read before the first.
	{"zsh", ".zshrc", `
fpath=($PADDOCK $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {
  local -a found
  if (( ! ${@[(I)-[ADO]*]} )); then
    builtin compadd -O found "$@"
    print -rl -- $found >>$ANSWERS
  fi
  builtin compadd "$@"
}
zle-line-init() {
  local line
  for line in "${(f)ASKED}"; do
    print -r -- "= $line" >>$ANSWERS
    BUFFER=$line CURSOR=$#line
    zle list-choices
  done
  exit
}
zle -N zle-line-init
`},
	{"fish", "ask.fish", `
source $PADDOCK/paddock.fish
source $PADDOCK/paddock-pg.fish
for line in (string split \n $ASKED)
  echo "= $line"
  complete -C $line | string replace -r '\t.*' ''
end >$ANSWERS
`},
}

// TestCompletion has shells complete command lines as they would at their end.
func TestCompletion(t *testing.T) {
	parallel(t)
	files, err := filepath.Abs("../../packaging/completions")
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t)
	pe := filepath.Join(d.dir, "smp")
	if err := os.WriteFile(pe, []byte("pe_name smp\nslots 4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.run("qconf", "-Ap", pe)
	d.run("qsub", "-h", "-b", "y", "true")
	d.run("qsub", "-h", "-b", "y", "true")
	want := map[string]string{
		"qsub -q ":        "all.q",
		"qmod -d a":       "all.q",
		"qmod -d x":       "",
		"qconf -sq ":      "all.q",
		"qacct -q ":       "all.q",
		"qacct -q -js":    "-json",
		"qsub -pe ":       "smp",
		"qconf -sp s":     "smp",
		"qstat -explain ": "a c A E",
		"qstat -s ":       "p r s z h a",
		"qsub -w ":        "e w n p v",
		"qsub -c ":        "n s m x r",
		"qdel ":           "1 2",
		"qstat -j ":       "1 2",
		"qalter ":         "1 2",
		"qsub -hold_jid ": "1 2",
		"qsub -sync ":     "y n",
		"execd -dr":       "-drain",
		"execd -speed ":   "graceful quick fast",

		"paddock-pg st":            "stat",
		"paddock-pg -d x pro":      "provision",
		"paddock-pg -v":            "-version",
		"paddock-pg prune -":       "-older",
		"paddock-pg prune -ol":     "-older",
		"paddock-pg prune -older ": "",
		"paddock-pg add -queue ":   "default prod",
		"paddock-pg queue ":        "default prod",
		"paddock-pg del ":          "7 8",
		"paddock-pg stat -u ":      "",
		"paddock-pg provision b":   "big",
		"paddock-pg REPORT_WORK ":  "",
		"paddock-pg serve -":       "",
	}
	// Without a database paddock-pg has no jobs and queues to show.
	if err := os.Mkdir(filepath.Join(d.dir, "pg"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := harness.WriteExecutable(filepath.Join(d.dir, "pg", "paddock-pg"), "#!/bin/sh\ncase $#$1 in\n"+
		"1stat) printf 'ID NAME\\n7 a\\n8 b\\n' ;;\n1queue) printf 'QUEUE READY\\ndefault 0\\nprod 1\\n' ;;\n*) exec "+bin+"/paddock-pg \"$@\" ;;\nesac\n"); err != nil {
		t.Fatal(err)
	}
	// The options of execd and of qweb are those that they know.
	for _, program := range []string{"execd", "qweb"} {
		var options []string
		for _, m := range regexp.MustCompile(`(?m)^   --?(\w+)`).FindAllStringSubmatch(d.run(program, "-help"), -1) {
			options = append(options, "-"+m[1])
		}
		slices.Sort(options)
		want[program+" -"] = strings.Join(options, " ")
	}
	var commands []string
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(d.run("paddock-pg", "-help"), -1) {
		commands = append(commands, m[1])
	}
	want["paddock-pg "] = strings.Join(commands, " ")
	lines := slices.Sorted(maps.Keys(want))
	for _, c := range completers {
		t.Run(c.shell, func(t *testing.T) {
			path, err := exec.LookPath(c.shell)
			if err != nil {
				t.Skip("needs " + c.shell)
			}
			dir := t.TempDir()
			ask, answers := filepath.Join(dir, c.file), filepath.Join(dir, "answers")
			if err := os.MkdirAll(filepath.Join(dir, ".config/paddock/pools/big"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(ask, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(path, ask)
			if c.shell == "zsh" {
				cmd = exec.Command(path, "-i")
			}
			cmd.Dir = dir
			cmd.Env = append(plainEnv(d.dir), "PATH="+filepath.Join(d.dir, "pg")+":"+bin+":/usr/bin:/bin", "HOME="+dir, "ZDOTDIR="+dir, "TERM=dumb",
				"PADDOCK="+files, "ANSWERS="+answers, "ASKED="+strings.Join(lines, "\n"))
			terminal, err := harness.StartOnTerminal(cmd, 80, 24)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := terminal.Wait(); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(answers)
			if err != nil {
				t.Fatalf("%v; it said %s", err, terminal.Text())
			}
			got := map[string][]string{}
			line := ""
			for word := range strings.Lines(string(text)) {
				if after, ok := strings.CutPrefix(strings.TrimSuffix(word, "\n"), "= "); ok {
					line = after
					got[line] = []string{}
				} else if word = strings.TrimSpace(word); word != "" {
					got[line] = append(got[line], word)
				}
			}
			for _, line := range lines {
				want, got := strings.Fields(want[line]), got[line]
				if c.shell != "bash" { // they have an order of their own, and zsh says some twice
					slices.Sort(want)
					slices.Sort(got)
					got = slices.Compact(got)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%q (-want +got):\n%s", line, diff)
				}
			}
		})
	}
}
