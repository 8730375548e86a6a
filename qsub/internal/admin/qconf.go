package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// shows are the options of qconf that print a part of the configuration.
var shows = map[string]api.ShowRequest{
	"-sc":             {Kind: "complex"},
	"-sce":            {Kind: api.KindAttribute},
	"-scel":           {Kind: api.KindAttribute, List: true},
	"-sckpt":          {Kind: "ckpt"},
	"-sckptl":         {Kind: "ckpt", List: true},
	"-sconf":          {Kind: "conf"},
	"-se":             {Kind: "host"},
	"-sel":            {Kind: "host", List: true},
	"-shgrp":          {Kind: "hostgroup"},
	"-shgrp_resolved": {Kind: "hostgroup", Resolved: true},
	"-shgrp_tree":     {Kind: "hostgroup", Tree: true},
	"-shgrpl":         {Kind: "hostgroup", List: true},
	"-sknobs":         {Kind: api.KindKnob},
	"-sm":             {Kind: "manager", List: true},
	"-so":             {Kind: "operator", List: true},
	"-sp":             {Kind: "pe"},
	"-spl":            {Kind: "pe", List: true},
	"-sprj":           {Kind: "project"},
	"-sprjl":          {Kind: "project", List: true},
	"-sq":             {Kind: "queue"},
	"-sql":            {Kind: "queue", List: true},
	"-ssconf":         {Kind: "sched"},
	"-su":             {Kind: "userlist"},
	"-sul":            {Kind: "userlist", List: true},
}

// none has the messages of Grid Engine for empty lists.
var none = map[string]string{
	"ckpt":      "no ckpt interface definition defined",
	"hostgroup": "no host group list defined",
	"manager":   "no manager defined",
	"operator":  "no operator defined",
	"pe":        "no parallel environment defined",
	"project":   "no project list defined",
	"userlist":  "no userset list defined",
}

// absent has the messages of Grid Engine for objects that this system never has.
var absent = map[string]struct {
	format string // with the name that was asked for, if there is one
	exit   int
}{
	"-dcal":     {"denied: calendar \"%s\" does not exist", option.ExitFailed},
	"-drqs":     {"denied: resource quota set \"%s\" does not exist", option.ExitFailed},
	"-dstree":   {"sharetree does not exist", option.ExitFailed},
	"-duser":    {"denied: user \"%s\" does not exist", option.ExitFailed},
	"-rsstnode": {"No sharetree", 0},
	"-scal":     {"%s is not a calendar", option.ExitFailed},
	"-scall":    {"no calendar defined", option.ExitFailed},
	"-sconfl":   {"no config defined", option.ExitFailed},
	"-srqs":     {"No resource quota set found", option.ExitFailed},
	"-srqsl":    {"no resource quota set list defined", option.ExitFailed},
	"-sst":      {"No sharetree", 0},
	"-sstnode":  {"No sharetree", 0},
	"-sstree":   {"no sharetree element", option.ExitFailed},
	"-suser":    {"%s is not known as a user", 0},
	"-suserl":   {"no user list defined", option.ExitFailed},
}

// conf is one call of qconf.
type conf struct {
	*command.Invocation
	json, dry bool
}

// step is one option of qconf with its words.
type step struct {
	*option.Option
	args  []string // arguments of the option
	words []string // further words behind them
}

// names returns all names behind the option; a word may be a list of them.
func (t *step) names() (names []string) {
	for _, word := range append(append([]string{}, t.args...), t.words...) {
		names = append(names, argument.List(word)...)
	}
	return names
}

// qconf shows the configuration that is in force, changes it, and has execd
// read it again.
func qconf(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	c := &conf{Invocation: inv}
	var steps []step
	changes := false
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil && (len(steps) == 0 || len(steps[len(steps)-1].Args) == 0):
			return inv.NoOperand(o)
		case o.Option == nil:
			last := &steps[len(steps)-1]
			last.words = append(last.words, o.Value())
		case o.Name == "-json":
			c.json = true
		case o.Name == "-dry":
			c.dry = true
		default:
			steps = append(steps, step{Option: o.Option, args: o.Values})
			_, change := changesOf()[o.Name]
			changes = changes || change
		}
	}
	switch {
	case len(steps) == 0:
		return inv.NoArguments()
	case c.dry && !changes:
		return &option.Error{Exit: option.ExitFailed, Text: "-dry goes with an option that changes something"}
	}
	for i := range steps {
		if err := c.do(ctx, &steps[i]); err != nil {
			return err
		}
	}
	return nil
}

// do does what one option asks for.
func (c *conf) do(ctx context.Context, t *step) error {
	if what, ok := changesOf()[t.Name]; ok {
		return c.change(ctx, t, what)
	}
	if what, ok := absent[t.Name]; ok {
		return c.absent(t, what.format, what.exit)
	}
	switch t.Name {
	case "-reload":
		return c.reload(ctx)
	case "-sobjl":
		return c.having(ctx, t)
	case "-sh", "-ss", "-sss", "-ah", "-as":
		return c.hosts(ctx, t)
	}
	what := shows[t.Name]
	names := t.names()
	if len(names) == 0 {
		what.Template = t.Name == "-sq"
		return c.show(ctx, &what)
	}
	return c.forEach(names, func(name string) error {
		what.Name = name
		return c.show(ctx, &what)
	})
}

// forEach calls do for each name. A failure for one name does not end it.
func (c *conf) forEach(names []string, do func(name string) error) error {
	var failed error
	for _, name := range names {
		if err := do(name); err != nil {
			f, ok := err.(*command.Failure) //nolint:errorlint // any other error ends the command
			if !ok || len(names) == 1 {
				return err
			}
			if f.Text != "" {
				fmt.Fprintln(c.Err, f.Text)
			}
			failed = failedWith(f.Exit)
		}
	}
	return failed
}

// absent prints that the objects do not exist.
func (c *conf) absent(t *step, format string, exit int) error {
	if !strings.Contains(format, "%") {
		fmt.Fprintln(c.Err, format)
		return failedWith(exit)
	}
	for _, name := range t.names() {
		fmt.Fprintf(c.Err, format+"\n", api.Visible(name))
	}
	return failedWith(exit)
}

// failedWith returns a failure without a message; nil for exit status 0.
func failedWith(exit int) error {
	if exit == 0 {
		return nil
	}
	return &command.Failure{Exit: exit}
}

// show prints a part of the configuration.
func (c *conf) show(ctx context.Context, what *api.ShowRequest) error {
	reply, err := c.ask(ctx, what)
	if err != nil {
		return err
	}
	switch text, ok := none[what.Kind]; {
	case c.json:
		err = c.PrintJSON(reply)
	case reply.Text == "" && what.List && ok:
		return command.Failf("%s", text)
	case os.Getenv("SGE_SINGLE_LINE") != "":
		_, err = c.Out.WriteString(unfolded(reply.Text))
	default:
		_, err = c.Out.WriteString(reply.Text)
	}
	if err != nil {
		return fmt.Errorf("cannot write standard output: %w", err)
	}
	return nil
}

// unfolded joins the lines of each value to one, as Grid Engine does where the
// environment has SGE_SINGLE_LINE.
func unfolded(text string) string {
	parts := strings.Split(text, " \\\n")
	for i := 1; i < len(parts); i++ {
		parts[i] = strings.TrimLeft(parts[i], " ")
		if !strings.HasSuffix(parts[i-1], ",") {
			parts[i] = " " + parts[i]
		}
	}
	return strings.Join(parts, "")
}

// ask asks for a part of the configuration.
func (c *conf) ask(ctx context.Context, what *api.ShowRequest) (*api.ShowReply, error) {
	var reply api.ShowReply
	return &reply, c.failed(c.Client.Call(ctx, api.VerbShow, what, &reply))
}

// failed returns a refusal of execd as Grid Engine's qconf prints it, without a
// prefix.
func (c *conf) failed(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return command.Failf("%s", command.VisibleLines(e.Text))
	}
	if err != nil {
		return c.CallFailed(err)
	}
	return nil
}

// kinds maps the object names of -aattr, -mattr and the like to kinds of the api.
var kinds = map[string]string{
	"queue": "queue", "exechost": "host", "pe": "pe", "ckpt": "ckpt", "hostgroup": "hostgroup", "userset": "userlist", "project": "project",
}

// having prints the objects that have a value of a parameter, for -sobjl.
func (c *conf) having(ctx context.Context, t *step) error {
	kind := t.args[0]
	if k, ok := kinds[kind]; ok {
		kind = k
	}
	return c.show(ctx, &api.ShowRequest{Kind: kind, Having: &api.Having{Parameter: t.args[1], Value: t.args[2]}})
}

// hosts prints the administration, submission or scheduler hosts: there is one
// host alone, and it is all of them. Others cannot be added.
func (c *conf) hosts(ctx context.Context, t *step) error {
	var reply api.StatusReply
	if err := c.Client.Call(ctx, api.VerbStatus, &api.StatusRequest{}, &reply); err != nil {
		return c.CallFailed(err)
	}
	object := map[string]string{"-ah": "adminhost", "-as": "submithost"}[t.Name]
	switch {
	case object == "" && c.json:
		return c.PrintJSON(&api.ShowReply{Text: reply.Host + "\n"})
	case object == "":
		fmt.Fprintln(c.Out, api.Visible(reply.Host))
		return nil
	}
	var failed error
	for _, host := range t.names() {
		if host == reply.Host {
			fmt.Fprintf(c.Err, "%s %q already exists\n", object, host)
			continue
		}
		fmt.Fprintf(c.Err, "%s %q cannot be added: commands are answered on %s alone\n", object, api.Visible(host), reply.Host)
		failed = failedWith(option.ExitFailed)
	}
	return failed
}

// reload has execd read its configuration again, and prints what has changed.
func (c *conf) reload(ctx context.Context) error {
	var reply api.ReloadReply
	if err := c.Client.Call(ctx, api.VerbReload, &api.ReloadRequest{}, &reply); err != nil {
		return c.CallFailed(err)
	}
	if c.json {
		if err := c.PrintJSON(&reply); err != nil {
			return fmt.Errorf("cannot write standard output: %w", err)
		}
	} else {
		for _, line := range reply.Changed {
			fmt.Fprintln(c.Out, api.Visible(line))
		}
		for _, line := range reply.BrokenHooks {
			fmt.Fprintf(c.Err, "qconf: broken hook: %s\n", api.Visible(line))
		}
		for _, line := range reply.Problems {
			fmt.Fprintln(c.Err, api.Visible(line))
		}
	}
	switch {
	case len(reply.Problems) > 0:
		return command.Failf("qconf: the configuration was not changed")
	case len(reply.Changed) == 0 && !c.json:
		fmt.Fprintln(c.Out, "the configuration has not changed")
	}
	return nil
}
