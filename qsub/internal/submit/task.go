package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qrsh/client"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// resolveTime is how long looking up the name of another host may take.
const resolveTime = 10 * time.Second

// inherit is qrsh -inherit: it starts a task of the parallel job that it is called in.
func inherit(ctx context.Context, inv *command.Invocation, j *job, operands []string) error {
	text := os.Getenv("JOB_ID")
	if text == "" {
		return command.Failf("error: %q called with option \"-inherit\", but \"JOB_ID\" not set in environment", inv.Command)
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		return command.Failf("error: JOB_ID %q in the environment is not the number of a job", api.Visible(text))
	}
	if len(operands) < 2 {
		return &option.Error{Exit: option.ExitUsage, Text: "option -inherit wants a host and a command"}
	}
	req := j.taskRequest(operands[1:])
	req.Job, req.Host, req.Home = number, operands[0], os.Getenv("SGE_O_HOST")
	if task, err := strconv.Atoi(os.Getenv("SGE_TASK_ID")); err == nil {
		req.Task = task // the job is an array
	}
	if req.Cwd == "" {
		req.Cwd = j.exportedDirectory()
	}
	return runTask(ctx, inv, j, req)
}

// exportedDirectory returns the working directory of a task: PWD if that
// variable is exported, as in Grid Engine, else the directory it is started in.
func (j *job) exportedDirectory() string {
	for _, v := range j.export {
		if v.name == "PWD" && !v.caller && filepath.IsAbs(v.value) {
			return v.value
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return dir
}

// into is qrsh -into: it starts a shell or a command in a job that runs.
// Defaults files, which are for jobs, do not apply to it.
func into(ctx context.Context, inv *command.Invocation, line []option.Setting, argv []string) error {
	j, err := newJob(line)
	if err != nil {
		return err
	}
	j.listen = cmp.Or(j.listen, "127.0.0.1") // a Unix socket is for one user, and who enters a job may be another one than its owner
	req := j.taskRequest(argv)
	req.Into = true
	name, task, _ := strings.Cut(j.into, ".")
	req.Job, _ = strconv.Atoi(name) // parseInto has checked it
	req.Task, _ = strconv.Atoi(task)
	return runTask(ctx, inv, j, req)
}

// parseInto reads the job of -into.
func parseInto(j *job, o *option.Setting) error {
	name, task, array := strings.Cut(o.Value(), ".")
	number, err := strconv.Atoi(name)
	n, taskErr := strconv.Atoi(task)
	if err != nil || number < 1 || array && (taskErr != nil || n < 1) {
		return o.Errorf(option.ExitValue, "%q is not the number of a job, or of one and a task of it", o.Value())
	}
	j.into = o.Value()
	return nil
}

// taskRequest returns the request for a task, as the options have it.
func (j *job) taskRequest(argv []string) *api.TaskRequest {
	req := &api.TaskRequest{NoShell: j.req.NoShell, Cwd: j.req.Cwd, Env: j.environment(os.Environ()), Origin: origin()}
	login := len(argv) == 0
	if !login {
		req.Command, req.Args = argv[0], argv[1:]
	}
	req.Interactive = api.Interactive{Login: login, Terminal: j.wantsTerminal(login)}
	if req.Interactive.Terminal {
		req.Origin[0] = originTerminal()
	}
	return req
}

// runTask starts a task and stays connected to it until it ends.
func runTask(ctx context.Context, inv *command.Invocation, j *job, req *api.TaskRequest) error {
	j.req.Interactive = &req.Interactive
	c := interactiveClient(inv, j)
	var err error
	if req.Interactive.Client, err = c.Listen(); err != nil {
		return command.Failf("%s: %s", inv.Command, api.Visible(err.Error()))
	}
	say := func(format string, args ...any) {
		if j.verbose {
			fmt.Fprintf(inv.Err, format+"\n", args...)
		}
	}
	if !req.Into {
		say("Starting server daemon at host %q", api.Visible(req.Host))
	}
	reply, err := startTask(ctx, inv, req, say)
	if err != nil {
		return err
	}
	say("Server daemon successfully started with task id %q", api.Visible(reply.ID))
	c.Task = &api.TaskEndRequest{Job: req.Job, Task: reply.Task, ID: reply.ID, Cursor: reply.Cursor}
	end, err := c.Follow(ctx, req.Job, "")
	if errors.Is(err, client.ErrLost) {
		return command.Failf("%s: %s", inv.Command, api.Visible(err.Error()))
	}
	if err != nil {
		return inv.CallFailed(err)
	}
	return endAs(inv, req.Job, end)
}

// startTask asks execd for a task. Its errors are those of Grid Engine.
func startTask(ctx context.Context, inv *command.Invocation, req *api.TaskRequest, say func(string, ...any)) (reply api.TaskReply, err error) {
	err = inv.Client.Call(ctx, api.VerbTask, req, &reply)
	for err == nil && reply.ID == "" {
		// The job is still being prepared, and execd may be restarted meanwhile. A
		// request that was sent is not sent again: it may have started a task.
		err = inv.Retry(ctx, nil, api.ErrNotSent, func() error { return inv.Client.Call(ctx, api.VerbTask, req, &reply) })
	}
	e, refused := errors.AsType[*api.Error](err)
	if err == nil || !refused || req.Into {
		if err != nil {
			err = inv.CallFailed(err)
		}
		return reply, err
	}
	failed := func(format string, args ...any) error {
		return command.Failf("error: executing task of job %d failed: %s", req.Job, api.Visible(fmt.Sprintf(format, args...)))
	}
	if e.Code == api.CodeNoTasks {
		return reply, failed("%s", e.Text)
	}
	if e.Code != api.CodeElsewhere {
		say("%s", api.Visible(e.Text))
		return reply, failed("execution daemon on host %q didn't accept task", req.Host)
	}
	here, err := isHere(ctx, req.Host)
	switch {
	case err != nil:
		return reply, failed("failed sending task to execd@%s: can't resolve host name", req.Host)
	case !here:
		return reply, failed("failed sending task to execd@%s: it is not this host, and the job runs nowhere else", req.Host)
	}
	req.Host = "" // this host, by a name that execd does not know
	return startTask(ctx, inv, req, say)
}

// isHere reports whether a name is one of this host.
func isHere(ctx context.Context, host string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false, err
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false, nil //nolint:nilerr // without the addresses it counts as another host
	}
	for _, f := range found {
		if f.IP.IsLoopback() {
			return true, nil
		}
		for _, o := range own {
			if n, ok := o.(*net.IPNet); ok && n.IP.Equal(f.IP) {
				return true, nil
			}
		}
	}
	return false, nil
}
