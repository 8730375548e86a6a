package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/qrsh/client"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// logView is what the options of qlog ask for.
type logView struct {
	job      string
	follow   bool
	out, err bool // which streams
	lines    int  // the last ones; negative: all
}

// qlog shows the output of a job. Execd says where it is; the files are opened
// with the rights of the caller, and nobody else's.
func qlog(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	v, err := parseLog(inv, settings)
	if err != nil {
		return err
	}
	l := &jobLogs{inv: inv, view: v, shown: map[int]bool{}}
	where, err := l.ask(ctx, v.job)
	if err != nil {
		return err
	}
	l.job, l.array = where.Job, where.Array
	if l.tasks = tasksOf(v.job); l.array && l.tasks == "" && where.Finished {
		return fmt.Errorf("job %d is an array and is over: name a task, as in qlog %d.1", l.job, l.job)
	}
	l.many = l.array && !argument.IsNumber(l.tasks)
	defer l.close()
	if v.follow {
		return l.follow(ctx, where)
	}
	return l.show(where)
}

// parseLog reads the options of qlog.
func parseLog(inv *command.Invocation, settings []option.Setting) (*logView, error) {
	v := &logView{lines: -1}
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil:
			var word argument.Jobs
			if err := word.Add(o.Value()); err != nil {
				return nil, command.Failf("error: %s", err)
			}
			if v.job != "" || len(word.Words) != 1 {
				return nil, &option.Error{Text: "one job at a time, please", Hint: `Type "qlog -help" for the options.`}
			}
			v.job = word.Words[0]
		case o.Name == "-f":
			v.follow = true
		case o.Name == "-o":
			v.out = true
		case o.Name == "-e":
			v.err = true
		case o.Name == "-n":
			n, err := strconv.Atoi(o.Value())
			if err != nil || n < 0 {
				return nil, o.Errorf(option.ExitFailed, "invalid number of lines \"%s\"", api.Visible(o.Value()))
			}
			v.lines = n
		}
	}
	if v.job == "" {
		return nil, inv.NoArguments()
	}
	if !v.out && !v.err {
		v.out, v.err = true, true
	}
	return v, nil
}

// tasksOf returns the part of a word that names tasks; "" if there is none.
func tasksOf(word string) string {
	if dot := strings.LastIndexByte(word, '.'); dot >= 0 && argument.IsRange(word[dot+1:]) {
		return word[dot+1:]
	}
	return ""
}

// jobLogs are the files that are shown.
type jobLogs struct {
	inv   *command.Invocation
	view  *logView
	job   int
	array bool
	tasks string // as the command line names them
	many  bool   // there are several tasks: each line begins with the number of its task
	files []*logFile
	shown map[int]bool // the tasks whose files are in files
}

// word returns the word for the job, or for some tasks of it.
func (l *jobLogs) word(tasks string) string {
	if tasks == "" {
		return strconv.Itoa(l.job)
	}
	return strconv.Itoa(l.job) + "." + tasks
}

func (l *jobLogs) ask(ctx context.Context, word string) (*api.OutputReply, error) {
	var reply api.OutputReply
	if err := l.inv.Client.Call(ctx, api.VerbOutput, &api.OutputRequest{Job: word}, &reply); err != nil {
		if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeNotFound {
			return nil, command.Failf("%s", api.Visible(e.Text))
		}
		return nil, l.inv.CallFailed(err)
	}
	return &reply, nil
}

// add adds the files of tasks that are not shown yet.
func (l *jobLogs) add(where *api.OutputReply) {
	for i := range where.Outputs {
		o := &where.Outputs[i]
		if l.shown[o.Task] {
			continue
		}
		l.shown[o.Task] = true
		one := func(stream, what string, f *api.File) {
			file := &logFile{logs: l, task: o.Task, stream: stream, what: what, path: string(f.Path), name: string(f.Name), state: o.State}
			if l.many {
				file.prefix = strconv.Itoa(o.Task) + ": "
			}
			l.files = append(l.files, file)
		}
		if l.view.out || o.Merged {
			one("stdout", "standard output", &o.Stdout)
		}
		if l.view.err && !o.Merged {
			one("stderr", "standard error", &o.Stderr)
		}
	}
}

func (l *jobLogs) close() {
	for _, f := range l.files {
		f.close()
	}
}

// say tells the user something about a file.
func (l *jobLogs) say(format string, args ...any) {
	fmt.Fprintf(l.inv.Err, "qlog: "+format+"\n", args...)
}

// show prints what there is.
func (l *jobLogs) show(where *api.OutputReply) error {
	if len(where.Outputs) == 0 {
		return fmt.Errorf("no task of job %d runs: name one, as in qlog %d.1", l.job, l.job)
	}
	l.add(where)
	if where.More {
		l.say("job %d has more tasks than these", l.job)
	}
	var failed error
	waits := -1 // the task that the user was told of
	for _, f := range l.files {
		err := f.open()
		if err == nil {
			err = f.copy(context.Background())
		}
		f.finish()
		f.close()
		if err := l.inv.Out.Flush(); err != nil {
			return err
		}
		if errors.Is(err, errNowhere) {
			continue // the user was told
		}
		if err == nil {
			continue
		}
		failed = &command.Failure{Exit: option.ExitFailed}
		if !errors.Is(err, fs.ErrNotExist) || !f.waits() {
			l.say("%s", api.Visible(err.Error()))
		} else if waits != f.task {
			waits = f.task
			l.say("job %s has not started", f.id())
		}
	}
	return failed
}

// How often qlog looks by itself.
const (
	// pollInterval is for files that inotify(7) does not watch.
	pollInterval = time.Second
	// newTasks is for further tasks of an array, which may have started.
	newTasks = 2 * time.Second
)

// follow shows what is written until the job, or the task, is accounted. It
// returns a failure with the exit status of the job.
func (l *jobLogs) follow(ctx context.Context, where *api.OutputReply) error {
	l.add(where)
	w := &waitSet{inv: l.inv}
	if err := w.find(ctx, []string{l.word(l.tasks)}); err != nil {
		return err
	}
	var ended chan int
	if l.many {
		ended = make(chan int, 100)
		// Tasks that had ended before are not followed.
		w.told, w.skip = ended, w.from == ""
	}
	watch := newWatch()
	defer watch.close()
	if len(l.files) > 0 && l.files[0].waits() && l.inv.ErrTerminal != nil {
		l.say("job %s has not started yet", l.word(l.tasks))
	}
	err := command.Interruptible(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() { over <- w.wait(ctx) }()
		err := l.until(ctx, over, ended, watch)
		cancel()
		return err
	}, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if by := (client.Signaled{}); errors.As(err, &by) {
		return &command.Failure{Exit: by.Exit()}
	}
	if err != nil {
		return err
	}
	return cmp.Or(l.inv.Out.Flush(), w.verdict())
}

// until copies until over says that there will be no more.
func (l *jobLogs) until(ctx context.Context, over <-chan error, ended <-chan int, watch *watch) error {
	var tasks <-chan time.Time
	if l.many {
		tick := time.NewTicker(newTasks)
		defer tick.Stop()
		tasks = tick.C
	}
	poll := time.NewTicker(time.Hour)
	defer poll.Stop()
	for last := false; ; {
		blind := false
		for _, f := range l.files {
			known, err := f.advance(ctx, watch, last)
			if err != nil {
				return err
			}
			blind = blind || !known
		}
		if err := l.inv.Out.Flush(); err != nil {
			return err
		}
		if last {
			return nil
		}
		// The timer runs only while there is a file that is not watched.
		if poll.Reset(time.Hour); blind {
			poll.Reset(pollInterval)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-over:
			if err != nil {
				return err
			}
			if err := l.drain(ctx, ended); err != nil {
				return err
			}
			last = true
		case task := <-ended:
			if err := l.endOf(ctx, task); err != nil {
				return err
			}
		case <-tasks:
			if where, err := l.ask(ctx, l.word(l.tasks)); err == nil {
				l.add(where)
			}
		case <-watch.events:
		case <-poll.C:
		}
	}
}

// drain shows the rest of the tasks whose ends are still in the channel.
func (l *jobLogs) drain(ctx context.Context, ended <-chan int) error {
	for {
		select {
		case task := <-ended:
			if err := l.endOf(ctx, task); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// endOf shows the rest of the output of a task that has ended.
func (l *jobLogs) endOf(ctx context.Context, task int) error {
	if !l.shown[task] {
		where, err := l.ask(ctx, l.word(strconv.Itoa(task)))
		if err != nil {
			return nil //nolint:nilerr // the place of its output is not known
		}
		l.add(where)
	}
	kept := l.files[:0]
	for _, f := range l.files {
		if f.task != task {
			kept = append(kept, f)
			continue
		}
		if _, err := f.advance(ctx, nil, true); err != nil {
			return err
		}
		f.close()
	}
	l.files = kept
	return l.inv.Out.Flush()
}
