package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/directive"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/show"
	"paddock/qsub/internal/watch"
)

// Exit statuses of qsub besides those of package option.
const (
	exitScriptRead = 4
	exitScriptOpen = 14
	exitLimit      = 25
)

// qsub submits a job.
func qsub(ctx context.Context, inv *command.Invocation, args []string) error {
	defaults, line, operands, err := readOptions(inv, args)
	if err != nil {
		return err
	}
	// These options say whether the script is read for options, and which
	// prefix they have.
	j, err := newJob(defaults, line)
	if err != nil {
		return err
	}
	name, script := "", []byte(nil)
	if !j.req.Binary {
		if name, script, err = readScript(inv, operands); err != nil {
			return err
		}
		words, err := directive.Script(name, script, j.prefix)
		if err != nil {
			return err
		}
		inScript, err := option.Lines(option.Qsub, words, include)
		if err != nil {
			return err
		}
		if j, err = newJob(defaults, inScript, line); err != nil {
			return err
		}
	}
	if err := j.compose(name, script, operands); err != nil {
		return err
	}
	return submitJob(ctx, inv, j)
}

// readOptions reads the options of a job from defaults files and the command
// line, and what follows them there.
func readOptions(inv *command.Invocation, args []string) (defaults, line []option.Setting, operands []string, err error) {
	if line, operands, err = option.Line(inv.Command, args, include); err != nil {
		return nil, nil, nil, err
	}
	if err = inv.Answer(line); err != nil {
		return nil, nil, nil, err
	}
	defaults, err = defaultsFiles(inv)
	return defaults, line, operands, err
}

// readScript reads the script that the operands name.
func readScript(inv *command.Invocation, operands []string) (name string, script []byte, err error) {
	unreadable := func(exit int, format string, args ...any) error {
		return command.FailWith(exit, "Unable to read script file because of error: %s", fmt.Sprintf(format, args...))
	}
	in := inv.In
	name = "STDIN"
	if len(operands) > 0 && operands[0] != "-" {
		name = operands[0]
		f, err := os.Open(name)
		if err != nil {
			return "", nil, unreadable(exitScriptOpen, "error opening %s: %s", api.Visible(name), command.ErrorText(err))
		}
		defer f.Close()
		in = f
	}
	// One byte more than is possible tells a script that is too large, without
	// reading all of it.
	script, err = io.ReadAll(io.LimitReader(in, api.MaxScript+1))
	switch {
	case err != nil && name == "STDIN":
		return "", nil, unreadable(exitScriptRead, "error reading standard input: %s", command.ErrorText(err))
	case err != nil:
		return "", nil, unreadable(exitScriptRead, "error reading from file %s: %s", api.Visible(name), command.ErrorText(err))
	case len(script) > api.MaxScript:
		return "", nil, command.Rejected(option.ExitFailed, fmt.Sprintf("job rejected: the script has more than %d MB", api.MaxScript>>20))
	case len(script) == 0 && name == "STDIN":
		return "", nil, unreadable(exitScriptRead, "no input read from stdin")
	case len(script) == 0:
		return "", nil, command.Rejected(option.ExitFailed, "job rejected: no script in your request")
	}
	return name, script, nil
}

// submitJob submits the job and prints the result.
func submitJob(ctx context.Context, inv *command.Invocation, j *job) error {
	if j.verify {
		show.Job(inv.Out, &api.Detail{Request: j.req}, false)
		return nil
	}
	if j.ad {
		return printAd(ctx, inv, j)
	}
	if j.req.Now {
		fmt.Fprint(inv.Err, "Waiting for immediate job to be scheduled.\n\n")
	}
	var reply api.SubmitReply
	if err := inv.Client.Call(ctx, api.VerbSubmit, &j.req, &reply); err != nil {
		if errors.Is(err, api.ErrUnreachable) && !errors.Is(err, api.ErrNotSent) {
			return command.Rejected(option.ExitFailed, err.Error()+"; whether it was submitted is not known, see qstat")
		}
		return refused(inv, err)
	}
	for _, line := range reply.Lines {
		fmt.Fprintln(inv.Out, api.Visible(line))
	}
	warn(inv, append(j.warnings(), reply.Warnings...))
	if reply.Job == 0 {
		return nil // verified
	}
	id, _ := idOf(&reply)
	if j.terse {
		fmt.Fprintln(inv.Out, id)
	} else {
		fmt.Fprintln(inv.Out, api.Visible(hasBeenSubmitted(&reply)))
	}
	if !j.sync && !j.req.Now {
		return nil
	}
	// The number is flushed before the wait: a script may need it meanwhile.
	if err := inv.Out.Flush(); err != nil {
		return fmt.Errorf("cannot write standard output: %w", err)
	}
	if j.req.Now {
		fmt.Fprintf(inv.Err, "Your immediate job %s has been successfully scheduled.\n", id)
	}
	if !j.sync {
		return nil
	}
	return watch.Wait(ctx, inv, &reply, j.terse)
}

// refused is the error for a job that execd has not taken.
func refused(inv *command.Invocation, err error) error {
	switch e, ok := errors.AsType[*api.Error](err); {
	case ok && e.Code == api.CodeLimit:
		return command.Rejected(exitLimit, e.Text)
	case ok && e.Code == api.CodeBusy:
		return command.Failf("Your qsub request could not be scheduled; try again later.")
	case ok:
		return command.Rejected(option.ExitFailed, e.Text)
	case errors.Is(err, api.ErrNotSent):
		return command.Failf("Unable to initialize environment because of error: %s%s\nExiting.", api.Visible(err.Error()), inv.StartIt(err))
	}
	return command.Rejected(option.ExitFailed, err.Error())
}

// printAd prints the ads of work that the job would be, one for each task, with an empty
// line between them.
func printAd(ctx context.Context, inv *command.Invocation, j *job) error {
	if j.sync {
		return command.Rejected(option.ExitFailed, "job rejected: -sync cannot be part of an ad")
	}
	var reply api.AdReply
	if err := inv.Client.Call(ctx, api.VerbAd, &j.req, &reply); err != nil {
		return refused(inv, err)
	}
	for _, line := range reply.Lines {
		to := inv.Err
		if reply.Ad == "" {
			to = inv.Out
		}
		fmt.Fprintln(to, api.Visible(line))
	}
	warn(inv, j.warnings())
	if !reply.Tasks.IsArray() {
		_, err := io.WriteString(inv.Out, string(reply.Ad))
		return err
	}
	end := ""
	for word := range strings.SplitSeq(cmp.Or(reply.Only, reply.Tasks.String()), ",") {
		t, err := api.ParseTasks(word)
		if err != nil {
			return err
		}
		for n := t.First; n <= t.Last; n += t.Step {
			if _, err := fmt.Fprintf(inv.Out, "%s%sArrayTask = %d\n", end, reply.Ad, n); err != nil {
				return err
			}
			end = "\n"
		}
	}
	return nil
}

// warn prints what execd warns of.
func warn(inv *command.Invocation, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(inv.Err, "%s: warning: %s\n", inv.Command, api.Visible(line))
	}
}

// idOf returns the number of a submitted job with its tasks, and "job" or "job-array".
func idOf(r *api.SubmitReply) (id, kind string) {
	if r.Only != "" {
		return fmt.Sprintf("%d.%s", r.Job, r.Only), "job-array"
	}
	if r.Tasks.IsArray() {
		return fmt.Sprintf("%d.%v", r.Job, r.Tasks), "job-array"
	}
	return fmt.Sprint(r.Job), "job"
}

// hasBeenSubmitted returns the message about a submitted job.
func hasBeenSubmitted(r *api.SubmitReply) string {
	id, kind := idOf(r)
	return fmt.Sprintf("Your %s %s (\"%s\") has been submitted", kind, id, r.Name)
}

// maxOptionFile bounds a defaults file.
const maxOptionFile = 1 << 20

// include reads a file of -@.
func include(name string, from option.Place) ([]option.Word, error) {
	text, err := readOptionFile(name)
	if err != nil {
		return nil, &option.Error{Exit: option.ExitUsage, Place: from, Text: fmt.Sprintf("cannot read option file %s: %s", name, command.ErrorText(err))}
	}
	return directive.File(name, text)
}

func readOptionFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f)
}

// untrustedError is the error of a file that another user may have written.
type untrustedError struct{ name, why string }

func (e *untrustedError) Error() string { return e.name + " " + e.why }

// readOwnDefaults reads a file if it and its directory, as they are opened, are the
// caller's or root's and nobody else can write them. Whoever can write the directory
// can put a link to a file of the caller's there, too.
func readOwnDefaults(name string) ([]byte, error) {
	// O_NONBLOCK, since a pipe in its place would block.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dir, err := os.Stat(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := api.Untrusted(info, os.Getuid()); err != nil {
		return nil, &untrustedError{"it", err.Error()}
	}
	if err := api.Untrusted(dir, os.Getuid()); err != nil {
		return nil, &untrustedError{"its directory", err.Error()}
	}
	return readBounded(f)
}

func readBounded(f *os.File) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, maxOptionFile+1))
	if err == nil && len(text) > maxOptionFile {
		err = fmt.Errorf("larger than %d bytes", maxOptionFile)
	}
	return text, err
}

// ownDefaults is the name of a user's defaults file, in the home directory, and
// of that of a directory.
const ownDefaults = ".sge_request"

// defaultsFiles reads the files of options for all jobs; later ones win. Files
// that do not exist are skipped. A defaults file of a user or a directory that
// another user may have written is skipped with a warning: it names programs
// that run as the caller.
func defaultsFiles(inv *command.Invocation) ([]option.Setting, error) {
	var files []string
	if root := os.Getenv("SGE_ROOT"); root != "" {
		cell := os.Getenv("SGE_CELL")
		if cell == "" {
			cell = "default"
		}
		files = append(files, filepath.Join(root, cell, "common", "sge_request"))
	}
	files = append(files, filepath.Join(inv.Places.Config, "sge_request"))
	home := os.Getenv("HOME")
	if home != "" {
		files = append(files, filepath.Join(home, ownDefaults))
	}
	// In the home directory the file is read only once.
	if here, err := os.Stat(ownDefaults); err == nil {
		there, err := os.Stat(filepath.Join(home, ownDefaults))
		if home == "" || err != nil || !os.SameFile(here, there) {
			files = append(files, ownDefaults)
		}
	}
	var settings []option.Setting
	for _, name := range files {
		read := readOptionFile
		if filepath.Base(name) == ownDefaults {
			read = readOwnDefaults
		}
		text, err := read(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if strange, ok := errors.AsType[*untrustedError](err); ok {
			fmt.Fprintf(inv.Err, "%s: warning: defaults file %s is not read: %v\n", inv.Command, api.Visible(name), strange)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read defaults file %s: %s", name, command.ErrorText(err))
		}
		words, err := directive.File(name, text)
		if err != nil {
			return nil, err
		}
		in, err := option.Lines(option.Qsub, words, include)
		if err != nil {
			return nil, err
		}
		// -soft of one file does not reach into the next.
		hard, _ := option.Lookup(option.Qsub, "-hard")
		settings = append(append(settings, option.Setting{Option: hard}), in...)
	}
	return settings, nil
}
