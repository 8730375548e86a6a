package admin

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
)

// edit has the user edit objects, one after the other.
func (c *conf) edit(ctx context.Context, t *step, request api.ConfigureRequest) error {
	names := t.names()
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		request.Name = name
		if err := c.editOne(ctx, request); err != nil {
			return err
		}
	}
	return nil
}

// editOne has the user edit one object until execd accepts it or the user gives
// up. A text that execd has not accepted stays in its file.
func (c *conf) editOne(ctx context.Context, request api.ConfigureRequest) error {
	before, err := c.original(ctx, &request)
	if err != nil {
		return err
	}
	if strings.ContainsRune(before, utf8.RuneError) {
		return command.Failf("edit failed: it is not a text in UTF-8; edit its file")
	}
	dir, err := os.MkdirTemp("", "qconf-") // for the user alone
	if err != nil {
		return command.Failf("edit failed: %s", command.ErrorText(err))
	}
	path := filepath.Join(dir, cmp.Or(strings.Trim(request.Kind+"-"+safe(request.Name), "-"), "text"))
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		_ = os.RemoveAll(dir)
		return command.Failf("edit failed: %s", command.ErrorText(err))
	}
	kept, err := c.rounds(ctx, &request, path, before)
	if kept {
		fmt.Fprintf(c.Err, "what you have written is kept in %s\n", path)
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// safe returns a name with only such characters as may stand in a file name.
func safe(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune("/\\'\"$`", r) {
			return '_'
		}
		return r
	}, name[:min(len(name), 100)])
}

// original returns the text to be edited. It asks execd first whether it would
// refuse the change whatever the text, so that nobody edits in vain.
func (c *conf) original(ctx context.Context, request *api.ConfigureRequest) (text string, err error) {
	if request.Kind == "host" && request.Action == api.ConfigureAdd {
		return c.newHost(ctx, request)
	}
	if request.Kind == "conf" && request.Name == "global" {
		request.Name = ""
	}
	if request.Kind == "queue" && request.Action == api.ConfigureModify && strings.Contains(request.Name, "@") {
		return "", noQueue(request.Name) // its values for one host are changed with -mattr
	}
	show := &api.ShowRequest{Kind: request.Kind, Name: request.Name, Saved: true, Template: request.Action == api.ConfigureAdd}
	reply, err := c.ask(ctx, show)
	if request.Kind == "userlist" && err != nil {
		// As in Grid Engine, -mu makes a list that does not exist.
		request.Action, show.Template = api.ConfigureAdd, true
		reply, err = c.ask(ctx, show)
	}
	if err != nil {
		return "", missing(request, err)
	}
	text = reply.Text
	if request.Action == api.ConfigureModify {
		request.Was = text
	}
	if request.Kind == "host" {
		text = configured(text)
	}
	look := *request
	look.Text, look.Dry = text, true
	var ignored api.ConfigureReply
	if look.Action == api.ConfigureAdd && request.Name == "" {
		look.Action = api.ConfigureModify // execd refuses it to the same users
		look.Name = "template"
		err := c.Client.Call(ctx, api.VerbConfigure, &look, &ignored)
		if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeDenied {
			err = nil // there is no template to modify
		}
		return text, c.failed(err)
	}
	return text, c.failed(c.Client.Call(ctx, api.VerbConfigure, &look, &ignored))
}

// missing returns Grid Engine's error for the modification of a queue that does
// not exist, or err if it is another error.
func missing(request *api.ConfigureRequest, err error) error {
	f, ok := err.(*command.Failure) //nolint:errorlint // ask returns it unwrapped
	if ok && request.Kind == "queue" && request.Action == api.ConfigureModify && strings.HasPrefix(f.Text, "No cluster queue") {
		return noQueue(request.Name)
	}
	return err
}

func noQueue(name string) error {
	return command.Failf("Cluster queue entry \"%s\" does not exist", api.Visible(name))
}

// newHost returns the text of a new host: the text of the host that is named,
// or the template.
func (c *conf) newHost(ctx context.Context, request *api.ConfigureRequest) (string, error) {
	show := &api.ShowRequest{Kind: "host", Name: request.Name, Template: request.Name == "" || request.Name == "template"}
	reply, err := c.ask(ctx, show)
	if err != nil {
		return "", err
	}
	request.Name = "template"
	return configured(reply.Text), nil
}

// configured returns a host's text without the values that are measured there.
func configured(text string) string {
	var b strings.Builder
	skip := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			skip = strings.HasPrefix(line, "load_values ") || strings.HasPrefix(line, "processors ")
		}
		if !skip {
			b.WriteString(line)
		}
	}
	return b.String()
}

// rounds has the user edit the file and execd read it, until execd accepts it,
// the user has changed nothing, or the user gives up. It reports whether the
// file is to be kept.
func (c *conf) rounds(ctx context.Context, request *api.ConfigureRequest, path, before string) (kept bool, err error) {
	for {
		if err := c.editor(ctx, path); err != nil {
			text, readErr := os.ReadFile(path)
			return readErr == nil && string(text) != before, err
		}
		request.Text, err = c.read(path)
		if err != nil {
			_, gone := os.Lstat(path) // by an editor that has removed it
			return gone == nil, err
		}
		// A new queue or host group may be added with its default values.
		if request.Text == before && (request.Action == api.ConfigureModify || request.Kind != "queue" && request.Kind != "hostgroup") {
			return false, c.unchanged(request.Kind)
		}
		err = c.configure(ctx, request, path)
		f, refused := err.(*command.Failure) //nolint:errorlint // configure returns it unwrapped
		if !refused {
			return err != nil, err
		}
		if f.Text != "" {
			fmt.Fprintln(c.Err, f.Text)
			f.Text = ""
		}
		if !c.again(ctx) {
			return true, err
		}
	}
}

// unchanged says that the user has changed nothing.
func (c *conf) unchanged(kind string) error {
	text := cmp.Or(unchanged[kind], "file unchanged")
	switch kind {
	case "userlist":
		fmt.Fprintln(c.Out, text)
		return nil
	case "complex":
		fmt.Fprintln(c.Err, text)
		return nil
	}
	return command.Failf("%s", text)
}

// editor starts the user's editor, and waits for its end.
func (c *conf) editor(ctx context.Context, path string) error {
	if err := c.Out.Flush(); err != nil {
		return fmt.Errorf("cannot write standard output: %w", err)
	}
	program := cmp.Or(os.Getenv("EDITOR"), os.Getenv("VISUAL"), "vi")
	// The shell splits the variable, which may have options of the editor in it.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", program+` "$1"`, "sh", path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.In, os.Stdout, os.Stderr
	// ^C and ^\ are for the editor, which has the same terminal.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(interrupts)
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return command.Failf("error: editor exited with error %d\nedit failed", exit.ExitCode())
	}
	if err != nil {
		return command.Failf("error: editor: %s\nedit failed", api.Visible(err.Error()))
	}
	return nil
}

// again asks whether to edit once more. Without a terminal there is nobody to ask.
func (c *conf) again(ctx context.Context) bool {
	in, ok := c.In.(*os.File)
	if !ok {
		return false
	}
	if _, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS); err != nil {
		return false
	}
	answers := bufio.NewReader(in)
	for ctx.Err() == nil {
		fmt.Fprint(c.Err, "(e)dit again, or (q)uit? ")
		answer, err := answers.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "e", "edit":
			return true
		case "q", "quit":
			return false
		}
		if err != nil {
			return false
		}
	}
	return false
}
