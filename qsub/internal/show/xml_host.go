package show

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// xmlQueueSummary prints the slots of each queue on all hosts for qstat -g c -xml.
func xmlQueueSummary(inv *command.Invocation, host *api.HostReply, extended bool) error {
	x := document{output.NewXML(inv.Out, '"', "job_info", "qstat/qstat.xsd")}
	for _, c := range clusterQueues(host) {
		x.Open("cluster_queue_summary")
		x.Text("name", c.name)
		if c.loads > 0 {
			x.Real("load", c.load, 5)
		}
		x.Number("used", c.used)
		x.Number("resv", c.reserved)
		x.Number("available", c.available)
		x.Number("total", c.total)
		x.Number("temp_disabled", c.soon)
		x.Number("manual_intervention", c.never)
		if extended {
			for n, name := range []string{
				"suspend_manual", "suspend_threshold", "suspend_on_subordinate", "suspend_calendar", "unknown", "load_alarm",
				"disabled_manual", "disabled_calendar", "ambiguous", "orphaned", "error",
			} {
				x.Number(name, c.states[n]) // in the order of summaryStates
			}
		}
		x.End()
	}
	x.End()
	return nil
}

// hostView is what the options of qhost ask for.
type hostView struct {
	queues, values, short bool
	away                  bool     // this host is not wanted
	attributes            []string // of -F; none: all
}

// xmlHosts prints the host with its queues and running jobs, behind the host "global",
// which stands for all hosts of a cluster. Without a host the document is empty.
func xmlHosts(inv *command.Invocation, host *api.HostReply, running []api.JobStatus, v *hostView) error {
	x := document{output.NewXML(inv.Out, '\'', "qhost", "qhost/qhost.xsd")}
	if host != nil {
		x.hostValues("global", slices.Repeat([]string{"-"}, len(hostColumns)), v)
		x.hostResources(host.Global, v)
		x.End()
		if !v.away {
			x.host(host, on(host.Host, running), v)
		}
		for i := range host.Others {
			p := &host.Others[i]
			x.host(otherHost(p), on(p.Name, running), v, [2]string{"condition", condition(p, time.Now())})
		}
	}
	x.End()
	return nil
}

// host writes a host, with further values that are not those of hostColumns.
func (x document) host(host *api.HostReply, running []api.JobStatus, v *hostView, further ...[2]string) {
	x.hostValues(host.Host, hostCells(host), v)
	for _, value := range further {
		x.Text("hostvalue", value[1], "name", value[0])
	}
	x.hostResources(host.Values, v)
	jobs := func(shown func(queue string) bool) {
		lines := form{slots: true}
		for i := range running {
			lines.rows(&running[i], shown, func(r *jobRow) { x.hostJob(r, !v.queues) })
		}
	}
	if !v.queues {
		jobs(nil)
	}
	for i := range host.Queues {
		if v.queues {
			x.hostQueue(&host.Queues[i])
			jobs(func(queue string) bool { return queue == host.Instance(&host.Queues[i]) })
		}
	}
	x.End()
}

// hostResources writes the attributes of a host that -F asks for.
func (x document) hostResources(values []api.HostValue, v *hostView) {
	for _, a := range values {
		if v.values && (len(v.attributes) == 0 || slices.Contains(v.attributes, a.Name)) {
			x.Text("resourcevalue", api.Visible(a.Decimal(true)), "name", a.Name, "dominance", a.Source)
		}
	}
}

// hostColumns are the names of the values of a host, in the order of hostCells.
var hostColumns = []string{
	"arch_string", "num_proc", "m_socket", "m_core", "m_thread", "load_avg", "mem_total", "mem_used", "swap_total", "swap_used",
}

// hostValues opens a host and writes its values; those that begin with m_ and
// count parts of processors are left out in the short form.
func (x document) hostValues(name string, cells []string, v *hostView) {
	x.Open("host", "name", name)
	for i, column := range hostColumns {
		if !v.short || !strings.HasPrefix(column, "m_") {
			x.Text("hostvalue", cells[i], "name", column)
		}
	}
}

func (x document) hostQueue(q *api.QueueStatus) {
	name, _, _ := strings.Cut(q.Name, "@")
	x.Open("queue", "name", name)
	for _, value := range [][2]string{
		{"qtype_string", q.Type},
		{"slots_used", strconv.Itoa(q.Used)},
		{"slots", strconv.Itoa(q.Total)},
		{"slots_resv", strconv.Itoa(q.Reserved)},
		{"state_string", q.States},
	} {
		x.Text("queuevalue", value[1], "qname", name, "name", value[0])
	}
	x.End()
}

// hostJob writes a job, or one of its slots. Grid Engine quotes the priority
// once more, and who reads it knows.
func (x document) hostJob(j *jobRow, queue bool) {
	number := strconv.Itoa(j.Job)
	value := func(name, value string) { x.Text("jobvalue", value, "jobid", number, "name", name) }
	x.Open("job", "name", number)
	value("priority", fmt.Sprintf("'%.6f'", j.Priority))
	value("qinstance_name", j.queue)
	value("job_name", j.Name)
	value("job_owner", j.Owner)
	value("job_state", j.State)
	value("start_time", strconv.FormatInt(j.Time.Unix(), 10))
	if queue {
		value("queue_name", j.queue)
	}
	value("pe_master", j.role)
	if j.Tasks != "" {
		value("taskid", j.Tasks)
	}
	x.End()
}
