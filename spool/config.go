package spool

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// Keys of config. The shepherd reads all of them, execd writes them.
const (
	KeyAddGrpID         = "add_grp_id"
	KeySkipNGroups      = "skip_ngroups_max_silently"
	KeyAdminUser        = "admin_user"
	KeyJobOwner         = "job_owner"
	KeyMinUID           = "min_uid"
	KeyMinGID           = "min_gid"
	KeyQsubGID          = "qsub_gid"
	KeyWriteOSJobID     = "write_osjob_id"
	KeyEnableAddGrpKill = "enable_addgrp_kill"
	KeyEnableWindomacc  = "enable_windomacc"

	KeyScriptFile     = "script_file"
	KeyExecFile       = "exec_file"
	KeyHandleAsBinary = "handle_as_binary"
	KeyNoShell        = "no_shell"
	KeyShellPath      = "shell_path"
	KeyShellStartMode = "shell_start_mode"
	KeyUseLoginShell  = "use_login_shell"
	KeyStarterMethod  = "starter_method"
	KeyNJobArgs       = "njob_args"
	KeyJobArg         = "job_arg" // followed by the number, from 1
	KeyDisplay        = "display"
	KeyJobName        = "job_name"
	KeyPTY            = "pty"

	KeyCwd          = "cwd"
	KeyStdinPath    = "stdin_path"
	KeyStdoutPath   = "stdout_path"
	KeyStderrPath   = "stderr_path"
	KeyMergeStderr  = "merge_stderr"
	KeyPEStdoutPath = "pe_stdout_path"
	KeyPEStderrPath = "pe_stderr_path"
	KeyTmpdir       = "tmpdir"
	KeyQueueTmpdir  = "queue_tmpdir"

	KeyFSStdinHost     = "fs_stdin_host"
	KeyFSStdinPath     = "fs_stdin_path"
	KeyFSStdinTmpPath  = "fs_stdin_tmp_path"
	KeyFSStdinStaging  = "fs_stdin_file_staging"
	KeyFSStdoutHost    = "fs_stdout_host"
	KeyFSStdoutPath    = "fs_stdout_path"
	KeyFSStdoutTmpPath = "fs_stdout_tmp_path"
	KeyFSStdoutStaging = "fs_stdout_file_staging"
	KeyFSStderrHost    = "fs_stderr_host"
	KeyFSStderrPath    = "fs_stderr_path"
	KeyFSStderrTmpPath = "fs_stderr_tmp_path"
	KeyFSStderrStaging = "fs_stderr_file_staging"

	KeyProlog          = "prolog"
	KeyEpilog          = "epilog"
	KeyPE              = "pe"
	KeyPEStart         = "pe_start"
	KeyPEStop          = "pe_stop"
	KeyPEQsort         = "pe_qsort"
	KeyPESlots         = "pe_slots"
	KeyPEHostfile      = "pe_hostfile"
	KeyHostSlots       = "host_slots"
	KeyScriptTimeout   = "script_timeout"
	KeySuspendMethod   = "suspend_method"
	KeyResumeMethod    = "resume_method"
	KeyTerminateMethod = "terminate_method"

	KeyNotify         = "notify"
	KeyNotifyKillType = "notify_kill_type"
	KeyNotifyKill     = "notify_kill"
	KeyNotifySuspType = "notify_susp_type"
	KeyNotifySusp     = "notify_susp"

	KeyCkptJob          = "ckpt_job"
	KeyCkptRestarted    = "ckpt_restarted"
	KeyCkptPID          = "ckpt_pid"
	KeyCkptOSJobID      = "ckpt_osjobid"
	KeyCkptInterface    = "ckpt_interface"
	KeyCkptCommand      = "ckpt_command"
	KeyCkptMigrCommand  = "ckpt_migr_command"
	KeyCkptRestCommand  = "ckpt_rest_command"
	KeyCkptCleanCommand = "ckpt_clean_command"
	KeyCkptDir          = "ckpt_dir"
	KeyCkptSignal       = "ckpt_signal"
	KeyCkptInterval     = "ckpt_interval"

	KeySCPU           = "s_cpu"
	KeyHCPU           = "h_cpu"
	KeySFsize         = "s_fsize"
	KeyHFsize         = "h_fsize"
	KeySData          = "s_data"
	KeyHData          = "h_data"
	KeySStack         = "s_stack"
	KeyHStack         = "h_stack"
	KeySCore          = "s_core"
	KeyHCore          = "h_core"
	KeySVmem          = "s_vmem"
	KeyHVmem          = "h_vmem"
	KeySRss           = "s_rss"
	KeyHRss           = "h_rss"
	KeySDescriptors   = "s_descriptors"
	KeyHDescriptors   = "h_descriptors"
	KeySMaxproc       = "s_maxproc"
	KeyHMaxproc       = "h_maxproc"
	KeySMemorylocked  = "s_memorylocked"
	KeyHMemorylocked  = "h_memorylocked"
	KeySLocks         = "s_locks"
	KeyHLocks         = "h_locks"
	KeyConsumableJob  = "_is_consumable_job" // behind the name of a limit
	KeyPriority       = "priority"
	KeyProcessors     = "processors"
	KeyBinding        = "binding"
	KeyUseAFS         = "use_afs"
	KeyCoshepherd     = "coshepherd"
	KeySetTokenCmd    = "set_token_cmd"
	KeyTokenExtend    = "token_extend_time"
	KeyMailList       = "mail_list"
	KeyMailOptions    = "mail_options"
	KeyAccount        = "account"
	KeySubmissionTime = "submission_time"
	KeyAcctProject    = "acct_project"

	KeyQrshControlPort = "qrsh_control_port"
	KeyRshDaemon       = "rsh_daemon"
	KeyRloginDaemon    = "rlogin_daemon"
	KeyQloginDaemon    = "qlogin_daemon"
	KeyQrshTmpdir      = "qrsh_tmpdir"
	KeyQrshPIDFile     = "qrsh_pid_file"
	KeyQrshTaskID      = "qrsh_task_id"
	KeyPETaskID        = "pe_task_id"
	KeyMasterHost      = "master_host"
	KeyCommdPort       = "commd_port"
	KeyCSP             = "csp"
	KeyIgnoreFQDN      = "ignore_fqdn"
	KeyDefaultDomain   = "default_domain"

	KeyForbidReschedule = "forbid_reschedule"
	KeyForbidApperror   = "forbid_apperror"
	KeyInheritEnv       = "inherit_env"
	KeyQueue            = "queue"
	KeyHost             = "host"
	KeyJobID            = "job_id"
	KeyTaskID           = "ja_task_id" // 0 for a job that is no array
)

// Keys of the execd of Open Cluster Scheduler 9 alone.
const (
	KeySGERoot          = "sge_root"
	KeySGECell          = "sge_cell"
	KeyUsageCollection  = "usage_collection"
	KeyEnableSystemd    = "enable_systemd"
	KeySystemdSlice     = "systemd_slice"
	KeySystemdScope     = "systemd_scope"
	KeyDevicesAllow     = "devices_allow"
	KeyBindingInstance  = "binding_instance" // set, env or pe
	KeyBindingToUse     = "binding_to_use"   // a topology
	KeyBindingCPUSet    = "binding_cpuset"   // numbers of processors
	KeyReconnectTimeout = "ijs_reconnect_timeout"
	KeyTLS              = "tls"
)

// ScriptLogin as script_file of an interactive job stands for its owner's login
// shell, as Grid Engine calls qrsh without a command.
const ScriptLogin = "QRLOGIN"

// Keys of our own, which a foreign shepherd ignores. They stand before all
// others: Config puts them there and ParseConfig refuses them anywhere else,
// because under a foreign execd an argument with a newline can write whole
// lines, but none before the first line.
const (
	ownPrefix = "paddock_"

	KeyFormat = ownPrefix + "format" // Format
	KeyUID    = ownPrefix + "uid"
	KeyGID    = ownPrefix + "gid"
	KeyGroups = ownPrefix + "groups" // comma list of gids, the primary one included
	KeyHome   = ownPrefix + "home"
	KeyRun    = ownPrefix + "run"   // the number of the run
	KeyArgs   = ownPrefix + "args"  // 1: the arguments are in the file args
	KeySRT    = ownPrefix + "s_rt"  // seconds until the job is warned; none: never
	KeyHRT    = ownPrefix + "h_rt"  // seconds until it is killed
	KeyTrace  = ownPrefix + "trace" // TraceDetail

	// KeyEndSignal is the number of the signal by which execd asks the job to end; none:
	// SIGTERM.
	KeyEndSignal = ownPrefix + "end_signal"
	// KeyMigrates is execd's: 1 if it has the job migrate instead of stopping it.
	KeyMigrates = ownPrefix + "migrates"

	// KeySession is the path of qrsh-session: the job is interactive, and its
	// streams are a client's. KeySessionGrace is how many seconds a client that is
	// lost is waited for, -1 for ever, and KeySessionLost what becomes of the job
	// then: LostEnd and so on. KeySessionNotes names the outputs of procedures that
	// go to the client, since nobody has chosen a file: NotedStdout, NotedStderr.
	KeySession      = ownPrefix + "session"
	KeySessionGrace = ownPrefix + "session_grace"
	KeySessionLost  = ownPrefix + "session_lost"
	KeySessionNotes = ownPrefix + "session_notes"
	// KeySessionDaemon is a command with an absolute path: the job is this daemon,
	// on a connection that the client's program makes and by which it has the
	// daemon run the command that was submitted.
	KeySessionDaemon = ownPrefix + "session_daemon"

	// KeyPrivateTmp is the directory, root's and closed, of what the job sees in
	// the places of PrivateTmp.
	KeyPrivateTmp = ownPrefix + "private_tmp"
	// KeyScratchLimit is how many bytes the TMPDIR of the run may hold. The limit is
	// that of a project of the file system, whose number is KeyScratchProject, or the
	// size of a file system in memory (KeyScratchTmpfs is 1).
	KeyScratchLimit   = ownPrefix + "scratch_limit"
	KeyScratchProject = ownPrefix + "scratch_project"
	KeyScratchTmpfs   = ownPrefix + "scratch_tmpfs"

	// KeyCgroup and KeyCgroupFreezer are absolute paths of control groups of the
	// run. They exclude each other, and hold every process of the run, in the
	// leaves CgroupJob and CgroupProcedures.
	KeyCgroup        = ownPrefix + "cgroup"         // version 2
	KeyCgroupFreezer = ownPrefix + "cgroup_freezer" // version 1, on hosts without the other
	// These are groups of version 1 that hold the job alone, for its limits and
	// usage.
	KeyCgroupMemory  = ownPrefix + "cgroup_memory"
	KeyCgroupPids    = ownPrefix + "cgroup_pids"
	KeyCgroupCPU     = ownPrefix + "cgroup_cpu"
	KeyCgroupCPUAcct = ownPrefix + "cgroup_cpuacct"
	KeyCgroupDevices = ownPrefix + "cgroup_devices"
	KeyDevices       = ownPrefix + "devices" // 1: a group keeps devices from the job, which does not run outside of it
	KeyVmem          = ownPrefix + "vmem"    // VmemGroup: a group holds h_vmem, and RLIMIT_AS is left alone

	// KeyForeign marks a run whose shepherd is not ours: execd enforces what such a
	// shepherd does not, and reads what it leaves as Grid Engine would.
	KeyForeign    = ownPrefix + "foreign"      // 1
	KeyForeignSRT = ownPrefix + "foreign_s_rt" // instead of KeySRT
	KeyForeignHRT = ownPrefix + "foreign_h_rt" // instead of KeyHRT
)

// JoinedCgroups are the keys of the groups that the job joins before exec.
var JoinedCgroups = []string{KeyCgroupMemory, KeyCgroupPids, KeyCgroupCPU, KeyCgroupCPUAcct, KeyCgroupDevices}

// The names of the groups below those of KeyCgroup and KeyCgroupFreezer, and the
// value of KeyVmem.
const (
	CgroupJob        = "job"        // the job's processes and nothing else
	CgroupProcedures = "procedures" // prolog, epilog, methods and the like
	VmemGroup        = "group"
)

// PrivateTmp are the places that a job has to itself with KeyPrivateTmp, and the
// names below that directory of what is there. One that is missing there is the
// host's.
var PrivateTmp = []struct{ Place, Name string }{{"/tmp", "tmp"}, {"/var/tmp", "var_tmp"}}

// TraceDetail is the value of KeyTrace with which the shepherd traces every
// step.
const TraceDetail = "detail"

// Format is the number of the format of the job directory, in KeyFormat.
const Format = 1

// MaxConfigLine is the longest line of config without its newline. Grid
// Engine's shepherd reads pieces of this size and takes what is behind them as
// another line, so a longer value could add one.
const MaxConfigLine = 99998

// An Entry is a key with its value.
type Entry struct{ Key, Value string }

// A Config holds the entries of config in their order. The zero value is
// empty and ready to use.
type Config struct {
	entries []configEntry
	index   map[string]int // first entry of each key, counted from own for those that are not ours
	own     int            // the first own entries have keys of ours
}

type configEntry struct {
	Entry
	sep byte // '=', or the blank that Grid Engine takes as well
}

// A DuplicateError means that config gives a key two values. Only a value that
// contained a newline can do that, so it is the job's fault.
type DuplicateError struct{ Key string }

func (e *DuplicateError) Error() string {
	return "cannot parse config: two values for " + strconv.Quote(e.Key)
}

// A MissingError means that config lacks a key. Its text is Grid Engine's.
type MissingError struct{ Key string }

func (e *MissingError) Error() string {
	return `can't get configuration value for "` + e.Key + `"`
}

// ParseConfig parses config. A name ends at the first blank or "=", the rest
// of the line is the value. The first value of a key counts; the same line
// again is kept, since Grid Engine writes pe_task_id twice, but another value
// is a *DuplicateError. A line without a separator, a misplaced key of ours
// and a torn last line are *SyntaxErrors.
func ParseConfig(b []byte) (*Config, error) {
	lines := bytes.Count(b, []byte{'\n'})
	c := &Config{entries: make([]configEntry, 0, lines), index: make(map[string]int, lines)}
	text := string(b) // keys and values share this one copy
	for n := 1; text != ""; n++ {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			return nil, syntax(FileConfig, n, "no newline at the end")
		}
		text = rest
		if strings.IndexByte(line, 0) >= 0 {
			return nil, syntax(FileConfig, n, "contains a NUL byte")
		}
		i := strings.IndexAny(line, " =")
		if i <= 0 {
			return nil, syntax(FileConfig, n, "want name=value, got "+short([]byte(line)))
		}
		e := configEntry{Entry: Entry{Key: line[:i], Value: line[i+1:]}, sep: line[i]}
		if strings.HasPrefix(e.Key, ownPrefix) {
			if c.own != len(c.entries) {
				return nil, syntax(FileConfig, n, strconv.Quote(e.Key)+" does not stand before all other keys")
			}
			c.own++
		}
		if first, dup := c.first(e.Key); !dup {
			c.note(e.Key, len(c.entries))
		} else if c.entries[first].Value != e.Value {
			return nil, &DuplicateError{Key: e.Key}
		}
		c.entries = append(c.entries, e)
	}
	return c, nil
}

// first returns the first entry of a key.
func (c *Config) first(key string) (i int, ok bool) {
	i, ok = c.index[key]
	if ok && !strings.HasPrefix(key, ownPrefix) {
		i += c.own
	}
	return i, ok
}

// note says where the first entry of a key is. Others than ours are counted from
// the last of ours, so that nothing of this changes when one of ours is added.
func (c *Config) note(key string, i int) {
	if !strings.HasPrefix(key, ownPrefix) {
		i -= c.own
	}
	c.index[key] = i
}

// Append appends the content of config.
func (c *Config) Append(b []byte) []byte {
	for i := range c.entries {
		e := &c.entries[i]
		b = append(b, e.Key...)
		b = append(b, e.sep)
		b = append(b, e.Value...)
		b = append(b, '\n')
	}
	return b
}

// Entries returns a copy of all entries in their order.
func (c *Config) Entries() []Entry {
	entries := make([]Entry, len(c.entries))
	for i := range c.entries {
		entries[i] = c.entries[i].Entry
	}
	return entries
}

// PlainValue reports whether Set takes the value for a key of usual length:
// whether it has no control character but TAB and is not too long for a line.
func PlainValue(value string) bool {
	return controlIn(value) < 0 && len(value) <= MaxConfigLine-64
}

// controlIn returns the index of the first control character but TAB.
func controlIn(s string) int {
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 && s[i] != '\t' || s[i] == 0x7f {
			return i
		}
	}
	return -1
}

func validKey(key string) bool {
	for i := 0; i < len(key); i++ {
		c := key[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_':
		default:
			return false
		}
	}
	return key != "" && len(key) <= 63
}

// Set gives a key its value: in its old place, or behind all others, keys of
// ours behind those of ours. It refuses what could not be one line.
func (c *Config) Set(key, value string) error {
	if !validKey(key) {
		return cannot("set config key", key, errors.New("not a name"))
	}
	if i := controlIn(value); i >= 0 {
		return cannot("set config key", key, errors.New("the value has a control character: "+strconv.Quote(value[i:i+1])))
	}
	if n := len(key) + 1 + len(value); n > MaxConfigLine {
		return cannot("set config key", key, errors.New("the value is too long for a line: "+strconv.Itoa(len(value))+" bytes"))
	}
	if first, ok := c.first(key); ok {
		for i := first; i < len(c.entries); i++ {
			if c.entries[i].Key == key {
				c.entries[i].Value = value
			}
		}
		return nil
	}
	if c.index == nil {
		c.entries, c.index = make([]configEntry, 0, 128), make(map[string]int, 128)
	}
	e := configEntry{Entry: Entry{Key: key, Value: value}, sep: '='}
	if !strings.HasPrefix(key, ownPrefix) {
		c.note(key, len(c.entries))
		c.entries = append(c.entries, e)
		return nil
	}
	c.entries = append(c.entries, configEntry{})
	copy(c.entries[c.own+1:], c.entries[c.own:])
	c.entries[c.own] = e
	c.note(key, c.own)
	c.own++
	return nil
}

// SetInt sets a key to a number.
func (c *Config) SetInt(key string, n int) error { return c.Set(key, strconv.Itoa(n)) }

// SetBool sets a key to 0 or 1.
func (c *Config) SetBool(key string, v bool) error {
	if v {
		return c.Set(key, "1")
	}
	return c.Set(key, "0")
}

// SetArguments sets the arguments of the job. If they do not all fit into
// config, it returns the content of the file args, which must then be written
// as well; a foreign shepherd cannot run such a job.
func (c *Config) SetArguments(args []string) (file []byte, err error) {
	plain := true
	for _, arg := range args {
		if strings.IndexByte(arg, 0) >= 0 {
			return nil, cannot("set argument", arg, errors.New("contains a NUL byte"))
		}
		plain = plain && PlainValue(arg)
	}
	if !plain {
		if err := c.SetBool(KeyArgs, true); err != nil {
			return nil, err
		}
	}
	if err := c.SetInt(KeyNJobArgs, len(args)); err != nil {
		return nil, err
	}
	if !plain {
		return AppendArgs(nil, args), nil
	}
	for i, arg := range args {
		if err := c.Set(KeyJobArg+strconv.Itoa(i+1), arg); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Lookup returns the value of a key and whether there is one.
func (c *Config) Lookup(key string) (string, bool) {
	i, ok := c.first(key)
	if !ok {
		return "", false
	}
	return c.entries[i].Value, true
}

// String returns the value of a key, or a *MissingError.
func (c *Config) String(key string) (string, error) {
	v, ok := c.Lookup(key)
	if !ok {
		return "", &MissingError{Key: key}
	}
	return v, nil
}

// Int returns the value of a key as a number.
func (c *Config) Int(key string) (int, error) {
	v, err := c.String(key)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, syntax(FileConfig, 0, key+" is no number: "+short([]byte(v)))
	}
	return n, nil
}

// Bool returns the value of a key that is 0 or 1.
func (c *Config) Bool(key string) (bool, error) {
	v, err := c.String(key)
	if err != nil {
		return false, err
	}
	switch v {
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, syntax(FileConfig, 0, key+" is neither 0 nor 1: "+short([]byte(v)))
}

// Strings returns the values of prefix1 to prefixN.
func (c *Config) Strings(prefix string, n int) ([]string, error) {
	var values []string
	for i := 1; i <= n; i++ {
		v, err := c.String(prefix + strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// A Limit is a resource limit: bytes, seconds or a count.
type Limit uint64

// Limits that are not numbers.
const (
	Infinity  Limit = 1<<64 - 1
	Undefined Limit = 1<<64 - 2 // do not touch what is inherited
)

// ParseLimit parses a limit: a number, with a fraction if it likes, and k, m
// or g behind it for powers of 1000 or K, M or G for powers of 1024; a time
// h:m:s, whose parts may be empty; INFINITY or UNDEFINED.
func ParseLimit(s string) (Limit, error) {
	bad := func() (Limit, error) {
		return 0, syntax("limit", 0, "want a number with k, K, m, M, g or G, h:m:s, INFINITY or UNDEFINED, got "+short([]byte(s)))
	}
	if strings.EqualFold(s, "INFINITY") {
		return Infinity, nil
	}
	if strings.EqualFold(s, "UNDEFINED") {
		return Undefined, nil
	}
	if strings.IndexByte(s, ':') >= 0 {
		if l, ok := parseTime(s); ok {
			return l, nil
		}
		return bad()
	}
	num, unit := s, uint64(1)
	if s != "" {
		switch s[len(s)-1] {
		case 'k':
			unit = 1e3
		case 'K':
			unit = 1 << 10
		case 'm':
			unit = 1e6
		case 'M':
			unit = 1 << 20
		case 'g':
			unit = 1e9
		case 'G':
			unit = 1 << 30
		}
		if unit != 1 {
			num = s[:len(s)-1]
		}
	}
	whole, frac, point := strings.Cut(num, ".")
	// Nine digits hold the product below with every unit in 64 bits.
	if point && (frac == "" || len(frac) > 9) {
		return bad()
	}
	n, ok := digits(whole)
	if !ok || n > uint64(Undefined-1)/unit {
		return bad()
	}
	n *= unit
	if point {
		f, ok := digits(frac)
		if !ok {
			return bad()
		}
		scale := uint64(1)
		for range len(frac) {
			scale *= 10
		}
		f = f * unit / scale
		if n > uint64(Undefined-1)-f {
			return bad()
		}
		n += f
	}
	return Limit(n), nil
}

func parseTime(s string) (Limit, bool) {
	var part [3]uint64
	rest, empty := s, 0
	for i := range part {
		var p string
		var more bool
		p, rest, more = strings.Cut(rest, ":")
		if more != (i < 2) {
			return 0, false
		}
		if p == "" {
			empty++
			continue
		}
		n, ok := digits(p)
		if !ok || n > 1<<40 {
			return 0, false
		}
		part[i] = n
	}
	return Limit(part[0]*3600 + part[1]*60 + part[2]), empty < 3
}

// digits is decimal with leading zeros, as people write them.
func digits(s string) (uint64, bool) {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return decimal(s, uint64(Undefined-1))
}
