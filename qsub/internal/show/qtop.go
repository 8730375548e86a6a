package show

import (
	"cmp"
	"context"
	"fmt"
	"path"
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

// topView is what the options of qtop, and later the keys, ask for.
type topView struct {
	users      []string
	delay      time.Duration
	iterations int // 0: no end
	batch      bool
	json       bool
	by         topKey
	reverse    bool
	first      int  // the first line of the table that is shown
	chart      bool // the slots over time, instead of the table
	width      int  // which of ganttWidths it shows
}

const defaultDelay = 2 * time.Second

// qtop shows the running jobs and their usage: on a terminal a screen that is
// updated, elsewhere tables.
func qtop(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	v := &topView{delay: defaultDelay, batch: inv.OutTerminal == nil, by: byCPU, width: 1}
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil:
			return inv.NoOperand(o)
		case o.Name == "-b":
			v.batch = true
		case o.Name == "-d":
			if v.delay, err = argument.Duration(o); err != nil {
				return err
			}
		case o.Name == "-json":
			v.batch, v.json = true, true
		case o.Name == "-n":
			if v.iterations, err = strconv.Atoi(o.Value()); err != nil || v.iterations < 1 {
				return o.Errorf(option.ExitFailed, "invalid number \"%s\"", api.Visible(o.Value()))
			}
		case o.Name == "-u":
			v.users = append(v.users, argument.List(o.Value())...)
		}
	}
	v.delay = max(v.delay, minDelay)
	t := &top{inv: inv, view: v, rates: rates{}}
	if err := t.refresh(ctx); err != nil {
		return err
	}
	if !v.batch {
		return t.live(ctx)
	}
	v.iterations = max(v.iterations, 1)
	return t.print(ctx)
}

// minDelay bounds the load on execd, which does not measure the jobs more often
// anyway.
const minDelay = 200 * time.Millisecond

// top is the last reply of execd, and how it is shown.
type top struct {
	inv   *command.Invocation
	view  *topView
	reply api.TopReply
	users []string // whose jobs it has; empty: all have
	at    time.Time
	rates rates
	gantt gantt
}

// refresh asks execd and keeps the reply.
func (t *top) refresh(ctx context.Context) error {
	reply, err := askTop(ctx, t.inv, t.view.users)
	if err == nil {
		t.take(reply, t.view.users, time.Now())
	}
	return err
}

func askTop(ctx context.Context, inv *command.Invocation, users []string) (*api.TopReply, error) {
	for _, u := range users {
		if _, err := path.Match(u, ""); err != nil {
			return nil, fmt.Errorf("%q is not a pattern of users", u)
		}
	}
	var reply api.TopReply
	if err := inv.Client.Call(ctx, api.VerbTop, &api.TopRequest{Users: users}, &reply); err != nil {
		return nil, inv.CallFailed(err)
	}
	return &reply, nil
}

// take keeps a reply, which has the jobs of some users.
func (t *top) take(reply *api.TopReply, users []string, now time.Time) {
	t.reply, t.users, t.at = *reply, users, now
	t.rates.take(reply, now)
}

// print prints tables.
func (t *top) print(ctx context.Context) error {
	for n := 1; ; n++ {
		if t.view.json {
			if err := t.inv.PrintJSON(&t.reply); err != nil {
				return err
			}
		} else {
			if n > 1 {
				fmt.Fprintln(t.inv.Out)
			}
			columns := topColumns
			if t.inv.OutTerminal != nil {
				columns, _ = output.Size(t.inv.OutTerminal)
			}
			l := t.layout(columns)
			for _, line := range slices.Concat(t.summary(), []string{l.header()}, t.rows(l)) {
				fmt.Fprintln(t.inv.Out, line)
			}
		}
		if err := t.inv.Out.Flush(); err != nil || n == t.view.iterations {
			return err
		}
		timer := time.NewTimer(t.view.delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		if err := t.refresh(ctx); err != nil {
			return err
		}
	}
}

// summary returns three lines about the host.
func (t *top) summary() []string {
	r := &t.reply
	host := api.Visible(r.Host)
	if r.Load != "" {
		fields := strings.Fields(r.Load)
		for i := range fields {
			if n, err := strconv.ParseFloat(fields[i], 64); err == nil {
				fields[i] = strconv.FormatFloat(n, 'f', 2, 64)
			}
		}
		host += "  load " + api.Visible(strings.Join(fields, " "))
	}
	if r.Processors > 0 {
		host += fmt.Sprintf("  processors %d", r.Processors)
	}
	if r.Memory > 0 {
		host += fmt.Sprintf("  memory %s of %s", sizeText(r.MemoryUsed), sizeText(r.Memory))
	}
	tasks := fmt.Sprintf("tasks: %d running, %d suspended, %d pending, %d held, %d in error, %d failed", r.Running, r.Suspended, r.Pending, r.Held, r.InError, r.Failed)
	slots := fmt.Sprintf("slots: %d of %d used", r.Used, r.Slots)
	if r.Drain != nil {
		slots += "; the host is being drained"
	}
	if r.Pilot != nil {
		slots += "; " + pilotText(r.Pilot, t.at)
	}
	if r.Sending+r.Stuck > 0 {
		slots += fmt.Sprintf("; output: %d on its way, %d stuck", r.Sending, r.Stuck)
	}
	if len(t.users) > 0 {
		slots += "; jobs of " + api.Visible(strings.Join(t.users, ","))
	}
	if r.More {
		slots += "; there are more jobs than these"
	}
	return []string{host + "  " + t.at.Format("15:04:05"), tasks, slots}
}

// pilotText says of which job execd is a pilot, and when it ends.
func pilotText(p *api.Pilot, now time.Time) string {
	text := "pilot"
	if p.Job != "" {
		text += " of " + api.Visible(p.Scheduler) + " job " + api.Visible(p.Job)
	}
	if p.Ends.IsZero() {
		return text
	}
	form, left := time.TimeOnly, p.Ends.Sub(now)
	if left > 12*time.Hour {
		form = time.DateTime
	}
	return text + ", ends at " + p.Ends.In(now.Location()).Format(form) + ", " + output.Elapsed(max(left, 0)) + " left"
}

// topLayout has the widths of the columns that grow on a wide terminal.
type topLayout struct{ job, owner, name, queue int }

// topColumns is the width of the narrowest table, in which the queue has
// topQueue columns.
const (
	topColumns = 80
	topQueue   = 10
)

// topPlace returns where a task runs as far as that is not this host, or else of which job of
// another host it is a run.
func (t *top) topPlace(j *api.TopJob) string {
	queue := queueName(j)
	switch _, host, _ := strings.Cut(j.Queue, "@"); {
	case j.Queue != "" && host != t.reply.Host:
		queue = j.Queue
	case j.From != "":
		queue = origin(j.From)
	}
	return api.Visible(queue)
}

func queueName(j *api.TopJob) string {
	name, _, _ := strings.Cut(j.Queue, "@")
	return name
}

// layout shares out the width that a terminal has beyond the narrowest table.
// The queue, which is the last column, gets what it needs first; name, owner
// and job follow.
func (t *top) layout(columns int) topLayout {
	l := topLayout{job: 9, owner: 8, name: 10, queue: topQueue}
	need, queue := l, topQueue
	wide := func(text string) int { return output.Width(api.Visible(text)) }
	for i := range t.reply.Jobs {
		j := &t.reply.Jobs[i]
		need = topLayout{max(need.job, wide(topID(j))), max(need.owner, wide(j.Owner)), max(need.name, wide(j.Name)), 0}
		queue = max(queue, wide(t.topPlace(j)))
	}
	l.queue = min(queue, max(columns-topColumns, 0)+topQueue)
	left := max(columns-topColumns-(queue-topQueue), 0)
	for _, c := range []struct {
		has  *int
		need int
	}{{&l.name, need.name}, {&l.owner, need.owner}, {&l.job, need.job}} {
		more := min(c.need-*c.has, left)
		*c.has += more
		left -= more
	}
	return l
}

// line returns a line of the table. With the narrowest layout and a short queue
// name it has at most 80 columns.
func (l topLayout) line(job, owner, name string, others ...any) string {
	return strings.TrimRight(fmt.Sprintf("%*s %s %s ", l.job, cut(job, l.job), output.Column(cut(owner, l.owner), l.owner), output.Column(name, l.name))+
		fmt.Sprintf("%-5s %5s %20s %6s %s", others...), " ")
}

// header returns the titles of the table.
func (l topLayout) header() string {
	return l.line("JOB", "USER", "NAME", "STATE", "SLOTS", usageColumns("%CPU", "MEM", "MAX"), "TIME", "QUEUE")
}

// state returns the column where the state begins in a line.
func (l topLayout) state() int { return l.job + 1 + l.owner + 1 + l.name + 1 }

// rows returns the lines of the table: the running tasks in the chosen order,
// then the pending ones.
func (t *top) rows(l topLayout) []string {
	jobs := slices.Clone(t.reply.Jobs)
	slices.SortStableFunc(jobs, func(a, b api.TopJob) int {
		if a.Queue == "" || b.Queue == "" {
			return cmp.Compare(min(len(b.Queue), 1), min(len(a.Queue), 1))
		}
		order := t.view.by.compare(t, &a, &b)
		if t.view.reverse {
			order = -order
		}
		return order
	})
	rows := make([]string, len(jobs))
	for i := range jobs {
		rows[i] = t.row(l, &jobs[i])
	}
	return rows
}

func (t *top) row(l topLayout, j *api.TopJob) string {
	cpu, mem, most := "", "", ""
	if u := j.Usage; u != nil {
		cpu = strconv.FormatFloat(t.rates.of(j), 'f', 1, 64)
		mem, most = sizeText(u.RSS), sizeText(u.MaxRSS)
	}
	queue := t.topPlace(j)
	if queue != api.Visible(queueName(j)) {
		queue = cut(queue, l.queue)
	}
	used := usageColumns(cpu, mem, most)
	if x := j.Transfer; x != nil {
		used = sent(x, t.at)
	}
	return l.line(topID(j), j.Owner, j.Name, output.Column(j.State, 5), strconv.Itoa(j.Slots), used, output.Elapsed(t.at.Sub(j.Time)), queue)
}

// usageColumns joins the columns of what a task uses.
func usageColumns(cpu, mem, most string) string { return fmt.Sprintf("%6s %6s %6s", cpu, mem, most) }

// sent returns how much of the files of a task has been transferred, how fast, and for how
// long it still is, in place of what it uses; empty: nothing is known.
func sent(x *api.Transfer, now time.Time) string {
	switch rate, left := speed(x, now); {
	case x.Queued:
		return "queued"
	case x.Since.IsZero() && x.Peer != "":
		return "waits " + cut(x.Peer, 14)
	case left > 0:
		return fmt.Sprintf("%d%% %s/s %s", int(100*float64(x.Bytes)/float64(x.Total)), sizeText(rate), output.Elapsed(left))
	}
	return ""
}

// topID returns the number of a job with its task or tasks.
func topID(j *api.TopJob) string {
	if j.Tasks == "" {
		return strconv.Itoa(j.Job)
	}
	return strconv.Itoa(j.Job) + "." + strings.TrimSuffix(j.Tasks, ":1")
}

// cut cuts text to a width; a text that was cut ends with a plus sign.
func cut(text string, width int) string {
	text = api.Visible(text)
	if output.Width(text) <= width {
		return text
	}
	return output.Cut(text, width-1) + "+"
}

// sizeText returns a number of bytes in at most six columns.
func sizeText(n float64) string {
	const units = "BKMGTP"
	k := 0
	for k+1 < len(units) && n >= 1000 {
		n /= 1024
		k++
	}
	if k == 0 {
		return strconv.Itoa(int(n))
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + units[k:k+1]
}

// topKey is the order of running tasks, by the key that chooses it.
type topKey byte

const (
	byCPU  topKey = 'c'
	byMem  topKey = 'm'
	byTime topKey = 't'
	byJob  topKey = 'j'
)

// compare compares two running tasks: the one that uses more comes first, then
// the lower number.
func (k topKey) compare(t *top, a, b *api.TopJob) int {
	used := func(j *api.TopJob) api.Usage {
		if j.Usage == nil {
			return api.Usage{}
		}
		return *j.Usage
	}
	order := 0
	switch k {
	case byCPU:
		order = cmp.Compare(t.rates.of(b), t.rates.of(a))
	case byMem:
		order = cmp.Compare(used(b).RSS, used(a).RSS)
	case byTime:
		order = a.Time.Compare(b.Time)
	}
	return cmp.Or(order, cmp.Compare(a.Job, b.Job), cmp.Compare(taskNumber(a), taskNumber(b)))
}

func taskNumber(j *api.TopJob) int {
	n, _ := strconv.Atoi(j.Tasks)
	return n
}

// rates are samples of the processor time of tasks, to tell how much they have
// used of late.
type rates map[rateKey][]sample

type rateKey struct {
	job     int
	tasks   string
	started int64 // a task that ran again has another key
}

// sample is the processor time that a task had used at a time.
type sample struct {
	at  time.Time
	cpu float64
}

// rateWindow is how long samples count. It is longer than the delay, since
// execd may reply with older measurements.
const rateWindow = 10 * time.Second

func keyOf(j *api.TopJob) rateKey { return rateKey{j.Job, j.Tasks, j.Time.UnixNano()} }

// take adds samples of a reply, and drops those of tasks that are over.
func (r rates) take(reply *api.TopReply, now time.Time) {
	there := make(map[rateKey]bool, len(reply.Jobs))
	for i := range reply.Jobs {
		j := &reply.Jobs[i]
		if j.Usage == nil {
			continue
		}
		key := keyOf(j)
		there[key] = true
		list := append(r[key], sample{now, j.Usage.CPU})
		for len(list) > 2 && now.Sub(list[1].at) >= rateWindow {
			list = list[1:]
		}
		r[key] = list
	}
	for key := range r {
		if !there[key] {
			delete(r, key)
		}
	}
}

// of returns the percentage of a processor that a task has used of late, or in
// its whole life while there is only one sample.
func (r rates) of(j *api.TopJob) float64 {
	list := r[keyOf(j)]
	if len(list) < 2 {
		if u := j.Usage; u != nil && u.Wallclock > 0 {
			return 100 * u.CPU / u.Wallclock
		}
		return 0
	}
	first, last := list[0], list[len(list)-1]
	if while := last.at.Sub(first.at).Seconds(); while > 0 {
		return max(0, 100*(last.cpu-first.cpu)/while)
	}
	return 0
}
