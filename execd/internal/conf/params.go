package conf

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"paddock/spool"
)

// queueParams are the parameters of queue_conf(5), all of them: those with a
// meaning here, those that mean nothing as long as they say "nothing", and
// those that concern only what cannot be asked for yet.
var queueParams = slices.Concat([]param[Queue]{
	{"qname", func(q *Queue, v string) error { q.Name = v; return checkName(v) }},
	{"hostlist", func(*Queue, string) error { return nil }}, // this host reads the file, so it is on the list
	{"seq_no", func(q *Queue, v string) error { return setInt(&q.SeqNo, v, 0, 1<<30) }},
	{"slots", func(q *Queue, v string) error { return setInt(&q.Slots, v, 0, 100_000) }},
	{"priority", func(q *Queue, v string) error { return setInt(&q.Priority, v, -20, 20) }},
	{"rerun", func(q *Queue, v string) error { return setBool(&q.Rerun, v) }},
	{"tmpdir", func(q *Queue, v string) error { return setPath(&q.Tmpdir, v) }},
	{"shell", func(q *Queue, v string) error { return setPath(&q.Shell, v) }},
	{"shell_start_mode", func(q *Queue, v string) error {
		q.ShellStartMode = v
		return oneOf(v, "posix_compliant", "unix_behavior", "script_from_stdin")
	}},
	{"starter_method", func(q *Queue, v string) error {
		if isNone(v) {
			return nil
		}
		return setPath(&q.StarterMethod, v)
	}},
	{"prolog", func(q *Queue, v string) error { return setProcedure(&q.Prolog, v) }},
	{"epilog", func(q *Queue, v string) error { return setProcedure(&q.Epilog, v) }},
	{"suspend_method", func(q *Queue, v string) error { return setMethod(&q.SuspendMethod, v) }},
	{"resume_method", func(q *Queue, v string) error { return setMethod(&q.ResumeMethod, v) }},
	{"terminate_method", func(q *Queue, v string) error { return setMethod(&q.TerminateMethod, v) }},
	{"notify", func(q *Queue, v string) error { return setTime(&q.Notify, v) }},
	{"s_rt", func(q *Queue, v string) error { return setTimeLimit(&q.SRT, v) }},
	{"h_rt", func(q *Queue, v string) error { return setTimeLimit(&q.HRT, v) }},
	// Read by nothing until a job can ask for what they govern.
	accepted[Queue]("qtype"), accepted[Queue]("min_cpu_interval"),
	accepted[Queue]("pe_list"), accepted[Queue]("ckpt_list"),
	accepted[Queue]("nsuspend"), accepted[Queue]("suspend_interval"),
	// Would change what happens.
	only[Queue]("load_thresholds", "NONE"), only[Queue]("suspend_thresholds", "NONE"),
	only[Queue]("processors", "UNDEFINED"),
	only[Queue]("owner_list", "NONE"), only[Queue]("user_lists", "NONE"), only[Queue]("xuser_lists", "NONE"),
	only[Queue]("subordinate_list", "NONE"), only[Queue]("complex_values", "NONE"),
	only[Queue]("projects", "NONE"), only[Queue]("xprojects", "NONE"), only[Queue]("calendar", "NONE"),
	only[Queue]("initial_state", "default"),
}, queueLimits("cpu", "fsize", "data", "stack", "core", "rss", "vmem"))

func queueLimits(names ...string) []param[Queue] {
	var params []param[Queue]
	for _, name := range names {
		for _, kind := range []string{"s_", "h_"} {
			key := kind + name
			params = append(params, param[Queue]{key, func(q *Queue, v string) error {
				q.Limits = append(q.Limits, Limit{key, v})
				return checkLimit(v)
			}})
		}
	}
	return params
}

// globalParams are the parameters of sge_conf(5) that concern an execution
// host. Those of the queue master are accepted: there is none here, and a
// file printed by `qconf -sconf` has them all.
var globalParams = slices.Concat([]param[Global]{
	{"execd_spool_dir", func(g *Global, v string) error { return setPath(&g.SpoolDir, v) }},
	{"min_uid", func(g *Global, v string) error { return setInt(&g.MinUID, v, 0, 1<<31-1) }},
	{"min_gid", func(g *Global, v string) error { return setInt(&g.MinGID, v, 0, 1<<31-1) }},
	{"gid_range", func(g *Global, v string) error { return setRanges(&g.GIDRange, v) }},
	{"login_shells", func(g *Global, v string) error { g.LoginShells = list(v); return nil }},
	{"shepherd_cmd", func(g *Global, v string) error {
		if isNone(v) {
			return nil
		}
		return setPath(&g.ShepherdCmd, v)
	}},
	{"max_jobs", func(g *Global, v string) error { return setInt(&g.MaxJobs, v, 0, 1<<30) }},
	{"max_u_jobs", func(g *Global, v string) error { return setInt(&g.MaxUserJobs, v, 0, 1<<30) }},
	{"prolog", func(g *Global, v string) error { return setProcedure(&g.Prolog, v) }},
	{"epilog", func(g *Global, v string) error { return setProcedure(&g.Epilog, v) }},
	{"execd_params", setExecdParams},
	{"qmaster_params", setQmasterParams},
	only[Global]("load_sensor", "NONE"), only[Global]("set_token_cmd", "NONE"), only[Global]("pag_cmd", "NONE"),
	only[Global]("user_lists", "NONE"), only[Global]("xuser_lists", "NONE"),
	only[Global]("projects", "NONE"), only[Global]("xprojects", "NONE"),
	only[Global]("enforce_project", "false"), only[Global]("jsv_url", "NONE"),
}, many[Global](
	"mailer", "xterm", "shell_start_mode", "enforce_user", "load_report_time", "max_unheard",
	"reschedule_unknown", "loglevel", "administrator_mail", "token_extend_time", "reporting_params",
	"finished_jobs", "qlogin_command", "qlogin_daemon", "rlogin_command",
	"rlogin_daemon", "rsh_command", "rsh_daemon", "max_aj_instances", "max_aj_tasks",
	"max_advance_reservations", "auto_user_oticket", "auto_user_fshare", "auto_user_default_project",
	"auto_user_delete_time", "delegated_file_staging", "reprioritize", "jsv_allowed_mod",
	"libjvm_path", "additional_jvm_args",
))

// setExecdParams reads the comma separated NAME=value of execd_params.
func setExecdParams(g *Global, v string) error {
	if isNone(v) {
		return nil
	}
	for _, word := range list(v) {
		name, value, hasValue := strings.Cut(word, "=")
		name = strings.ToUpper(name)
		var err error
		switch name {
		case "S_DESCRIPTORS", "H_DESCRIPTORS", "S_MAXPROC", "H_MAXPROC",
			"S_MEMORYLOCKED", "H_MEMORYLOCKED", "S_LOCKS", "H_LOCKS":
			err = checkLimit(value)
			g.Limits = append(g.Limits, Limit{strings.ToLower(name), value})
		case "NOTIFY_KILL":
			err = setWarning(&g.NotifyKill, value)
		case "NOTIFY_SUSP":
			err = setWarning(&g.NotifySusp, value)
		case "SCRIPT_TIMEOUT":
			if err = setTime(&g.ScriptTimeout, value); err == nil && g.ScriptTimeout == 0 {
				err = errors.New("0 s are too short for any procedure")
			}
		case "IGNORE_NGROUPS_MAX_LIMIT":
			err = setFlag(&g.SkipNGroups, value, hasValue)
		case "ENABLE_ADDGRP_KILL":
			kill := false
			err = setFlag(&kill, value, hasValue)
			g.NoAddGrpKill = !kill
		case "CPU_QUOTA": // ours: Grid Engine has no such thing
			g.CPUQuota = strings.EqualFold(value, "slots")
			if !g.CPUQuota && !isNone(value) {
				err = fmt.Errorf("%q is neither slots nor NONE", value)
			}
		default:
			return fmt.Errorf("%s is not supported", name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// setQmasterParams reads what of qmaster_params concerns how a job ends. The
// rest is the queue master's.
func setQmasterParams(g *Global, v string) error {
	for _, word := range list(v) {
		name, value, hasValue := strings.Cut(word, "=")
		var err error
		switch strings.ToUpper(name) {
		case "FORBID_RESCHEDULE":
			err = setFlag(&g.ForbidReschedule, value, hasValue)
		case "FORBID_APPERROR":
			err = setFlag(&g.ForbidApperror, value, hasValue)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strings.ToUpper(name), err)
		}
	}
	return nil
}

func accepted[T any](name string) param[T] {
	return param[T]{name, func(*T, string) error { return nil }}
}

func many[T any](names ...string) []param[T] {
	var params []param[T]
	for _, name := range names {
		params = append(params, accepted[T](name))
	}
	return params
}

// only is a parameter of which nothing but the neutral value is supported.
func only[T any](name, neutral string) param[T] {
	return param[T]{name, func(_ *T, v string) error {
		if strings.EqualFold(v, neutral) {
			return nil
		}
		return fmt.Errorf("not supported, only %s is", neutral)
	}}
}

func isNone(v string) bool { return strings.EqualFold(v, "none") }

func list(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

func setInt(into *int, v string, low, high int) error {
	n, err := strconv.Atoi(v)
	if err != nil {
		return overrides(v, fmt.Errorf("%q is not a number", v))
	}
	if n < low || n > high {
		return fmt.Errorf("%d is not between %d and %d", n, low, high)
	}
	*into = n
	return nil
}

func setBool(into *bool, v string) error {
	switch strings.ToUpper(v) {
	case "TRUE", "1", "YES":
		*into = true
	case "FALSE", "0", "NO":
		*into = false
	default:
		return overrides(v, fmt.Errorf("%q is neither TRUE nor FALSE", v))
	}
	return nil
}

// setFlag is setBool for a word in a list, whose name alone means TRUE.
func setFlag(into *bool, v string, hasValue bool) error {
	if !hasValue {
		*into = true
		return nil
	}
	return setBool(into, v)
}

func setPath(into *string, v string) error {
	if !filepath.IsAbs(v) || strings.ContainsAny(v, " \t") {
		return overrides(v, fmt.Errorf("%q is not an absolute path", v))
	}
	*into = v
	return nil
}

func setRanges(into *[]Range, v string) error {
	*into = nil
	if isNone(v) {
		return nil
	}
	for _, word := range list(v) {
		low, high, isRange := strings.Cut(word, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		// Ids below 100 are the system's: a file of such a group must never
		// become a job's.
		if err1 != nil || err2 != nil || first < 100 || last < first {
			return fmt.Errorf("%q is not a range of group ids from 100 up", word)
		}
		*into = append(*into, Range{first, last})
	}
	return nil
}

func oneOf(v string, words ...string) error {
	if slices.Contains(words, v) {
		return nil
	}
	return overrides(v, fmt.Errorf("%q is none of %s", v, strings.Join(words, ", ")))
}

func checkName(v string) error {
	if v == "" || strings.ContainsAny(v, " \t/@:*?[]") || v[0] == '.' {
		return fmt.Errorf("%q is not a queue name", v)
	}
	return nil
}

func checkLimit(v string) error {
	if _, err := spool.ParseLimit(v); err != nil {
		return overrides(v, fmt.Errorf("%q is not a limit", v))
	}
	return nil
}

// overrides says so when a value is bad because it has an override for a host.
func overrides(v string, err error) error {
	if strings.Contains(v, "[") {
		return fmt.Errorf("overrides for hosts (%q) are not supported", v)
	}
	return err
}
