package submit

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qrsh/client"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/directive"
	"paddock/qsub/internal/option"
)

// job is a job as the options describe it.
type job struct {
	req       api.SubmitRequest
	prefix    string // of options in the script
	ad        bool   // -ad: print the ad only
	sync      bool
	terse     bool
	soft      bool            // -soft: -l and -q are soft requests from here on
	verify    bool            // -verify: print the job only
	exportAll bool            // -V
	export    []variable      // -v, in order
	exported  map[string]bool // the names in export
	hasName   bool            // -N was given, be it ''
	hasBinary bool            // -b was given
	hasNow    bool            // -now was given

	// Of an interactive job.
	pty           string // -pty: y or n; empty: a login shell has a terminal, a command has none
	noStdin       bool   // -nostdin
	verbose       bool   // -verbose
	suspendRemote bool   // -suspend_remote
	display       string // -display; empty: DISPLAY says
	reconnect     int    // -reconnect: the number of the job; 0: a new one
	escape        byte   // -escape
	listen        string // -listen: the address for the job's side; empty: the loopback's
	lost          string // -lost: end, stop or keep; empty: as the host has it
	inherit       bool   // -inherit
	into          string // -into: the job
}

// variable is an item of -v.
type variable struct {
	name, value string
	caller      bool // without a value: the one that the caller has
}

// newJob applies settings; later ones win.
func newJob(sources ...[]option.Setting) (*job, error) {
	j := &job{prefix: directive.DefaultPrefix, escape: client.DefaultEscape}
	for _, settings := range sources {
		j.soft = false
		for i := range settings {
			o := &settings[i]
			if err := apply[o.Name](j, o); err != nil {
				return nil, err
			}
		}
	}
	return j, nil
}

// apply has the effect of each option of qsub. Options that are not here have
// their effect when they are parsed.
var apply = map[string]func(*job, *option.Setting) error{
	"-a": func(j *job, o *option.Setting) (err error) {
		if j.req.After, err = argument.Date(o.Value(), time.Now()); err != nil {
			e := o.Errorf(option.ExitValue, "Wrong date/time format \"%s\" specified to -a option", o.Value())
			e.Before = err.Error()
			return e
		}
		return nil
	},
	"-P":  func(j *job, o *option.Setting) error { j.req.Project = o.Value(); return nil },
	"-ad": func(j *job, _ *option.Setting) error { j.ad = true; return nil },
	"-A":  func(j *job, o *option.Setting) error { j.req.Account = o.Value(); return nil },
	"-b": func(j *job, o *option.Setting) error {
		j.req.Binary, j.hasBinary = o.Yes(), true
		return nil
	},
	"-binding": func(j *job, o *option.Setting) error {
		if wrong := checkBinding(o.Values); wrong != "" {
			return o.Errorf(option.ExitUsage, "-binding option contains errors: %s", wrong)
		}
		j.req.Binding = strings.Join(o.Values, " ")
		return nil
	},
	"-c": func(j *job, o *option.Setting) (err error) {
		j.req.CheckpointWhen, err = parseCheckpoint(o)
		return err
	},
	"-ckpt": func(j *job, o *option.Setting) error { j.req.Checkpoint = o.Value(); return nil },
	"-clear": func(j *job, _ *option.Setting) error {
		*j = job{prefix: directive.DefaultPrefix}
		return nil
	},
	"-cwd": func(j *job, o *option.Setting) error {
		dir, err := os.Getwd()
		if err != nil {
			return o.Errorf(option.ExitValue, "cannot get current directory for -cwd: %s", command.ErrorText(err))
		}
		j.req.Cwd = dir
		return nil
	},
	"-C":           func(j *job, o *option.Setting) error { j.prefix = o.Value(); return nil },
	"-display":     func(j *job, o *option.Setting) error { j.display = o.Value(); return nil },
	"-escape":      parseEscape,
	"-e":           func(j *job, o *option.Setting) error { return setPath(&j.req.Stderr, o, "path") },
	"-h":           func(j *job, _ *option.Setting) error { j.req.Hold = "u"; return nil },
	"-hard":        func(j *job, _ *option.Setting) error { j.soft = false; return nil },
	"-hold_jid":    func(j *job, o *option.Setting) error { return argument.AddList(&j.req.HoldJobs, o, "jid_hold") },
	"-hold_jid_ad": func(j *job, o *option.Setting) error { return argument.AddList(&j.req.HoldArray, o, "jid_hold_ad") },
	"-hold_jid_ok": func(j *job, o *option.Setting) error { return argument.AddList(&j.req.HoldOK, o, "jid_hold_ok") },
	"-hold_jid_ad_ok": func(j *job, o *option.Setting) error {
		return argument.AddList(&j.req.HoldArrayOK, o, "jid_hold_ad_ok")
	},
	"-i":       func(j *job, o *option.Setting) error { return setPath(&j.req.Stdin, o, "path") },
	"-inherit": func(j *job, _ *option.Setting) error { j.inherit = true; return nil },
	"-into":    parseInto,
	"-j":       func(j *job, o *option.Setting) error { j.req.Merge = o.Yes(); return nil },
	"-l":       (*job).addResources,
	"-m": func(j *job, o *option.Setting) error {
		found, ok := argument.Letters(o.Value(), "abesn")
		if !ok {
			return o.Errorf(option.ExitValue, "Wrong mail options list format \"%s\" specified to -m option", o.Value())
		}
		j.req.Mail, _ = argument.Letters(j.req.Mail+found, "abes")
		if strings.Contains(found, "n") {
			j.req.Mail = ""
		}
		return nil
	},
	"-listen":  parseListen,
	"-lost":    parseLost,
	"-M":       func(j *job, o *option.Setting) error { return argument.AddList(&j.req.MailTo, o, "mail") },
	"-masterq": func(j *job, o *option.Setting) error { return argument.AddList(&j.req.MasterQueues, o, "queue") },
	"-N": func(j *job, o *option.Setting) error {
		if strings.Contains(o.Value(), "/") {
			return o.Errorf(option.ExitUsage, "argument to -N option must not contain / ")
		}
		j.req.Name, j.hasName = o.Value(), true
		return nil
	},
	"-notify":  func(j *job, _ *option.Setting) error { j.req.Notify = true; return nil },
	"-noshell": func(j *job, _ *option.Setting) error { j.req.NoShell = true; return nil },
	"-nostdin": func(j *job, _ *option.Setting) error { j.noStdin = true; return nil },
	"-now": func(j *job, o *option.Setting) error {
		j.req.Now, j.hasNow = o.Yes(), true
		return nil
	},
	"-o": func(j *job, o *option.Setting) error { return setPath(&j.req.Stdout, o, "stdout path") },
	"-p": func(j *job, o *option.Setting) error {
		n, err := strconv.Atoi(o.Value())
		if err != nil || n < api.MinPriority || n > api.MaxPriority {
			return o.Errorf(option.ExitValue, "invalid priority \"%s\".  Must be an integer from %d to %d", o.Value(), api.MinPriority, api.MaxPriority)
		}
		j.req.Priority = n
		return nil
	},
	"-pe": func(j *job, o *option.Setting) (err error) {
		j.req.PE = o.Value()
		j.req.Slots, err = parseSlots(o)
		return err
	},
	"-pty": func(j *job, o *option.Setting) error {
		if j.pty = "n"; o.Yes() {
			j.pty = "y"
		}
		return nil
	},
	"-q": func(j *job, o *option.Setting) error {
		if j.soft {
			return argument.AddList(&j.req.SoftQueues, o, "queue")
		}
		return argument.AddList(&j.req.Queues, o, "queue")
	},
	"-reconnect": parseReconnect,
	"-R":         func(j *job, o *option.Setting) error { j.req.Reserve = o.Yes(); return nil },
	"-r": func(j *job, o *option.Setting) error {
		j.req.Rerun = api.RerunNo
		if o.Yes() {
			j.req.Rerun = api.RerunYes
		}
		return nil
	},
	"-sandbox": func(j *job, o *option.Setting) error {
		if j.req.Sandbox = api.SandboxNo; o.Yes() {
			j.req.Sandbox = api.SandboxYes
		}
		return nil
	},
	"-stagein":     (*job).addStaged,
	"-stageout":    (*job).addStaged,
	"-stageout_to": (*job).setStageOutTo,
	"-when_out": func(j *job, o *option.Setting) error {
		j.needSandbox()
		switch j.req.WhenOut = api.WhenOut(o.Value()); j.req.WhenOut {
		case api.OutExit, api.OutSuccess, api.OutEvict, api.OutAlways:
			return nil
		}
		return o.Errorf(option.ExitValue, "invalid option argument \"-when_out %s\", want exit, success, evict or always", o.Value())
	},
	"-S":              func(j *job, o *option.Setting) error { return setPath(&j.req.Shell, o, "shell") },
	"-shell":          func(j *job, o *option.Setting) error { j.req.NoShell = !o.Yes(); return nil },
	"-soft":           func(j *job, _ *option.Setting) error { j.soft = true; return nil },
	"-sync":           func(j *job, o *option.Setting) error { j.sync = o.Yes(); return nil },
	"-suspend_remote": func(j *job, o *option.Setting) error { j.suspendRemote = o.Yes(); return nil },
	"-t": func(j *job, o *option.Setting) (err error) {
		j.req.Tasks, j.req.Only, err = parseTasks(o)
		return err
	},
	"-tc": func(j *job, o *option.Setting) error {
		n, err := strconv.Atoi(o.Value())
		if err != nil || n < 0 {
			return o.Errorf(option.ExitValue, "invalid task concurrency number \"%s\". Must be an integer greater or equal to 0.", o.Value())
		}
		j.req.MaxRun = n
		return nil
	},
	"-terse":   func(j *job, _ *option.Setting) error { j.terse = true; return nil },
	"-v":       (*job).addVariables,
	"-V":       func(j *job, _ *option.Setting) error { j.exportAll = true; return nil },
	"-verbose": func(j *job, _ *option.Setting) error { j.verbose = true; return nil },
	"-verify":  func(j *job, _ *option.Setting) error { j.verify = true; return nil },
	"-w": func(j *job, o *option.Setting) error {
		if len(o.Value()) != 1 || !strings.Contains("ewnvp", o.Value()) {
			return o.Errorf(option.ExitValue, "invalid option argument \"-w %s\"", o.Value())
		}
		j.req.Verify = o.Value()
		return nil
	},
	"-wd": func(j *job, o *option.Setting) error {
		dir := o.Value()
		if dir == "" {
			return o.Errorf(option.ExitValue, "Wrong directory \"\" specified to -wd option")
		}
		// ~ and $HOME are those of the job's owner; execd expands them.
		if !filepath.IsAbs(dir) && dir[0] != '~' && dir[0] != '$' {
			here, err := os.Getwd()
			if err != nil {
				return o.Errorf(option.ExitValue, "cannot get current directory for -wd %s: %s", dir, command.ErrorText(err))
			}
			dir = filepath.Join(here, dir)
		}
		j.req.Cwd = dir
		return nil
	},
	"-attr": func(j *job, o *option.Setting) error {
		name, _, ok := api.CutAttribute(o.Value())
		if !ok || name == "" || o.Value() != api.Visible(o.Value()) {
			return o.Errorf(option.ExitValue, "Wrong attribute \"%s\" specified to -attr option, want name=expression", o.Value())
		}
		j.req.Attributes = api.WithAttributes(j.req.Attributes, o.Value())
		return nil
	},
	"-ac": (*job).changeContext,
	"-dc": (*job).changeContext,
	"-sc": (*job).changeContext,
}

// setPath keeps a list of paths as it is: execd takes the one for its host and
// expands it.
func setPath(to *string, o *option.Setting, what string) error {
	if o.Value() == "" {
		return o.Errorf(option.ExitValue, "Wrong %s list format \"\" specified to %s option", what, o.Name)
	}
	*to = o.Value()
	return nil
}

// addVariables reads variable[=value],... A comma within single or double
// quotes belongs to the value, and so do these quotes: the shell has removed
// those of the command line.
func (j *job) addVariables(o *option.Setting) error {
	bad := func() error {
		return o.Errorf(option.ExitValue, "Wrong variable list format -v \"%s\" or environment variable not set", o.Value())
	}
	list := o.Value()
	if list == "" {
		return bad()
	}
	for list != "" {
		var item string
		item, list = cutItem(list)
		if item == "" {
			continue
		}
		name, value, has := strings.Cut(item, "=")
		if name == "" {
			return bad()
		}
		v := variable{name: name, value: value, caller: !has}
		if j.exported[name] {
			for i := range j.export {
				if j.export[i].name == name {
					j.export[i] = v
				}
			}
			continue
		}
		if j.exported == nil {
			j.exported = make(map[string]bool)
		}
		j.exported[name] = true
		j.export = append(j.export, v)
	}
	return nil
}

// cutItem cuts a list at its first comma that is not in quotes.
func cutItem(list string) (item, rest string) {
	var quote byte
	for i := range len(list) {
		switch c := list[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == ',':
			return list[:i], list[i+1:]
		}
	}
	return list, ""
}

// parseTasks reads the tasks of an array: one range, or several with commas
// between them. For several, all is the smallest range that contains them, and
// only lists them.
func parseTasks(o *option.Setting) (all api.Tasks, only string, err error) {
	words := strings.Split(o.Value(), ",")
	if len(words) == 1 {
		all, err = argument.TaskRange(o, o.Value())
		return all, "", err
	}
	list := make([]string, len(words))
	for i, word := range words {
		t, err := argument.TaskRange(o, word)
		if err != nil {
			return api.Tasks{}, "", err
		}
		list[i] = t.String()
		t.Last -= (t.Last - t.First) % t.Step
		if i == 0 {
			all = api.Tasks{First: t.First, Last: t.Last}
		}
		// The step of the whole divides all distances.
		all.Step = divisor(all.Step, t.First-all.First)
		if t.Last > t.First {
			all.Step = divisor(all.Step, t.Step)
		}
		all.First, all.Last = min(all.First, t.First), max(all.Last, t.Last)
	}
	all.Step = max(all.Step, 1)
	return all, strings.Join(list, ","), nil
}

// divisor returns the greatest common divisor of two numbers, whatever their signs.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}

// compose completes the request with the parts that are not options: the
// command, its arguments and the environment.
func (j *job) compose(name string, script []byte, operands []string) error {
	r := &j.req
	r.Command = name
	if r.Binary {
		if len(operands) == 0 {
			return &option.Error{Exit: option.ExitUsage, Text: "command required for a binary job"}
		}
		r.Command = operands[0]
	} else {
		r.Script = script
	}
	if len(operands) > 1 {
		r.Args = operands[1:]
	}
	if !j.hasName {
		// For -b y "command arguments" it is the name of the command.
		base := r.Command
		if words := strings.Fields(base); r.Binary && len(words) > 0 {
			base = words[0]
		}
		r.Name = base[strings.LastIndexByte(base, '/')+1:]
	}
	if err := api.CheckName(r.Name); err != nil {
		if e, ok := errors.AsType[*api.Error](err); ok {
			if !j.hasName && r.Name != "" && strings.ContainsAny(r.Name[:1], "0123456789.") {
				e.Text += "\nIt is called as its command; give it another name: -N job-" + strings.TrimLeft(r.Name, ".")
			}
			return command.Rejected(option.ExitFailed, e.Text)
		}
		return err
	}
	r.Env = j.environment(os.Environ())
	r.Origin = origin()
	return nil
}

// environment returns the variables that -V and -v export. A variable of -v
// wins over one of -V.
func (j *job) environment(caller []string) []string {
	has := make(map[string]string, len(caller))
	var list []string
	for _, v := range caller {
		name, value, ok := strings.Cut(v, "=")
		if _, twice := has[name]; !ok || name == "" || twice {
			continue // the first one counts, as for getenv(3)
		}
		has[name] = value
		if j.exportAll && !j.exported[name] {
			list = append(list, v)
		}
	}
	for _, v := range j.export {
		value := v.value
		if v.caller {
			value = has[v.name]
		}
		list = append(list, v.name+"="+value)
	}
	return list
}

// origin returns the variables that tell the job where it was submitted. TERM
// is there and empty, as Grid Engine has it: a batch job has no terminal. Only
// -v or -V give it one.
func origin() []string {
	list := []string{"TERM="}
	add := func(name, value string) {
		if value != "" {
			list = append(list, "SGE_O_"+name+"="+value)
		}
	}
	for _, name := range []string{"HOME", "LOGNAME", "PATH", "SHELL", "MAIL"} {
		add(name, os.Getenv(name))
	}
	// Where the host name or the directory is not known, the variable is left out.
	host, _ := os.Hostname()
	add("HOST", host)
	dir, _ := os.Getwd()
	add("WORKDIR", dir)
	add("TZ", os.Getenv("TZ"))
	return list
}

// checkpointLetters are the letters of -c, in Grid Engine's order.
const checkpointLetters = "msxnr"

// parseCheckpoint reads letters, or an interval in seconds or h:m:s.
func parseCheckpoint(o *option.Setting) (string, error) {
	text := o.Value()
	if text == "" || strings.Trim(text, "0123456789:") == "" {
		if _, ok := argument.Seconds(text); !ok {
			return "", o.Errorf(option.ExitUsage, "-c argument invalid")
		}
		return text, nil
	}
	found, ok := argument.Letters(text, checkpointLetters)
	if !ok {
		return "", o.Errorf(option.ExitUsage, "-c specifier invalid")
	}
	return found, nil
}
