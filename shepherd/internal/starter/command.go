package starter

import "strings"

// Request is what a job directory says about the program to run.
type Request struct {
	Script     string   // script_file
	Args       []string // job_arg1 ...
	Shell      string   // shell_path
	Starter    string   // starter_method, "" for none
	Mode       string   // shell_start_mode
	Binary     bool     // handle_as_binary
	NoShell    bool     // no_shell
	LoginShell bool     // use_login_shell
	Login      bool     // a login shell is all
}

// The values of shell_start_mode. Any other is taken for unix_behavior.
const (
	modePosix = "posix_compliant"
	modeStdin = "script_from_stdin"
)

// Command is a program with its arguments, and what must be looked at before
// it is run, since only then can the error name what the user has asked for.
type Command struct {
	File string
	Argv []string

	Interpreter bool   // File is a shell or starter method, and must exist
	Script      string // what must exist and be executable, "" for nothing
}

// Command returns what to run, by Grid Engine's table: the first row that fits.
func (r Request) Command() Command {
	shell := r.Shell
	if r.Starter != "" {
		shell = r.Starter
	}
	argv0 := shell[strings.LastIndexByte(shell, '/')+1:]
	if r.LoginShell {
		argv0 = "-" + argv0
	}
	switch {
	case r.Login:
		return Command{File: r.Shell, Argv: []string{"-" + r.Shell[strings.LastIndexByte(r.Shell, '/')+1:]}, Interpreter: true}
	case r.Binary && !r.NoShell && r.Starter == "":
		return Command{File: shell, Argv: []string{argv0, "-c", joined(r.Script, r.Args)}, Interpreter: true}
	case r.Mode == modeStdin:
		return Command{File: shell, Argv: append([]string{argv0, "-s"}, r.Args...), Interpreter: true}
	}
	cmd := Command{File: r.Script, Argv: append([]string{r.Script}, r.Args...)}
	if !r.Binary {
		// To be read it would not have to be executable; Grid Engine wants it so.
		cmd.Script = r.Script
	}
	if r.Mode == modePosix && !r.Binary || r.Starter != "" {
		cmd.File, cmd.Interpreter = shell, true
		cmd.Argv = append([]string{argv0}, cmd.Argv...)
	}
	return cmd
}

// textCommand returns what runs a text as the shell's, as methods and what
// restarts a job from a checkpoint are: the name of the shell is the text, too.
func textCommand(text string) Command {
	return Command{File: "/bin/sh", Argv: []string{text, "-c", text}}
}

// joined makes the one word that a shell gets with -c: command and arguments
// with a blank behind each and no quoting, so that `-b y 'a; b'` means what it
// does in Grid Engine. Only an empty argument is written so that it stays one.
func joined(cmd string, args []string) string {
	var b strings.Builder
	b.WriteString(cmd)
	b.WriteByte(' ')
	for _, a := range args {
		if a == "" {
			a = `""`
		}
		b.WriteString(a)
		b.WriteByte(' ')
	}
	return b.String()
}

// String returns the command as it stands in a trace.
func (c Command) String() string { return string(c.appendTo(nil)) }

// appendTo appends what String returns.
func (c Command) appendTo(b []byte) []byte {
	b = append(append(append(b, "execvlp("...), c.File...), ',')
	for _, a := range c.Argv {
		b = append(append(append(b, ` "`...), a...), '"')
	}
	return append(b, ')')
}

// candidates returns the paths to try for a program, in order: a name without
// slash is searched in the job's own PATH.
func candidates(file string, env environment) []string {
	if strings.Contains(file, "/") || file == "" {
		return []string{file}
	}
	path, ok := env.lookup("PATH")
	if !ok {
		path = "/usr/local/bin:/bin:/usr/bin"
	}
	var out []string
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		out = append(out, dir+"/"+file)
	}
	return out
}
