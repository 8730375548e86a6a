package show

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
	"paddock/qsub/internal/output"
)

// hostAndJobs is what qhost -json and qstat -f -json print.
type hostAndJobs struct {
	*api.HostReply
	Jobs []api.JobStatus `json:"jobs,omitzero"` // nil: not asked for
}

// hostValue returns the value of an attribute of the host; "" if it has none.
func hostValue(host *api.HostReply, name string) string {
	for _, v := range host.Values {
		if v.Name == name {
			return api.Visible(v.Value)
		}
	}
	return ""
}

// measured splits a size into a number and a unit, the largest with which the
// number is at least 1. Zero has no unit.
func measured(text string) (n float64, unit string, err error) {
	const units = "KMGT"
	k := -1
	if end := len(text) - 1; end > 0 {
		if k = strings.IndexByte(units, text[end]); k >= 0 {
			text = text[:end]
		}
	}
	if n, err = strconv.ParseFloat(text, 64); err != nil || k < 0 {
		return n, "", err
	}
	for k > 0 && n < 1 {
		n *= 1024
		k--
	}
	for k+1 < len(units) && n >= 1024 {
		n /= 1024
		k++
	}
	if n == 0 {
		return 0, "", nil
	}
	return n, units[k : k+1], nil
}

// queueFilter is the queues that -q, -qs, -l, -pe and -U choose; the zero value
// chooses all.
type queueFilter struct {
	patterns []string
	states   string
	offers   api.HostRequest // evaluated by execd
}

// queueStates are the letters of a queue's state, and explained those that
// -explain may have.
const (
	queueStates = "acdosuACDES"
	explained   = "acAE"
)

// add reads one of the options.
func (f *queueFilter) add(o *option.Setting) error {
	switch o.Name {
	case "-l":
		return argument.AddResources(&f.offers.Resources, o)
	case "-pe":
		f.offers.PEs = append(f.offers.PEs, argument.List(o.Value())...)
		return nil
	case "-U":
		f.offers.Users = append(f.offers.Users, argument.List(o.Value())...)
		return nil
	case "-q":
		return argument.AddList(&f.patterns, o, "queue")
	}
	f.states += o.Value()
	return checkStates(o.Value(), queueStates)
}

func checkStates(text, known string) error {
	if bad := strings.Trim(text, known); bad != "" || text == "" {
		return command.Failf("error: unknown queue state: %s found in string: %s", api.Visible(bad[:min(1, len(bad))]), api.Visible(text))
	}
	return nil
}

// set reports whether the filter has any condition.
func (f *queueFilter) set() bool {
	return f.states != "" || len(f.patterns)+len(f.offers.Resources)+len(f.offers.PEs)+len(f.offers.Users) > 0
}

// chosenHost asks for the host with the queues that the filter chooses.
func chosenHost(ctx context.Context, inv *command.Invocation, f *queueFilter) (*api.HostReply, error) {
	host, err := inv.Host(ctx, &f.offers)
	if err != nil {
		return nil, err
	}
	return host, f.choose(host)
}

// choose removes the queues that the filter does not choose. It is an error if
// no queue matches -q.
func (f *queueFilter) choose(host *api.HostReply) error {
	n := f.chosen(host)
	for i := range host.Others {
		p := &host.Others[i]
		other := otherHost(p)
		n += f.chosen(other)
		p.Queues = slices.DeleteFunc(p.Queues, func(q api.QueueStatus) bool {
			return !slices.ContainsFunc(other.Queues, func(o api.QueueStatus) bool { return o.Name == q.Name })
		})
	}
	if len(f.patterns) > 0 && n == 0 {
		return command.Failf("No cluster queue or queue instance matches the phrase \"%s\"", api.Visible(strings.Join(f.patterns, ",")))
	}
	return nil
}

// chosen removes the queues of a host that the filter does not choose, and returns how many
// match -q.
func (f *queueFilter) chosen(host *api.HostReply) (matching int) {
	if len(f.patterns) > 0 {
		host.Queues = slices.DeleteFunc(host.Queues, func(q api.QueueStatus) bool {
			return !slices.ContainsFunc(f.patterns, func(p string) bool { return argument.MatchQueue(p, host, &q) })
		})
	}
	matching = len(host.Queues)
	if f.states != "" {
		host.Queues = slices.DeleteFunc(host.Queues, func(q api.QueueStatus) bool { return !strings.ContainsAny(q.States, f.states) })
	}
	return matching
}

// qselect prints the names of queues.
func qselect(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	var filter queueFilter
	asJSON := false
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil:
			return inv.NoOperand(o)
		case o.Name == "-json":
			asJSON = true
		default:
			if err := filter.add(o); err != nil {
				return err
			}
		}
	}
	host, err := chosenHost(ctx, inv, &filter)
	if err != nil {
		return err
	}
	if asJSON {
		return inv.PrintJSON(host.Queues)
	}
	found := 0
	for _, h := range hostsIn(host) {
		for i := range h.Queues {
			found++
			fmt.Fprintln(inv.Out, api.Visible(h.Instance(&h.Queues[i])))
		}
	}
	if found == 0 {
		return &command.Failure{Exit: option.ExitFailed}
	}
	return nil
}

// qhost shows the host, and its queues and jobs.
func qhost(ctx context.Context, inv *command.Invocation, args []string) error {
	settings, err := inv.Options(args)
	if err != nil {
		return err
	}
	var request api.HostRequest
	var hosts, users, attributes []string
	var queues, jobs, values, asJSON, asXML, short bool
	var slots slotsAsked
	var boxes, peers bool
	for i := range settings {
		o := &settings[i]
		switch {
		case o.Option == nil:
			return inv.NoOperand(o)
		case o.Name == "-F":
			values = true
			attributes = append(attributes, argument.List(o.Value())...)
		case o.Name == "-h":
			hosts = append(hosts, argument.List(o.Value())...)
		case o.Name == "-j":
			jobs = true
		case o.Name == "-json":
			asJSON = true
		case o.Name == "-l":
			if err := argument.AddResources(&request.Now, o); err != nil {
				return err
			}
		case o.Name == "-ncb":
			short = true
		case o.Name == "-peers":
			peers = true
		case o.Name == "-q":
			queues = true
		case o.Name == "-sandboxes":
			boxes = true
		case o.Name == "-slotad":
			if err := slots.add(true, o.Value()); err != nil {
				return err
			}
		case o.Name == "-slots":
			if err := slots.add(false, ""); err != nil {
				return err
			}
		case o.Name == "-u":
			jobs = true
			users = append(users, argument.List(o.Value())...)
		case o.Name == "-xml":
			asXML = true
		}
	}
	if asJSON && asXML {
		return errTwoForms
	}
	if boxes {
		return showSandboxes(ctx, inv, hosts, asJSON, asXML)
	}
	if peers {
		return showPeers(ctx, inv, hosts, asJSON, asXML)
	}
	if slots.set {
		if asXML {
			return command.Failf("error: there is no XML of slots: use -json")
		}
		if slots.client = inv.Client; len(hosts) > 1 {
			return command.Failf("error: the slots of one host are shown at a time")
		} else if len(hosts) == 1 {
			slots.client = inv.Client.On(hosts[0])
		}
		return showSlots(ctx, inv, &slots, asJSON)
	}
	reply, err := inv.Host(ctx, &request)
	if err != nil {
		return err
	}
	if reply.Excluded {
		if asJSON {
			return inv.PrintJSON(struct{}{})
		}
		if asXML {
			return xmlHosts(inv, nil, nil, &hostView{})
		}
		return nil
	}
	home, others, err := chosen(hosts, reply.Host, reply.Others)
	if err != nil {
		return err
	}
	reply.Others = others
	var running []api.JobStatus
	if jobs {
		running = []api.JobStatus{} // an empty list in JSON, and not null
		if len(users) == 0 {
			users = []string{"*"}
		}
		if err := eachJob(ctx, inv, &api.JobsRequest{Users: users, States: "r", More: true}, func(j *api.JobStatus) {
			if j.Queue != "" {
				running = append(running, *j)
			}
		}); err != nil {
			return err
		}
	}
	if asJSON {
		return inv.PrintJSON(hostAndJobs{reply, running})
	}
	v := &hostView{queues, values, short, !home, attributes}
	if asXML {
		return xmlHosts(inv, reply, running, v)
	}
	hostHeading(inv, short)
	hostLine(inv, append([]string{"global"}, slices.Repeat([]string{"-"}, len(hostColumns))...), short)
	if values {
		writeHostValues(inv, reply.Global, attributes)
	}
	if home {
		hostLine(inv, append([]string{reply.Host}, hostCells(reply)...), short)
		if reply.Drain != nil {
			fmt.Fprintf(inv.Out, "    %s: takes no jobs\n", reply.Drain)
		}
		for _, broken := range reply.BrokenHooks {
			fmt.Fprintf(inv.Out, "    broken hook: %s\n", api.Visible(broken))
		}
		if values {
			writeHostValues(inv, reply.Values, attributes)
		}
		hostJobs(inv, reply, on(reply.Host, running), queues)
	}
	otherHosts(inv, reply.Others, running, v)
	return nil
}

// isHost reports whether a word names a host, by its short name or the whole one.
func isHost(word, host string) bool {
	name, _, _ := strings.Cut(host, ".")
	return strings.EqualFold(word, host) || strings.EqualFold(word, name)
}

// hostJobs prints the jobs that run on a host, or its queues with the jobs in them.
func hostJobs(inv *command.Invocation, host *api.HostReply, running []api.JobStatus, queues bool) {
	lines := form{host: true, slots: true, full: queues}
	columns := lines.columns()
	if !queues && len(running) > 0 {
		heading(inv, &lines, columns, "   ")
		for i := range running {
			jobLines(inv, &lines, columns, &running[i], nil)
		}
	}
	if queues {
		for i := range host.Queues {
			q := &host.Queues[i]
			name, _, _ := strings.Cut(q.Name, "@")
			fmt.Fprintf(inv.Out, "   %s %-5s %-14s%s\n", output.Column(name, 20), q.Type, fmt.Sprintf("%d/%d/%d", q.Reserved, q.Used, q.Total), api.Visible(q.States))
			for j := range running {
				jobLines(inv, &lines, columns, &running[j], func(queue string) bool { return queue == host.Instance(q) })
			}
		}
	}
}

// hostHeading prints the titles above the lines of hosts. With short, sockets,
// cores and threads are left out.
func hostHeading(inv *command.Invocation, short bool) {
	hostLine(inv, []string{"HOSTNAME", "ARCH", "NCPU", "NSOC", "NCOR", "NTHR", "LOAD", "MEMTOT", "MEMUSE", "SWAPTO", "SWAPUS"}, short)
	width := 94
	if short {
		width = 79
	}
	fmt.Fprintln(inv.Out, strings.Repeat("-", width))
}

// hostLine prints the line of a host.
func hostLine(inv *command.Invocation, cells []string, short bool) {
	fmt.Fprintf(inv.Out, "%s %s %6s", output.Column(cells[0], 23), output.Column(cells[1], 10), cells[2])
	if !short {
		fmt.Fprintf(inv.Out, " %4s %4s %4s", cells[3], cells[4], cells[5])
	}
	fmt.Fprintf(inv.Out, " %5s %7s %7s %7s %7s\n", cells[6], cells[7], cells[8], cells[9], cells[10])
}

// hostCells returns the cells of the host's line: architecture, processors, sockets,
// cores, threads, load, and of memory and swap space the total and the used part.
func hostCells(h *api.HostReply) []string {
	count := func(name string) string {
		text, _, _ := strings.Cut(hostValue(h, name), ".")
		if text == "" {
			return "-"
		}
		return text
	}
	number := func(name string, decimals int) string {
		n, unit, err := measured(hostValue(h, name))
		if err != nil {
			return "-"
		}
		return strconv.FormatFloat(n, 'f', decimals, 64) + unit
	}
	return []string{
		h.Arch, count("num_proc"), count("m_socket"), count("m_core"), count("m_thread"), number("load_avg", 2),
		number("mem_total", 1), number("mem_used", 1), number("swap_total", 1), number("swap_used", 1),
	}
}

// writeHostValues prints the attributes of qhost -F, all or some.
func writeHostValues(inv *command.Invocation, values []api.HostValue, names []string) {
	first := len(names) > 0
	for _, v := range values {
		if len(names) > 0 && !slices.Contains(names, v.Name) {
			continue
		}
		before := "   "
		if first {
			before, first = "    Host Resource(s):      ", false
		}
		fmt.Fprintf(inv.Out, "%s%s:%s=%s\n", before, v.Source, v.Name, api.Visible(v.Decimal(true)))
	}
}

// slotsAsked is the request of qhost -slots and -slotad.
type slotsAsked struct {
	set     bool
	client  *api.Client // of the host
	request api.SlotsRequest
}

// add reads one of the options; name is the argument of -slotad.
func (a *slotsAsked) add(ads bool, name string) error {
	a.set = true
	a.request.Ads = a.request.Ads || ads
	if name == "" {
		return nil
	}
	// A slot is 3, slot3, 1_2 or slot1_2, and may have @host behind it.
	slotName := regexp.MustCompile(`^(?:slot)?([1-9][0-9]{0,8}(?:_[1-9][0-9]{0,8})?)(?:@.*)?$`)
	m := slotName.FindStringSubmatch(name)
	if m == nil {
		return command.Failf("error: %q is no slot", api.Visible(name))
	}
	a.request.Slot = api.SlotID(m[1])
	return nil
}

// showSlots prints the slots of the host, as a table, as JSON or as their ads.
func showSlots(ctx context.Context, inv *command.Invocation, a *slotsAsked, asJSON bool) error {
	var reply api.SlotsReply
	err := a.client.Call(ctx, api.VerbSlots, &a.request, &reply)
	if e, ok := errors.AsType[*api.Error](err); ok && (e.Code == api.CodeNotFound || e.Code == api.CodeAway) {
		return command.Failf("error: %s", api.Visible(e.Text))
	}
	switch {
	case err != nil:
		return inv.CallFailed(err)
	case asJSON:
		return inv.PrintJSON(&reply)
	case a.request.Ads:
		for i := range reply.Slots {
			if i > 0 {
				fmt.Fprintln(inv.Out)
			}
			for line := range strings.Lines(reply.Slots[i].Ad) {
				fmt.Fprintln(inv.Out, api.Visible(strings.TrimSuffix(line, "\n")))
			}
		}
		return nil
	}
	slotLines(inv, reply.Slots)
	return nil
}

// slotLines prints the table of slots. The columns of partitionable and dynamic
// slots are left out where there are none.
func slotLines(inv *command.Invocation, slots []api.SlotStatus) {
	rows := [][]string{{"SLOT", "QUEUE", "STATE", "ACTIVITY", "HOLDER", "TYPE", "CPUS", "MEMORY", "JOB"}}
	const kind, job = 5, 8
	for i := range slots {
		t := &slots[i]
		row := []string{string(t.Slot), t.Queue, t.State, t.Activity, t.Holder, "Static", "", "", t.Job}
		if t.From != "" {
			row[job] += " from " + t.From
		}
		if t.Type != "" {
			copy(row[kind:], []string{t.Type, strconv.FormatInt(t.Cpus, 10), strconv.FormatInt(t.Memory, 10) + "M"})
		}
		rows = append(rows, row)
	}
	if !slices.ContainsFunc(slots, func(t api.SlotStatus) bool { return t.Type != "" }) {
		for i, row := range rows {
			rows[i] = slices.Delete(row, kind, job)
		}
	}
	output.Table(inv.Out, rows, "CPUS", "MEMORY")
}
