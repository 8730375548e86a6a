package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"paddock/execd/api"
	"paddock/qsub/internal/option"
)

// view is what the options of qstat ask for.
type view struct {
	users, jobs []string
	states      states
	detail      bool // -j
	full        bool // -f: queues with their jobs
	summary     bool // -g c
	busy        bool // -ne: only queues with jobs
	queues      queueFilter
	values      bool     // -F
	attributes  []string // of -F; none: all
	explain     string   // letters of queue states
	json        bool
}

// qstat shows the jobs that are not finished, alone or below their queues, or
// all about some of them.
func (s *session) qstat(ctx context.Context, args []string) error {
	settings, err := option.Mixed(option.Qstat, args)
	if err != nil {
		return err
	}
	if done, err := s.asked(settings); done {
		return err
	}
	v, err := s.parseView(settings)
	if err != nil {
		return err
	}
	switch {
	case v.detail:
		return s.detail(ctx, v)
	case v.summary:
		host, err := s.host(ctx)
		if err != nil {
			return err
		}
		if err := v.queues.choose(host); err != nil {
			return err
		}
		if v.json {
			return s.printJSON(host)
		}
		s.queueSummary(host)
		return nil
	}
	jobs, err := s.jobs(ctx, &api.JobsRequest{Users: v.users, States: v.states.ask()})
	if err != nil {
		return err
	}
	jobs = slices.DeleteFunc(jobs, func(j api.JobStatus) bool { return !v.states.shows(&j) })
	if !v.full && !v.queues.set() {
		if v.json {
			return s.printJSON(api.JobsReply{Jobs: jobs})
		}
		s.jobTable(jobs)
		return nil
	}
	host, err := s.host(ctx)
	if err != nil {
		return err
	}
	if err := v.queues.choose(host); err != nil {
		return err
	}
	chosen := make(map[string]bool)
	for i := range host.Queues {
		chosen[instance(host, &host.Queues[i])] = true
	}
	jobs = slices.DeleteFunc(jobs, func(j api.JobStatus) bool { return j.Queue != "" && !chosen[j.Queue] && v.queues.set() })
	switch {
	case v.json && v.full:
		return s.printJSON(hostAndJobs{host, jobs})
	case v.json:
		return s.printJSON(api.JobsReply{Jobs: jobs})
	case v.full:
		s.queueTable(host, jobs, v)
	default:
		s.jobTable(jobs)
	}
	return nil
}

// parseView reads the options of qstat.
func (s *session) parseView(settings []option.Setting) (*view, error) {
	v := &view{}
	var operand *option.Setting
	var err error
	for i := range settings {
		o := &settings[i]
		if o.Option == nil {
			v.jobs, operand = append(v.jobs, o.Value()), o
			continue
		}
		switch o.Name {
		case "-explain":
			v.full = true
			v.explain += o.Value()
			err = checkStates(o.Value())
		case "-f":
			v.full = true
		case "-F":
			v.full, v.values = true, true
			v.attributes = append(v.attributes, list(o.Value())...)
		case "-g":
			switch o.Value() {
			case "c":
				v.summary = true
			case "d", "t":
				err = &option.Error{Text: fmt.Sprintf("option -g %s is not supported yet", o.Value())}
			default:
				err = &failure{exitFailed, fmt.Sprintf("wrong character '%s' for -g option", api.Visible(o.Value()))}
			}
		case "-j":
			v.detail = true
			v.jobs = append(v.jobs, list(o.Value())...)
		case "-json":
			v.json = true
		case "-ne":
			v.busy = true
		case "-q", "-qs":
			err = v.queues.add(o)
		case "-s":
			err = v.states.add(o.Value())
		case "-u":
			v.users = append(v.users, list(o.Value())...)
		}
		if err != nil {
			return nil, err
		}
	}
	if operand != nil && !v.detail {
		return nil, s.noOperand(operand)
	}
	return v, nil
}

// jobs asks for jobs that are not finished.
func (s *session) jobs(ctx context.Context, request *api.JobsRequest) ([]api.JobStatus, error) {
	var reply api.JobsReply
	if err := s.client.Call(ctx, api.VerbJobs, request, &reply); err != nil {
		return nil, s.callFailed(err)
	}
	return reply.Jobs, nil
}

// jobTable prints the jobs.
func (s *session) jobTable(jobs []api.JobStatus) {
	for i := range jobs {
		if i == 0 {
			fmt.Fprintf(s.out, "%-7s %-7s %-10s %-12s %-5s %-19s %-30s %5s %s \n%s\n", "job-ID", "prior", "name", "user", "state",
				"submit/start at", "queue", "slots", "ja-task-ID", strings.Repeat("-", 113))
		}
		s.jobLine(&jobs[i], column(jobs[i].Queue, 30)+" ")
	}
}

// jobLine prints a line of a job; queue is a column of its own, or "".
func (s *session) jobLine(j *api.JobStatus, queue string) {
	tasks := j.Tasks
	if tasks == "" {
		tasks = "       "
	}
	fmt.Fprintf(s.out, "%7d %7.5f %s %s %s %s %s%5d %s\n", j.Job, j.Priority, column(j.Name, 10), column(j.Owner, 12),
		column(j.State, 5), stamp(j.Time), queue, j.Slots, tasks)
}

// queueTable prints queues with their jobs, and the jobs that wait.
func (s *session) queueTable(host *api.HostReply, jobs []api.JobStatus, v *view) {
	line := strings.Repeat("-", 81)
	headed := false
	for i := range host.Queues {
		q := &host.Queues[i]
		var running []*api.JobStatus
		for k := range jobs {
			if jobs[k].Queue == instance(host, q) {
				running = append(running, &jobs[k])
			}
		}
		if v.busy && len(running) == 0 {
			continue
		}
		if !headed {
			headed = true
			fmt.Fprintln(s.out, "queuename                      qtype resv/used/tot. load_avg arch          states")
		}
		load := "-NA-"
		if n, err := strconv.ParseFloat(hostValue(host, "load_avg"), 64); err == nil {
			load = strconv.FormatFloat(n, 'f', 2, 64)
		}
		fmt.Fprintf(s.out, "%s\n%s %-5s %-14s %-8s %s %s\n", line, column(instance(host, q), 30), q.Type,
			fmt.Sprintf("%d/%d/%d", q.Reserved, q.Used, q.Total), load, column(host.Arch, 13), api.Visible(q.States))
		for k, reason := range q.Reasons {
			if reason != "" && k < len(q.States) && strings.IndexByte(v.explain, q.States[k]) >= 0 {
				fmt.Fprintf(s.out, "\t%s\n", api.Visible(reason))
			}
		}
		if v.values {
			for _, a := range queueValues(host, q) {
				if len(v.attributes) == 0 || slices.Contains(v.attributes, a.Name) {
					fmt.Fprintf(s.out, "\t%s:%s=%s\n", a.Source, a.Name, attributeText(&a))
				}
			}
		}
		for _, j := range running {
			s.jobLine(j, "")
		}
	}
	headed = false
	for i := range jobs {
		if jobs[i].Queue != "" {
			continue
		}
		if !headed {
			headed = true
			rule := strings.Repeat("#", 76)
			fmt.Fprintf(s.out, "\n%s\n - PENDING JOBS - PENDING JOBS - PENDING JOBS - PENDING JOBS - PENDING JOBS\n%s\n", rule, rule)
		}
		s.jobLine(&jobs[i], "")
	}
}

// queueValues returns what holds for a queue: the host's attributes, unless it
// has one of its own of that name, and its own.
func queueValues(host *api.HostReply, q *api.QueueStatus) []api.HostValue {
	values := slices.DeleteFunc(slices.Clone(host.Values), func(v api.HostValue) bool {
		return slices.ContainsFunc(q.Values, func(own api.HostValue) bool { return own.Name == v.Name })
	})
	return append(values, q.Values...)
}

// queueSummary prints the slots of each queue, qstat -g c.
func (s *session) queueSummary(host *api.HostReply) {
	fmt.Fprintf(s.out, "CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE  \n%s\n", strings.Repeat("-", 80))
	for i := range host.Queues {
		q := &host.Queues[i]
		name, _, _ := strings.Cut(q.Name, "@")
		load := "-NA-"
		if n, err := strconv.ParseFloat(hostValue(host, "np_load_avg"), 64); err == nil {
			load = strconv.FormatFloat(n, 'f', 2, 64)
		}
		available := max(q.Total-q.Used, 0)
		var soon, never int // slots of queues in a state that passes, and in one that somebody must end
		if strings.ContainsAny(q.States, "aoACDS") {
			soon, available = q.Total, 0
		}
		if strings.ContainsAny(q.States, "cdsuE") {
			never, available = q.Total, 0
		}
		fmt.Fprintf(s.out, "%s %7s %6d %6d %6d %6d %6d %6d \n", column(name, 30), load, q.Used, q.Reserved, available, q.Total, soon, never)
	}
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

// Letters of api.JobStatus.Holds.
const allHolds = "uosjat"

// states are the jobs that qstat -s chooses; the zero value chooses all.
type states struct {
	pending, running, suspended bool
	held                        string // letters of allHolds
}

// add reads one -s.
func (s *states) add(text string) error {
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
			// hd is for array jobs, ha for a start time.
			const known, letters = "uosdja", "uosajt"
			k := -1
			if i+1 < len(text) {
				k = strings.IndexByte(known, text[i+1])
			}
			if k < 0 {
				s.held = allHolds
				continue
			}
			s.held += letters[k : k+1]
			i++
		case 'z':
			return &option.Error{Text: "option -s z is not supported yet; qacct -j shows finished jobs"}
		default:
			return &option.Error{Text: "ERROR! wrong argument to -s option"}
		}
	}
	return nil
}

// ask returns what execd can choose by itself.
func (s states) ask() string {
	switch waiting := s.pending || s.held != ""; {
	case waiting && !s.running && !s.suspended:
		return "p"
	case s == states{running: true}:
		return "r"
	case s == states{suspended: true}:
		return "s"
	}
	return ""
}

// shows reports whether a job is wanted.
func (s states) shows(j *api.JobStatus) bool {
	switch {
	case s == states{}:
		return true
	case strings.ContainsAny(j.Holds, s.held):
		return true
	case s.held == allHolds && strings.Contains(j.State, "h"):
		return true
	case strings.Contains(j.State, "w"):
		return s.pending
	case strings.ContainsAny(j.State, "sST"):
		return s.suspended
	}
	return s.running
}

// detail is qstat -j.
func (s *session) detail(ctx context.Context, v *view) error {
	if len(v.jobs) == 0 {
		return &option.Error{Text: "-j option must have argument"}
	}
	var reply api.DetailReply
	if err := s.client.Call(ctx, api.VerbDetail, &api.DetailRequest{Jobs: v.jobs}, &reply); err != nil {
		return s.callFailed(err)
	}
	shown := make(map[int]bool, len(reply.Jobs))
	reply.Jobs = slices.DeleteFunc(reply.Jobs, func(d api.Detail) bool {
		twice := shown[d.Job]
		shown[d.Job] = true
		return twice
	})
	if v.json {
		if err := s.printJSON(&reply); err != nil {
			return err
		}
	} else {
		for i := range reply.Jobs {
			writeDetail(s.out, &reply.Jobs[i])
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
