package show

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// xmlJobs prints jobs: with -f below the queues of the host, else only those in
// queues that are shown.
func xmlJobs(ctx context.Context, inv *command.Invocation, v *view, host *api.HostReply, jobs []api.JobStatus, shown func(queue string) bool) error {
	l := listing{document: document{output.NewXML(inv.Out, '"', "job_info", "qstat/qstat.xsd")}, form: &v.form}
	if v.requests {
		var err error
		if l.kinds, err = attributeKinds(ctx, inv); err != nil {
			return err
		}
	}
	l.Open("queue_info")
	if v.full {
		for _, h := range hostsIn(host) {
			l.queues(v, h, jobs)
		}
	} else {
		l.jobs(jobs, true, shown)
	}
	l.End()
	l.Open("job_info")
	l.jobs(jobs, false, nil)
	l.End()
	l.End()
	return nil
}

// listing is the document of qstat, without and with -f.
type listing struct {
	document
	*form
	kinds map[string]attribute // with -r
}

// jobs writes the running jobs in the queues that are shown, or the other jobs.
func (l *listing) jobs(jobs []api.JobStatus, running bool, shown func(queue string) bool) {
	for i := range jobs {
		if running == (jobs[i].Queue != "") {
			l.rows(&jobs[i], shown, l.job)
		}
	}
}

// queues writes the queues of the host with the jobs in them.
func (l *listing) queues(v *view, host *api.HostReply, jobs []api.JobStatus) {
	for i := range host.Queues {
		q := &host.Queues[i]
		name := host.Instance(q)
		inside := func(queue string) bool { return queue == name }
		if v.busy && !slices.ContainsFunc(jobs, func(j api.JobStatus) bool { return inQueue(&j, name) }) {
			continue
		}
		l.Open("Queue-List")
		l.Text("name", name)
		l.Text("qtype", q.Type)
		l.Number("slots_used", q.Used)
		l.Number("slots_resv", q.Reserved)
		l.Number("slots_total", q.Total)
		if n, err := strconv.ParseFloat(hostValue(host, "load_avg"), 64); err == nil {
			l.Real("load_avg", n, 5)
		}
		l.Text("arch", host.Arch)
		l.Has("state", q.States)
		l.explain(q, v.explain)
		if v.values {
			for _, a := range queueValues(host, q) {
				if len(v.attributes) == 0 || slices.Contains(v.attributes, a.Name) {
					l.Text("resource", api.Visible(a.Decimal(false)), "name", a.Name, "type", a.Source)
				}
			}
		}
		l.jobs(jobs, true, inside)
		l.End()
	}
}

// explain writes the reasons of those states of a queue whose letters are
// given. Load alarms have elements of their own.
func (x document) explain(q *api.QueueStatus, letters string) {
	for i, reason := range q.Reasons {
		if reason == "" || i >= len(q.States) || strings.IndexByte(letters, q.States[i]) < 0 {
			continue
		}
		element := "message"
		switch q.States[i] {
		case 'a':
			element = "load-alarm-reason"
		case 'A':
			element = "suspend-alarm-reason"
		}
		for line := range strings.Lines(reason) {
			x.Text(element, strings.TrimSuffix(line, "\n"))
		}
	}
}

// job writes a job of a listing.
func (l *listing) job(j *jobRow) {
	m := j.More
	if m == nil {
		m = &api.JobMore{}
	}
	state := "pending"
	switch {
	case j.State == "z":
		state = "zombie"
	case j.queue != "":
		state = "running"
	}
	l.Open("job_list", "state", state)
	l.Number("JB_job_number", j.Job)
	l.Real("JAT_prio", j.Priority, 5)
	if l.extended || l.priority {
		l.Real("JAT_ntix", m.NormalTickets, 5)
	}
	if l.priority {
		l.Real("JB_nppri", m.NormalPriority, 5)
	}
	if l.urgency || l.priority {
		l.Real("JB_nurg", m.NormalUrgency, 5)
	}
	if l.urgency {
		l.Real("JB_rrcontr", m.Urgency.Resources, 0)
		l.Real("JB_wtcontr", m.Urgency.Waiting, 0)
		l.Number("JB_dlcontr", 0)
	}
	if l.priority {
		l.Number("JB_priority", m.Priority)
	}
	l.Text("JB_name", j.Name)
	l.Text("JB_owner", j.Owner)
	if l.extended {
		l.Text("JB_project", m.Project)
		l.Text("JB_department", m.Department)
	}
	if letters, ok := strings.CutSuffix(j.State, api.StateSending); ok { // which no other program knows
		l.Text("state", letters+"r")
		l.Text("transfer_state", j.State)
	} else {
		l.Text("state", j.State)
	}
	if !l.extended || l.urgency || l.priority || l.peTasks {
		if state == "running" {
			l.Stamp("JAT_start_time", j.Time)
		} else {
			l.Stamp("JB_submission_time", j.Time)
		}
	}
	if l.extended {
		if j.queue != "" && j.More != nil {
			l.used(j.usage())
		}
		l.shares()
	}
	if !l.full {
		l.Text("queue_name", j.queue)
	}
	slots := j.slots
	if l.slots {
		l.Text("master", j.role)
		if j.queue != "" {
			slots = 1
		}
	}
	l.Number("slots", slots)
	l.Has("tasks", j.Tasks)
	if l.requests {
		l.requested(j.Name, m)
		if !l.hideCores {
			l.Text("binding", binding(m.Binding))
		}
	}
	l.End()
}

// used writes the usage of a job, if it is known.
func (x document) used(u *api.Usage) {
	if u != nil {
		x.Real("cpu_usage", u.CPU, 5)
		x.Real("mem_usage", u.Mem, 5)
		x.Real("io_usage", u.IO, 5)
	}
}

// shares writes the tickets of a job, which are always 0.
func (x document) shares() {
	for _, name := range []string{"tickets", "JB_override_tickets", "JB_jobshare", "otickets", "ftickets", "stickets"} {
		x.Number(name, 0)
	}
	x.Real("JAT_share", 0, 5)
}

// requested writes the requests of a job, for -r.
func (l *listing) requested(name string, m *api.JobMore) {
	l.Text("full_job_name", name)
	if m.PE != "" {
		l.Text("requested_pe", slotRanges(m.Slots), "name", m.PE)
	}
	if m.GrantedPE != "" {
		slots := 0
		for _, g := range m.Granted {
			slots += g.Slots
		}
		l.Text("granted_pe", strconv.Itoa(slots), "name", m.GrantedPE)
	}
	for _, r := range m.Hard {
		_, name, value := inComplex(r.Resource, l.kinds)
		l.Text("hard_request", value, "name", name, "resource_contribution", fmt.Sprintf("%f", r.Urgency))
	}
	for _, r := range m.Soft {
		_, name, value := inComplex(r, l.kinds)
		l.Text("soft_request", value, "name", name)
	}
	each := func(name string, values []string) {
		for _, value := range values {
			l.Text(name, value)
		}
	}
	each("hard_req_queue", m.Queues)
	each("soft_req_queue", m.SoftQueues)
	each("master_hard_req_queue", m.MasterQueues)
	each("predecessor_jobs_req", m.HoldJobs)
	each("predecessor_jobs", digits(m.WaitsFor))
	each("ad_predecessor_jobs_req", m.HoldArray)
	each("ad_predecessor_jobs", digits(m.WaitsForTasks))
}
