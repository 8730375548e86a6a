package admit

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// Warnings are what the user of an accepted job is told at once, and would otherwise
// learn from what the job did.
func (a *Rules) Warnings(config *conf.Config, req *api.SubmitRequest) []string {
	var lines []string
	if w := a.warnOfShell(config, req); w != "" {
		lines = append(lines, w)
	}
	if req.Mail != "" && config.Global.MailProgram() == "" {
		lines = append(lines, fmt.Sprintf("-m %s sends no mail: this host has no mailer (see sge_conf(5)); qwait waits for a job, too", req.Mail))
	}
	if len(req.Attributes) > 0 && a.HookTable != nil {
		own, _ := ownExtras(req) // it was checked
		if _, note := a.HookTable().JobKeyword(own.HookKeyword); note != "" {
			lines = append(lines, note+" (see hooks.conf(5))")
		}
	}
	return lines
}

// warnOfShell warns that another program than the first line of a script, or -S, names
// would run the script in one of the queues that the job may run in.
func (a *Rules) warnOfShell(config *conf.Config, req *api.SubmitRequest) string {
	// Which of several paths is used, and what a variable contains, is known only when
	// the job is started.
	if req.Binary || strings.ContainsAny(req.Shell, ",:$~") {
		return ""
	}
	program := Interpreter(req.Script)
	if program == "" {
		return ""
	}
	for i := range config.Queues {
		q := &config.Queues[i]
		shell := cmp.Or(req.Shell, q.Shell)
		if q.StarterMethod != "" || sameProgram(program, shell) || !a.Queue.Suits(req, []string{q.Name}) {
			continue // a starter method may look at the first line, and at -S
		}
		mode := fmt.Sprintf("shell_start_mode of queue %s is %s", q.Name, q.ShellStartMode)
		switch own := q.ShellStartMode == conf.UnixBehavior; {
		case !own:
			return fmt.Sprintf("first line names %s, which will not run it: %s; %s will (-S, or unix_behavior)", program, mode, shell)
		case strings.HasSuffix(program, "\r"):
			return fmt.Sprintf("first line ends in a carriage return, which is taken for a part of the name %q", program)
		case req.Shell != "":
			return fmt.Sprintf("-S %s will not run it: %s; %s, which its first line names, will", shell, mode, program)
		}
	}
	return ""
}

// Interpreter returns the program that the first line of a script names after #!, or
// that env is to find; "": it names none.
func Interpreter(script []byte) string {
	rest, ok := strings.CutPrefix(firstLine(script), "#!")
	if !ok {
		return ""
	}
	words := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) > 1 && path.Base(words[0]) == "env" {
		for _, w := range words[1:] {
			if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
				return w
			}
		}
	}
	return strings.Join(words[:min(1, len(words))], "")
}

// firstLine returns the first line of a script, as far as the kernel reads it.
func firstLine(script []byte) string {
	line, _, _ := strings.Cut(string(script[:min(len(script), 256)]), "\n")
	return line
}

// sameProgram reports whether two paths are surely one program. Of a program that env
// would find only the name is known, and /bin may be /usr/bin.
func sameProgram(a, b string) bool {
	everywhere := []string{"/bin", "/usr/bin", "."}
	return a == b || path.Base(a) == path.Base(b) &&
		slices.Contains(everywhere, path.Dir(a)) && slices.Contains(everywhere, path.Dir(b))
}
