package show

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/output"
)

// view is what the options of qstat ask for.
type view struct {
	form
	users, jobs []string
	states      states
	detail      bool // -j
	summary     bool // -g c
	busy        bool // -ne: only queues with jobs
	queues      queueFilter
	values      bool     // -F
	attributes  []string // of -F; none: all
	explain     string   // letters of queue states
	json        bool
	xml         bool
}

// qstat shows the jobs that are not finished, alone or below their queues, or
// all about some of them.
func qstat(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	v, err := parseView(inv, settings)
	if err != nil {
		return err
	}
	if v.detail {
		return showDetail(ctx, inv, v)
	}
	var host *api.HostReply
	if v.summary || v.full || v.queues.set() {
		if host, err = chosenHost(ctx, inv, &v.queues); err != nil {
			return err
		}
	}
	if v.summary {
		if v.json {
			return inv.PrintJSON(host)
		}
		if v.xml {
			return xmlQueueSummary(inv, host, v.extended)
		}
		queueSummary(inv, host, v.extended)
		return nil
	}
	c := v.choose(host)
	if !v.xml && !v.json && !v.full {
		return jobTable(ctx, inv, &v.form, c)
	}
	jobs := []api.JobStatus{} // an empty list in JSON, and not null
	if err := eachJob(ctx, inv, &c.request, func(j *api.JobStatus) {
		if c.has(j) {
			jobs = append(jobs, *j)
		}
	}); err != nil {
		return err
	}
	switch {
	case v.xml:
		return xmlJobs(ctx, inv, v, host, jobs, c.shown)
	case v.json && v.full:
		return inv.PrintJSON(hostAndJobs{host, v.form.apart(jobs)})
	case v.json:
		return inv.PrintJSON(api.JobsReply{Jobs: v.form.apart(jobs)})
	}
	queueTable(inv, host, jobs, v)
	return nil
}

// choice says which jobs are shown.
type choice struct {
	request api.JobsRequest
	states  states
	queues  map[string]bool // instances; nil: all
	// shown reports whether the jobs in a queue instance are shown; nil: those
	// in all are.
	shown func(queue string) bool
}

// choose returns which jobs are shown. Where only some queues are wanted, host
// has these.
func (v *view) choose(host *api.HostReply) *choice {
	c := &choice{states: v.states}
	c.request = api.JobsRequest{Users: v.users, States: v.states.ask(), Finished: v.states.finished, More: v.form.needsMore()}
	if !v.queues.set() {
		return c
	}
	c.queues = make(map[string]bool)
	c.shown = func(queue string) bool { return c.queues[queue] }
	for _, h := range hostsIn(host) {
		for i := range h.Queues {
			c.queues[h.Instance(&h.Queues[i])] = true
			name, _, _ := strings.Cut(h.Queues[i].Name, "@")
			c.request.Queues = append(c.request.Queues, name)
		}
	}
	return c
}

// has reports whether a job of execd's reply is one of these.
func (c *choice) has(j *api.JobStatus) bool {
	switch {
	case !c.states.shows(j):
		return false
	case c.queues == nil, j.State == "z":
		return true
	case j.Queue == "":
		return len(c.queues) > 0
	}
	return slices.ContainsFunc(granted(j), func(g api.Granted) bool { return c.queues[g.Queue] })
}

// apart returns the jobs for JSON: with -g d each pending task is one.
func (f *form) apart(jobs []api.JobStatus) []api.JobStatus {
	if !f.single {
		return jobs
	}
	list := []api.JobStatus{}
	for i := range jobs {
		if jobs[i].Queue != "" {
			list = append(list, jobs[i])
			continue
		}
		for _, tasks := range split(&jobs[i]) {
			one := jobs[i]
			one.Tasks = tasks
			list = append(list, one)
		}
	}
	return list
}

// parseView reads the options of qstat.
func parseView(inv *command.Invocation, settings []option.Setting) (*view, error) {
	v := &view{}
	var operand *option.Setting
	for i := range settings {
		o := &settings[i]
		if o.Option == nil {
			v.jobs, operand = append(v.jobs, o.Value()), o
			continue
		}
		if err := v.add(o); err != nil {
			return nil, err
		}
	}
	if operand != nil && !v.detail {
		return nil, inv.NoOperand(operand)
	}
	if v.json && v.xml {
		return nil, errTwoForms
	}
	return v, nil
}

// add reads one option.
func (v *view) add(o *option.Setting) error {
	switch o.Name {
	case "-cb":
		v.hideCores = false
	case "-explain":
		v.full = true
		v.explain = o.Value()
		return checkStates(o.Value(), explained)
	case "-ext":
		v.extended = true
	case "-f":
		v.full = true
	case "-F":
		v.full, v.values = true, true
		v.attributes = append(v.attributes, argument.List(o.Value())...)
	case "-g":
		return v.group(o.Value())
	case "-j":
		v.detail = true
		v.jobs = append(v.jobs, argument.List(o.Value())...)
	case "-json":
		v.json = true
	case "-l", "-pe", "-q", "-qs", "-U":
		return v.queues.add(o)
	case "-ncb":
		v.hideCores = true
	case "-ne":
		v.busy = true
	case "-pri":
		v.priority = true
	case "-r":
		v.requests = true
	case "-s":
		return v.states.add(o.Value())
	case "-t":
		v.slots, v.peTasks = true, true
	case "-u":
		if len(argument.List(o.Value())) == 0 {
			return &option.Error{Exit: option.ExitFailed, Text: "-u option must have argument"}
		}
		v.users = append(v.users, argument.List(o.Value())...)
	case "-urg":
		v.urgency = true
	case "-xml":
		v.xml = true
	}
	return nil
}

// group reads the letters of -g.
func (v *view) group(letters string) error {
	for _, letter := range letters {
		switch letter {
		case 'c':
			v.summary = true
		case 'd':
			v.single = true
		case 't':
			v.slots = true
		default:
			return command.Failf("wrong character '%s' for -g option", api.Visible(string(letter)))
		}
	}
	return nil
}

// eachJob asks execd for jobs and calls do for each as it comes. The job is
// valid only until do returns.
func eachJob(ctx context.Context, inv *command.Invocation, request *api.JobsRequest, do func(*api.JobStatus)) error {
	return inv.CallFailed(inv.Client.Jobs(ctx, request, func(j *api.JobStatus) {
		if request.More && j.More == nil { // an older execd
			j.More = &api.JobMore{}
		}
		do(j)
	}))
}

// jobTable prints the jobs; those that run have a line for each queue that is shown.
func jobTable(ctx context.Context, inv *command.Invocation, f *form, c *choice) error {
	columns := f.columns()
	headed := false
	return eachJob(ctx, inv, &c.request, func(j *api.JobStatus) {
		if !c.has(j) {
			return
		}
		if !headed && (j.Queue == "" || f.shows(j, c.shown)) {
			headed = true
			heading(inv, f, columns, "")
		}
		jobLines(inv, f, columns, j, c.shown)
	})
}

// queueTable prints queues with their jobs, the pending jobs, and those that
// have finished.
func queueTable(inv *command.Invocation, host *api.HostReply, jobs []api.JobStatus, v *view) {
	width, pendingWidth := 81, 76
	if v.form.extended {
		width, pendingWidth = 189, 186
	}
	line, rule := strings.Repeat("-", width), strings.Repeat("#", pendingWidth)
	columns := v.form.columns()
	headed := false
	for k, h := range hostsIn(host) {
		for i := range h.Queues {
			q := &h.Queues[i]
			var running []*api.JobStatus
			for n := range jobs {
				if inQueue(&jobs[n], h.Instance(q)) {
					running = append(running, &jobs[n])
				}
			}
			if v.busy && len(running) == 0 {
				continue
			}
			if !headed {
				headed = true
				fmt.Fprintln(inv.Out, "queuename                      qtype resv/used/tot. load_avg arch          states")
			}
			fmt.Fprintf(inv.Out, "%s\n%s %-5s %-14s %-8s %s %s\n", line, output.Column(h.Instance(q), 30), q.Type,
				fmt.Sprintf("%d/%d/%d", q.Reserved, q.Used, q.Total), loadText(h, "load_avg"), output.Column(h.Arch, 13), api.Visible(q.States))
			if drain := h.Drain; drain != nil {
				fmt.Fprintf(inv.Out, "\t%s: the queue takes no jobs\n", drain)
			}
			if k > 0 {
				if p := &host.Others[k-1]; p.State != api.PeerUp || p.Draining {
					fmt.Fprintf(inv.Out, "\t%s\n", condition(p, time.Now()))
				}
			}
			for n, reason := range q.Reasons {
				if n >= len(q.States) || strings.IndexByte(v.explain, q.States[n]) < 0 {
					continue
				}
				for why := range strings.Lines(reason) {
					fmt.Fprintf(inv.Out, "\t%s\n", api.Visible(strings.TrimSuffix(why, "\n")))
				}
			}
			if v.values {
				for _, a := range queueValues(h, q) {
					if len(v.attributes) == 0 || slices.Contains(v.attributes, a.Name) {
						fmt.Fprintf(inv.Out, "\t%s:%s=%s\n", a.Source, a.Name, api.Visible(a.Decimal(false)))
					}
				}
			}
			for _, j := range running {
				jobLines(inv, &v.form, columns, j, func(queue string) bool { return queue == h.Instance(q) })
			}
		}
	}
	for _, part := range []struct {
		finished bool
		title    string
	}{
		{false, " - PENDING JOBS - PENDING JOBS - PENDING JOBS - PENDING JOBS - PENDING JOBS"},
		{true, " --  FINISHED JOBS  -  FINISHED JOBS  -  FINISHED JOBS  -  FINISHED JOBS  --  "},
	} {
		headed = false
		for i := range jobs {
			if jobs[i].Queue != "" || part.finished != (jobs[i].State == "z") {
				continue
			}
			if !headed {
				headed = true
				fmt.Fprintf(inv.Out, "\n%s\n%s\n%s\n", rule, part.title, rule)
			}
			jobLines(inv, &v.form, columns, &jobs[i], nil)
		}
	}
}

// queueValues returns the attributes of a queue: those of the host, in which the
// queue's own values replace others of the same names, and further ones of the queue.
func queueValues(host *api.HostReply, q *api.QueueStatus) []api.HostValue {
	values := slices.Clone(host.Values)
	for _, own := range q.Values {
		if i := slices.IndexFunc(values, func(v api.HostValue) bool { return v.Name == own.Name }); i >= 0 {
			values[i] = own
		} else {
			values = append(values, own)
		}
	}
	return values
}

// loadText returns a load of the host for a table.
func loadText(host *api.HostReply, name string) string {
	n, err := strconv.ParseFloat(hostValue(host, name), 64)
	if err != nil {
		return "-NA-"
	}
	return strconv.FormatFloat(n, 'f', 2, 64)
}

// inState returns the slots of a queue if it is in one of some states, else 0.
func inState(q *api.QueueStatus, letters string) int {
	if strings.ContainsAny(q.States, letters) {
		return q.Total
	}
	return 0
}

// slotsByState returns how many slots of a queue are in a state that passes by
// itself, in one that an administrator has to end, and available.
func slotsByState(q *api.QueueStatus) (soon, never, available int) {
	if soon, never = inState(q, "aoACDS"), inState(q, "cdsuE"); soon+never == 0 {
		available = max(q.Total-q.Used, 0)
	}
	return soon, never, available
}

// summaryStates are the states of queues that qstat -g c -ext counts.
const summaryStates = "sASCuadDcoE"

// clusterQueue is the queues of one name on all hosts.
type clusterQueue struct {
	name                             string
	load                             float64 // the mean of the hosts of which it is known
	loads                            int     // of how many it is
	used, reserved, available, total int
	soon, soonOnly, never            int // slots in a state that passes by itself, in no other state, and in one that somebody has to end
	states                           [len(summaryStates)]int
}

// clusterQueues returns the queues of a host and of the others that it knows, by name in the
// order in which they are found.
func clusterQueues(host *api.HostReply) (list []*clusterQueue) {
	for _, h := range hostsIn(host) {
		load, err := strconv.ParseFloat(hostValue(h, "np_load_avg"), 64)
		for i := range h.Queues {
			q := &h.Queues[i]
			name, _, _ := strings.Cut(q.Name, "@")
			k := slices.IndexFunc(list, func(c *clusterQueue) bool { return c.name == name })
			if k < 0 {
				k, list = len(list), append(list, &clusterQueue{name: name})
			}
			c := list[k]
			soon, never, available := slotsByState(q)
			if never == 0 {
				c.soonOnly += soon
			}
			if err == nil {
				c.load, c.loads = (c.load*float64(c.loads)+load)/float64(c.loads+1), c.loads+1
			}
			c.used, c.reserved, c.available, c.total = c.used+q.Used, c.reserved+q.Reserved, c.available+available, c.total+q.Total
			c.soon, c.never = c.soon+soon, c.never+never
			for n, letter := range summaryStates {
				c.states[n] += inState(q, string(letter))
			}
		}
	}
	return list
}

// queueSummary prints the slots of each queue on all hosts for qstat -g c, and with extended
// how many are in each state.
func queueSummary(inv *command.Invocation, host *api.HostReply, extended bool) {
	head := "CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE  "
	rule := 80
	if extended {
		for _, letter := range summaryStates {
			head += "    " + string(letter) + " "
		}
		head = strings.TrimSuffix(head, " ")
		rule = len(head) - 1
	}
	fmt.Fprintf(inv.Out, "%s\n%s\n", head, strings.Repeat("-", rule))
	for _, c := range clusterQueues(host) {
		load := "-NA-"
		if c.loads > 0 {
			load = strconv.FormatFloat(c.load, 'f', 2, 64)
		}
		fmt.Fprintf(inv.Out, "%s %7s %6d %6d %6d %6d %6d %6d ", output.Column(c.name, 30), load, c.used, c.reserved, c.available, c.total, c.soonOnly, c.never)
		if extended {
			for _, n := range c.states {
				fmt.Fprintf(inv.Out, "%5d ", n)
			}
		}
		fmt.Fprintln(inv.Out)
	}
}

// allHolds are the letters of api.JobStatus.Holds.
const allHolds = "uosjatp"

// states are the jobs that qstat -s chooses; the zero value chooses all that are
// not finished.
type states struct {
	pending, running, suspended, finished bool
	held                                  string // letters of allHolds
}

// add reads one -s.
func (s *states) add(text string) error {
	if text == "" {
		return &option.Error{Text: "-s option must have argument"}
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case 'p':
			s.pending = true
		case 'r':
			s.running = true
		case 's':
			s.suspended = true
		case 'z':
			s.finished = true
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
		default:
			return &option.Error{Text: "ERROR! wrong argument to -s option"}
		}
	}
	return nil
}

// ask returns the states that a request can ask for; "" where execd cannot choose.
func (s states) ask() string {
	switch {
	case s.held != "": // running jobs may be held, too
		return ""
	case s.pending && !s.running && !s.suspended:
		return "p"
	case s.running && !s.suspended && !s.pending:
		return "r"
	case s.suspended && !s.running && !s.pending:
		return "s"
	case s.finished && !s.running && !s.suspended && !s.pending:
		return "z"
	}
	return ""
}

// shows reports whether a job is wanted.
func (s states) shows(j *api.JobStatus) bool {
	switch {
	case j.State == "z":
		return s.finished
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
func showDetail(ctx context.Context, inv *command.Invocation, v *view) error {
	if len(v.jobs) == 0 {
		return schedulingInfo(ctx, inv, v)
	}
	var reply api.DetailReply
	if err := inv.Client.Call(ctx, api.VerbDetail, &api.DetailRequest{Jobs: v.jobs}, &reply); err != nil {
		return inv.CallFailed(err)
	}
	shown := make(map[int]bool, len(reply.Jobs))
	reply.Jobs = slices.DeleteFunc(reply.Jobs, func(d api.Detail) bool {
		twice := shown[d.Job]
		shown[d.Job] = true
		return twice
	})
	if v.xml {
		return xmlDetail(ctx, inv, &reply, !v.hideCores)
	}
	if v.json {
		if err := inv.PrintJSON(&reply); err != nil {
			return err
		}
	} else {
		for i := range reply.Jobs {
			Job(inv.Out, &reply.Jobs[i], !v.hideCores)
		}
	}
	if len(reply.Missing) > 0 {
		if err := inv.Out.Flush(); err != nil {
			return fmt.Errorf("cannot write standard output: %w", err)
		}
		return command.Failf("Following jobs do not exist: \n%s\nFor jobs that have ended, see qacct -j %s", api.Visible(strings.Join(reply.Missing, ", ")), api.Visible(reply.Missing[0]))
	}
	return nil
}

// errTwoForms is the error of -json and -xml together.
var errTwoForms = &option.Error{Exit: option.ExitFailed, Text: "options -json and -xml exclude each other"}
