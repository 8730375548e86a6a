package launch

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/cgroup"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/usage"
	"paddock/execd/internal/user"
	"paddock/spool"
)

// Order is everything needed to make the directory of one run.
type Order struct {
	Task    *job.Task
	Request *api.SubmitRequest
	Owner   *user.User
	Queue   *conf.Queue // the master's
	Global  *conf.Global
	Grant   *schedule.Grant
	PE      *conf.PE         // nil: a serial job
	Ckpt    *conf.Checkpoint // nil: none
	Limits  []Limit          // what the job may use: the queue's and what it asked for
	Script  string           // path of the script in the spool; empty for a binary
	Binding string           // cores, as config has them; empty: none

	// PrivateTmp says that the job asked for a /tmp of its own.
	PrivateTmp bool
	// Devices are those of the units of resources, and what the job may do with
	// them.
	Devices []conf.Device
	// ScratchLimit is how many bytes it asked for in TMPDIR; 0: it did not.
	ScratchLimit uint64

	SRT, HRT time.Duration // wall clock time until USR1 and KILL; 0: no limit

	// EndSignal is by which the job is asked to end; 0: SIGTERM.
	EndSignal syscall.Signal

	// Slot is the name of the slot, slot1 or slot1_2, that the job has which did not
	// come by qsub, and whose environment is HTCondor's as well; empty: it came by qsub.
	Slot string

	// Sub is the task that is to be started in the run; nil: the run itself.
	Sub *Subtask

	Measured usage.Job // from Build on: how its consumption is seen

	chosen string       // TMPDIR, once it is made
	closed string       // what holds its private /tmp, once it is made; empty: it has none
	group  cgroup.Group // its control groups, once they are made

	scratch scratch // what limits TMPDIR
}

// Limit is a limit of a run.
type Limit struct {
	conf.Limit
	ForJob bool // of the whole job, not of each slot
}

// taskNumber is the number that config and file names have: 0 for no array.
func (o *Order) taskNumber() int { return taskNumber(o.Task.Home()) }

func taskNumber(h api.Home) int {
	if h.Array.IsArray() {
		return h.Task
	}
	return 0
}

// run is what the directory is made for.
func (o *Order) run() spool.RunID {
	run := o.Task.RunID()
	if o.Sub != nil {
		run.PETask = o.Sub.Name
	}
	return run
}

// addGID is the additional group id; 0: none.
func (o *Order) addGID() int {
	if o.Sub != nil {
		return o.Sub.GID
	}
	return o.Task.Start.AddGID
}

func (o *Order) names(host string) names {
	return names{
		home: o.Owner.Home, user: o.Owner.Name, jobName: o.Request.Name, host: host,
		job: o.Task.Home().Job, task: o.taskNumber(),
	}
}

// dir is the working directory: the requested one, else the owner's home.
func (o *Order) dir(host string) string { return workingDir(o.names(host), cwd(o.Request, o.tmpdir())) }

// sandbox is the directory of its own in which the run works; empty: it has none. A task
// that is started in the run may have asked for another directory.
func (o *Order) sandbox() string {
	s := o.Task.Start.Sandbox
	if s == nil || o.Sub != nil && o.Request.Cwd != "" {
		return ""
	}
	return s.Files()
}

// carried reports whether another host has pushed the files of the job, and pulls its output.
func (o *Order) carried() bool {
	a := o.Task.Job.Activation
	return a != nil && a.Carriage != nil
}

// cwd is the working directory that a job asked for. A relative one of work that came as
// an ad is below the scratch directory.
func cwd(r *api.SubmitRequest, scratch string) string {
	if r.Work == nil || r.Work.Ad == "" || filepath.IsAbs(r.Cwd) || strings.HasPrefix(r.Cwd, "$HOME") {
		return r.Cwd
	}
	return filepath.Join(strings.ReplaceAll(scratch, "$", "$$"), r.Cwd)
}

// shellStartMode is the queue's. A script that names no program to run it is its
// shell's with unix_behavior, too: the kernel could not run it, and the shepherd,
// as Grid Engine's, would take /bin/sh, whatever -S says.
func (o *Order) shellStartMode() string {
	if o.Request.Plain && o.Queue.ShellStartMode == conf.UnixBehavior {
		return conf.PosixCompliant
	}
	return o.Queue.ShellStartMode
}

// shell is the path of the job's shell: of an interactive job the owner's own.
func (o *Order) shell(host string) string {
	if o.Request.Interactive != nil && o.Request.Shell == "" && o.Owner.Shell != "" {
		return o.Owner.Shell
	}
	if o.Request.Shell == "" {
		return o.Queue.Shell
	}
	if path := choose(o.Request.Shell, host); path != "" {
		return o.names(host).expand(path)
	}
	return o.Queue.Shell
}

// program is the file that the job runs, as config and JOB_SCRIPT name it.
func (o *Order) program() string {
	if i := o.Request.Interactive; i != nil && i.Display != "" {
		return o.Global.Xterm
	} else if i != nil && i.Login {
		return spool.ScriptLogin
	}
	if o.Request.Binary {
		return o.Request.Command
	}
	return o.Script
}

// tmpdir is the job's scratch directory, named as Grid Engine names it where
// that name was free.
func (o *Order) tmpdir() string {
	if o.chosen != "" {
		return o.chosen
	}
	return usualTmpdir(spool.ID{Job: o.Task.Job.Number, Task: o.Task.Number}, o.Queue)
}

func usualTmpdir(id spool.ID, q *conf.Queue) string {
	return filepath.Join(q.Tmpdir, id.String()+"."+q.Name)
}

// config fills the file config in the order in which sge_execd writes it, with
// our own keys, which a foreign shepherd ignores and which Config.Set puts in
// front. It returns the content of the file args when config cannot hold the arguments.
func (l *Launcher) config(o *Order) (*spool.Config, []byte, error) {
	r, dir, tmpdir := o.Request, o.dir(l.Host), o.tmpdir()
	n := o.names(l.Host)
	c := &writer{config: &spool.Config{}}
	c.number(spool.KeyFormat, 1) // first of all: by it a shepherd knows whose config it is

	if o.mentions("$sge_root", "$sge_cell") {
		// Grid Engine's execd leaves them out, and its shepherd then fails.
		c.text("sge_root", l.SGERoot)
		c.text("sge_cell", cell)
	}
	c.number("add_grp_id", o.addGID())
	if o.Global.SkipNGroups {
		c.text(spool.KeySkipNGroups, "yes")
	}
	for _, stream := range []string{"stdin", "stdout", "stderr"} {
		c.text("fs_"+stream+"_host", `""`)
		c.text("fs_"+stream+"_path", "")
		c.text("fs_"+stream+"_tmp_path", tmpdir+"/")
		c.number("fs_"+stream+"_file_staging", 0)
	}
	standard := dir
	if r.Interactive != nil {
		standard = "/dev/null" // of the procedures; the job has its client's
	}
	stdin, stdout, stderr := n.stream(r.Stdin, dir, "/dev/null"), n.stream(r.Stdout, dir, standard), n.stream(r.Stderr, dir, standard)
	if s := o.Task.Start.Sandbox; s != nil && o.carried() && o.Sub == nil {
		stdout, stderr = s.Streams()
		if stdin = "/dev/null"; r.Stdin != "" {
			stdin = filepath.Join(s.Files(), api.NameStdin)
		}
	}
	c.text("stdout_path", stdout)
	c.text("stderr_path", stderr)
	c.text("stdin_path", stdin)
	c.flag("merge_stderr", r.Merge)
	c.text("tmpdir", tmpdir)
	c.flag("handle_as_binary", r.Binary)
	c.flag("no_shell", r.Binary && (r.NoShell || o.display() != ""))
	c.checkpoint(o)
	c.limits(o)
	c.number("priority", o.Queue.Priority)
	shell := o.shell(l.Host)
	c.text("shell_path", shell)
	c.text("script_file", o.program())
	c.text("job_owner", o.Owner.Name)
	minUID, minGID := o.Global.MinUID, o.Global.MinGID
	if !l.Privileged {
		minUID, minGID = 0, 0 // there is but one user, whoever that is
	}
	c.number("min_gid", minGID)
	c.number("min_uid", minUID)
	c.text("cwd", cmp.Or(o.sandbox(), dir))
	prolog, epilog := cmp.Or(o.Queue.Prolog, o.Global.Prolog, "none"), cmp.Or(o.Queue.Epilog, o.Global.Epilog, "none")
	if o.Sub != nil {
		prolog, epilog = "none", "none"
	}
	c.text("prolog", prolog)
	c.text("epilog", epilog)
	c.text("starter_method", cmp.Or(o.starter(), "NONE"))
	c.text("suspend_method", cmp.Or(o.Queue.SuspendMethod, "NONE"))
	c.text("resume_method", cmp.Or(o.Queue.ResumeMethod, "NONE"))
	c.text("terminate_method", cmp.Or(o.Queue.TerminateMethod, "NONE"))
	c.seconds("script_timeout", o.Global.ScriptTimeout)
	l.parallel(c, o, n, standard)
	c.text("shell_start_mode", o.shellStartMode())
	// A command of qrsh is given to the shell as it is, as by ssh.
	c.flag("use_login_shell", r.Interactive == nil && isLoginShell(shell, o.Global.LoginShells))
	c.text("mail_list", cmp.Or(strings.Join(r.MailTo, ","), o.Owner.Name+"@"+l.Host))
	c.number("mail_options", mailOptions(r.Mail))
	// The exit codes of an interactive job are its own.
	c.flag("forbid_reschedule", o.Global.ForbidReschedule || r.Interactive != nil)
	c.flag("forbid_apperror", o.Global.ForbidApperror || r.Interactive != nil)
	c.text("queue", o.Queue.Name)
	c.text("host", l.Host)
	c.text("processors", cmp.Or(o.Queue.Processors, "UNDEFINED"))
	c.text("binding", cmp.Or(o.Binding, "NULL"))
	c.text("job_name", r.Name)
	c.number("job_id", o.Task.Home().Job)
	c.number("ja_task_id", o.taskNumber())
	c.text("account", account(r))
	c.text("submission_time", strconv.FormatInt(o.Task.Job.Submitted.Unix(), 10))
	notify := o.Queue.Notify
	if !r.Notify {
		notify = 0
	}
	c.seconds("notify", notify)
	c.text("acct_project", cmp.Or(r.Project, "none"))
	args := c.args(o.args(shell))
	c.text("queue_tmpdir", o.Queue.Tmpdir)
	c.number("use_afs", 0)
	c.text("admin_user", "none")
	c.warning("notify_kill", o.Global.NotifyKill)
	c.warning("notify_susp", o.Global.NotifySusp)
	c.text("qsub_gid", qsubGID(o))
	l.interactive(c, o, n)
	if o.Sub != nil {
		c.text(spool.KeyPETaskID, o.Sub.Name)
	}
	c.number("write_osjob_id", 1)
	// execd's environment is the administrator's, and never a job's.
	c.number("inherit_env", 0)
	c.number("enable_windomacc", 0)
	c.flag("enable_addgrp_kill", o.addGID() != 0 && !o.Global.NoAddGrpKill)
	c.number("csp", 0)
	c.number("ignore_fqdn", 0)
	c.text("default_domain", "none")

	c.number(spool.KeyRun, o.Task.Run)
	c.number(spool.KeyUID, o.Owner.UID)
	c.number(spool.KeyGID, o.Owner.GID)
	c.text(spool.KeyGroups, joinInts(o.Owner.Groups))
	c.text(spool.KeyHome, o.Owner.Home)
	if o.Global.TraceDetail {
		c.text(spool.KeyTrace, spool.TraceDetail)
	}
	if o.closed != "" {
		c.text(spool.KeyPrivateTmp, o.closed)
	}
	if o.EndSignal != 0 {
		c.number(spool.KeyEndSignal, int(o.EndSignal))
	}
	if o.Migrates() {
		c.flag(spool.KeyMigrates, true)
	}
	o.scratch.record(c)
	soft, hard := spool.KeySRT, spool.KeyHRT
	if l.Foreign() {
		c.flag(spool.KeyForeign, true)
		soft, hard = spool.KeyForeignSRT, spool.KeyForeignHRT
	}
	if o.SRT > 0 {
		c.seconds(soft, o.SRT)
	}
	if o.HRT > 0 {
		c.seconds(hard, o.HRT)
	}
	return c.config, args, c.err
}

// interactive writes what an interactive job's config has.
func (l *Launcher) interactive(c *writer, o *Order, n names) {
	i := o.Request.Interactive
	c.flag("pty", i != nil && i.Terminal)
	if i == nil {
		return
	}
	if i.Display != "" {
		return
	}
	c.text("qrsh_control_port", i.Client.Address)
	c.text(spool.KeySession, l.Session)
	grace, lost := o.Global.SessionGrace, i.Lost
	if o.Sub != nil {
		grace, lost = 0, spool.LostEnd // nobody comes back to it
	}
	c.seconds(spool.KeySessionGrace, grace)
	switch {
	case i.Daemon != "": // whose connection is gone for good
		c.text(spool.KeySessionDaemon, i.Daemon)
		lost = spool.LostEnd
	case o.Sub == nil && !slices.Contains(o.Global.SessionLost, lost): // none was asked for, or it is not allowed any more
		lost = o.Global.SessionLost[0]
	}
	c.text(spool.KeySessionLost, lost)
	var noted []string
	if choose(o.Request.Stdout, n.host) == "" {
		noted = append(noted, spool.NotedStdout)
	}
	if choose(o.Request.Stderr, n.host) == "" {
		noted = append(noted, spool.NotedStderr)
	}
	if len(noted) > 0 {
		c.text(spool.KeySessionNotes, strings.Join(noted, " "))
	}
}

// parallel writes what a parallel job's config has more than another's.
func (l *Launcher) parallel(c *writer, o *Order, n names, standard string) {
	slots := o.Grant.Slots()
	here := slots
	if o.Sub != nil {
		here = o.Sub.Slots
	}
	if o.PE == nil {
		c.text("pe", "none")
		c.number("pe_slots", slots)
		c.number("host_slots", here)
		return
	}
	c.text("pe", o.PE.Name)
	c.number("pe_slots", slots)
	c.number("host_slots", here)
	c.text("pe_hostfile", l.Root.Active(o.run().ID()).Path(spool.FilePEHostfile))
	start, stop := cmp.Or(o.PE.StartProcArgs, "none"), cmp.Or(o.PE.StopProcArgs, "none")
	if o.Sub != nil {
		start, stop = "none", "none"
	}
	c.text("pe_start", start)
	c.text("pe_stop", stop)
	c.text("pe_qsort", "none")
	dir := o.dir(l.Host)
	c.text("pe_stdout_path", n.stream(o.Request.Stdout, dir, standard))
	c.text("pe_stderr_path", n.stream(o.Request.Stderr, dir, standard))
}

// checkpoint writes the keys of a checkpointing interface.
func (w *writer) checkpoint(o *Order) {
	k := o.Ckpt
	if k == nil {
		w.number("ckpt_job", 0)
		return
	}
	w.number("ckpt_job", 1)
	w.number("ckpt_restarted", restarted(o.Task))
	w.number("ckpt_pid", o.Task.LastPID)
	w.number("ckpt_osjobid", o.Task.Start.AddGID)
	w.text("ckpt_interface", k.Kind)
	w.text("ckpt_command", cmp.Or(k.Command, "none"))
	w.text("ckpt_migr_command", cmp.Or(k.Migrate, "none"))
	w.text("ckpt_rest_command", cmp.Or(k.Restart, "none"))
	w.text("ckpt_clean_command", cmp.Or(k.Clean, "none"))
	w.text("ckpt_dir", cmp.Or(k.Dir, "none"))
	w.text("ckpt_signal", cmp.Or(k.Signal, "none"))
	w.seconds("ckpt_interval", o.checkpointInterval())
}

// Migrates reports whether the job migrates instead of being stopped.
func (o *Order) Migrates() bool {
	letters, _ := o.checkpointWhen()
	return strings.Contains(letters, "x")
}

// checkpointWhen returns the letters that say when a job is checkpointed, and
// the interval of -c (checkpoint(5)).
func (o *Order) checkpointWhen() (letters string, interval time.Duration) {
	if o.Ckpt == nil {
		return "", 0
	}
	when := o.Request.CheckpointWhen
	switch {
	case when == "":
		return o.Ckpt.When, 0
	case when[0] >= '0' && when[0] <= '9' || when[0] == ':':
		interval, _ = conf.ParseTime(when) // checked at submission
		return "m", interval
	}
	return when, 0
}

// checkpointInterval is the time between two checkpoints; 0: none at times.
func (o *Order) checkpointInterval() time.Duration {
	letters, interval := o.checkpointWhen()
	if !strings.Contains(letters, "m") {
		return 0
	}
	return max(o.Queue.MinCPUInterval, interval)
}

// restarted is the value of RESTARTED: 0 for a first run, 1 for a later one, 2
// for one that goes on from a checkpoint.
func restarted(t *job.Task) int {
	switch {
	case t.Checkpoint:
		return 2
	case t.Home().Run > 0:
		return 1
	}
	return 0
}

// mailOptions are the bits that Grid Engine has for the letters of -m.
func mailOptions(letters string) int {
	n := 0
	for _, letter := range letters {
		n |= map[rune]int{'a': 1 << 18, 'b': 1 << 19, 'e': 1 << 20, 's': 1 << 22}[letter]
	}
	return n
}

// qsubGID is the group that the job was submitted with, where jobs run with it.
func qsubGID(o *Order) string {
	if !o.Global.QsubGID {
		return "no"
	}
	return strconv.Itoa(o.Task.Job.SubmitGID)
}

// mentions reports whether a command that runs beside the job has one of the
// variables.
func (o *Order) mentions(variables ...string) bool {
	q, g := o.Queue, o.Global
	list := []string{q.Prolog, q.Epilog, g.Prolog, g.Epilog, q.SuspendMethod, q.ResumeMethod, q.TerminateMethod}
	if o.PE != nil {
		list = append(list, o.PE.StartProcArgs, o.PE.StopProcArgs)
	}
	if k := o.Ckpt; k != nil {
		list = append(list, k.Command, k.Migrate, k.Restart, k.Clean)
	}
	commands := strings.Join(list, " ")
	return slices.ContainsFunc(variables, func(v string) bool { return strings.Contains(commands, v) })
}

// writer sets keys until the first error.
type writer struct {
	config *spool.Config
	err    error
}

func (w *writer) text(key, value string) {
	if w.err == nil {
		w.err = w.config.Set(key, value)
	}
}

func (w *writer) number(key string, n int) { w.text(key, strconv.Itoa(n)) }

// seconds writes a time, which the files of configuration have in whole seconds.
func (w *writer) seconds(key string, d time.Duration) { w.number(key, int(d/time.Second)) }

// warning writes what comes before a signal: 0 is another signal than the
// default, 1 the default, 2 none.
func (w *writer) warning(key string, c conf.Warning) {
	kind := 1
	switch {
	case c.Off:
		kind = 2
	case c.Signal != "":
		kind = 0
	}
	w.number(key+"_type", kind)
	w.text(key, cmp.Or(c.Signal, "default"))
}

func (w *writer) flag(key string, on bool) {
	if on {
		w.text(key, "1")
	} else {
		w.text(key, "0")
	}
}

// args writes the arguments. What config cannot hold (a newline must never add
// a line to it) is returned as the content of the file args.
func (w *writer) args(args []string) (file []byte) {
	if w.err == nil {
		file, w.err = w.config.SetArguments(args)
	}
	return file
}

// limits writes the resource limits in Grid Engine's order: the queue's, then
// those of execd_params.
func (w *writer) limits(o *Order) {
	set, forJob := map[string]string{}, map[string]bool{}
	for _, l := range o.Global.Limits {
		set[l.Key] = l.Value
	}
	for _, l := range o.Limits {
		set[l.Key], forJob[l.Key] = l.Value, l.ForJob
	}
	value := func(key, otherwise string) string {
		if v, ok := set[key]; ok {
			return v
		}
		return otherwise
	}
	for _, name := range []string{"vmem", "cpu", "stack", "data"} {
		for _, kind := range []string{"h_", "s_"} {
			w.text(kind+name, value(kind+name, "INFINITY"))
			w.flag(kind+name+"_is_consumable_job", forJob[kind+name])
		}
	}
	for _, name := range []string{"core", "rss", "fsize"} {
		for _, kind := range []string{"h_", "s_"} {
			w.text(kind+name, value(kind+name, "INFINITY"))
		}
	}
	for _, name := range []string{"descriptors", "maxproc", "memorylocked", "locks"} {
		for _, kind := range []string{"s_", "h_"} {
			w.text(kind+name, value(kind+name, "UNDEFINED"))
		}
	}
}

// isLoginShell reports whether a shell is on the list of login_shells. Grid
// Engine takes a prefix for the name (a shell called b matches bash); that is
// not repeated here.
func isLoginShell(shell string, list []string) bool {
	return slices.Contains(list, filepath.Base(shell))
}

func account(r *api.SubmitRequest) string {
	if r.Account == "" {
		return "sge"
	}
	return r.Account
}

func joinInts(list []int) string {
	var b strings.Builder
	for i, n := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}
