package conf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// schedParams are the parameters of sched_conf(5), in the order in which qconf prints
// them. The weights are those of Grid Engine's installation, by which -p comes first.
var schedParams = []param[Scheduling]{
	only[Scheduling]("algorithm", "default", "there is one scheduler"),
	{"schedule_interval", "0:0:15", plain, func(_ *scope, _ *Scheduling, v string) error {
		var every time.Duration
		if err := setTime(&every, v); err != nil || every > 0 {
			return err
		}
		return errors.New("0 does not stop the scheduler here; disable the queues")
	}},
	{"maxujobs", "0", plain, func(_ *scope, c *Scheduling, v string) error { return setInt(&c.MaxUserRunning, v, 0, 1<<30) }},
	{"queue_sort_method", "load", plain, func(_ *scope, c *Scheduling, v string) error {
		c.SortBySeqNo = v == "seqno"
		return oneOf(v, "load", "seqno")
	}},
	{"job_load_adjustments", "np_load_avg=0.50", plain, func(s *scope, _ *Scheduling, v string) error {
		if v != "np_load_avg=0.50" && !isNone(v) {
			s.warn("accepted, without effect here: load is what is measured")
		}
		return nil
	}},
	accepted[Scheduling]("load_adjustment_decay_time", "0:7:30"),
	{"load_formula", "np_load_avg", plain, setFormula},
	{"schedd_job_info", "true", plain, func(s *scope, _ *Scheduling, v string) error {
		if !strings.EqualFold(v, "true") {
			s.warn("accepted, without effect here: why a job waits can always be asked")
		}
		return nil
	}},
	accepted[Scheduling]("flush_submit_sec", "0"), accepted[Scheduling]("flush_finish_sec", "0"),
	inert[Scheduling]("params", "none", "they tune another scheduler"),
	{"reprioritize_interval", "0:0:0", plain, func(_ *scope, _ *Scheduling, v string) error {
		var every time.Duration
		if err := setTime(&every, v); err != nil || every == 0 {
			return err
		}
		return errors.New("not supported, only 0:0:0 is: " + noTickets)
	}},
	{"halftime", "168", plain, func(_ *scope, c *Scheduling, v string) error {
		var hours int
		err := setInt(&hours, v, 0, 1_000_000)
		c.HalfTime = time.Duration(hours) * time.Hour
		return err
	}},
	{"usage_weight_list", "cpu=1.000000,mem=0.000000,io=0.000000", plain, setUsageWeights},
	inert[Scheduling]("compensation_factor", "5.000000", "there is no share tree"),
	accepted[Scheduling]("weight_user", "0.250000"), accepted[Scheduling]("weight_project", "0.250000"),
	accepted[Scheduling]("weight_department", "0.250000"), accepted[Scheduling]("weight_job", "0.250000"),
	only[Scheduling]("weight_tickets_functional", "0", noTickets), only[Scheduling]("weight_tickets_share", "0", noTickets),
	// These are for tickets, which do not exist here.
	{"share_override_tickets", "TRUE", truth, func(*scope, *Scheduling, string) error { return nil }},
	{"share_functional_shares", "TRUE", truth, func(*scope, *Scheduling, string) error { return nil }},
	accepted[Scheduling]("max_functional_jobs_to_schedule", "200"),
	{"report_pjob_tickets", "TRUE", truth, func(*scope, *Scheduling, string) error { return nil }},
	accepted[Scheduling]("max_pending_tasks_per_job", "50"),
	inert[Scheduling]("halflife_decay_list", "none", "all usage is forgotten by halftime"),
	accepted[Scheduling]("policy_hierarchy", "OFS"),
	{"weight_ticket", "0.010000", plain, func(_ *scope, c *Scheduling, v string) error { return setWeight(&c.WeightTicket, v) }},
	{"weight_waiting_time", "0.000000", plain, func(_ *scope, c *Scheduling, v string) error { return setWeight(&c.WeightWaiting, v) }},
	inert[Scheduling]("weight_deadline", "3600000.000000", "no job has a deadline"),
	{"weight_urgency", "0.100000", plain, func(_ *scope, c *Scheduling, v string) error { return setWeight(&c.WeightUrgency, v) }},
	{"weight_priority", "1.000000", plain, func(_ *scope, c *Scheduling, v string) error { return setWeight(&c.WeightPriority, v) }},
	{"max_reservation", "0", plain, func(_ *scope, c *Scheduling, v string) error { return setInt(&c.MaxReservation, v, 0, 1<<30) }},
	{"default_duration", "INFINITY", plain, func(_ *scope, c *Scheduling, v string) error { return setTimeLimit(&c.DefaultDuration, v) }},
}

// setWeight reads a number that is not negative.
func setWeight(into *float64, v string) error {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= 0 && n <= 1e12) {
		return fmt.Errorf("%q is not a weight", v)
	}
	*into = n
	return nil
}

// setUsageWeights reads cpu=weight,mem=weight,io=weight.
func setUsageWeights(_ *scope, c *Scheduling, v string) error {
	for _, element := range list(v) {
		name, weight, _ := strings.Cut(element, "=")
		into := map[string]*float64{"cpu": &c.UsageWeights.CPU, "mem": &c.UsageWeights.Mem, "io": &c.UsageWeights.IO}[name]
		if into == nil {
			return fmt.Errorf("%q is none of cpu, mem and io", name)
		}
		if err := setWeight(into, weight); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// setFormula reads a sum of attributes, some times a number, such as
// load_avg*2+swap_used-100.
func setFormula(s *scope, c *Scheduling, v string) error {
	c.LoadFormula = v
	for term := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == '+' || r == '-' }) {
		name, factor, product := strings.Cut(term, "*")
		if _, err := strconv.ParseFloat(name, 64); err == nil && !product {
			continue
		}
		a := s.conf.Attribute(name)
		if a == nil {
			return inWords("Complex attribute %q does not exist", name)
		}
		if !a.Kind.Number() {
			return fmt.Errorf("%s is not a number", name)
		}
		if _, err := strconv.ParseFloat(factor, 64); product && err != nil {
			return fmt.Errorf("%q is not a factor", factor)
		}
	}
	return nil
}
