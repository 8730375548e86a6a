package api

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rerun says what becomes of a job whose run was cut short by the host.
type Rerun string

// The values of qsub -r.
const (
	RerunDefault Rerun = ""  // as the queue says
	RerunYes     Rerun = "y" // start it again
	RerunNo      Rerun = "n" // never start it twice
)

// SubmitRequest is one job as qsub has put it together from defaults files,
// script and command line. Paths are as the user wrote them; execd expands
// the pseudo variables ($HOME, $USER, $JOB_ID, $JOB_NAME, $TASK_ID,
// $HOSTNAME, ~) and makes them absolute against Cwd, else the owner's home.
type SubmitRequest struct {
	Name    string   `json:"name"`              // -N
	Account string   `json:"account,omitempty"` // -A; empty means "sge"
	Project string   `json:"project,omitempty"` // -P; empty: none
	Script  []byte   `json:"script,omitempty"`  // the script's bytes; nil for -b y
	Command string   `json:"command"`           // what the user typed: script path, "STDIN", or the binary of -b y
	Args    []string `json:"args,omitempty"`    // arguments of the job; any bytes but NUL
	Binary  bool     `json:"binary,omitempty"`  // -b y
	NoShell bool     `json:"no_shell,omitempty"`
	Shell   string   `json:"shell,omitempty"`  // -S
	Cwd     string   `json:"cwd,omitempty"`    // -cwd, -wd; empty: not requested, the job runs in the owner's home
	Stdin   string   `json:"stdin,omitempty"`  // -i
	Stdout  string   `json:"stdout,omitempty"` // -o; empty: default name in the working directory
	Stderr  string   `json:"stderr,omitempty"` // -e
	Merge   bool     `json:"merge,omitempty"`  // -j y
	Rerun   Rerun    `json:"rerun,omitempty"`  // -r
	Tasks   Tasks    `json:"tasks,omitzero"`   // -t: the range
	// Only are the tasks of the range that the job has, as ascending ranges
	// with commas between them; empty: all. Execd brings them into this form.
	Only   string `json:"only,omitempty"`
	MaxRun int    `json:"max_run,omitempty"` // -tc: at most so many tasks at once; 0: no limit
	Notify bool   `json:"notify,omitempty"`  // -notify: warn the job before it is killed or suspended

	// What the job needs. Resources and queues behind -soft are wishes.
	Hard         []Resource `json:"hard,omitempty"`          // -l; a later value of a name replaces an earlier one
	Soft         []Resource `json:"soft,omitempty"`          // -soft -l
	Queues       []string   `json:"queues,omitempty"`        // -q: patterns of queues, of queue@host, of queue@@hostgroup
	SoftQueues   []string   `json:"soft_queues,omitempty"`   // -soft -q
	MasterQueues []string   `json:"master_queues,omitempty"` // -masterq
	PE           string     `json:"pe,omitempty"`            // -pe: name, or a pattern
	Slots        []Slots    `json:"slots,omitempty"`         // -pe: ranges, ascending, none overlaps; empty without -pe
	Binding      string     `json:"binding,omitempty"`       // -binding, as written
	Reserve      bool       `json:"reserve,omitempty"`       // -R y: keep slots free for it when its turn has come

	// When the job may start.
	Priority  int       `json:"priority,omitempty"`   // -p: -1023 to 1024
	Hold      string    `json:"hold,omitempty"`       // -h: letters of u, o, s
	After     time.Time `json:"after,omitzero"`       // -a
	HoldJobs  []string  `json:"hold_jobs,omitempty"`  // -hold_jid: numbers, names, patterns
	HoldArray []string  `json:"hold_array,omitempty"` // -hold_jid_ad: task n waits for task n
	// HoldOK and HoldArrayOK, of -hold_jid_ok and -hold_jid_ad_ok, are the same
	// for jobs that must succeed.
	HoldOK      []string `json:"hold_ok,omitempty"`
	HoldArrayOK []string `json:"hold_array_ok,omitempty"`
	Now         bool     `json:"now,omitempty"` // -now y: at once or never, CodeBusy
	// Verify is the letter of -w, a check whether the job could ever run: "e"
	// refuses the job if not, and "w" warns. "v" and "p" print the result and
	// submit nothing; "p" counts what is in use now. "" or "n": no check.
	Verify string `json:"verify,omitempty"`

	// Interactive makes the job one of qrsh, whose streams go to a client. It
	// is a binary, never an array, and never run again.
	Interactive *Interactive `json:"interactive,omitempty"`

	Checkpoint     string   `json:"checkpoint,omitempty"`      // -ckpt: name of the interface
	CheckpointWhen string   `json:"checkpoint_when,omitempty"` // -c: letters of n, s, m, x, or a time; empty: as the interface says
	Mail           string   `json:"mail,omitempty"`            // -m: letters of b, e, a, s; empty: none
	MailTo         []string `json:"mail_to,omitempty"`         // -M; empty: the owner

	// Context are notes about the job, of -ac, -dc and -sc: NAME=value or NAME,
	// each name once. The job does not see them.
	Context []string `json:"context,omitempty"`

	// Attributes are those that the ad of the job has beside execd's own, -attr:
	// NAME=EXPRESSION, each name once in any case of letters.
	Attributes []string `json:"attributes,omitempty"`

	// The job runs in a fresh directory, its sandbox, with "y"; "" and "n" are the same,
	// but that qalter and defaults files tell them apart. The other four say what is
	// brought into it and out of it.
	Sandbox    string   `json:"sandbox,omitempty"`
	StageIn    []Staged `json:"stage_in,omitempty"`
	StageOut   []Staged `json:"stage_out,omitempty"`    // empty: StageAll
	StageOutTo string   `json:"stage_out_to,omitempty"` // directory; empty: Cwd
	WhenOut    WhenOut  `json:"when_out,omitempty"`

	// Env holds NAME=value as -v and -V chose them, in order. Origin holds the
	// SGE_O_* variables of the environment of qsub (SGE_O_HOME, SGE_O_LOGNAME,
	// SGE_O_PATH, SGE_O_SHELL, SGE_O_MAIL, SGE_O_HOST, SGE_O_WORKDIR and, where
	// set, SGE_O_TZ), in that order, behind TERM, which has no prefix.
	Env    []string `json:"env,omitempty"`
	Origin []string `json:"origin,omitempty"`

	// Plain says that the first line of the script names no program to run it.
	// Execd sets it, whatever a client says.
	Plain bool `json:"plain,omitempty"`

	// Work describes a job that was not submitted by qsub; nil for one that was.
	Work *Work `json:"work,omitempty"`
}

// Work describes a job that was not submitted by qsub. Execd sets it, whatever
// a client says.
type Work struct {
	Ad       string `json:"ad"`                 // as it was received, in old syntax, with HookKeyword in it
	Identity string `json:"identity,omitempty"` // its GlobalJobId; empty: it has none
	Slot     SlotID `json:"slot"`               // that it runs on
	Claim    string `json:"claim,omitempty"`    // public id of the claim that it runs under
	Holder   string `json:"holder"`             // "fetch", or who holds the claim

	Activation *Activation `json:"activation,omitempty"` // nil: nobody follows it
}

// Activation is one that is followed, by a user of a host, or by the execd of one.
type Activation struct {
	Sandbox SandboxID `json:"sandbox"`
	Host    string    `json:"host,omitempty"` // empty: this one
	User    string    `json:"user,omitempty"` // empty: execd
	Home    *Home     `json:"home,omitempty"`

	Carriage *Carriage `json:"carriage,omitempty"`
}

// Resource is one element of -l.
type Resource struct {
	Name  string `json:"name"`  // or shortcut
	Value string `json:"value"` // "TRUE" when there was none
}

// Slots is a range of numbers of slots, -pe NAME min-max:step.
type Slots struct {
	Min  int `json:"min"`
	Max  int `json:"max"`  // MaxSlots: as many as there are
	Step int `json:"step"` // at least 1
}

// Interactive has the parts of an interactive job that a batch job does not have.
type Interactive struct {
	Login    bool     `json:"login,omitempty"`    // run the owner's login shell, and no command
	Terminal bool     `json:"terminal,omitempty"` // the job has a terminal, and not three streams
	Lost     string   `json:"lost,omitempty"`     // end, stop or keep: what happens to the job when its client is lost; empty: as QRSH_LOST says
	Client   Listener `json:"client"`

	Qlogin bool `json:"qlogin,omitempty"` // a login shell is connected as qlogin is configured, and not as qrsh
	// Display makes the job one of qsh: a window on this X display, without a client.
	Display string `json:"display,omitempty"`
	// Daemon is the command line of the daemon by which the job is connected; empty if
	// it is connected by qrsh-session. Execd sets it, whatever a client says.
	Daemon string `json:"daemon,omitempty"`
}

// Field names a part of a SubmitRequest that can be altered, by the option that
// sets it, or one of these if there are several.
type Field string

// The fields that are asked for by name.
const (
	FieldPriority     Field = "-p"
	FieldAccount      Field = "-A"
	FieldProject      Field = "-P"
	FieldCwd          Field = "-cwd"
	FieldCheckpoint   Field = "-ckpt"
	FieldHard         Field = "-l"
	FieldSoft         Field = "-soft -l"
	FieldHoldJobs     Field = "-hold_jid"
	FieldHoldArray    Field = "-hold_jid_ad"
	FieldHoldOK       Field = "-hold_jid_ok"
	FieldHoldArrayOK  Field = "-hold_jid_ad_ok"
	FieldPE           Field = "-pe"
	FieldQueues       Field = "-q"
	FieldSoftQueues   Field = "-soft -q"
	FieldMasterQueues Field = "-masterq"
	FieldEnv          Field = "-v"
	FieldArgs         Field = "--"
	FieldContext      Field = "-ac"
	FieldAttributes   Field = "-attr"
	FieldSandbox      Field = "-sandbox"
	FieldStageIn      Field = "-stagein"
	FieldStageOut     Field = "-stageout"
	FieldStageOutTo   Field = "-stageout_to"
	FieldWhenOut      Field = "-when_out"
)

// Alterable is a field and how it is altered.
type Alterable struct {
	Field Field
	// What is its name in "modified ... of job 42"; empty: nothing is said.
	What string
	Copy func(to, from *SubmitRequest)
}

// Alterables are all fields that can be altered, in the order in which Grid
// Engine reports them.
var Alterables = []Alterable{
	{FieldPriority, "", func(to, from *SubmitRequest) { to.Priority = from.Priority }},
	{"-a", "start time", func(to, from *SubmitRequest) { to.After = from.After }},
	{FieldAccount, "account", func(to, from *SubmitRequest) { to.Account = from.Account }},
	{FieldProject, "project", func(to, from *SubmitRequest) { to.Project = from.Project }},
	{FieldCwd, "working directory", func(to, from *SubmitRequest) { to.Cwd = from.Cwd }},
	{FieldCheckpoint, "checkpointing environment", func(to, from *SubmitRequest) { to.Checkpoint = from.Checkpoint }},
	{"-c", "", func(to, from *SubmitRequest) { to.CheckpointWhen = from.CheckpointWhen }},
	{"-e", "stderr path list", func(to, from *SubmitRequest) { to.Stderr = from.Stderr }},
	{"-i", "stdin path list", func(to, from *SubmitRequest) { to.Stdin = from.Stdin }},
	{"-R", "reservation behaviour", func(to, from *SubmitRequest) { to.Reserve = from.Reserve }},
	{"-j", "output merge behaviour", func(to, from *SubmitRequest) { to.Merge = from.Merge }},
	{FieldHard, "hard resource list", func(to, from *SubmitRequest) { to.Hard = from.Hard }},
	{FieldSoft, "soft resource list", func(to, from *SubmitRequest) { to.Soft = from.Soft }},
	{"-m", "mail options", func(to, from *SubmitRequest) { to.Mail = from.Mail }},
	{"-M", "mail list", func(to, from *SubmitRequest) { to.MailTo = from.MailTo }},
	{"-N", "job name", func(to, from *SubmitRequest) { to.Name = from.Name }},
	{FieldHoldJobs, "job id hold list", func(to, from *SubmitRequest) { to.HoldJobs = from.HoldJobs }},
	{FieldHoldArray, "job id hold array list", func(to, from *SubmitRequest) { to.HoldArray = from.HoldArray }},
	{FieldHoldOK, "job id success hold list", func(to, from *SubmitRequest) { to.HoldOK = from.HoldOK }},
	{FieldHoldArrayOK, "job id success hold array list", func(to, from *SubmitRequest) { to.HoldArrayOK = from.HoldArrayOK }},
	{"-notify", "notify behaviour", func(to, from *SubmitRequest) { to.Notify = from.Notify }},
	{"-o", "stdout path list", func(to, from *SubmitRequest) { to.Stdout = from.Stdout }},
	{FieldPE, "parallel environment", func(to, from *SubmitRequest) { to.PE, to.Slots = from.PE, from.Slots }},
	{"-binding", "binding", func(to, from *SubmitRequest) { to.Binding = from.Binding }},
	{FieldQueues, "hard queue list", func(to, from *SubmitRequest) { to.Queues = from.Queues }},
	{FieldSoftQueues, "soft queue list", func(to, from *SubmitRequest) { to.SoftQueues = from.SoftQueues }},
	{FieldMasterQueues, "master hard queue list", func(to, from *SubmitRequest) { to.MasterQueues = from.MasterQueues }},
	{"-r", "restart behaviour", func(to, from *SubmitRequest) { to.Rerun = from.Rerun }},
	{"-S", "shell list", func(to, from *SubmitRequest) { to.Shell = from.Shell }},
	{FieldEnv, "environment", func(to, from *SubmitRequest) { to.Env = from.Env }},
	{FieldArgs, "script arguments", func(to, from *SubmitRequest) { to.Args = from.Args }},
	{FieldContext, "context", func(to, from *SubmitRequest) { to.Context = from.Context }},
	{FieldAttributes, "attributes", func(to, from *SubmitRequest) { to.Attributes = from.Attributes }},
	{"-tc", "task concurrency", func(to, from *SubmitRequest) { to.MaxRun = from.MaxRun }},
	{FieldSandbox, "sandbox", func(to, from *SubmitRequest) { to.Sandbox = from.Sandbox }},
	{FieldStageIn, "stage-in list", func(to, from *SubmitRequest) { to.StageIn = from.StageIn }},
	{FieldStageOut, "stage-out list", func(to, from *SubmitRequest) { to.StageOut = from.StageOut }},
	{FieldStageOutTo, "stage-out destination", func(to, from *SubmitRequest) { to.StageOutTo = from.StageOutTo }},
	{FieldWhenOut, "time of stage-out", func(to, from *SubmitRequest) { to.WhenOut = from.WhenOut }},
}

// AboutSandbox reports whether any of the fields says something of the sandbox.
func AboutSandbox(fields []Field) bool {
	return slices.ContainsFunc(fields, func(f Field) bool {
		return slices.Contains([]Field{FieldSandbox, FieldStageIn, FieldStageOut, FieldStageOutTo, FieldWhenOut}, f)
	})
}

// Settles reports whether any of the fields is one that nobody alters once a task of the job is
// begun: beside those about sandboxes what the paths are made from by which output leaves one.
func (r *SubmitRequest) Settles(fields []Field) bool {
	return AboutSandbox(fields) || r.Sandbox == SandboxYes && slices.ContainsFunc(fields, func(f Field) bool {
		return slices.Contains([]Field{FieldCwd, "-e", "-j", "-N", "-o"}, f)
	})
}

// AlterableBy returns how a field is altered, or nil.
func AlterableBy(f Field) *Alterable {
	if i := slices.IndexFunc(Alterables, func(a Alterable) bool { return a.Field == f }); i >= 0 {
		return &Alterables[i]
	}
	return nil
}

// plainRequest is a SubmitRequest without its methods.
type plainRequest SubmitRequest

// wireRequest is the JSON form of a SubmitRequest: strings that may have any
// bytes are Texts, which shadow the fields of the same names.
type wireRequest struct {
	Name    Text   `json:"name"`
	Account Text   `json:"account,omitempty"`
	Command Text   `json:"command"`
	Args    []Text `json:"args,omitempty"`
	Shell   Text   `json:"shell,omitempty"`
	Cwd     Text   `json:"cwd,omitempty"`
	Stdin   Text   `json:"stdin,omitempty"`
	Stdout  Text   `json:"stdout,omitempty"`
	Stderr  Text   `json:"stderr,omitempty"`
	Env     []Text `json:"env,omitempty"`
	Origin  []Text `json:"origin,omitempty"`

	StageOutTo Text `json:"stage_out_to,omitempty"`
	*plainRequest
}

// MarshalJSON implements json.Marshaler; see Text.
func (r SubmitRequest) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireRequest{
		Text(r.Name), Text(r.Account), Text(r.Command), each[Text](r.Args), Text(r.Shell), Text(r.Cwd),
		Text(r.Stdin), Text(r.Stdout), Text(r.Stderr), each[Text](r.Env), each[Text](r.Origin), Text(r.StageOutTo), (*plainRequest)(&r),
	})
}

// UnmarshalJSON implements json.Unmarshaler; see Text.
func (r *SubmitRequest) UnmarshalJSON(b []byte) error {
	w := wireRequest{plainRequest: (*plainRequest)(r)}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	r.Name, r.Account, r.Command, r.Args = string(w.Name), string(w.Account), string(w.Command), each[string](w.Args)
	r.Shell, r.Cwd = string(w.Shell), string(w.Cwd)
	r.Stdin, r.Stdout, r.Stderr = string(w.Stdin), string(w.Stdout), string(w.Stderr)
	r.Env, r.Origin = each[string](w.Env), each[string](w.Origin)
	r.StageOutTo = string(w.StageOutTo)
	return nil
}

// plainWork is a Work without its methods.
type plainWork Work

// wireWork is the JSON form of a Work, as wireRequest.
type wireWork struct {
	Ad       Text `json:"ad"`
	Identity Text `json:"identity,omitempty"`
	*plainWork
}

// MarshalJSON implements json.Marshaler; see Text.
func (w Work) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireWork{Text(w.Ad), Text(w.Identity), (*plainWork)(&w)})
}

// UnmarshalJSON implements json.Unmarshaler; see Text.
func (w *Work) UnmarshalJSON(b []byte) error {
	wire := wireWork{plainWork: (*plainWork)(w)}
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	w.Ad, w.Identity = string(wire.Ad), string(wire.Identity)
	return nil
}

// CheckTasks refuses what is no range of tasks.
func (r *SubmitRequest) CheckTasks() error {
	switch t := r.Tasks; {
	case t == (Tasks{}):
		if r.Only != "" {
			return reject("tasks %q of a job that is no array", Short(r.Only))
		}
	case t.First == 0:
		return reject("0 is an invalid task id")
	case t.First < 1 || t.Last < t.First || t.Step < 1:
		return reject("%v is not a range of tasks", t)
	case t.Last > MaxTask:
		return reject("task %d is more than the largest possible, %d", t.Last, MaxTask)
	}
	return nil
}

// Check refuses what no job can have, with Grid Engine's words where it has some.
// What the configuration decides, and what has a language of its own, execd refuses
// besides.
func (r *SubmitRequest) Check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if err := CheckAccount(r.Account); err != nil {
		return err
	}
	for _, path := range []struct{ of, text string }{
		{"-wd", r.Cwd}, {"-o", r.Stdout}, {"-e", r.Stderr}, {"-i", r.Stdin}, {"-S", r.Shell}, {"command", r.Command},
	} {
		if len(path.text) > MaxPath {
			return reject("the path of %s has %d bytes, at most %d are possible", path.of, len(path.text), MaxPath)
		}
		if hasControl(path.text) {
			return reject("the path of %s contains a control character", path.of)
		}
	}
	if r.Binary && r.Command == "" {
		return reject("no command")
	}
	if r.Binary && len(r.Script) > 0 || !r.Binary && r.Script == nil {
		return reject("a script is needed, or -b y and none")
	}
	if len(r.Script) > MaxScript {
		return reject("the script has %d bytes, at most %d are possible", len(r.Script), MaxScript)
	}
	if err := r.checkStrings(); err != nil {
		return err
	}
	for _, w := range r.words() {
		if w != Visible(w) {
			return reject("%q is not text", Short(w))
		}
	}
	if r.MaxRun < 0 {
		return reject("-tc %d is negative", r.MaxRun)
	}
	for _, o := range []struct{ option, value, letters string }{{"-h", r.Hold, "uos"}, {"-m", r.Mail, "beas"}} {
		if bad := strings.Trim(o.value, o.letters); bad != "" {
			return reject("%q is no value of %s", Short(o.value), o.option)
		}
	}
	if !slices.Contains([]Rerun{RerunDefault, RerunYes, RerunNo}, r.Rerun) {
		return reject("%q is no value of -r", r.Rerun)
	}
	if !slices.Contains([]string{"", "n", "e", "w", "v", "p"}, r.Verify) {
		return reject("%q is no value of -w", Short(r.Verify))
	}
	if err := r.checkSandbox(); err != nil {
		return err
	}
	return r.checkPredecessors()
}

// words returns those words that can be shown in a line.
func (r *SubmitRequest) words() []string {
	words := slices.Concat([]string{r.PE, r.Checkpoint, r.CheckpointWhen, r.Binding},
		r.Queues, r.SoftQueues, r.MasterQueues, r.HoldJobs, r.HoldArray, r.HoldOK, r.HoldArrayOK)
	for _, res := range slices.Concat(r.Hard, r.Soft) {
		words = append(words, res.Name, res.Value)
	}
	return words
}

// checkStrings refuses an environment and arguments that exec would not take.
func (r *SubmitRequest) checkStrings() error {
	total := 0
	for _, v := range slices.Concat(r.Env, r.Origin) {
		total += len(v) + 1
		name, _, ok := strings.Cut(v, "=")
		switch {
		case !ok || name == "" || strings.ContainsRune(v, 0) || strings.ContainsAny(name, "\n\r"):
			return reject("%q is not an environment variable", Short(v))
		case len(v) >= MaxVariable:
			return reject("environment variable %s has %d bytes, at most %d are possible", Short(name), len(v), MaxVariable-1)
		}
	}
	if total > MaxEnv {
		return reject("the environment has %d bytes, at most %d are possible", total, MaxEnv)
	}
	total = 0
	for _, a := range r.Args {
		total += len(a) + 1
		if strings.ContainsRune(a, 0) || len(a) >= MaxVariable {
			return reject("an argument has %d bytes or a NUL, at most %d are possible", len(a), MaxVariable-1)
		}
	}
	if total > MaxArgs {
		return reject("the arguments have %d bytes, at most %d are possible", total, MaxArgs)
	}
	return nil
}

// checkPredecessors refuses words of -hold_jid and the like that can be no jobs.
func (r *SubmitRequest) checkPredecessors() error {
	for _, words := range [][]string{r.HoldJobs, r.HoldArray, r.HoldOK, r.HoldArrayOK} {
		if len(words) > MaxWords {
			return reject("it waits for %d jobs, at most %d are possible", len(words), MaxWords)
		}
		if err := CheckWords(words); err != nil {
			return err
		}
		for _, w := range words {
			number, _, dot := strings.Cut(w, ".")
			// A job waits for whole jobs.
			if _, err := strconv.Atoi(number); w == "" || len(w) > MaxName || err == nil && dot {
				return Errorf(CodeRejected, "denied: job %q not found", Short(w))
			}
		}
	}
	return nil
}

// reject returns the error for a job that cannot be.
func reject(format string, args ...any) error {
	return Errorf(CodeRejected, "job rejected: "+format, args...)
}
