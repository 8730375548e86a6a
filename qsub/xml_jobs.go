package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
)

// xmlJobs prints jobs: with -f in the queues of the host, else those that run
// in the queues that are shown.
func xmlJobs(ctx context.Context, inv *invocation, v *view, host *api.HostReply, jobs []api.JobStatus, shown func(queue string) bool) error {
	l := listing{xmlWriter: newXML(inv.out, '"', "job_info", "qstat/qstat.xsd"), form: &v.form}
	if v.requests {
		var err error
		if l.kinds, err = attributeKinds(ctx, inv); err != nil {
			return err
		}
	}
	l.open("queue_info")
	if v.full {
		l.queues(v, host, jobs)
	} else {
		l.jobs(jobs, true, shown)
	}
	l.end()
	l.open("job_info")
	l.jobs(jobs, false, nil)
	l.end()
	l.end()
	return nil
}

// listing is the XML of qstat, without and with -f.
type listing struct {
	*xmlWriter
	*form
	kinds map[string]attribute // with -r
}

// jobs writes the jobs that run, in the queues that are shown, or those that do
// not.
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
		l.open("Queue-List")
		l.text("name", name)
		l.text("qtype", q.Type)
		l.number("slots_used", q.Used)
		l.number("slots_resv", q.Reserved)
		l.number("slots_total", q.Total)
		if n, err := strconv.ParseFloat(hostValue(host, "load_avg"), 64); err == nil {
			l.real("load_avg", n, 5)
		}
		l.text("arch", host.Arch)
		l.has("state", q.States)
		l.explain(q, v.explain)
		if v.values {
			for _, a := range queueValues(host, q) {
				if len(v.attributes) == 0 || slices.Contains(v.attributes, a.Name) {
					l.text("resource", api.Visible(a.Decimal(false)), "name", a.Name, "type", a.Source)
				}
			}
		}
		l.jobs(jobs, true, inside)
		l.end()
	}
}

// explain writes the reasons of a queue's states, those that are asked for. That
// a load is too high has elements of its own.
func (x *xmlWriter) explain(q *api.QueueStatus, letters string) {
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
			x.text(element, strings.TrimSuffix(line, "\n"))
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
	l.open("job_list", "state", state)
	l.number("JB_job_number", j.Job)
	l.real("JAT_prio", j.Priority, 5)
	if l.extended || l.priority {
		l.real("JAT_ntix", m.NormalTickets, 5)
	}
	if l.priority {
		l.real("JB_nppri", m.NormalPriority, 5)
	}
	if l.urgency || l.priority {
		l.real("JB_nurg", m.NormalUrgency, 5)
	}
	if l.urgency {
		l.real("JB_rrcontr", m.Urgency.Resources, 0)
		l.real("JB_wtcontr", m.Urgency.Waiting, 0)
		l.number("JB_dlcontr", 0)
	}
	if l.priority {
		l.number("JB_priority", m.Priority)
	}
	l.text("JB_name", j.Name)
	l.text("JB_owner", j.Owner)
	if l.extended {
		l.text("JB_project", m.Project)
		l.text("JB_department", m.Department)
	}
	l.text("state", j.State)
	if !l.extended || l.urgency || l.priority || l.peTasks {
		if state == "running" {
			l.stamp("JAT_start_time", j.Time)
		} else {
			l.stamp("JB_submission_time", j.Time)
		}
	}
	if l.extended {
		if j.queue != "" && j.More != nil {
			l.used(j.usage())
		}
		l.shares()
	}
	if !l.full {
		l.text("queue_name", j.queue)
	}
	slots := j.slots
	if l.slots {
		l.text("master", j.role)
		if j.queue != "" {
			slots = 1
		}
	}
	l.number("slots", slots)
	l.has("tasks", j.Tasks)
	if l.requests {
		l.requested(j.Name, m)
		if !l.hideCores {
			l.text("binding", binding(m.Binding))
		}
	}
	l.end()
}

// used writes what a job has consumed, if that is known.
func (x *xmlWriter) used(u *api.Usage) {
	if u != nil {
		x.real("cpu_usage", u.CPU, 5)
		x.real("mem_usage", u.Mem, 5)
		x.real("io_usage", u.IO, 5)
	}
}

// shares writes the tickets of a job: there are none.
func (x *xmlWriter) shares() {
	for _, name := range []string{"tickets", "JB_override_tickets", "JB_jobshare", "otickets", "ftickets", "stickets"} {
		x.number(name, 0)
	}
	x.real("JAT_share", 0, 5)
}

// requested writes what -r shows of a job.
func (l *listing) requested(name string, m *api.JobMore) {
	l.text("full_job_name", name)
	if m.PE != "" {
		l.text("requested_pe", slotRanges(m.Slots), "name", m.PE)
	}
	if m.GrantedPE != "" {
		slots := 0
		for _, g := range m.Granted {
			slots += g.Slots
		}
		l.text("granted_pe", strconv.Itoa(slots), "name", m.GrantedPE)
	}
	for _, r := range m.Hard {
		_, name, value := inComplex(r.Resource, l.kinds)
		l.text("hard_request", value, "name", name, "resource_contribution", fmt.Sprintf("%f", r.Urgency))
	}
	for _, r := range m.Soft {
		_, name, value := inComplex(r, l.kinds)
		l.text("soft_request", value, "name", name)
	}
	each := func(name string, values []string) {
		for _, value := range values {
			l.text(name, value)
		}
	}
	numbers := func(name string, values []int) {
		for _, n := range values {
			l.number(name, n)
		}
	}
	each("hard_req_queue", m.Queues)
	each("soft_req_queue", m.SoftQueues)
	each("master_hard_req_queue", m.MasterQueues)
	each("predecessor_jobs_req", m.HoldJobs)
	numbers("predecessor_jobs", m.WaitsFor)
	each("ad_predecessor_jobs_req", m.HoldArray)
	numbers("ad_predecessor_jobs", m.WaitsForTasks)
}
