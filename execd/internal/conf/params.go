package conf

import (
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/spool"
)

// queueParams are the parameters of queue_conf(5), in the order in which qconf
// prints them.
var queueParams = slices.Concat([]param[Queue]{
	{"qname", "", plain, func(_ *scope, q *Queue, v string) error { q.Name = v; return checkName("queue name", v) }},
	{"hostlist", "", spaced, func(*scope, *Queue, string) error { return nil }}, // read before
	{"seq_no", "0", plain, func(_ *scope, q *Queue, v string) error { return setInt(&q.SeqNo, v, 0, 1<<30) }},
	{"load_thresholds", "NONE", commas, func(s *scope, q *Queue, v string) error { return setThresholds(s, &q.LoadThresholds, v) }},
	{"suspend_thresholds", "NONE", commas, func(s *scope, q *Queue, v string) error { return setThresholds(s, &q.SuspendThresholds, v) }},
	{"nsuspend", "1", plain, func(_ *scope, q *Queue, v string) error { return setInt(&q.Suspend, v, 0, maxSlots) }},
	{"suspend_interval", "00:05:00", plain, func(_ *scope, q *Queue, v string) error { return setTime(&q.SuspendInterval, v) }},
	{"priority", "0", plain, func(_ *scope, q *Queue, v string) error { return setInt(&q.Priority, v, -20, 20) }},
	{"min_cpu_interval", "00:05:00", plain, func(_ *scope, q *Queue, v string) error { return setTime(&q.MinCPUInterval, v) }},
	{"processors", "UNDEFINED", plain, func(_ *scope, q *Queue, v string) error { return setProcessors(&q.Processors, v) }},
	{"qtype", "BATCH INTERACTIVE", spaced, func(_ *scope, q *Queue, v string) error { return setType(q, v) }},
	{"ckpt_list", "NONE", spaced, func(s *scope, q *Queue, v string) error {
		return setInterfaces(s, &q.Checkpoints, v, "checkpointing interface", mapHas(s.conf.Checkpoints))
	}},
	{"pe_list", "NONE", spaced, func(s *scope, q *Queue, v string) error {
		return setInterfaces(s, &q.PEs, v, "parallel environment", mapHas(s.conf.PEs))
	}},
	{"rerun", "FALSE", truth, func(_ *scope, q *Queue, v string) error { return setBool(&q.Rerun, v) }},
	{"slots", "", plain, func(_ *scope, q *Queue, v string) error { return setInt(&q.Slots, v, 0, 100_000) }},
	{"tmpdir", "", plain, func(_ *scope, q *Queue, v string) error { return setPath(&q.Tmpdir, v) }},
	{"shell", "/bin/sh", plain, func(_ *scope, q *Queue, v string) error { return setPath(&q.Shell, v) }},
	{"prolog", "NONE", word, func(_ *scope, q *Queue, v string) error { return setProcedure(&q.Prolog, v) }},
	{"epilog", "NONE", word, func(_ *scope, q *Queue, v string) error { return setProcedure(&q.Epilog, v) }},
	{"shell_start_mode", "", plain, func(_ *scope, q *Queue, v string) error {
		q.ShellStartMode = v
		return oneOf(v, PosixCompliant, UnixBehavior, "script_from_stdin")
	}},
	{"starter_method", "NONE", word, func(_ *scope, q *Queue, v string) error { return setOptionalPath(&q.StarterMethod, v) }},
	{"suspend_method", "NONE", word, func(_ *scope, q *Queue, v string) error { return setMethod(&q.SuspendMethod, v) }},
	{"resume_method", "NONE", word, func(_ *scope, q *Queue, v string) error { return setMethod(&q.ResumeMethod, v) }},
	{"terminate_method", "NONE", word, func(_ *scope, q *Queue, v string) error { return setMethod(&q.TerminateMethod, v) }},
	{"notify", "00:00:60", plain, func(_ *scope, q *Queue, v string) error { return setTime(&q.Notify, v) }},
	{"owner_list", "NONE", spaced, func(_ *scope, q *Queue, v string) error { return setUsers(&q.Owners, v) }},
	{"user_lists", "NONE", spaced, func(s *scope, q *Queue, v string) error { return setUserLists(s, &q.UserLists, v) }},
	{"xuser_lists", "NONE", spaced, func(s *scope, q *Queue, v string) error { return setUserLists(s, &q.XUserLists, v) }},
	{"subordinate_list", "NONE", commas, func(_ *scope, q *Queue, v string) error { return setSubordinates(&q.Subordinates, v) }},
	{"complex_values", "NONE", commas, func(s *scope, q *Queue, v string) error {
		err := setValues(s, &q.Complex, v)
		if _, ok := q.Complex["slots"]; ok {
			return errors.New("slots has a parameter of its own")
		}
		return err
	}},
	{"projects", "NONE", spaced, func(s *scope, q *Queue, v string) error { return setProjectList(s, &q.Projects, v) }},
	{"xprojects", "NONE", spaced, func(s *scope, q *Queue, v string) error { return setProjectList(s, &q.XProjects, v) }},
	only[Queue]("calendar", "NONE", "there are no calendars"),
	{"initial_state", "default", plain, func(_ *scope, q *Queue, v string) error {
		q.InitiallyDisabled, q.InitiallyEnabled = v == "disabled", v == "enabled"
		return oneOf(v, "default", "enabled", "disabled")
	}},
	{"s_rt", "INFINITY", plain, func(_ *scope, q *Queue, v string) error { return setTimeLimit(&q.SRT, v) }},
	{"h_rt", "INFINITY", plain, func(_ *scope, q *Queue, v string) error { return setTimeLimit(&q.HRT, v) }},
}, queueLimits("cpu", "fsize", "data", "stack", "core", "rss", "vmem"))

func queueLimits(names ...string) []param[Queue] {
	var params []param[Queue]
	for _, name := range names {
		for _, kind := range []string{"s_", "h_"} {
			key := kind + name
			params = append(params, param[Queue]{key, "INFINITY", plain, func(_ *scope, q *Queue, v string) error {
				q.Limits = append(q.Limits, Limit{key, v})
				return checkLimit(v)
			}})
		}
	}
	return params
}

// maxSlots bounds numbers of slots, as in Grid Engine.
const maxSlots = 9_999_999

// These are the reasons why a parameter has only one value, or has no effect.
const (
	noTickets = "there are no tickets"
	noAFS     = "qsub brings no AFS token"
)

// globalParams are the parameters of sge_conf(5), in the order in which qconf prints
// them. Those without a standard are printed only if they are set.
var globalParams = []param[Global]{
	{"execd_spool_dir", "", plain, func(_ *scope, g *Global, v string) error { return setPath(&g.SpoolDir, v) }},
	{"mailer", MailerAuto, plain, setMailer},
	{"xterm", "/usr/bin/xterm", plain, func(_ *scope, g *Global, v string) error { return setOptionalPath(&g.Xterm, v) }},
	{"load_sensor", "none", command, func(_ *scope, g *Global, v string) error { return setSensors(&g.LoadSensors, v) }},
	{"prolog", "none", command, func(_ *scope, g *Global, v string) error { return setProcedure(&g.Prolog, v) }},
	{"epilog", "none", command, func(_ *scope, g *Global, v string) error { return setProcedure(&g.Epilog, v) }},
	accepted[Global]("shell_start_mode", "posix_compliant"), // each queue has its own
	{"login_shells", "sh,bash,ksh,csh,tcsh,zsh", plain, func(_ *scope, g *Global, v string) error { g.LoginShells = list(v); return nil }},
	// System users run no jobs. In Grid Engine they can, which is a security hole.
	{"min_uid", "100", plain, func(_ *scope, g *Global, v string) error { return setInt(&g.MinUID, v, 0, 1<<31-1) }},
	{"min_gid", "100", plain, func(_ *scope, g *Global, v string) error { return setInt(&g.MinGID, v, 0, 1<<31-1) }},
	{"user_lists", "none", plain, func(s *scope, g *Global, v string) error { return setUserLists(s, &g.UserLists, v) }},
	{"xuser_lists", "none", plain, func(s *scope, g *Global, v string) error { return setUserLists(s, &g.XUserLists, v) }},
	{"projects", "none", plain, func(s *scope, g *Global, v string) error { return setProjectList(s, &g.Projects, v) }},
	{"xprojects", "none", plain, func(s *scope, g *Global, v string) error { return setProjectList(s, &g.XProjects, v) }},
	{"enforce_project", "false", plain, func(_ *scope, g *Global, v string) error { return setBool(&g.EnforceProject, v) }},
	{"enforce_user", "auto", plain, func(_ *scope, _ *Global, v string) error {
		if v = strings.ToLower(v); v == "true" {
			return errors.New("there is no list of users; user_lists says who may submit")
		}
		return oneOf(v, "auto", "false")
	}},
	{"load_report_time", "00:00:40", plain, func(_ *scope, g *Global, v string) error {
		if err := setTime(&g.LoadReportTime, v); err != nil {
			return err
		}
		if g.LoadReportTime == 0 {
			return errors.New("0 s are too short")
		}
		return nil
	}},
	accepted[Global]("max_unheard", "00:05:00"), accepted[Global]("reschedule_unknown", "00:00:00"),
	{"loglevel", "log_info", plain, func(_ *scope, g *Global, v string) error {
		g.LogLevel = v
		return oneOf(v, "log_err", "log_warning", "log_info")
	}},
	{"administrator_mail", "none", plain, func(_ *scope, g *Global, v string) error { return setAddresses(&g.AdminMail, v) }},
	only[Global]("set_token_cmd", "none", noAFS), only[Global]("pag_cmd", "none", noAFS), accepted[Global]("token_extend_time", "none"),
	{"shepherd_cmd", "none", plain, func(_ *scope, g *Global, v string) error { return setOptionalPath(&g.ShepherdCmd, v) }},
	{"qmaster_params", "none", plain, setQmasterParams},
	{"execd_params", "none", plain, setExecdParams},
	{"reporting_params", "accounting=true reporting=false flush_time=00:00:15 joblog=false sharelog=00:00:00", plain, setReportingParams},
	{"finished_jobs", "100", plain, func(_ *scope, g *Global, v string) error { return setInt(&g.FinishedJobs, v, 0, 1<<30) }},
	{"gid_range", "20000-24999", plain, func(_ *scope, g *Global, v string) error { return setRanges(&g.GIDRange, v) }},
	connecting("qlogin_command", func(g *Global) *string { return &g.Qlogin.Command }), answering("qlogin", func(g *Global) *Connection { return &g.Qlogin }),
	connecting("rlogin_command", func(g *Global) *string { return &g.Rlogin.Command }), answering("rlogin", func(g *Global) *Connection { return &g.Rlogin }),
	connecting("rsh_command", func(g *Global) *string { return &g.Rsh.Command }), answering("rsh", func(g *Global) *Connection { return &g.Rsh }),
	{"max_aj_instances", "0", plain, func(_ *scope, g *Global, v string) error { return setInt(&g.MaxTasksAtOnce, v, 0, 1<<30) }},
	{"max_aj_tasks", "0", plain, func(_ *scope, g *Global, v string) error { return setInt(&g.MaxTasks, v, 0, 1<<30) }},
	{"max_u_jobs", "0", plain, func(_ *scope, g *Global, v string) error { return setInt(&g.MaxUserJobs, v, 0, 1<<30) }},
	{"max_jobs", "0", plain, func(_ *scope, g *Global, v string) error { return setInt(&g.MaxJobs, v, 0, 1<<30) }},
	accepted[Global]("max_advance_reservations", ""), // there are no advance reservations
	only[Global]("auto_user_oticket", "0", noTickets), only[Global]("auto_user_fshare", "0", noTickets),
	only[Global]("auto_user_default_project", "none", "users need not be made known; qsub -P in a file sge_request is a default"), accepted[Global]("auto_user_delete_time", "86400"),
	inert[Global]("delegated_file_staging", "false", "no job can ask for it"),
	{"reprioritize", "0", plain, func(_ *scope, _ *Global, v string) error {
		var on bool
		if err := setBool(&on, v); err != nil || !on {
			return err
		}
		return errors.New(noTickets)
	}},
	only[Global]("jsv_url", "none", "there are no job submission verifiers"),
	accepted[Global]("jsv_allowed_mod", "ac,h,i,e,o,j,M,N,p,w"), // for jsv_url
	accepted[Global]("libjvm_path", ""), accepted[Global]("additional_jvm_args", ""),
}

// atStart are the parameters of sge_conf(5) that execd reads only when it starts.
var atStart = []string{"execd_spool_dir", "gid_range"}

// option is NAME or NAME=value in execd_params and the like.
type option struct {
	name string
	set  func(s *scope, g *Global, v string, hasValue bool) error
}

func optionNames(known []option) []string {
	names := make([]string, len(known))
	for i, o := range known {
		names[i] = o.name
	}
	return names
}

// setOptions reads a list of options.
func setOptions(s *scope, g *Global, v string, known []option) error {
	if isNone(v) {
		return nil
	}
	for _, word := range list(v) {
		name, value, hasValue := strings.Cut(word, "=")
		i := slices.IndexFunc(known, func(o option) bool { return strings.EqualFold(o.name, name) })
		if i < 0 {
			return fmt.Errorf("%s is not supported%s", name, suggest(optionNames(known), name, ""))
		}
		if err := known[i].set(s, g, value, hasValue); err != nil {
			return fmt.Errorf("%s: %w", known[i].name, err)
		}
	}
	return nil
}

// options returns options that are set alike.
func options(set func(s *scope, g *Global, v string, hasValue bool) error, names ...string) []option {
	var all []option
	for _, name := range names {
		all = append(all, option{name, set})
	}
	return all
}

// boolean is an option that is TRUE or FALSE.
func boolean(name string, field func(*Global) *bool) option {
	return option{name, func(_ *scope, g *Global, v string, hasValue bool) error { return setFlag(field(g), v, hasValue) }}
}

// must is an option that supports only one value.
func must(name string, be bool, reason string) option {
	return option{name, func(_ *scope, _ *Global, v string, hasValue bool) error {
		var is bool
		if err := setFlag(&is, v, hasValue); err != nil || is == be {
			return err
		}
		return fmt.Errorf("not supported, only %s is: %s", strings.ToUpper(strconv.FormatBool(be)), reason)
	}}
}

// should is an option whose other value has no effect.
func should(name string, be bool, reason string) option {
	return option{name, func(s *scope, _ *Global, v string, hasValue bool) error {
		var is bool
		if err := setFlag(&is, v, hasValue); err != nil || is == be {
			return err
		}
		s.warn("%s accepted, without effect here: %s", name, reason)
		return nil
	}}
}

// anything accepts any value, which has no effect.
func anything(*scope, *Global, string, bool) error { return nil }

// execdOptions are the options of execd_params.
var execdOptions = slices.Concat(
	jobLimits("S_DESCRIPTORS", "H_DESCRIPTORS", "S_MAXPROC", "H_MAXPROC", "S_MEMORYLOCKED", "H_MEMORYLOCKED", "S_LOCKS", "H_LOCKS"),
	[]option{
		{"NOTIFY_KILL", func(_ *scope, g *Global, v string, _ bool) error { return setWarning(&g.NotifyKill, v) }},
		{"NOTIFY_SUSP", func(_ *scope, g *Global, v string, _ bool) error { return setWarning(&g.NotifySusp, v) }},
		{"SCRIPT_TIMEOUT", func(_ *scope, g *Global, v string, _ bool) error {
			if err := setTime(&g.ScriptTimeout, v); err != nil || g.ScriptTimeout > 0 {
				return err
			}
			return errors.New("0 s are too short for any procedure")
		}},
		// QRSH_GRACE is ours: Grid Engine's jobs end with their client.
		{"QRSH_GRACE", func(_ *scope, g *Global, v string, _ bool) error {
			if strings.EqualFold(v, "INFINITY") {
				g.SessionGrace = -time.Second
				return nil
			}
			return setTime(&g.SessionGrace, v)
		}},
		{"QRSH_LOST", func(_ *scope, g *Global, v string, _ bool) error { return setLost(&g.SessionLost, v) }},
		boolean("IGNORE_NGROUPS_MAX_LIMIT", func(g *Global) *bool { return &g.SkipNGroups }),
		{"ENABLE_ADDGRP_KILL", func(_ *scope, g *Global, v string, hasValue bool) error {
			kill := false
			err := setFlag(&kill, v, hasValue)
			g.NoAddGrpKill = !kill
			return err
		}},
		// CPU_QUOTA is ours: Grid Engine has no such thing.
		{"CPU_QUOTA", func(_ *scope, g *Global, v string, _ bool) error { return setSlots(&g.CPUQuota, v) }},
		{"METRICS", func(_ *scope, g *Global, v string, _ bool) error {
			if isNone(v) {
				g.Metrics = ""
				return nil
			}
			host, _, err := net.SplitHostPort(v)
			if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
				return fmt.Errorf("%q is not an address of this host alone, like 127.0.0.1:9100", v)
			}
			g.Metrics = v
			return nil
		}},
		{"CPU_WEIGHT", func(_ *scope, g *Global, v string, _ bool) error { return setSlots(&g.CPUWeight, v) }},
		{"PDC_INTERVAL", func(_ *scope, g *Global, v string, _ bool) error {
			switch strings.ToUpper(v) {
			case "NEVER":
				g.UsageInterval = 0
				return nil
			case "PER_LOAD_REPORT":
				g.UsageInterval = g.LoadReportTime
				return nil
			}
			if err := setTime(&g.UsageInterval, v); err != nil || g.UsageInterval > 0 {
				return err
			}
			return errors.New("0 s are too short; NEVER is not at all")
		}},
		boolean("ACCT_RESERVED_USAGE", func(g *Global) *bool { return &g.ReservedUsage }),
		{"KEEP_ACTIVE", func(_ *scope, g *Global, v string, hasValue bool) error {
			if g.KeepFailed = strings.EqualFold(v, "error"); g.KeepFailed {
				g.KeepActive = false
				return nil
			}
			return setFlag(&g.KeepActive, v, hasValue)
		}},
		// ENDED_JOBS is ours: in Grid Engine only unfinished jobs can be submitted again.
		{"ENDED_JOBS", func(_ *scope, g *Global, v string, _ bool) error { return setInt(&g.EndedJobs, v, 0, 1_000_000) }},
		boolean("USE_QSUB_GID", func(g *Global) *bool { return &g.QsubGID }),
		// The next five are ours.
		boolean("PRIVATE_TMP", func(g *Global) *bool { return &g.PrivateTmp }),
		{"SHEPHERD_TRACE", func(_ *scope, g *Global, v string, _ bool) error {
			g.TraceDetail = strings.EqualFold(v, spool.TraceDetail)
			if g.TraceDetail || isNone(v) {
				return nil
			}
			return fmt.Errorf("%q is neither %s nor NONE", v, spool.TraceDetail)
		}},
		{"SCRATCH_LIMIT", func(_ *scope, g *Global, v string, _ bool) error { return setScratchLimit(&g.ScratchLimit, v) }},
		{"SCRATCH_PROJECTS", func(_ *scope, g *Global, v string, _ bool) error { return setProjects(&g.ScratchIDs, v) }},
		boolean("SCRATCH_TMPFS", func(g *Global) *bool { return &g.ScratchTmpfs }),
		must("INHERIT_ENV", false, "execd's environment is no job's business"),
		must("SET_LIB_PATH", false, "there are no libraries of ours that jobs need"),
		must("SHARETREE_RESERVED_USAGE", false, "the share of a user counts what was used"),
		must("SIMULATE_JOBS", false, "jobs are run"),
		must("ENABLE_BINDING", true, "jobs that ask for cores get them"),
		should("USE_CGROUPS", true, "control groups are used wherever the host has them"),
		should("USE_SMAPS", false, "control groups know what memory a job has"),
		boolean("USE_SYSLOG", func(g *Global) *bool { return &g.Syslog }),
		should("USE_QIDLE", false, "name it in load_sensor"),
		should("ENABLE_MEM_DETAILS", false, "they are not collected"),
		should("PROF_EXECD", false, "there is nothing to profile"),
		{"USAGE_COLLECTION", func(_ *scope, _ *Global, v string, _ bool) error {
			if strings.EqualFold(v, "FALSE") {
				return errors.New("FALSE is not supported: usage is always collected; PDC_INTERVAL says how often")
			}
			return nil
		}},
		{"PTF_MIN_PRIORITY", noNice},
		{"PTF_MAX_PRIORITY", noNice},
	},
	options(anything, "ENABLE_WINDOMACC", "NO_AUTHENTICATION", "DO_AUTHENTICATION", "NO_SECURITY", "DEMAND_LS",
		"PRINT_MALLOC_INFO", "ENABLE_SYSTEMD", "ENABLE_HWLOC"))

// jobLimits returns resource limits that queues do not have.
func jobLimits(names ...string) (limits []option) {
	for _, name := range names {
		limits = append(limits, option{name, func(_ *scope, g *Global, v string, _ bool) error {
			g.Limits = append(g.Limits, Limit{strings.ToLower(name), v})
			return checkLimit(v)
		}})
	}
	return limits
}

// noNice accepts the bounds of nice values that follow tickets; -999 is the default.
func noNice(s *scope, _ *Global, v string, _ bool) error {
	if v != "-999" {
		s.warn("PTF_MIN_PRIORITY and PTF_MAX_PRIORITY accepted, without effect here: %s", noTickets)
	}
	return nil
}

// qmasterOptions are the options of qmaster_params: how jobs end and are submitted, and
// what concerns the qmaster and its hosts alone.
var qmasterOptions = slices.Concat([]option{
	boolean("FORBID_RESCHEDULE", func(g *Global) *bool { return &g.ForbidReschedule }),
	boolean("FORBID_APPERROR", func(g *Global) *bool { return &g.ForbidApperror }),
	// SUBMIT_RATE is ours.
	{"SUBMIT_RATE", func(_ *scope, g *Global, v string, _ bool) error { return setInt(&g.SubmitRate, v, 0, 1_000_000) }},
	should("ENABLE_FORCED_QDEL", false, "a host that answers can always end a job"),
	should("OLD_RESCHEDULE_BEHAVIOR", false, "a job that runs again goes to the end of the queue"),
	should("OLD_RESCHEDULE_BEHAVIOR_ARRAY_JOB", false, "a task that runs again goes to the end of the queue"),
	must("SIMULATE_EXECDS", false, "jobs are run"),
}, options(anything, "ENABLE_ENFORCE_MASTER_LIMIT", "ENABLE_FORCED_QDEL_IF_UNKNOWN", "DISABLE_AUTO_RESCHEDULING",
	"ENABLE_RESCHEDULE_KILL", "ENABLE_RESCHEDULE_SLAVE", "MAX_DYN_EC", "MONITOR_TIME", "LOG_MONITOR_MESSAGE",
	"PROF_SIGNAL", "PROF_WORKER", "PROF_LISTENER", "PROF_DELIVER", "PROF_TEVENT", "PROF_SCHEDULER",
	"STREE_SPOOL_INTERVAL", "MAX_JOB_DELETION_TIME", "GDI_TIMEOUT", "GDI_RETRIES", "CL_PING", "SCHEDULER_TIMEOUT",
	"JSV_TIMEOUT", "JSV_THRESHOLD", "NO_AUTHENTICATION", "NO_SECURITY", "ENABLE_MTRACE", "PRINT_MALLOC_INFO"))

// reportingOptions are the options of reporting_params.
var reportingOptions = slices.Concat([]option{
	must("accounting", true, "the accounting file is always written"),
	should("reporting", false, noReporting), should("joblog", false, noReporting), should("log_consumables", false, noReporting),
	{"sharelog", func(s *scope, _ *Global, v string, _ bool) error {
		var every time.Duration
		if err := setTime(&every, v); err != nil || every == 0 {
			return err
		}
		s.warn("sharelog accepted, without effect here: %s", noReporting)
		return nil
	}},
}, options(anything, "flush_time", "accounting_flush_time"))

const noReporting = "there is no reporting file"

func setExecdParams(s *scope, g *Global, v string) error {
	// These are Grid Engine's defaults; there, the first only delays signals.
	g.ScriptTimeout, g.SessionGrace, g.UsageInterval = 2*time.Minute, time.Minute, time.Second
	g.EndedJobs = 1000
	g.SessionLost = []string{spool.LostEnd, spool.LostStop, spool.LostKeep}
	return setOptions(s, g, v, execdOptions)
}

// setLost reads what happens to interactive jobs that have lost their clients.
func setLost(list *[]string, v string) error {
	*list = nil
	for word := range strings.SplitSeq(strings.ToLower(v), ":") {
		switch {
		case word != spool.LostEnd && word != spool.LostStop && word != spool.LostKeep:
			return fmt.Errorf("%q is none of %s, %s and %s", word, spool.LostEnd, spool.LostStop, spool.LostKeep)
		case slices.Contains(*list, word):
			return fmt.Errorf("%s is there twice", word)
		}
		*list = append(*list, word)
	}
	return nil
}

func setQmasterParams(s *scope, g *Global, v string) error {
	return setOptions(s, g, v, qmasterOptions)
}

func setReportingParams(s *scope, g *Global, v string) error {
	return setOptions(s, g, v, reportingOptions)
}

// accepted is a parameter without effect, whatever its value.
func accepted[T any](name, standard string) param[T] {
	return param[T]{name, standard, plain, func(*scope, *T, string) error { return nil }}
}

// inert is a parameter whose other values than the usual one would have an effect, and
// are accepted all the same, since files have them.
func inert[T any](name, standard, reason string) param[T] {
	return param[T]{name, standard, plain, func(s *scope, _ *T, v string) error {
		if !same(v, standard) {
			s.warn("accepted, without effect here: %s", reason)
		}
		return nil
	}}
}

// only is a parameter that supports only the neutral value.
func only[T any](name, neutral, reason string) param[T] {
	f := plain
	if neutral == "NONE" {
		f = spaced
	}
	return param[T]{name, neutral, f, func(_ *scope, _ *T, v string) error {
		if same(v, neutral) {
			return nil
		}
		return fmt.Errorf("not supported, only %s is: %s", neutral, reason)
	}}
}

// same compares values, which may be different ways to write a number.
func same(a, b string) bool {
	n, err1 := strconv.ParseFloat(a, 64)
	m, err2 := strconv.ParseFloat(b, 64)
	return strings.EqualFold(a, b) || err1 == nil && err2 == nil && n == m
}

func isNone(v string) bool { return strings.EqualFold(v, "none") }

func setInt(into *int, v string, low, high int) error {
	n, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%q is not a number", v)
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
		return fmt.Errorf("%q is neither TRUE nor FALSE", v)
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
		return fmt.Errorf("%q is not an absolute path", v)
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
		// Ids below 100 are the system's: no job must be able to own a file of such a
		// group.
		if err1 != nil || err2 != nil || first < 100 || last < first {
			return fmt.Errorf("%q is not a range of group ids from 100 up", word)
		}
		*into = append(*into, Range{first, last})
	}
	return nil
}

// setScratchLimit reads a number of bytes, or NONE.
func setScratchLimit(into *uint64, v string) error {
	*into = 0
	if isNone(v) {
		return nil
	}
	n, err := ParseValue(KindMemory, v)
	switch {
	case err != nil || math.IsInf(n.Number, 0):
		return fmt.Errorf("%q is not a number of bytes, like 10G", v)
	case n.Number < MinScratch || n.Number > MaxScratch:
		return fmt.Errorf("%s is not between 1M and 1048576T", v)
	}
	*into = uint64(n.Number)
	return nil
}

// These bound the limits of scratch directories.
const (
	MinScratch = 1 << 20
	MaxScratch = 1 << 60
)

// setProjects reads first-last, or NONE. Files with id 0 belong to no project.
func setProjects(into *[]Range, v string) error {
	*into = nil
	if isNone(v) {
		return nil
	}
	low, high, _ := strings.Cut(v, "-")
	first, err1 := strconv.ParseUint(low, 10, 32)
	last, err2 := strconv.ParseUint(high, 10, 32)
	if err1 != nil || err2 != nil || first < 1 || last < first || last > 1<<31-1 {
		return fmt.Errorf("%q is not a range of numbers of projects, like 100000-109999", v)
	}
	*into = []Range{{int(first), int(last)}}
	return nil
}

func oneOf(v string, words ...string) error {
	if slices.Contains(words, v) {
		return nil
	}
	return fmt.Errorf("%q is none of %s", v, strings.Join(words, ", "))
}

// checkName checks a name that becomes the name of a file and an element of lists.
func checkName(what, v string) error {
	if v == "" || v[0] == '.' || v[0] == '#' || len(v) > 255 || strings.ContainsAny(v, " \t/@:*?[](){}|,%\"'\\") || !spool.PlainValue(v) {
		return fmt.Errorf("%q is not a %s", v, what)
	}
	return nil
}

// setOptionalPath is setPath, or NONE.
func setOptionalPath(into *string, v string) error {
	if isNone(v) {
		return nil
	}
	return setPath(into, v)
}

// setMailer reads the program that sends mail, NONE or MailerAuto.
func setMailer(_ *scope, g *Global, v string) error {
	if v == MailerAuto {
		g.Mailer = v
		return nil
	}
	return setOptionalPath(&g.Mailer, v)
}

// setSensors reads commands, separated by commas.
func setSensors(into *[]string, v string) error {
	if isNone(v) {
		return nil
	}
	for sensor := range strings.SplitSeq(v, ",") {
		sensor = strings.TrimSpace(sensor)
		if !filepath.IsAbs(sensor) || !spool.PlainValue(sensor) {
			return fmt.Errorf("%q is not an absolute path", sensor)
		}
		*into = append(*into, sensor)
	}
	return nil
}

// setAddresses reads mail addresses, which become arguments of the mailer.
func setAddresses(into *[]string, v string) error {
	if isNone(v) {
		return nil
	}
	for _, address := range list(v) {
		if address[0] == '-' || !spool.PlainValue(address) {
			return fmt.Errorf("%q is not an address", address)
		}
		*into = append(*into, address)
	}
	return nil
}

// setProcessors reads numbers and ranges of processors.
func setProcessors(into *string, v string) error {
	if strings.EqualFold(v, "UNDEFINED") || isNone(v) {
		return nil
	}
	cpus := strings.Join(list(v), ",")
	if _, err := spool.ParseCPUs(cpus); err != nil {
		return err
	}
	*into = cpus
	return nil
}

// setType reads qtype.
func setType(q *Queue, v string) error {
	if isNone(v) {
		return nil
	}
	for _, word := range list(v) {
		switch strings.ToUpper(word) {
		case "BATCH":
			q.Batch = true
		case "INTERACTIVE":
			q.Interactive = true
		default:
			return fmt.Errorf("%q is none of BATCH, INTERACTIVE and NONE", word)
		}
	}
	return nil
}

// setUsers reads the names of users.
func setUsers(into *[]string, v string) error {
	if isNone(v) {
		return nil
	}
	for _, name := range list(v) {
		if err := checkName("name of a user", name); err != nil {
			return err
		}
		*into = append(*into, name)
	}
	return nil
}

// setUserLists reads the names of user lists. One that does not exist would lock out
// everybody, or nobody.
func setUserLists(s *scope, into *[]string, v string) error {
	if isNone(v) {
		return nil
	}
	for _, name := range list(v) {
		if s.conf.UserLists[name] == nil {
			return &worded{fmt.Sprintf("access list %q does not exist", name), fmt.Sprintf("Userset %q does not exist", name)}
		}
		*into = append(*into, name)
	}
	return nil
}

// setProjectList reads the names of projects, which must exist.
func setProjectList(s *scope, into *[]string, v string) error {
	if isNone(v) {
		return nil
	}
	for _, name := range list(v) {
		if s.conf.Projects[name] == nil {
			return inWords("Project %q does not exist", name)
		}
		*into = append(*into, name)
	}
	return nil
}

// setInterfaces reads the names of parallel environments or checkpointing interfaces.
// One that does not exist is no mistake: queues of real clusters list make.
func setInterfaces(s *scope, into *[]string, v, what string, has func(string) bool) error {
	if isNone(v) {
		return nil
	}
	for _, name := range list(v) {
		if !has(name) {
			s.warn("there is no %s %q", what, name)
		}
		*into = append(*into, name)
	}
	return nil
}

func mapHas[V any](m map[string]V) func(string) bool {
	return func(name string) bool { _, ok := m[name]; return ok }
}

// setSubordinates reads queues that are suspended as a whole: name or name=slots.
func setSubordinates(into *[]Subordinate, v string) error {
	if isNone(v) {
		return nil
	}
	if strings.Contains(v, "(") {
		return errors.New("slotwise preemption, slots=N(queue), is not supported")
	}
	for _, word := range list(v) {
		var sub Subordinate
		name, slots, limited := strings.Cut(word, "=")
		if err := checkName("queue name", name); err != nil {
			return err
		}
		sub.Queue = name
		if limited {
			if err := setInt(&sub.Slots, slots, 1, maxSlots); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		*into = append(*into, sub)
	}
	return nil
}

func checkLimit(v string) error {
	if _, err := spool.ParseLimit(v); err != nil {
		return fmt.Errorf("%q is not a limit", v)
	}
	return nil
}

// setSlots reads whether a resource is given by slots.
func setSlots(into *bool, v string) error {
	*into = strings.EqualFold(v, "slots")
	if !*into && !isNone(v) {
		return fmt.Errorf("%q is neither slots nor NONE", v)
	}
	return nil
}
