package conf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"paddock/spool"
)

// peParams are the parameters of sge_pe(5), in the order in which qconf prints
// them, as in all these tables.
var peParams = []param[PE]{
	{"pe_name", "", plain, func(_ *scope, p *PE, v string) error {
		p.Name = v
		return checkName("name of a parallel environment", v)
	}},
	{"slots", strconv.Itoa(maxSlots), plain, func(_ *scope, p *PE, v string) error { return setInt(&p.Slots, v, 0, maxSlots) }},
	{"user_lists", "NONE", spaced, func(s *scope, p *PE, v string) error { return setUserLists(s, &p.UserLists, v) }},
	{"xuser_lists", "NONE", spaced, func(s *scope, p *PE, v string) error { return setUserLists(s, &p.XUserLists, v) }},
	{"start_proc_args", "NONE", word, func(_ *scope, p *PE, v string) error { return setCommand(&p.StartProcArgs, v, peVariables) }},
	{"stop_proc_args", "NONE", word, func(_ *scope, p *PE, v string) error { return setCommand(&p.StopProcArgs, v, peVariables) }},
	{"allocation_rule", "$pe_slots", plain, setRule},
	{"control_slaves", "FALSE", truth, func(_ *scope, p *PE, v string) error { return setBool(&p.ControlSlaves, v) }},
	{"job_is_first_task", "TRUE", truth, func(_ *scope, p *PE, v string) error { return setBool(&p.JobIsFirstTask, v) }},
	{"urgency_slots", "min", plain, func(_ *scope, p *PE, v string) error {
		p.UrgencySlots = v
		if n, err := strconv.Atoi(v); err == nil && n > 0 && n <= maxSlots {
			return nil
		}
		return oneOf(v, "min", "max", "avg", "or a number")
	}},
	{"accounting_summary", "FALSE", truth, func(_ *scope, p *PE, v string) error { return setBool(&p.AccountingTotal, v) }},
	only[PE]("qsort_args", "NONE", "no library sorts the hosts of a job, there is but one"),
}

func setRule(_ *scope, p *PE, v string) error {
	p.Rule = v
	if _, err := strconv.Atoi(v); err != nil {
		return oneOf(v, "$pe_slots", "$fill_up", "$round_robin")
	}
	return setInt(&p.AllocationRule, v, 1, maxSlots)
}

// ckptParams are the parameters of checkpoint(5).
var ckptParams = []param[Checkpoint]{
	{"ckpt_name", "", plain, func(_ *scope, c *Checkpoint, v string) error {
		c.Name = v
		return checkName("name of a checkpointing interface", v)
	}},
	{"interface", "userdefined", plain, func(_ *scope, c *Checkpoint, v string) error {
		c.Kind = v
		return oneOf(v, "userdefined", "hibernator", "cpr", "cray-ckpt", "transparent", "application-level")
	}},
	{"ckpt_command", "none", command, func(_ *scope, c *Checkpoint, v string) error { return setCkptCommand(&c.Command, v) }},
	{"migr_command", "none", command, func(_ *scope, c *Checkpoint, v string) error { return setCkptCommand(&c.Migrate, v) }},
	{"restart_command", "none", command, func(_ *scope, c *Checkpoint, v string) error { return setCkptCommand(&c.Restart, v) }},
	{"clean_command", "none", command, func(_ *scope, c *Checkpoint, v string) error { return setCkptCommand(&c.Clean, v) }},
	{"ckpt_dir", "/tmp", plain, func(_ *scope, c *Checkpoint, v string) error { return setOptionalPath(&c.Dir, v) }},
	{"signal", "none", plain, setCkptSignal},
	{"when", "sx", plain, func(_ *scope, c *Checkpoint, v string) error {
		if isNone(v) {
			return nil
		}
		c.When = v
		if strings.Trim(v, "smxr") != "" {
			return fmt.Errorf("%q has other letters than s, m, x and r", v)
		}
		return nil
	}},
}

// setCkptCommand reads NONE or a command line for the shell.
func setCkptCommand(into *string, v string) error {
	if isNone(v) {
		return nil
	}
	*into = v
	return checkVariables(v, ckptVariables)
}

// setCkptSignal reads the name of a signal, with or without SIG and in any case, or its
// number.
func setCkptSignal(_ *scope, c *Checkpoint, v string) error {
	if isNone(v) {
		if c.Kind == "transparent" {
			return errors.New("a transparent interface needs one")
		}
		return nil
	}
	c.Signal = v
	if n, err := strconv.Atoi(v); err == nil && n > 0 && n <= maxSignal {
		return nil
	}
	c.Signal = strings.TrimPrefix(strings.ToUpper(v), "SIG")
	if _, ok := spool.SignalNumber(c.Signal); !ok {
		return fmt.Errorf("%q is not a signal", v)
	}
	return nil
}

// userListParams are the parameters of access_list(5).
var userListParams = []param[UserList]{
	{"name", "", plain, func(_ *scope, u *UserList, v string) error { u.Name = v; return checkName("name of an access list", v) }},
	{"type", "ACL", spaced, func(_ *scope, u *UserList, v string) error {
		for _, word := range list(v) {
			u.ACL = u.ACL || word == "ACL"
			if err := oneOf(word, "ACL", "DEPT"); err != nil {
				return err
			}
		}
		return nil
	}},
	only[UserList]("fshare", "0", noTickets), only[UserList]("oticket", "0", noTickets),
	{"entries", "NONE", commas, func(_ *scope, u *UserList, v string) error {
		if isNone(v) {
			return nil
		}
		u.Entries = list(v)
		for _, name := range u.Entries {
			if err := checkName("name of a user or of a @group", strings.TrimPrefix(name, "@")); err != nil {
				return err
			}
		}
		return nil
	}},
}

// projectParams are the parameters of project(5).
var projectParams = []param[Project]{
	{"name", "", plain, func(_ *scope, p *Project, v string) error {
		p.Name = v
		if isNone(v) {
			return inWords("Keyword (%q) not allowed as objectname", strings.ToUpper(v))
		}
		return checkName("name of a project", v)
	}},
	inert[Project]("oticket", "0", noTickets), inert[Project]("fshare", "0", "users share alike, whatever their projects"),
	{"acl", "NONE", spaced, func(s *scope, p *Project, v string) error { return setUserLists(s, &p.ACL, v) }},
	{"xacl", "NONE", spaced, func(s *scope, p *Project, v string) error { return setUserLists(s, &p.XACL, v) }},
}

// hostGroup is a hostgroup(5).
type hostGroup struct {
	name  string
	hosts []string
}

// hostGroupParams are the parameters of hostgroup(5).
var hostGroupParams = []param[hostGroup]{
	{"group_name", "", plain, func(_ *scope, g *hostGroup, v string) error {
		g.name = v
		if v[0] != '@' {
			return fmt.Errorf("%q does not begin with @", v)
		}
		return checkName("name of a host group", v[1:])
	}},
	{"hostlist", "NONE", spaced, func(_ *scope, g *hostGroup, v string) error {
		if !isNone(v) {
			g.hosts = list(v)
		}
		return nil
	}},
}

// host is a host_conf(5).
type host struct {
	values  Values
	scaling map[string]float64
	access  Access
}

// hostParams are the parameters of host_conf(5).
var hostParams = []param[host]{
	{"hostname", "", plain, func(_ *scope, _ *host, v string) error { return checkName("name of a host", v) }},
	{"load_scaling", "NONE", commas, func(s *scope, h *host, v string) error {
		if isNone(v) {
			return nil
		}
		h.scaling = map[string]float64{}
		for _, word := range list(v) {
			a, text, err := s.named(word)
			if err != nil {
				return err
			}
			factor, err := strconv.ParseFloat(text, 64)
			if err != nil || !(factor >= 0 && factor <= 1e9) || !a.Kind.Number() {
				return fmt.Errorf("%q is not the factor of a number", word)
			}
			h.scaling[a.Name] = factor
		}
		return nil
	}},
	{"complex_values", "NONE", commas, func(s *scope, h *host, v string) error { return setValues(s, &h.values, v) }},
	// qconf -se shows these of a running host.
	{"load_values", "NONE", commas, func(*scope, *host, string) error { return nil }},
	accepted[host]("processors", "0"),
	{"user_lists", "NONE", spaced, func(s *scope, h *host, v string) error { return setUserLists(s, &h.access.Allowed, v) }},
	{"xuser_lists", "NONE", spaced, func(s *scope, h *host, v string) error { return setUserLists(s, &h.access.Denied, v) }},
	{"projects", "NONE", spaced, func(s *scope, h *host, v string) error { return setProjectList(s, &h.access.Projects, v) }},
	{"xprojects", "NONE", spaced, func(s *scope, h *host, v string) error { return setProjectList(s, &h.access.XProjects, v) }},
	inert[host]("usage_scaling", "NONE", "with one host it is the same for everybody"),
	inert[host]("report_variables", "NONE", noReporting),
}
