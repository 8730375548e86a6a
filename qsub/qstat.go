package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// qstat shows the jobs that are not finished, or all about some of them.
func (s *session) qstat(ctx context.Context, args []string) error {
	settings, err := option.Mixed(option.Qstat, args)
	if err != nil {
		return err
	}
	if done, err := s.asked(settings); done {
		return err
	}
	var users, jobs, operands []string
	detail := false
	var states []string
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil:
			operands = append(operands, o.Value())
		case o.Name == "-u":
			users = append(users, list(o.Value())...)
		case o.Name == "-s":
			states = append(states, o.Value())
		case o.Name == "-j":
			detail = true
			jobs = append(jobs, list(o.Value())...)
		}
	}
	if detail {
		return s.detail(ctx, append(jobs, operands...))
	}
	if len(operands) > 0 {
		return &option.Error{Text: fmt.Sprintf("invalid option argument \"%s\"", operands[0])}
	}
	show, err := parseStates(strings.Join(states, ""))
	if err != nil {
		return err
	}
	var reply api.JobsReply
	if err := s.client.Call(ctx, api.VerbJobs, &api.JobsRequest{Users: users, States: show.ask()}, &reply); err != nil {
		return s.callFailed(err)
	}
	headed := false
	for i := range reply.Jobs {
		j := &reply.Jobs[i]
		if !show.shows(j.State) {
			continue
		}
		if !headed {
			headed = true
			fmt.Fprintf(s.out, "%-7s %-7s %-10s %-12s %-5s %-19s %-30s %5s %s \n%s\n", "job-ID", "prior", "name", "user", "state",
				"submit/start at", "queue", "slots", "ja-task-ID", strings.Repeat("-", 113))
		}
		tasks := j.Tasks
		if tasks == "" {
			tasks = "       "
		}
		fmt.Fprintf(s.out, "%7d %7.5f %s %s %s %s %s %5d %s\n", j.Job, j.Priority, column(j.Name, 10), column(j.Owner, 12),
			column(j.State, 5), stamp(j.Time), column(j.Queue, 30), j.Slots, tasks)
	}
	return nil
}

// callFailed gives an error of execd's, or of reaching it, the form in which
// Grid Engine's commands say it.
func (s *session) callFailed(err error) error {
	if errors.Is(err, api.ErrUnreachable) {
		return &failure{exitFailed, "error: " + api.Visible(err.Error())}
	}
	return err
}

// list splits a list at its commas.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// column pads or cuts text to a width.
func column(text string, width int) string {
	text = api.Visible(text)
	n := utf8.RuneCountInString(text)
	if n > width {
		return string([]rune(text)[:width])
	}
	return text + strings.Repeat(" ", width-n)
}

// stamp is a time in the tables of qstat.
func stamp(t time.Time) string { return t.Local().Format("01/02/2006 15:04:05") }

// date is a time in the listings of qstat -j and qacct -j.
func date(t time.Time) string { return t.Local().Format("Mon Jan _2 15:04:05 2006") }

// states are the jobs that qstat -s chooses; the zero value chooses all.
type states struct{ pending, running, suspended, held bool }

func parseStates(text string) (states, error) {
	var s states
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case 'p':
			s.pending = true
		case 'r':
			s.running = true
		case 's':
			s.suspended = true
		case 'a':
			s.pending, s.running, s.suspended = true, true, true
		case 'h':
			s.held = true
			// Who holds it (hu, ho, hs, hd, hj, ha) is all the same yet.
			if i+1 < len(text) && strings.IndexByte("uosdja", text[i+1]) >= 0 {
				i++
			}
		case 'z':
			return s, &option.Error{Text: "option -s z is not supported yet; qacct -j shows finished jobs"}
		default:
			return s, &option.Error{Text: "ERROR! wrong argument to -s option"}
		}
	}
	return s, nil
}

// ask returns what execd can choose by itself.
func (s states) ask() string {
	switch s {
	case states{pending: true}, states{held: true}, states{pending: true, held: true}:
		return "p"
	case states{running: true}:
		return "r"
	case states{suspended: true}:
		return "s"
	}
	return ""
}

// shows reports whether jobs with these letters are wanted.
func (s states) shows(letters string) bool {
	waits := strings.Contains(letters, "w")
	switch {
	case s == states{}:
		return true
	case strings.Contains(letters, "h") && s.held:
		return true
	case waits:
		return s.pending
	case strings.ContainsAny(letters, "sST"):
		return s.suspended
	}
	return s.running
}

// detail is qstat -j.
func (s *session) detail(ctx context.Context, jobs []string) error {
	if len(jobs) == 0 {
		return &option.Error{Text: "-j option must have argument"}
	}
	var reply api.DetailReply
	if err := s.client.Call(ctx, api.VerbDetail, &api.DetailRequest{Jobs: jobs}, &reply); err != nil {
		return s.callFailed(err)
	}
	shown := make(map[int]bool, len(reply.Jobs))
	for i := range reply.Jobs {
		if d := &reply.Jobs[i]; !shown[d.Job] {
			shown[d.Job] = true
			writeDetail(s.out, d)
		}
	}
	if len(reply.Missing) > 0 {
		if err := s.out.Flush(); err != nil {
			return fmt.Errorf("cannot write standard output: %w", err)
		}
		return &failure{exitFailed, "Following jobs do not exist: \n" + api.Visible(strings.Join(reply.Missing, ", "))}
	}
	return nil
}

// originKeys are the SGE_O_ variables that qstat -j shows, and their keys.
var originKeys = []struct{ variable, key string }{
	{"SGE_O_HOME=", "sge_o_home"},
	{"SGE_O_LOGNAME=", "sge_o_log_name"},
	{"SGE_O_PATH=", "sge_o_path"},
	{"SGE_O_SHELL=", "sge_o_shell"},
	{"SGE_O_TZ=", "sge_o_tz"},
	{"SGE_O_WORKDIR=", "sge_o_workdir"},
	{"SGE_O_HOST=", "sge_o_host"},
}

func writeDetail(b *bufio.Writer, d *api.Detail) {
	r := &d.Request
	say := func(key, value string) { fmt.Fprintf(b, "%-28s%s\n", key+":", api.Visible(value)) }
	// has is for keys that stand only where they say something.
	has := func(key, value string) {
		if value != "" {
			say(key, value)
		}
	}
	path := func(key, value string) {
		if value != "" {
			say(key, "NONE:NONE:"+value)
		}
	}
	fmt.Fprintln(b, strings.Repeat("=", 62))
	say("job_number", fmt.Sprint(d.Job))
	has("exec_file", d.ScriptFile)
	say("submission_time", date(d.Submitted))
	say("owner", d.Owner)
	say("uid", fmt.Sprint(d.UID))
	say("group", d.Group)
	say("gid", fmt.Sprint(d.GID))
	for _, k := range originKeys {
		for _, v := range r.Origin {
			if value, ok := strings.CutPrefix(v, k.variable); ok {
				say(k.key, value)
			}
		}
	}
	account := r.Account
	if account == "" {
		account = "sge"
	}
	say("account", account)
	has("cwd", r.Cwd)
	path("stderr_path_list", r.Stderr)
	if r.Merge {
		say("merge", "y")
	}
	if r.Notify {
		say("notify", "TRUE")
	}
	say("job_name", r.Name)
	path("stdout_path_list", r.Stdout)
	path("stdin_path_list", r.Stdin)
	has("restart", string(r.Rerun))
	if r.Shell != "" {
		say("shell_list", "NONE:"+r.Shell)
	}
	if env := envList(r.Env); env != "" {
		say("env_list", env)
	}
	if len(r.Args) > 0 {
		say("job_args", strings.Join(r.Args, ","))
	}
	has("script_file", r.Command)
	if r.Tasks.IsArray() {
		say("job-array tasks", r.Tasks.String())
		if r.MaxRun > 0 {
			say("maximum concurrency", fmt.Sprint(r.MaxRun))
		}
		has("pending tasks", d.Pending)
		say("finished tasks", fmt.Sprint(d.Finished))
	}
	kind := "NONE"
	if r.Binary {
		kind = "binary"
		if r.NoShell {
			kind += ",noshell"
		}
	}
	say("job_type", kind)
	inError := false
	for i := range d.Tasks {
		t := &d.Tasks[i]
		inError = inError || strings.HasPrefix(t.State, "E")
		task := func(key, value string) {
			if value != "" {
				fmt.Fprintf(b, "%s %*d:%12s%s\n", key, 14-len(key), t.Task, "", api.Visible(value))
			}
		}
		task("job_state", t.State)
		if !t.Started.IsZero() {
			task("start_time", stamp(t.Started))
		}
		task("queue", t.Queue)
		if t.Run > 0 {
			task("restarts", fmt.Sprint(t.Run))
		}
		if t.Reason != "" {
			fmt.Fprintf(b, "%-16s %6d:      %s\n", "error reason", t.Task, api.Visible(t.Reason))
		}
	}
	reasons := d.Reasons
	if inError && len(reasons) == 0 {
		reasons = []string{"Job is in error state"}
	}
	for i, reason := range reasons {
		key := "scheduling info:"
		if i > 0 {
			key = ""
		}
		fmt.Fprintf(b, "%-28s%s\n", key, api.Visible(reason))
	}
}

// envList is an environment as qstat -j shows it.
func envList(env []string) string {
	items := make([]string, len(env))
	for i, v := range env {
		if strings.HasSuffix(v, "=") && strings.Count(v, "=") == 1 {
			v += "NONE"
		}
		items[i] = v
	}
	return strings.Join(items, ",")
}
