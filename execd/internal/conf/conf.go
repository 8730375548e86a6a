// Package conf reads the administrator's files in Grid Engine's own formats: global
// configuration, queues, parallel environments, checkpointing, complex, user lists,
// host groups, hosts, scheduler, managers and operators. A parameter that would change
// something and is not implemented is refused by name, or accepted with a warning if it
// misleads nobody; a value that means "nothing" is accepted silently. Only the daemon's
// packages import it. Load reads once; Live keeps what was read last and reads again
// when a file changes.
package conf

import (
	"fmt"
	"path/filepath"
	"time"

	"paddock/execd/internal/conf/knob"
)

// These are the values of shell_start_mode for queues that set none.
const (
	PosixCompliant = "posix_compliant" // a script is run by a shell
	UnixBehavior   = "unix_behavior"   // and by what its first line names
)

// Config has everything in the administrator's files.
type Config struct {
	Global Global
	Queues []Queue // those of this host, by seq_no, then name

	PEs         map[string]*PE
	Checkpoints map[string]*Checkpoint
	Complex     []Attribute // by name
	UserLists   map[string]*UserList
	Projects    map[string]*Project
	Scheduling  Scheduling

	// Host and AnyHost are the complex_values of this host and of the host "global",
	// which here is only a second name for it.
	Host, AnyHost Values
	Hostname      string             // of this host
	Aliases       []string           // its other names, of host_aliases
	HostGroups    []string           // the host groups it belongs to, with their @
	LoadScaling   map[string]float64 // load_scaling: factors of load values

	Managers, Operators []string // users, beside root

	Knobs *knob.Set // of hooks.conf; where there is none, an empty one

	Access    []Access  // of the host "global" and of this one: each has to admit the user
	Elsewhere []string  // names of queues without this host
	Warnings  []Problem // what was accepted and has no effect

	dir     string                       // the directory it was read from
	objects map[string]map[string][]line // what Show prints, by kind and name
	builtin []file                       // of objects that exist without a file
	read    *kept                        // the files it was read from; nil: it is from OpenKept
}

// Access says who may use something. Users on a list of Denied may not, and if there
// are lists in Allowed, only users on one of them may. Projects and XProjects hold the
// same way for the projects of jobs.
type Access struct {
	Allowed, Denied     []string
	Projects, XProjects []string
}

// Global is the file sge_conf, by Grid Engine's names.
type Global struct {
	SpoolDir    string   // execd_spool_dir; empty: the default place
	MinUID      int      // min_uid: jobs of users below it are refused
	MinGID      int      // min_gid: the same for the primary group
	GIDRange    []Range  // gid_range: additional group ids, one for each running job
	LoginShells []string // login_shells: base names of shells started as login shells
	ShepherdCmd string   // shepherd_cmd: the site's own shepherd
	MaxJobs     int      // max_jobs: unfinished jobs; 0: no limit
	MaxUserJobs int      // max_u_jobs: the same for one user
	Prolog      string   // prolog: of queues that have none; empty: none
	Epilog      string   // epilog: the same

	Mailer         string        // mailer: program that sends mail, or MailerAuto (see MailProgram); empty: no mail is sent
	AdminMail      []string      // administrator_mail: addresses for errors; empty: none
	Xterm          string        // xterm: what qsh opens; empty: there is no qsh
	Qlogin         Connection    // qlogin_command, qlogin_daemon
	Rlogin         Connection    // rlogin_command, rlogin_daemon: of qrsh without a command
	Rsh            Connection    // rsh_command, rsh_daemon: of qrsh with one
	LoadSensors    []string      // load_sensor: the commands
	LoadReportTime time.Duration // load_report_time: between two looks at the load
	LogLevel       string        // loglevel: log_err, log_warning, log_info
	UserLists      []string      // user_lists: who may have jobs here; empty: everybody
	XUserLists     []string      // xuser_lists: who may not
	Projects       []string      // projects: whose jobs are accepted; empty: all
	XProjects      []string      // xprojects: whose are not
	EnforceProject bool          // enforce_project: a job without a project is not accepted
	MaxTasks       int           // max_aj_tasks: tasks of one array; 0: no limit
	MaxTasksAtOnce int           // max_aj_instances: running tasks of one array; 0: no limit
	FinishedJobs   int           // finished_jobs: how many qstat -s z still shows
	EndedJobs      int           // ENDED_JOBS of execd_params: how many qresub finds

	// Of execd_params.
	Limits        []Limit       // S_DESCRIPTORS and the like
	NotifyKill    Warning       // NOTIFY_KILL: the signal before KILL, of jobs with -notify
	NotifySusp    Warning       // NOTIFY_SUSP: the signal before STOP
	ScriptTimeout time.Duration // SCRIPT_TIMEOUT: how long prolog, epilog and the like may run
	SessionGrace  time.Duration // QRSH_GRACE: how long an interactive job waits for its lost client; -1 s: for ever
	SessionLost   []string      // QRSH_LOST: what happens then, as spool.LostEnd; users may choose the values behind the first
	SkipNGroups   bool          // IGNORE_NGROUPS_MAX_LIMIT: a user with too many groups gets no additional one
	NoAddGrpKill  bool          // ENABLE_ADDGRP_KILL=false: signals go to the job's process group alone
	CPUQuota      bool          // CPU_QUOTA=slots: a job gets as many processors' time as it has slots
	CPUWeight     bool          // CPU_WEIGHT=slots: its share of busy processors is as its slots are

	UsageInterval time.Duration // PDC_INTERVAL: shortest time between looks at usage; 0: only at the end
	ReservedUsage bool          // ACCT_RESERVED_USAGE: account what was reserved, not what was used
	KeepActive    bool          // KEEP_ACTIVE: leave the directories of jobs that have ended in finished/
	KeepFailed    bool          // KEEP_ACTIVE=error: only those of jobs that failed
	Metrics       string        // METRICS: loopback address of the metrics; empty: none
	Syslog        bool          // USE_SYSLOG: the log goes to the system's, not to the file messages
	QsubGID       bool          // USE_QSUB_GID: run jobs with the group they were submitted with
	PrivateTmp    bool          // PRIVATE_TMP: each job has a /tmp and a /var/tmp of its own
	ScratchLimit  uint64        // SCRATCH_LIMIT: bytes that a job may have in TMPDIR unless it asks for another number; 0: no limit
	ScratchIDs    []Range       // SCRATCH_PROJECTS: ids of projects whose quotas limit that
	ScratchTmpfs  bool          // SCRATCH_TMPFS: without quotas TMPDIR is a file system in memory
	TraceDetail   bool          // SHEPHERD_TRACE=detail: shepherds trace every step

	// Of qmaster_params.
	SubmitRate       int  // SUBMIT_RATE: jobs a second that one user may submit for long; 0: no limit
	ForbidReschedule bool // FORBID_RESCHEDULE: exit code 99 means nothing
	ForbidApperror   bool // FORBID_APPERROR: exit code 100 means nothing
}

// Warning is what jobs with -notify get before a signal. The zero value is the
// default: USR2 before KILL, USR1 before STOP.
type Warning struct {
	Off    bool   // none: the signal comes at once
	Signal string // another signal, without SIG
}

// Queue is what one file of the directory queues says.
type Queue struct {
	Name           string  // qname
	SeqNo          int     // seq_no
	Slots          int     // slots: jobs at the same time
	Priority       int     // priority: nice value, -20 to 20
	Rerun          bool    // rerun: the default of qsub -r
	Tmpdir         string  // tmpdir: parent of the jobs' TMPDIR
	Shell          string  // shell: when the job has no -S
	ShellStartMode string  // PosixCompliant, UnixBehavior or script_from_stdin
	StarterMethod  string  // starter_method; empty: none
	Limits         []Limit // s_cpu, h_cpu and the like, as written

	Prolog          string        // prolog: run before a job, [user@]/path arguments; empty: the host's
	Epilog          string        // epilog: run after it
	SuspendMethod   string        // suspend_method: SIGxxx, a number or a command instead of STOP; empty: none
	ResumeMethod    string        // resume_method: instead of CONT
	TerminateMethod string        // terminate_method: instead of KILL
	Notify          time.Duration // notify: between warning and signal, of jobs with -notify
	SRT, HRT        time.Duration // s_rt, h_rt: wall clock time until USR1 and KILL; 0: no limit

	Interactive, Batch bool          // qtype
	PEs                []string      // pe_list
	Checkpoints        []string      // ckpt_list
	UserLists          []string      // user_lists: who may use it; empty: everybody
	XUserLists         []string      // xuser_lists: who may not
	Projects           []string      // projects: jobs of which may use it; empty: all jobs
	XProjects          []string      // xprojects: jobs of which may not
	Owners             []string      // owner_list: users who may suspend and disable it
	Complex            Values        // complex_values, without slots
	LoadThresholds     []Threshold   // load_thresholds: no job is started above them (a)
	SuspendThresholds  []Threshold   // suspend_thresholds: jobs are suspended above them (A)
	Suspend            int           // nsuspend: so many at a time
	SuspendInterval    time.Duration // suspend_interval: between two times
	Subordinates       []Subordinate // subordinate_list
	InitiallyDisabled  bool          // initial_state disabled
	InitiallyEnabled   bool          // initial_state enabled; neither: as it was before execd started
	Processors         string        // processors: numbers, as 0-3,6; empty: all
	MinCPUInterval     time.Duration // min_cpu_interval: at least so long between two checkpoints; 0: none

	Partitionable bool // PARTITIONABLE_QUEUES of hooks.conf: its slots are one, of which each job has the part that it asks for
}

// Limit is a resource limit as it goes into a job's config: key and value.
type Limit struct{ Key, Value string }

// Range is an inclusive range of ids.
type Range struct{ First, Last int }

// Problem is a mistake in a file.
type Problem struct {
	File string
	Line int // 0: the file as a whole
	Text string

	words string // Grid Engine's message for it; empty: it has none
}

func (p *Problem) Error() string {
	switch {
	case p.File == "": // from the environment
		return p.Text
	case p.Line == 0:
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Doubt returns a problem with a parameter of a queue, or for "" of the global
// configuration, and the place of the parameter, if it is set.
func (c *Config) Doubt(queue, parameter, text string) Problem {
	kind, where := kindConf, ""
	if queue != "" {
		kind, where = kindQueue, "queue "+queue+": "
	}
	p := Problem{Text: where + parameter + ": " + text}
	for _, l := range c.objects[kind][queue] {
		if l.name == parameter && l.number > 0 {
			p.File, p.Line = filepath.Join(c.dir, places[kind], queue), l.number
		}
	}
	return p
}

// Queue returns the queue with a name, or nil.
func (c *Config) Queue(name string) *Queue {
	for i := range c.Queues {
		if c.Queues[i].Name == name {
			return &c.Queues[i]
		}
	}
	return nil
}

// Slots returns the number of slots of all queues.
func (c *Config) Slots() int {
	n := 0
	for _, q := range c.Queues {
		n += q.Slots
	}
	return n
}
