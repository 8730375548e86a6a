// Command shepherd is the parent of one job: it is given the job's directory,
// starts the job with its limits, rights and streams, passes signals on, and
// writes down how it ended. It outlives execd. Beside the standard library it links
// packages spool and internal and golang.org/x/sys alone, since every running job pays for
// what it links.
package main

import (
	"os"
	"strconv"

	"paddock/shepherd/internal/hook"
	"paddock/shepherd/internal/parent"
	_ "paddock/shepherd/internal/stack"
	"paddock/shepherd/internal/starter"
	"paddock/spool"
)

// version is set by the linker.
var version = "devel"

// Exit codes besides those of package parent.
const (
	exitLeft     = 1  // -remove: something is left; -tail: cannot read; -append, -write: cannot write; -exec, -run: cannot execute
	exitUsage    = 64 // called wrongly
	exitLater    = 75 // -append, -write: cannot write now; it may be otherwise in a moment
	exitNoRights = 77 // -as-user: cannot become that user
)

const help = `usage: shepherd [-bg] [-detail] [DIR]
       shepherd -standby
       shepherd -as-user UID GID GROUPS -append PATH
       shepherd -as-user UID GID GROUPS -exec PATH [ARG ...]
       shepherd -as-user UID GID GROUPS -hook
       shepherd -as-user UID GID GROUPS -remove PATH
       shepherd -as-user UID GID GROUPS -run PATH [ARG ...]
       shepherd -as-user UID GID GROUPS -tail BYTES PATH
       shepherd -as-user UID GID GROUPS -write PATH
Parent of one job: runs the job of the directory DIR (default: where it is
started) and writes down there how it ended.

  -append PATH             add standard input to the end of the regular file PATH
  -as-user UID GID GROUPS  become that user, with the groups GROUPS (numbers,
                           separated by commas), for what follows
  -bg                      accepted and ignored, as sge_execd gives it
  -detail                  trace every step
  -exec PATH [ARG ...]     turn into that program, with the environment as it is
  -help                    print this text
  -hook                    run one hook after another, and end all that each
                           of them leaves; for execd
  -remove PATH             remove everything in the directory PATH
  -run PATH [ARG ...]      the same as -exec, with the descriptors 3 to 8 as they
                           are and with low priority; for execd
  -standby                 wait for a job that execd assigns; for execd
  -tail BYTES PATH         print the last BYTES bytes of the regular file PATH
  -version                 print the version
  -write PATH              replace the file PATH by standard input
`

// init is where everything runs, and it does not return. All init functions run
// on the first thread and stay there, which the parent needs: it waits for SIGCHLD,
// and what it forks is to die with the thread. Locking the thread in main holds it
// as well, but costs a thread more in every shepherd.
func init() { os.Exit(run(os.Args)) }

func main() {}

func run(args []string) int {
	o := parent.Options{Dir: ".", Version: version, Argv: args}
	if len(args) > 0 {
		args = args[1:]
	}
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		switch arg := args[0]; arg {
		case "-help", "--help", "-h":
			say(os.Stdout, help)
			return 0
		case "-version", "--version":
			say(os.Stdout, "shepherd (Paddock) "+version+"\n")
			return 0
		case "-bg":
		case "-detail":
			o.Detail = true
		case spool.StandbyOption:
			o.Standby = true
			return parent.Run(o) // what follows is room for its name
		case "-as-user":
			return asUser(args[1:])
		case parent.RestartedOption:
			o.Restarted = true
		case parent.NoStockOption:
			if len(args) > 1 {
				args = args[1:]
				o.NoStock = args[0]
			}
		default:
			return usage("unknown option " + arg)
		}
		args = args[1:]
	}
	switch len(args) {
	case 0:
	case 1:
		o.Dir = args[0]
	default:
		return usage("more than one directory")
	}
	return parent.Run(o)
}

func say(f *os.File, text string) { _, _ = f.WriteString(text) }

func usage(text string) int {
	parent.Complain(text)
	say(os.Stderr, "Try 'shepherd -help'.\n")
	return exitUsage
}

// asUser does something as a user on behalf of execd.
func asUser(args []string) int {
	var do func() error
	switch {
	case len(args) == 4 && args[3] == "-hook":
		return asHook(args)
	case len(args) >= 5 && args[3] == "-exec":
		do = func() error { return starter.Exec(args[4:]) }
	case len(args) >= 5 && args[3] == "-run":
		do = func() error { return starter.Run(args[4:]) }
	case len(args) == 5 && args[3] == "-append":
		do = func() error { return starter.Append(0, args[4]) }
	case len(args) == 5 && args[3] == "-write":
		do = func() error { return starter.Replace(0, args[4]) }
	case len(args) == 5 && args[3] == "-remove":
		do = func() error { return starter.RemoveContents(args[4]) }
	case len(args) == 6 && args[3] == "-tail":
		n, err := strconv.Atoi(args[4])
		if err != nil {
			return usage("-tail wants a number of bytes, not " + strconv.Quote(args[4]))
		}
		do = func() error { return starter.Tail(1, args[5], n) }
	default:
		return usage("-as-user wants UID GID GROUPS and -hook, -append, -remove or -write PATH, -tail BYTES PATH, or -exec or -run PATH and arguments")
	}
	ids, err := starter.ParseIDs(args[0], args[1], args[2])
	if err != nil {
		return usage(err.Error())
	}
	if err := starter.Become(ids); err != nil {
		parent.Complain(err.Error())
		return exitNoRights
	}
	if err := do(); err != nil {
		parent.Complain(err.Error())
		if starter.Passing(err) {
			return exitLater
		}
		return exitLeft
	}
	return 0
}

// asHook runs hooks as a user on behalf of execd.
func asHook(args []string) int {
	ids, err := starter.ParseIDs(args[0], args[1], args[2])
	if err != nil {
		return usage(err.Error())
	}
	if !hook.Given() {
		return usage("-hook is for execd: descriptor 3 is no socket")
	}
	if err := starter.Become(ids); err != nil {
		hook.Fail(err.Error())
		return exitNoRights
	}
	return hook.Run()
}
