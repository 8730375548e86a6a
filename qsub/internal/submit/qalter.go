package submit

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/show"
)

// exitTask is the exit status of qalter and qresub when they are given single
// tasks, and of qresub when a job cannot be copied.
const exitTask = 4

// fieldOf are the options whose field has another name. The method field tells
// apart -l and -q behind -soft.
var fieldOf = map[string]api.Field{"-wd": api.FieldCwd, "-V": api.FieldEnv}

// alteration is what a command line of qalter or qresub asks for.
type alteration struct {
	settings []option.Setting // options that make the new request
	request  api.AlterRequest
	tasks    bool     // the words name single tasks
	args     []string // the words behind --
	verify   bool     // -verify: show only
	json     bool
	failed   bool   // -failed of qresub
	only     string // -t of qresub
}

// qalter changes jobs that are not finished.
func qalter(ctx context.Context, inv *command.Invocation, args []string) error {
	a, err := parseAlteration(inv, args)
	if err != nil {
		return err
	}
	r := &a.request
	if len(r.Jobs) == 0 && len(r.Users) == 0 {
		return inv.NoArguments()
	}
	j, err := newJob(a.settings)
	if err != nil {
		return unwrapped(err)
	}
	r.To = j.req
	r.To.Args, r.To.Context = a.args, nil
	if slices.Contains(r.Fields, api.FieldEnv) {
		r.To.Env = j.environment(os.Environ())
	}
	if a.tasks && (len(r.Fields)+len(r.Context) > 0 || r.To.Verify != "") {
		return tasksRefused()
	}
	var reply api.AlterReply
	r.Dry = a.verify
	err = inv.Client.Call(ctx, api.VerbAlter, r, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeInternal {
		// Nothing was altered, for a reason that concerns no single job.
		reply.Lines, err = []api.Line{{Text: e.Text, Failed: true, Code: e.Code}}, nil
	}
	if err != nil {
		return inv.CallFailed(err)
	}
	refused := func(l api.Line) bool { return l.Code != api.CodeNotFound }
	if a.verify && !slices.ContainsFunc(reply.Lines, refused) {
		if err := showAltered(ctx, inv, r); err != nil {
			return err
		}
	}
	return printLines(inv, reply.Lines, a.json && !a.verify, func(api.Code) int { return option.ExitFailed })
}

// printLines prints the lines of a reply, for people or as JSON.
func printLines(inv *command.Invocation, lines []api.Line, asJSON bool, exit func(api.Code) int) error {
	if !asJSON {
		return inv.Report(lines, exit)
	}
	if err := inv.PrintJSON(&api.AlterReply{Lines: lines}); err != nil {
		return err
	}
	if i := slices.IndexFunc(lines, func(l api.Line) bool { return l.Failed }); i >= 0 {
		return &command.Failure{Exit: exit(lines[i].Code)}
	}
	return nil
}

// parseAlteration reads a command line.
func parseAlteration(inv *command.Invocation, args []string) (*alteration, error) {
	settings, operands, err := option.MixedArgs(inv.Command, args, include)
	if err != nil {
		return nil, err
	}
	if err := inv.Answer(settings); err != nil {
		return nil, err
	}
	a := &alteration{}
	r := &a.request
	if operands != nil && inv.Command == option.Qalter {
		if len(operands) == 0 {
			return nil, &option.Error{Exit: option.ExitUsage, Text: "-- option must be followed by job arguments"}
		}
		r.Fields = append(r.Fields, api.FieldArgs)
		a.args = operands
	}
	var jobs argument.Jobs
	soft := false
	for i := range settings {
		o := &settings[i]
		if o.Option != nil && o.Name == "-t" && inv.Command == option.Qresub {
			if _, _, err := parseTasks(o); err != nil {
				return nil, err
			}
			a.only = o.Value()
			continue
		}
		if taken, err := jobs.Take(o, option.ExitUsage, ""); taken || err != nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		switch o.Name {
		case "-h":
			if strings.Trim(o.Value(), api.HoldLetters) != "" || inv.Command == option.Qresub && len(o.Value()) > 1 && strings.Contains(o.Value(), "n") {
				return nil, o.Errorf(option.ExitValue, "Unknown hold list \"%s\" specified to -h option", o.Value())
			}
			r.Hold += o.Value()
		case "-failed":
			a.failed = true
		case "-json":
			a.json = true
		case "-verify":
			a.verify = true
		default:
			a.settings = append(a.settings, *o)
			a.field(o, &soft)
		}
	}
	r.Jobs, r.Users = jobs.Words, jobs.Users
	a.tasks = slices.ContainsFunc(r.Jobs, func(w string) bool {
		_, tasks, ok := strings.Cut(w, ".")
		return ok && argument.IsRange(tasks)
	})
	return a, nil
}

// field notes which part of a request an option changes.
func (a *alteration) field(o *option.Setting, soft *bool) {
	field, ok := fieldOf[o.Name]
	if !ok {
		field = api.Field(o.Name)
	}
	switch o.Name {
	case "-hard", "-soft":
		*soft = o.Name == "-soft"
		return
	case "-w":
		return
	case "-ac", "-dc", "-sc":
		variables, _ := contextWords(o) // newJob reports the error
		a.request.Context = append(a.request.Context, api.ContextChange{Option: o.Name, Variables: variables})
		return
	case "-l", "-q":
		if *soft {
			field = api.Field("-soft " + o.Name)
		}
	}
	if !slices.Contains(a.request.Fields, field) {
		a.request.Fields = append(a.request.Fields, field)
	}
}

// tasksRefused returns the error for options that cannot be applied to single tasks.
func tasksRefused() error {
	return command.FailWith(exitTask, "denied: the selected option works only on jobs and not on tasks")
}

// unwrapped returns an error without the words that Rejected puts around it,
// which are about a submission.
func unwrapped(err error) error {
	if f, ok := errors.AsType[*command.Failure](err); ok {
		text := strings.TrimPrefix(f.Text, "Unable to run job: ")
		return command.FailWith(f.Exit, "%s", strings.TrimSuffix(text, "\nExiting."))
	}
	return err
}

// showAltered shows jobs as they would be after the alteration, for -verify. Those that do
// not exist are passed over.
func showAltered(ctx context.Context, inv *command.Invocation, r *api.AlterRequest) error {
	var reply api.DetailReply
	words := r.Jobs
	if len(words) == 0 {
		words = []string{"*"}
	}
	if err := inv.Client.Call(ctx, api.VerbDetail, &api.DetailRequest{Jobs: words}, &reply); err != nil {
		return inv.CallFailed(err)
	}
	for i := range reply.Jobs {
		d := &reply.Jobs[i]
		owned := func(pattern string) bool {
			ok, err := path.Match(pattern, d.Owner)
			return err == nil && ok
		}
		if len(r.Users) > 0 && !slices.ContainsFunc(r.Users, owned) {
			continue
		}
		r.Apply(&d.Request)
		show.Job(inv.Out, d, true)
	}
	return nil
}

// contextWords reads the variables of -ac, -dc and -sc.
func contextWords(o *option.Setting) ([]string, error) {
	var words []string
	for rest := o.Value(); rest != ""; {
		var item string
		item, rest = cutItem(rest)
		if item == "" {
			continue
		}
		// JSON would change bytes that are not valid text.
		if item[0] == '=' || item != api.Visible(item) {
			words = nil
			break
		}
		words = append(words, item)
	}
	if len(words) == 0 {
		return nil, o.Errorf(option.ExitValue, "Wrong context list format %s \"%s\"", o.Name, o.Value())
	}
	return words, nil
}

// changeContext applies -ac, -dc and -sc.
func (j *job) changeContext(o *option.Setting) error {
	words, err := contextWords(o)
	j.req.Context = api.ChangeContext(j.req.Context, api.ContextChange{Option: o.Name, Variables: words})
	return err
}

// qresub submits copies of jobs, whether they are finished or not.
func qresub(ctx context.Context, inv *command.Invocation, args []string) error {
	a, err := parseAlteration(inv, args)
	if err != nil {
		return err
	}
	if len(a.request.Jobs) == 0 {
		return inv.NoArguments()
	}
	if a.tasks {
		return tasksRefused()
	}
	if a.failed && a.only != "" {
		return command.FailWith(option.ExitUsage, "-failed and -t exclude each other")
	}
	var reply api.ResubmitReply
	err = inv.Client.Call(ctx, api.VerbResubmit, &api.ResubmitRequest{Jobs: a.request.Jobs, Failed: a.failed, Tasks: a.only, Hold: a.request.Hold}, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeInternal {
		reply.Failed, err = e, nil
	}
	if err != nil {
		return inv.CallFailed(err)
	}
	exit := exitTask
	if f := reply.Failed; f != nil && strings.HasSuffix(f.Text, " hold") {
		exit = option.ExitDenied
	}
	if a.json {
		if err := inv.PrintJSON(&reply); err != nil {
			return err
		}
		if reply.Failed != nil {
			return &command.Failure{Exit: exit}
		}
		return nil
	}
	var lines []api.Line
	for i := range reply.Submitted {
		r := &reply.Submitted[i].SubmitReply
		warn(inv, r.Warnings)
		for _, text := range r.Lines {
			lines = append(lines, api.Line{Text: text})
		}
		lines = append(lines, api.Line{Text: hasBeenSubmitted(r)})
	}
	for _, text := range reply.Skipped {
		lines = append(lines, api.Line{Text: text})
	}
	if reply.Failed != nil {
		lines = append(lines, api.Line{Text: reply.Failed.Text, Failed: true})
	}
	return inv.Report(lines, func(api.Code) int { return exit })
}
