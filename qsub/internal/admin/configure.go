package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// from says where the text of a change comes from.
type from int

const (
	fromNames    from = iota // there is no text; the words are names
	fromFile                 // the word is the path of a file, or - for standard input
	fromEditor               // the user edits it
	fromWords                // the words are the text
	fromWordFile             // a word names the file of the text
	fromUsers                // the first word is users, the second names
)

// change is what an option of qconf changes.
type change struct {
	kind   string
	action api.Configure
	from   from
}

// changesOf returns the options of qconf that change the configuration. Other commands do
// not pay for them.
var changesOf = sync.OnceValue(changes)

func changes() map[string]change {
	of := map[string]change{
		"-Au": {"userlist", api.ConfigureAdd, fromFile},
		"-mu": {"userlist", api.ConfigureModify, fromEditor}, "-Mu": {"userlist", api.ConfigureModify, fromFile},
		"-dul": {"userlist", api.ConfigureRemove, fromNames},
		"-au":  {"userlist", api.ConfigureAdmit, fromUsers}, "-du": {"userlist", api.ConfigureExpel, fromUsers},
		"-mc": {"complex", api.ConfigureModify, fromEditor}, "-Mc": {"complex", api.ConfigureModify, fromFile},
		"-mconf": {"conf", api.ConfigureModify, fromEditor}, "-Mconf": {"conf", api.ConfigureModify, fromFile},
		"-msconf": {"sched", api.ConfigureModify, fromEditor}, "-Msconf": {"sched", api.ConfigureModify, fromFile},
		"-am": {"manager", api.ConfigureAdd, fromNames}, "-dm": {"manager", api.ConfigureRemove, fromNames},
		"-ao": {"operator", api.ConfigureAdd, fromNames}, "-do": {"operator", api.ConfigureRemove, fromNames},
		"-aattr": {"", api.ConfigureInsert, fromWords}, "-Aattr": {"", api.ConfigureInsert, fromWordFile},
		"-mattr": {"", api.ConfigureChange, fromWords}, "-Mattr": {"", api.ConfigureChange, fromWordFile},
		"-dattr": {"", api.ConfigureDelete, fromWords}, "-Dattr": {"", api.ConfigureDelete, fromWordFile},
		"-rattr": {"", api.ConfigureReplace, fromWords}, "-Rattr": {"", api.ConfigureReplace, fromWordFile},
		"-purge":      {"", api.ConfigurePurge, fromWords},
		"-clearusage": {api.KindUser, api.ConfigureClear, fromNames},
	}
	for name, kind := range map[string]string{
		"q": "queue", "p": "pe", "ckpt": "ckpt", "e": "host", "hgrp": "hostgroup", "prj": "project", "ce": api.KindAttribute,
	} {
		of["-a"+name] = change{kind, api.ConfigureAdd, fromEditor}
		of["-A"+name] = change{kind, api.ConfigureAdd, fromFile}
		of["-m"+name] = change{kind, api.ConfigureModify, fromEditor}
		of["-M"+name] = change{kind, api.ConfigureModify, fromFile}
		of["-d"+name] = change{kind, api.ConfigureRemove, fromNames}
	}
	return of
}

// unreadable has the messages with which Grid Engine ends the list of mistakes
// in a text, by kind.
var unreadable = map[string]string{
	"queue": "Cluster queue file %q is not correct",
	"host":  "invalid format", "complex": "Complex attribute file %q is not correct",
}

// unchanged has its messages for a text that the user has not changed, where
// the message is not "file unchanged".
var unchanged = map[string]string{
	"queue": "Object has not been changed", "hostgroup": "Object has not been changed", "conf": "configuration unchanged",
	"complex": "Complex attribute configuration has not been changed",
}

// change does what one option that changes something asks for.
func (c *conf) change(ctx context.Context, t *step, what change) error {
	request := api.ConfigureRequest{Action: what.action, Kind: what.kind, Dry: c.dry}
	switch what.from {
	case fromFile:
		return c.fromFiles(ctx, t, request)
	case fromEditor:
		return c.edit(ctx, t, request)
	case fromWords, fromWordFile:
		return c.elements(ctx, t, request, what.from == fromWordFile)
	case fromUsers:
		request.Text = strings.Join(argument.List(t.args[0]), "\n")
		return c.each(ctx, request, append(argument.List(t.args[1]), t.words...))
	case fromNames:
	}
	if what.action == api.ConfigureClear {
		request.Text = strings.Join(t.names(), "\n")
		return c.configure(ctx, &request, "")
	}
	return c.each(ctx, request, t.names())
}

// each changes several objects in the same way.
func (c *conf) each(ctx context.Context, request api.ConfigureRequest, names []string) error {
	return c.forEach(names, func(name string) error {
		request.Name = name
		return c.configure(ctx, &request, "")
	})
}

// fromFiles changes objects as files say.
func (c *conf) fromFiles(ctx context.Context, t *step, request api.ConfigureRequest) error {
	for _, path := range append(append([]string{}, t.args...), t.words...) {
		paths := []string{path}
		if request.Kind == "conf" {
			paths = argument.List(path) // -Mconf alone takes a list
		}
		for _, path := range paths {
			if request.Kind == "conf" {
				request.Name = filepath.Base(path)
				if path == "-" {
					request.Name = "global"
				}
			}
			var err error
			if request.Text, err = c.read(path); err != nil {
				return err
			}
			if err := c.configure(ctx, &request, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads a file of the user's, or standard input.
func (c *conf) read(path string) (string, error) {
	in := c.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", command.Failf("error: error opening file \"%s\" for reading: %s\nerror reading in file", api.Visible(path), command.ErrorText(err))
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, api.MaxConfiguration+1))
	switch {
	case err != nil:
		return "", command.Failf("error: cannot read \"%s\": %s\nerror reading in file", api.Visible(path), command.ErrorText(err))
	case len(data) > api.MaxConfiguration:
		return "", command.Failf("error: \"%s\" has more than %d bytes\nerror reading in file", api.Visible(path), api.MaxConfiguration)
	case !utf8.Valid(data):
		return "", command.Failf("error: \"%s\" is not a text in UTF-8\nerror reading in file", api.Visible(path))
	}
	return string(data), nil
}

// elements changes parameters of objects one by one.
func (c *conf) elements(ctx context.Context, t *step, request api.ConfigureRequest, inFile bool) error {
	kind, ok := kinds[t.args[0]]
	if request.Action == api.ConfigurePurge {
		if kind != "queue" {
			return command.Failf("error: Modification of object \"%s\" not supported", api.Visible(t.args[0]))
		}
	} else if !ok {
		return command.Failf("Modification of object \"%s\" not supported", api.Visible(t.args[0]))
	}
	request.Kind = kind
	switch {
	case request.Action == api.ConfigurePurge:
		request.Text = strings.Join(argument.List(t.args[1]), "\n")
		t.words = append([]string{t.args[2]}, t.words...)
	case inFile:
		var err error
		if request.Text, err = c.read(t.args[1]); err != nil {
			return err
		}
	case strings.ContainsAny(t.args[1]+t.args[2], "\n\r") || t.args[1] == "" || strings.ContainsAny(t.args[1], " \t#\\"):
		return command.Failf("The attribute name (\"%s\") and/or value (\"%s\") is invalid", api.Visible(t.args[1]), api.Visible(t.args[2]))
	default:
		request.Text = t.args[1] + " " + t.args[2] + "\n"
	}
	if len(t.words) == 0 {
		return command.Failf("qconf: missing object list")
	}
	return c.each(ctx, request, t.words)
}

// configure asks for a change, and prints the result. Mistakes in the text are
// printed with the name of its file.
func (c *conf) configure(ctx context.Context, request *api.ConfigureRequest, file string) error {
	var reply api.ConfigureReply
	if err := c.failed(c.Client.Call(ctx, api.VerbConfigure, request, &reply)); err != nil {
		return err
	}
	if c.json {
		if err := c.PrintJSON(&reply); err != nil {
			return fmt.Errorf("cannot write standard output: %w", err)
		}
	} else {
		c.tell(request, &reply)
		c.problems(request.Kind, reply.Problems, file)
	}
	for _, line := range reply.Lines {
		if line.Failed {
			return failedWith(option.ExitFailed)
		}
	}
	if len(reply.Problems) > 0 {
		return failedWith(option.ExitFailed)
	}
	return nil
}

// tell prints what was done. As in Grid Engine, changes of elements go to
// standard output and all others to standard error.
func (c *conf) tell(request *api.ConfigureRequest, reply *api.ConfigureReply) {
	for _, line := range reply.Lines {
		text := api.Visible(line.Text)
		switch request.Action {
		case api.ConfigureInsert, api.ConfigureChange, api.ConfigureDelete, api.ConfigureReplace, api.ConfigurePurge:
			if !line.Failed && line.Code == "" {
				fmt.Fprintln(c.Out, text)
				continue
			}
		default:
		}
		fmt.Fprintln(c.Err, text)
	}
	if c.dry {
		for _, line := range reply.Changed {
			fmt.Fprintln(c.Out, api.Visible(line))
		}
	}
}

// problems prints the mistakes in a text, file being the one that it was read
// from, and in files of the configuration.
func (c *conf) problems(kind string, problems []api.Problem, file string) {
	inText, at := false, 0
	for _, p := range problems {
		text := api.Visible(p.Text)
		switch {
		case p.File != "" && p.Line > 0:
			text = fmt.Sprintf("error: %s:%d: %s", api.Visible(p.File), p.Line, text)
		case p.File != "":
			text = fmt.Sprintf("error: %s: %s", api.Visible(p.File), text)
		case file == "" || p.Words:
		case p.Line == 0:
			inText, text = true, "error: "+text
		case strings.HasPrefix(p.Text, "unknown attribute name"):
			inText, text, at = true, "error: "+text, cmp.Or(at, p.Line)
		default:
			inText, text = true, fmt.Sprintf("error: %s:%d: %s", api.Visible(file), p.Line, text)
		}
		fmt.Fprintln(c.Err, text)
	}
	if at > 0 {
		fmt.Fprintf(c.Err, "error: error reading file: \"%s\": line %d\n", api.Visible(file), at)
	}
	if !inText {
		return
	}
	last := unreadable[kind]
	switch {
	case last == "":
		last = "error reading in file"
	case strings.Contains(last, "%"):
		last = fmt.Sprintf(last, api.Visible(file))
	}
	fmt.Fprintln(c.Err, last)
}
