package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
