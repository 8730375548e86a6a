package server

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// warnings are what the user of an accepted job is to know at once, and would
// else learn from what the job did.
func (s *Server) warnings(config *conf.Config, req *api.SubmitRequest) []string {
	var lines []string
	if w := s.warnOfShell(config, req); w != "" {
		lines = append(lines, w)
	}
	if req.Mail != "" && config.Global.MailProgram() == "" {
		lines = append(lines, fmt.Sprintf("-m %s sends no mail: this host has no mailer (see sge_conf(5)); qwait waits for a job, too", req.Mail))
	}
	if len(req.Attributes) > 0 && s.Stages.HookTable != nil {
		own, _ := ownExtras(req) // it is checked
		if _, note := s.Stages.HookTable().JobKeyword(own.HookKeyword); note != "" {
			lines = append(lines, note+" (see hooks.conf(5))")
		}
	}
	return lines
}

// warnOfShell tells that something else runs a script than its first line, or -S,
// names, in one of the queues that the job may run in.
func (s *Server) warnOfShell(config *conf.Config, req *api.SubmitRequest) string {
	// Which of several paths is meant, and what is in a variable, is known when the
	// job is started.
	if req.Binary || strings.ContainsAny(req.Shell, ",:$~") {
		return ""
	}
	program := interpreter(req.Script)
	if program == "" {
		return ""
	}
	for i := range config.Queues {
		q := &config.Queues[i]
		shell := cmp.Or(req.Shell, q.Shell)
		if q.StarterMethod != "" || sameProgram(program, shell) || !s.Queue.Suits(req, []string{q.Name}) {
			continue // a method of the site's may look at the first line, and at -S
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

// interpreter returns the program that the first line of a script names after
// #!, behind env the one that env is to find; "": it names none.
func interpreter(script []byte) string {
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

// sameProgram reports whether two paths are surely one program. What env would
// find is known by its name alone, and where programs lie in /bin this is /usr/bin.
func sameProgram(a, b string) bool {
	everywhere := []string{"/bin", "/usr/bin", "."}
	return a == b || path.Base(a) == path.Base(b) &&
		slices.Contains(everywhere, path.Dir(a)) && slices.Contains(everywhere, path.Dir(b))
}
