package show

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// form says which columns and lines jobs have.
type form struct {
	full      bool // -f: below their queues
	host      bool // qhost -j: below their host
	extended  bool // -ext
	urgency   bool // -urg
	priority  bool // -pri
	requests  bool // -r
	slots     bool // -g t: a line for each slot
	peTasks   bool // -t
	single    bool // -g d: a line for each task that waits
	hideCores bool // -ncb
}

// needsMore reports whether the form shows values of api.JobMore.
func (f *form) needsMore() bool {
	return f.extended || f.urgency || f.priority || f.requests || f.slots
}

// jobRow is one line of a job: of its pending tasks, of one queue that it runs
// in, or of one slot there.
type jobRow struct {
	*api.JobStatus
	queue  string
	slots  int
	role   string // MASTER or SLAVE
	master bool   // it is the queue of the master task
	next   bool   // a further slot: values of the line above are not repeated
	// tasks are the tasks that were started in this slot, where each slot has a line.
	tasks []api.Subtask
}

// jobColumn is a column of a job's line.
type jobColumn struct {
	title string
	width int
	// again says that the lines of further slots have the column, too.
	again bool
	state bool                 // it is the state of the job, which has a colour on a terminal
	cell  func(*jobRow) string // padded to the width; a longer value makes the cell wider
}

// columns returns the columns of a form in order. The last ones, which have no
// cells, are the titles above the output of appendTasks.
func (f *form) columns() []jobColumn {
	var list []jobColumn
	add := func(wanted bool, columns ...jobColumn) {
		if wanted {
			list = append(list, columns...)
		}
	}
	number := func(title string, width, decimals int, value func(*jobRow) float64) jobColumn {
		return jobColumn{title: title, width: width, cell: func(r *jobRow) string { return decimal(value(r), width, decimals) }}
	}
	text := func(title string, width int, value func(*jobRow) string) jobColumn {
		return jobColumn{title: title, width: width, cell: func(r *jobRow) string { return output.Column(value(r), width) }}
	}
	none := func(title string, width int) jobColumn { return jobColumn{title: title, width: width} }
	add(true,
		jobColumn{title: "job-ID", width: 7, cell: func(r *jobRow) string { return right(strconv.Itoa(r.Job), 7) }},
		number("prior", 7, 5, func(r *jobRow) float64 { return r.Priority }))
	add(f.urgency || f.priority, number("nurg", 7, 5, func(r *jobRow) float64 { return r.More.NormalUrgency }))
	add(f.priority, number("npprior", 7, 5, func(r *jobRow) float64 { return r.More.NormalPriority }))
	add(f.priority || f.extended, number("ntckts", 7, 5, func(r *jobRow) float64 { return r.More.NormalTickets }))
	add(f.urgency,
		number("urg", 8, 0, func(r *jobRow) float64 { return r.More.Urgency.Total }),
		number("rrcontr", 8, 0, func(r *jobRow) float64 { return r.More.Urgency.Resources }),
		number("wtcontr", 8, 0, func(r *jobRow) float64 { return r.More.Urgency.Waiting }),
		number("dlcontr", 8, 0, func(*jobRow) float64 { return 0 })) // no job has a deadline
	add(f.priority, number(" ppri", 5, 0, func(r *jobRow) float64 { return float64(r.More.Priority) }))
	add(true,
		text("name", 10, func(r *jobRow) string { return r.Name }),
		text("user", 12, func(r *jobRow) string { return r.Owner }))
	add(f.extended,
		text("project", 16, func(r *jobRow) string { return cmp.Or(r.More.Project, "NA") }),
		text("department", 10, func(r *jobRow) string { return r.More.Department }))
	state := text("state", 5, func(r *jobRow) string { return r.State })
	state.state = true
	add(true, state)
	add(!f.extended || f.urgency || f.priority || f.peTasks, jobColumn{title: "submit/start at", width: 19, cell: func(r *jobRow) string { return stamp(r.Time) }})
	add(f.urgency, text(" deadline", 19, func(*jobRow) string { return "" }))
	add(f.extended, // the usage of a job with its tasks, or of a slot
		jobColumn{title: "cpu", width: 10, again: true, cell: func(r *jobRow) string { return r.used(10, func(u *api.Usage) string { return days(u.CPU) }) }},
		jobColumn{title: "mem", width: 7, again: true, cell: func(r *jobRow) string { return r.used(7, func(u *api.Usage) string { return decimal(u.Mem, 0, 5) }) }},
		jobColumn{title: "io", width: 7, again: true, cell: func(r *jobRow) string { return r.used(7, func(u *api.Usage) string { return decimal(u.IO, 0, 5) }) }})
	for _, title := range []string{"tckts", "ovrts", "otckt", "ftckt", "stckt"} {
		add(f.extended, jobColumn{title: title, width: 5, again: true, cell: func(r *jobRow) string { return r.tickets("    0") }})
	}
	add(f.extended, jobColumn{title: "share", width: 5, again: true, cell: func(r *jobRow) string { return r.tickets("0.00 ") }})
	width := 30
	if f.host {
		width = 10
	}
	add(!f.full, jobColumn{title: "queue", width: width, again: true, cell: func(r *jobRow) string { return output.Column(r.queue, width) }})
	if f.slots {
		add(true, jobColumn{title: "master", width: 6, again: true, cell: func(r *jobRow) string { return output.Column(r.role, 6) }})
	} else {
		add(true, jobColumn{title: "slots", width: 5, cell: func(r *jobRow) string { return right(strconv.Itoa(r.slots), 5) }})
	}
	add(true, jobColumn{title: "ja-task-ID", width: 10, again: true, cell: func(r *jobRow) string { return cmp.Or(r.Tasks, "       ") }})
	add(f.peTasks, none("task-ID", 7), none("state", 5), none("cpu", 10), none("mem", 7), none("io", 7), none("stat", 4), none("failed", 6))
	return list
}

// used returns the usage for a cell: blanks for a task that does not run, and
// NA where it is not known, as in a slot without a task.
func (r *jobRow) used(width int, value func(*api.Usage) string) string {
	if r.queue == "" {
		return strings.Repeat(" ", width)
	}
	u := r.usage()
	if u == nil {
		return output.Column("NA", width)
	}
	text := value(u)
	return text + strings.Repeat(" ", max(width-len(text), 0))
}

// usage returns the usage for the line: of a slot that of the tasks in it, else
// that of the whole job; nil if it is not known.
func (r *jobRow) usage() *api.Usage {
	var list []*api.Usage
	tasks := r.tasks
	switch {
	case r.role == "MASTER":
		list = append(list, r.More.Usage)
	case r.role == "" && r.master:
		list, tasks = append(list, r.More.Usage, r.More.PastUsage), r.More.Subtasks
	}
	for i := range tasks {
		list = append(list, tasks[i].Usage)
	}
	var sum *api.Usage
	for _, u := range list {
		switch {
		case u == nil:
		case sum == nil:
			sum = &api.Usage{CPU: u.CPU, Mem: u.Mem, IO: u.IO}
		default:
			sum.CPU, sum.Mem, sum.IO = sum.CPU+u.CPU, sum.Mem+u.Mem, sum.IO+u.IO
		}
	}
	return sum
}

// appendTasks appends the tasks in a slot to its line, the job itself as the first one
// if it has or had tasks. As in Grid Engine they begin a little to the right of their
// titles, and the last two columns are empty: tasks that have ended are not shown.
func (r *jobRow) appendTasks(b []byte) []byte {
	one := func(id string, u *api.Usage) {
		cpu, mem, io := "NA        ", "NA     ", "NA     "
		if u != nil {
			cpu, mem, io = clock(u.CPU), decimal(u.Mem, 0, 5), decimal(u.IO, 0, 5)
		}
		b = fmt.Appendf(b, "   %-12s %s %s %s %s ", api.Visible(id), output.Column(r.State, 5), cpu, mem, io)
	}
	if r.role == "MASTER" && r.More.GrantedPE != "" && (r.More.PastUsage != nil || len(r.More.Subtasks) > 0) {
		one("", r.More.Usage)
	}
	for i := range r.tasks {
		one(r.tasks[i].ID, r.tasks[i].Usage)
	}
	return b
}

// tasksIn returns the tasks of a parallel job that were started in a queue
// instance. Tasks of qrsh -into have no slot.
func tasksIn(j *api.JobStatus, queue string) []api.Subtask {
	if len(j.More.Subtasks) == 0 {
		return nil
	}
	name, _, _ := strings.Cut(queue, "@")
	return slices.DeleteFunc(slices.Clone(j.More.Subtasks), func(t api.Subtask) bool {
		return t.Queue != name || strings.HasPrefix(t.ID, "into.")
	})
}

// tickets returns none, the value for a job without tickets, or NA for a finished job.
func (r *jobRow) tickets(none string) string {
	if r.State == "z" {
		return right("NA", len(none))
	}
	return none
}

// heading prints the titles of the columns and a rule below them.
func heading(inv *command.Invocation, f *form, columns []jobColumn, before string) {
	var b strings.Builder
	for _, c := range columns {
		b.WriteString(output.Column(c.title, c.width))
		b.WriteByte(' ')
	}
	rule := b.Len() - 1
	if !f.host {
		rule = f.rule()
	}
	fmt.Fprintf(inv.Out, "%s%s\n%s%s\n", before, b.String(), before, strings.Repeat("-", rule))
}

// rule returns the length of the rule below the titles. Grid Engine adds a
// length for each option, although some have columns in common.
func (f *form) rule() int {
	n := 113
	for _, part := range []struct {
		on     bool
		length int
	}{{f.extended, 79}, {f.urgency, 64}, {f.priority, 35}, {f.slots, 1}, {f.peTasks, 53}} {
		if part.on {
			n += part.length
		}
	}
	return n
}

// outOfLine is how far, with -pri, the lines of further slots are shifted to
// the right in Grid Engine's qstat.
const outOfLine = 12

// jobLine prints a line of a job, and with -r its requests.
func jobLine(inv *command.Invocation, f *form, columns []jobColumn, r *jobRow) {
	b := inv.Out.AvailableBuffer()
	if f.host {
		b = append(b, "   "...)
	}
	if r.next && f.priority {
		b = append(b, strings.Repeat(" ", outOfLine)...)
	}
	for i := range columns {
		c := &columns[i]
		if c.cell == nil {
			break
		}
		if i > 0 {
			b = append(b, ' ')
		}
		switch {
		case !c.again && r.next:
			b = append(b, strings.Repeat(" ", c.width)...)
		case c.state:
			b = append(b, output.StateColumn(inv.OutTerminal, r.State, c.width)...)
		default:
			b = append(b, c.cell(r)...)
		}
	}
	if f.peTasks && r.queue != "" {
		b = r.appendTasks(b)
	}
	if r.From != "" && !r.next {
		b = fmt.Appendf(b, " from %s", origin(r.From))
	}
	_, _ = inv.Out.Write(append(b, '\n')) // Flush returns the error, too
	if f.requests {
		jobRequests(inv, f, r)
	}
}

// origin shows of which job of which host a job is a run: login1 #12.1.
func origin(from string) string { return strings.Replace(api.Visible(from), " ", " #", 1) }

// jobLines prints the lines of a job for the queues that are shown.
func jobLines(inv *command.Invocation, f *form, columns []jobColumn, j *api.JobStatus, shown func(queue string) bool) {
	f.rows(j, shown, func(r *jobRow) { jobLine(inv, f, columns, r) })
}

// rows calls do for each line of a job for the queues that are shown.
func (f *form) rows(j *api.JobStatus, shown func(queue string) bool, do func(r *jobRow)) {
	if j.Queue == "" {
		if !f.single {
			do(&jobRow{JobStatus: j, slots: j.Slots})
			return
		}
		for _, tasks := range split(j) {
			one := *j
			one.Tasks = tasks
			do(&jobRow{JobStatus: &one, slots: j.Slots})
		}
		return
	}
	for i, g := range granted(j) {
		master := i == 0
		if shown != nil && !shown(g.Queue) {
			continue
		}
		row := jobRow{JobStatus: j, queue: g.Queue, slots: g.Slots, master: master}
		if !f.slots {
			if !f.full && !master {
				continue
			}
			if !f.full {
				row.slots = j.Slots
			}
			do(&row)
			continue
		}
		lines := g.Slots
		if master && j.More.MasterApart {
			lines++
		}
		tasks := tasksIn(j, g.Queue)
		for n := range lines {
			row.role, row.next, row.tasks = "SLAVE", n > 0, nil
			if master && n == 0 {
				row.role = "MASTER"
			}
			for i := range tasks { // the first task is in the second slot; the first slot is that of the job itself
				if (i+1)%lines == n {
					row.tasks = append(row.tasks, tasks[i])
				}
			}
			do(&row)
		}
	}
}

// shows reports whether a running job has a line where only some queues are shown.
func (f *form) shows(j *api.JobStatus, shown func(queue string) bool) bool {
	for i, g := range granted(j) {
		if (i == 0 || f.slots) && (shown == nil || shown(g.Queue)) {
			return true
		}
	}
	return false
}

// granted returns the slots of a running job by queue.
func granted(j *api.JobStatus) []api.Granted {
	switch {
	case len(j.Granted) > 0:
		return j.Granted
	case j.More != nil && len(j.More.Granted) > 0:
		return j.More.Granted
	}
	return []api.Granted{{Queue: j.Queue, Slots: j.Slots}}
}

// split returns the tasks of a pending job, each for a line of its own.
func split(j *api.JobStatus) []string {
	if j.State == "z" || j.Tasks == "" {
		return []string{j.Tasks}
	}
	return eachTask(j.Tasks)
}

// eachTask returns the numbers of a list like "1,3-9:2".
func eachTask(text string) []string {
	var tasks []string
	for _, word := range argument.List(text) {
		t, err := api.ParseTasks(word)
		if err != nil {
			return []string{text} // a form of a later execd
		}
		for n := t.First; n <= t.Last; n += t.Step {
			tasks = append(tasks, strconv.Itoa(n))
		}
	}
	return tasks
}

// jobRequests prints the requests of a job for qstat -r.
func jobRequests(inv *command.Invocation, f *form, r *jobRow) {
	m := r.More
	say := func(key, value string) { fmt.Fprintf(inv.Out, "       %-17s %s\n", key, api.Visible(value)) }
	has := func(key, value string) {
		if value != "" {
			say(key, value)
		}
	}
	resources := func(key string, lines []string) {
		say(key, strings.Join(lines[:min(1, len(lines))], ""))
		for _, line := range lines[min(1, len(lines)):] {
			say("", line)
		}
	}
	numbers := func(list []int) string { return strings.Join(digits(list), ", ") }
	say("Full jobname:", r.Name)
	has("Master Queue:", r.queue)
	if m.PE != "" {
		say("Requested PE:", m.PE+" "+slotRanges(m.Slots))
	}
	if m.GrantedPE != "" {
		say("Granted PE:", fmt.Sprintf("%s %d", m.GrantedPE, r.Slots))
	}
	has("Checkpoint Env.:", m.Checkpoint)
	var hard, soft []string
	for _, h := range m.Hard {
		hard = append(hard, fmt.Sprintf("%s=%s (%f)", h.Name, h.Value, h.Urgency))
	}
	for _, w := range m.Soft {
		soft = append(soft, w.Name+"="+w.Value)
	}
	resources("Hard Resources:", hard)
	resources("Soft Resources:", soft)
	has("Hard requested queues:", strings.Join(m.Queues, ", "))
	has("Soft requested queues:", strings.Join(m.SoftQueues, ", "))
	has("Master task hard requested queues:", strings.Join(m.MasterQueues, ", "))
	has("Predecessor Jobs (request):", strings.Join(m.HoldJobs, ", "))
	has("Predecessor Jobs:", numbers(m.WaitsFor))
	has("Predecessor Array Jobs (request):", strings.Join(m.HoldArray, ", "))
	has("Predecessor Array Jobs:", numbers(m.WaitsForTasks))
	if !f.hideCores {
		say("Binding:", binding(m.Binding))
	}
}

// digits returns numbers as texts.
func digits(list []int) []string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return words
}

// right pads text on the left.
func right(text string, width int) string {
	return strings.Repeat(" ", max(width-len(text), 0)) + text
}

// decimal returns a number with decimals, or with an exponent if it is too long
// for the column.
func decimal(n float64, width, decimals int) string {
	text := strconv.FormatFloat(n, 'f', decimals, 64)
	if width > 0 && len(text) > width {
		text = strconv.FormatFloat(n, 'g', 3, 64)
	}
	return right(text, width)
}

// days returns seconds as days:hours:minutes:seconds.
func days(seconds float64) string {
	n := int64(seconds)
	return fmt.Sprintf("%d:%02d:%02d:%02d", n/86400, n/3600%24, n/60%60, n%60)
}

// inQueue reports whether a job has a slot in a queue.
func inQueue(j *api.JobStatus, queue string) bool {
	return j.Queue == queue || slices.ContainsFunc(j.Granted, func(g api.Granted) bool { return g.Queue == queue })
}
