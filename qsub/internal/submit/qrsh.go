package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qrsh/client"
	"paddock/qrsh/wire"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/show"
)

// exitConnection is the exit status of qrsh when the connection to the command
// failed, and not the command.
const exitConnection = 125

// canceled is Grid Engine's message about an interactive job that was deleted
// before its start.
const canceled = "Request for interactive job has been canceled."

// loginNames are the names of interactive jobs without a command, as in Grid Engine.
var loginNames = map[option.Command]string{option.Qrsh: "QRLOGIN", option.Qlogin: "QLOGIN"}

// qrsh runs a command, or a login shell, as a job with the caller's streams.
func qrsh(ctx context.Context, inv *command.Invocation, args []string) error {
	defaults, line, argv, err := readOptions(inv, args)
	if err != nil {
		return err
	}
	j, err := newJob(defaults, line)
	if err != nil {
		return err
	}
	switch {
	case j.into != "":
		return into(ctx, inv, line, argv)
	case j.inherit:
		return inherit(ctx, inv, j, argv)
	case j.reconnect != 0:
		return reconnect(ctx, inv, j)
	}
	if err := makeInteractive(inv, j, argv); err != nil {
		return err
	}
	if j.verify {
		show.Job(inv.Out, &api.Detail{Request: j.req}, true)
		return nil
	}
	c := interactiveClient(inv, j)
	if j.req.Interactive.Client, err = c.Listen(); err != nil {
		return command.FailWith(exitConnection, "%s: %s", inv.Command, api.Visible(err.Error()))
	}
	return runInteractive(ctx, inv, j, c)
}

// makeInteractive turns the request into one for an interactive job.
func makeInteractive(inv *command.Invocation, j *job, argv []string) error {
	if inv.Command == option.Qlogin && len(argv) > 0 {
		return &option.Error{Exit: option.ExitUsage, Text: "qlogin takes no command; qrsh does"}
	}
	r := &j.req
	if j.hasBinary && !r.Binary {
		return &option.Error{Exit: option.ExitUsage, Text: "option -b n is not supported: a script is for qsub; qrsh runs a command"}
	}
	login := len(argv) == 0
	name := loginNames[inv.Command]
	if login {
		argv = []string{name}
	}
	r.Binary = true
	if !login && !j.hasName {
		// As in Grid Engine, the name for "a; b" is that of a.
		word, _, _ := strings.Cut(argv[0], ";")
		if words := strings.Fields(word); len(words) > 0 {
			name = path.Base(words[0])
		}
	}
	if !j.hasName {
		r.Name, j.hasName = name, true
	}
	if err := j.compose("", nil, argv); err != nil {
		return err
	}
	r.Interactive = &api.Interactive{Login: login, Terminal: j.wantsTerminal(login), Qlogin: inv.Command == option.Qlogin, Lost: j.lost}
	j.onlyInteractive()
	if r.Interactive.Terminal {
		r.Origin[0] = originTerminal()
	}
	return nil
}

// wantsTerminal reports whether the job has a terminal: a login shell has one,
// unless -pty says otherwise.
func (j *job) wantsTerminal(login bool) bool {
	if j.pty != "" {
		return j.pty == "y"
	}
	return login
}

// originTerminal returns the variable that tells the job of the caller's
// terminal, the first one of origin.
func originTerminal() string { return "TERM=" + os.Getenv("TERM") }

// onlyInteractive resets what defaults files request for batch jobs only.
func (j *job) onlyInteractive() {
	r := &j.req
	if !j.hasNow {
		r.Now = true
	}
	r.Tasks, r.MaxRun, r.Hold, r.Rerun, r.Checkpoint, r.CheckpointWhen = api.Tasks{}, 0, "", "", "", ""
	r.Sandbox, r.StageIn, r.StageOut, r.StageOutTo, r.WhenOut = "", nil, nil, "", api.OutDefault
}

// interactiveClient returns the caller's side of the job's connection.
func interactiveClient(inv *command.Invocation, j *job) *client.Client {
	c := &client.Client{
		Execd: inv.Client, Address: j.listen, Keyboard: os.Stdin, Raw: j.req.Interactive.Terminal, Suspend: j.suspendRemote, Escape: j.escape,
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
	}
	say := func(format string, args ...any) {
		// In raw mode a newline does not go back to the first column.
		fmt.Fprintf(inv.Err, "\r%s: %s\r\n", inv.Command, api.Visible(fmt.Sprintf(format, args...)))
	}
	c.Verbose = func(format string, args ...any) {
		if j.verbose {
			say(format, args...)
		}
	}
	c.Notice = func(format string, args ...any) {
		if j.verbose || c.Raw && inv.ErrTerminal != nil {
			say(format, args...)
		}
	}
	if j.noStdin {
		c.In = strings.NewReader("")
	}
	return c
}

// runInteractive submits the job and stays connected to it until it ends.
func runInteractive(ctx context.Context, inv *command.Invocation, j *job, c *client.Client) error {
	reply, err := submitInteractive(ctx, inv, j)
	if err != nil || reply.Job == 0 {
		return err // without an error: it was only verified
	}
	if reply.Program != "" {
		c.Program = connection(inv, j, reply.Job, reply.Program)
	}
	err = stay(ctx, inv, c, reply.Job, reply.Cursor)
	if by := (client.Signaled{}); errors.As(err, &by) {
		return cancelInteractive(ctx, inv, reply.Job)
	}
	return err
}

// submitInteractive submits the job and says so.
func submitInteractive(ctx context.Context, inv *command.Invocation, j *job) (*api.SubmitReply, error) {
	var reply api.SubmitReply
	interrupted, err := answered(ctx, func(ctx context.Context) error {
		return inv.Client.Call(ctx, api.VerbSubmit, &j.req, &reply)
	})
	switch e, ok := errors.AsType[*api.Error](err); {
	case err == nil && interrupted && reply.Job != 0:
		return nil, cancelInteractive(ctx, inv, reply.Job)
	case err != nil && interrupted:
		return nil, command.Failf("%s", canceled)
	case ok && e.Code == api.CodeBusy:
		return nil, notScheduled(inv)
	case err != nil:
		return nil, refused(inv, err)
	}
	for _, line := range reply.Lines {
		fmt.Fprintln(inv.Out, api.Visible(line))
	}
	warn(inv, reply.Warnings)
	if reply.Job == 0 {
		return &reply, nil
	}
	say := func(w io.Writer, format string, args ...any) {
		if j.verbose || inv.Command&(option.Qlogin|option.Qsh) != 0 {
			fmt.Fprintf(w, format+"\n", args...)
		}
	}
	say(inv.Out, "%s", api.Visible(hasBeenSubmitted(&reply)))
	if err := inv.Out.Flush(); err != nil {
		return nil, fmt.Errorf("cannot write standard output: %w", err)
	}
	say(inv.Err, "waiting for interactive job to be scheduled ...")
	return &reply, nil
}

// notScheduled returns the error of a job that cannot start now.
func notScheduled(inv *command.Invocation) error {
	return command.Failf("Your %q request could not be scheduled, try again later.", inv.Command)
}

// answerTime is how long an interrupted submission still waits for the answer.
const answerTime = 5 * time.Second

// answered makes a call, and reports whether a signal interrupted it. After a
// signal it still waits for the answer: execd may have accepted the job
// already, and without the number in the answer nobody could delete it.
func answered(ctx context.Context, call func(context.Context) error) (interrupted bool, err error) {
	calling, giveUp := context.WithCancel(ctx)
	defer giveUp()
	heard, over, came := make(chan os.Signal, 1), make(chan struct{}), make(chan bool, 1)
	signal.Notify(heard, client.Endings()...)
	go func() {
		select {
		case <-heard:
			time.AfterFunc(answerTime, giveUp)
			came <- true
		case <-over:
			came <- len(heard) > 0
		}
	}()
	err = call(calling)
	signal.Stop(heard)
	close(over)
	return <-came, err
}

// cancelInteractive deletes a job that has not begun, and that the user does
// not want any more.
func cancelInteractive(ctx context.Context, inv *command.Invocation, number int) error {
	request := api.DeleteRequest{Jobs: []string{strconv.Itoa(number)}}
	var reply api.DeleteReply
	if err := inv.Client.Call(ctx, api.VerbDelete, &request, &reply); err != nil {
		return inv.CallFailed(err)
	}
	return command.Failf("%s", canceled)
}

// stay carries the streams of a job until it has ended, and returns a failure
// with its exit status.
func stay(ctx context.Context, inv *command.Invocation, c *client.Client, number int, cursor string) error {
	end, err := c.Follow(ctx, number, cursor)
	if errors.Is(err, client.ErrLost) {
		return command.FailWith(exitConnection, "%s: %s; job %d: see qstat", inv.Command, api.Visible(err.Error()), number)
	}
	if errors.Is(err, client.ErrLeft) {
		return command.FailWith(exitConnection, "%s: left job %d, which waits for qrsh -reconnect %[2]d", inv.Command, number)
	}
	if by := (client.Signaled{}); errors.As(err, &by) && c.Begun() {
		return command.FailWith(by.Exit(), "%s: %v; job %d waits for qrsh -reconnect %[3]d", inv.Command, err, number)
	}
	if err != nil {
		return inv.CallFailed(err)
	}
	if c.Program != nil {
		c.Program.Told(int(end.Status))
	}
	if err := c.Unwritten(); err != nil {
		fmt.Fprintf(inv.Err, "%s: %s\n", inv.Command, api.Visible(err.Error()))
		end.Status = max(end.Status, option.ExitFailed)
	}
	return endAs(inv, number, end)
}

// endAs returns a failure with the exit status of a job, or of a task in it;
// nil for success.
func endAs(inv *command.Invocation, number int, end wire.Exit) error {
	text := ""
	if end.Reason != "" {
		text = fmt.Sprintf("%s: job %d: %s", inv.Command, number, api.Visible(end.Reason))
	}
	if end.Status == 0 && text == "" {
		return nil
	}
	return command.FailWith(int(end.Status), "%s", text)
}

// reconnect connects to an interactive job that has lost its client.
func reconnect(ctx context.Context, inv *command.Invocation, j *job) error {
	j.req.Interactive = &api.Interactive{}
	c := interactiveClient(inv, j)
	at, err := c.Listen()
	if err != nil {
		return command.FailWith(exitConnection, "%s: %s", inv.Command, api.Visible(err.Error()))
	}
	calling, stop := signal.NotifyContext(ctx, client.Endings()...)
	reply, err := c.Attach(calling, j.reconnect, at)
	stop()
	if err != nil {
		return inv.CallFailed(err)
	}
	c.Raw = reply.Terminal
	err = stay(ctx, inv, c, j.reconnect, reply.Cursor)
	if by := (client.Signaled{}); errors.As(err, &by) {
		return &command.Failure{Exit: by.Exit()}
	}
	return err
}

// parseEscape reads the character of -escape.
func parseEscape(j *job, o *option.Setting) (err error) {
	if j.escape, err = client.ParseEscape(o.Value()); err != nil {
		return o.Errorf(option.ExitValue, "%q is no escape character: it is %v", o.Value(), err)
	}
	return nil
}

// parseListen reads the address of -listen: one that others can connect to.
func parseListen(j *job, o *option.Setting) error {
	ip, err := netip.ParseAddr(o.Value())
	if err != nil || ip.IsUnspecified() || ip.IsMulticast() {
		return o.Errorf(option.ExitValue, "%q is not an address of this host, like 192.0.2.7", o.Value())
	}
	j.listen = ip.String()
	return nil
}

// parseLost reads what happens to the job when its client is lost.
func parseLost(j *job, o *option.Setting) error {
	j.lost = o.Value()
	if j.lost != "end" && j.lost != "stop" && j.lost != "keep" {
		return o.Errorf(option.ExitValue, "%q is none of end, stop and keep", j.lost)
	}
	return nil
}

// parseReconnect reads the number of -reconnect.
func parseReconnect(j *job, o *option.Setting) (err error) {
	if j.reconnect, err = strconv.Atoi(o.Value()); err != nil || j.reconnect < 1 {
		return o.Errorf(option.ExitValue, "%q is not the number of a job", o.Value())
	}
	return nil
}

// connection returns the program, such as ssh, that connects the user to a job
// that is a daemon.
func connection(inv *command.Invocation, j *job, number int, program string) *client.Program {
	say := func(format string, args ...any) {
		if j.verbose || inv.Command == option.Qlogin {
			fmt.Fprintln(inv.Err, api.Visible(fmt.Sprintf(format, args...)))
		}
	}
	return &client.Program{
		Words: strings.Fields(program), PortLast: inv.Command == option.Qlogin, NoStdin: j.noStdin,
		Establishing: func(name, host string) {
			say("Your interactive job %d has been successfully scheduled.", number)
			say("Establishing %s session to host %s ...", name, host)
		},
		Ended: func(name string, status int, err error) {
			if err != nil {
				fmt.Fprintf(inv.Err, "%s: %s\n", inv.Command, api.Visible(err.Error()))
			}
			say("%s exited with exit code %d", name, status)
		},
		Told: func(status int) { say("reading exit code from shepherd ... %d", status) },
	}
}
