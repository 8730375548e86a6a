package show

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// xmlDetail prints all about jobs, with the element names of Grid Engine. Jobs
// that do not exist are in the document only when there is no other job, since
// it has one root. With cores bindings are shown.
func xmlDetail(ctx context.Context, inv *command.Invocation, reply *api.DetailReply, cores bool) error {
	if len(reply.Jobs) == 0 {
		x := document{output.NewXML(inv.Out, '"', "unknown_jobs", "")}
		for _, word := range reply.Missing {
			x.Text("ST_name", word)
		}
		x.End()
		return nil
	}
	var kinds map[string]attribute
	for i := range reply.Jobs {
		r := &reply.Jobs[i].Request
		var err error
		if kinds == nil && len(r.Hard)+len(r.Soft) > 0 {
			if kinds, err = attributeKinds(ctx, inv); err != nil {
				return err
			}
		}
		if r.CheckpointWhen, err = checkpointWhen(ctx, inv, r); err != nil {
			return err
		}
	}
	x := document{output.NewXML(inv.Out, '"', "detailed_job_info", "qstat/detailed_job_info.xsd")}
	x.Open("djob_info")
	for i := range reply.Jobs {
		x.Open("element")
		x.detail(&reply.Jobs[i], kinds, cores)
		x.End()
	}
	x.End()
	x.Open("messages")
	x.Open("element")
	x.messages(reply.Jobs)
	x.End()
	x.End()
	x.End()
	if len(reply.Missing) > 0 {
		fmt.Fprintf(inv.Err, "Following jobs do not exist: \n%s\n", api.Visible(strings.Join(reply.Missing, ", ")))
	}
	return nil
}

// detail writes a job with its requests and tasks, in the order of Grid Engine.
func (x document) detail(d *api.Detail, kinds map[string]attribute, cores bool) {
	r := &d.Request
	number := strconv.Itoa(d.Job)
	x.Text("JB_job_number", number)
	x.Number("JB_ar", 0)
	x.Text("JB_exec_file", "job_scripts/"+number)
	x.Seconds("JB_submission_time", d.Submitted)
	x.Text("JB_owner", d.Owner)
	x.Number("JB_uid", d.UID)
	x.Text("JB_group", d.Group)
	x.Number("JB_gid", d.GID)
	x.Text("JB_account", cmp.Or(r.Account, "sge"))
	x.Boolean("JB_merge_stderr", r.Merge)
	x.mailList(d)
	x.Has("JB_project", r.Project)
	x.Boolean("JB_notify", r.Notify)
	x.Text("JB_job_name", r.Name)
	x.paths("JB_stdout_path_list", r.Stdout)
	x.Number("JB_jobshare", 0)
	x.resources("JB_hard_resource_list", r.Hard, kinds)
	x.resources("JB_soft_resource_list", r.Soft, kinds)
	x.queueList("JB_hard_queue_list", r.Queues)
	x.queueList("JB_soft_queue_list", r.SoftQueues)
	x.paths("JB_shell_list", r.Shell)
	x.environment(r)
	list(x, "JB_job_args", "element", r.Args, func(arg string) { x.Has("ST_name", arg) })
	x.Text("JB_script_file", r.Command)
	x.tasks(d)
	x.variables("JB_context", "context_list", r.Context)
	x.Has("JB_cwd", r.Cwd)
	x.paths("JB_stderr_path_list", r.Stderr)
	x.dependencies(d)
	x.Number("JB_deadline", 0)
	x.Seconds("JB_execution_time", r.After)
	x.checkpoint(r)
	x.Boolean("JB_reserve", r.Reserve)
	x.Number("JB_mail_options", bits(r.Mail, mailBits))
	x.paths("JB_stdin_path_list", r.Stdin)
	x.Number("JB_priority", 1024+r.Priority)
	x.Number("JB_restart", map[api.Rerun]int{api.RerunYes: 1, api.RerunNo: 2}[r.Rerun])
	x.Number("JB_verify", 0)
	x.queueList("JB_master_hard_queue_list", r.MasterQueues)
	x.Number("JB_script_size", 0)
	if r.PE != "" {
		x.Text("JB_pe", r.PE)
		x.Open("JB_pe_range")
		for _, slots := range r.Slots {
			x.taskRange("ranges", slots.Min, slots.Max, slots.Step)
		}
		x.End()
	}
	x.requestedJobs("JB_jid_request_list", r.HoldJobs) // Grid Engine has it twice
	x.Number("JB_verify_suitable_queues", map[string]int{"w": 1, "e": 2}[r.Verify])
	x.Number("JB_soft_wallclock_gmt", 0)
	x.Number("JB_hard_wallclock_gmt", 0)
	x.Number("JB_override_tickets", 0)
	x.Number("JB_version", 0)
	x.Open("JB_ja_structure")
	ranges := []api.Tasks{{First: 1, Last: 1, Step: 1}}
	if r.Tasks.IsArray() {
		ranges = api.Ranges(r.Tasks, r.Only)
	}
	for _, tasks := range ranges {
		x.taskRange("task_id_range", tasks.First, tasks.Last, tasks.Step)
	}
	x.End()
	x.Number("JB_type", jobType(r))
	if cores {
		x.binding(r.Binding)
	}
	x.Number("JB_ja_task_concurrency", r.MaxRun)
	x.Real("JB_nurg", d.NormalUrgency, 6)
}

// mailBits are the bits of JB_mail_options, by letter of -m.
var mailBits = map[rune]int{'a': 0x40000, 'b': 0x80000, 'e': 0x100000, 's': 0x400000}

// checkpointBits are the bits of JB_checkpoint_attr, by letter of -c.
var checkpointBits = map[rune]int{'m': 1, 's': 2, 'x': 4}

// bits returns the bits of letters.
func bits(letters string, of map[rune]int) int {
	n := 0
	for _, letter := range letters {
		n |= of[letter]
	}
	return n
}

// jobType returns the bits of JB_type.
func jobType(r *api.SubmitRequest) int {
	n := 0
	if r.Binary {
		n |= 64
	}
	if r.Tasks.IsArray() {
		n |= 128
	}
	if r.NoShell {
		n |= 256
	}
	return n
}

// mailList writes who gets mail: those of -M, or the owner.
func (x document) mailList(d *api.Detail) {
	to, element := d.Request.MailTo, "mail_list"
	if len(to) == 0 {
		to, element = []string{d.Owner + "@" + originValue(&d.Request, "SGE_O_HOST=")}, "element"
	}
	list(x, "JB_mail_list", element, to, func(address string) {
		user, host, _ := strings.Cut(address, "@")
		x.Text("MR_user", user)
		x.Text("MR_host", host)
	})
}

// paths writes a list of one path, or nothing.
func (x document) paths(name, path string) {
	if path == "" {
		return
	}
	x.Open(name)
	x.Open("path_list")
	x.Text("PN_path", path)
	x.Text("PN_host", "")
	x.Text("PN_file_host", "")
	x.Boolean("PN_file_staging", false)
	x.End()
	x.End()
}

// list writes an element for each item into one of that name; nothing if there are none.
func list[T any](x document, name, element string, items []T, write func(T)) {
	if len(items) == 0 {
		return
	}
	x.Open(name)
	for _, item := range items {
		x.Open(element)
		write(item)
		x.End()
	}
	x.End()
}

func (x document) queueList(name string, queues []string) {
	list(x, name, "destin_ident_list", queues, func(queue string) { x.Text("QR_name", queue) })
}

// originVariables are the variables of the environment that the job was
// submitted in, in Grid Engine's order.
var originVariables = []string{
	"SGE_O_HOME", "SGE_O_LOGNAME", "SGE_O_PATH", "SGE_O_SHELL", "SGE_O_TZ", "SGE_O_MAIL", "TERM", "SGE_O_HOST", "SGE_O_WORKDIR",
}

// environment writes the variables of originVariables and those of -v and -V.
// Grid Engine has another prefix in place of SGE_.
func (x document) environment(r *api.SubmitRequest) {
	var origin []string
	for _, name := range originVariables {
		for _, v := range r.Origin {
			if strings.HasPrefix(v, name+"=") {
				origin = append(origin, strings.Replace(v, "SGE_", "__SGE_PREFIX__", 1))
			}
		}
	}
	x.variables("JB_env_list", "job_sublist", append(origin, r.Env...))
}

// variables writes a list of NAME=value, or nothing.
func (x document) variables(name, element string, variables []string) {
	list(x, name, element, variables, func(v string) {
		name, value, _ := strings.Cut(v, "=")
		x.Text("VA_variable", name)
		x.Has("VA_value", value)
	})
}

// tasks writes the tasks that run or are in error.
func (x document) tasks(d *api.Detail) {
	list(x, "JB_ja_tasks", "ulong_sublist", d.Tasks, func(t api.TaskDetail) {
		const running = 128
		status := running
		if t.Queue == "" {
			status = 0
		}
		x.Number("JAT_status", status)
		x.Number("JAT_task_number", t.Task)
		x.usage(t.Usage)
		if t.Reason != "" {
			x.Open("JAT_message_list")
			x.Open("ulong_sublist")
			x.Number("QIM_type", 1)
			x.Text("QIM_message", errorReason(&t))
			x.End()
			x.End()
		}
		x.Seconds("JAT_start_time", t.Started)
		x.Real("JAT_ntix", d.NormalTickets, 6)
	})
}

func (x document) usage(u *api.Usage) {
	if u == nil {
		return
	}
	type scaled struct {
		name  string
		value float64
	}
	items := []scaled{{"cpu", u.CPU}, {"mem", u.Mem}, {"io", u.IO}, {"iow", u.IOWait}, {"vmem", u.VMem}, {"maxvmem", u.MaxVMem}}
	list(x, "JAT_scaled_usage_list", "scaled", items, func(item scaled) {
		x.Text("UA_name", item.name)
		x.Real("UA_value", item.value, 6)
	})
}

// dependencies writes the jobs that the job waits for, and those that wait for it.
func (x document) dependencies(d *api.Detail) {
	jobs := func(name, element string, numbers []int) {
		list(x, name, element, numbers, func(n int) { x.Number("JRE_job_number", n) })
	}
	jobs("JB_jid_predecessor_list", "job_predecessors", d.WaitsFor[:len(d.WaitsFor)-len(d.WaitsForTasks)])
	x.requestedJobs("JB_jid_request_list", d.Request.HoldJobs)
	jobs("JB_jid_successor_list", "ulong_sublist", d.Followers)
	jobs("JB_ja_ad_predecessor_list", "job_predecessors_ad", d.WaitsForTasks)
	x.requestedJobs("JB_ja_ad_request_list", d.Request.HoldArray)
	jobs("JB_ja_ad_successor_list", "ulong_sublist", d.ArrayFollowers)
}

// requestedJobs writes the words of -hold_jid. Of -hold_jid_ad Grid Engine
// keeps only their number.
func (x document) requestedJobs(name string, words []string) {
	list(x, name, "element", words, func(word string) {
		x.Number("JRE_job_number", 0)
		if name == "JB_jid_request_list" {
			x.Text("JRE_job_name", word)
		}
	})
}

func (x document) checkpoint(r *api.SubmitRequest) {
	x.Has("JB_checkpoint_name", r.Checkpoint)
	letters, interval, _ := strings.Cut(r.CheckpointWhen, " ")
	n, _ := argument.Seconds(interval)
	x.Number("JB_checkpoint_attr", bits(letters, checkpointBits))
	x.Number("JB_checkpoint_interval", n)
}

// checkpointWhen returns the letters of -c, or without them those of the
// checkpointing environment, followed by the interval of -c if there is one.
func checkpointWhen(ctx context.Context, inv *command.Invocation, r *api.SubmitRequest) (string, error) {
	_, timed := argument.Seconds(r.CheckpointWhen)
	if r.Checkpoint == "" || r.CheckpointWhen != "" && !timed {
		return r.CheckpointWhen, nil
	}
	var reply api.ShowReply
	if err := inv.Client.Call(ctx, api.VerbShow, &api.ShowRequest{Kind: "ckpt", Name: r.Checkpoint}, &reply); err != nil {
		if e, ok := errors.AsType[*api.Error](err); ok && e.Code != api.CodeInternal {
			return " " + r.CheckpointWhen, nil // it was removed meanwhile
		}
		return "", inv.CallFailed(err)
	}
	letters := ""
	for line := range strings.Lines(reply.Text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "when" {
			letters = f[1]
		}
	}
	return letters + " " + r.CheckpointWhen, nil
}

func (x document) taskRange(name string, first, last, step int) {
	x.Open(name)
	x.Number("RN_min", first)
	x.Number("RN_max", last)
	x.Number("RN_step", max(step, 1))
	x.End()
}

// binding writes the parts of -binding. Offsets and a step that were not given
// are 0, and the name of the strategy ends with _automatic then.
func (x document) binding(text string) {
	b, element := parseBinding(text), "binding"
	if text == "" {
		element = "element"
	}
	x.Open("JB_binding")
	x.Open(element)
	x.Text("BN_strategy", b.strategy)
	x.Number("BN_type", b.kind)
	x.Text("BN_parameter_n", b.cores)
	x.Text("BN_parameter_socket_offset", b.socket)
	x.Text("BN_parameter_core_offset", b.core)
	x.Text("BN_parameter_striding_step_size", b.step)
	x.Has("BN_parameter_explicit", b.explicit)
	x.End()
	x.End()
}

// bindingParts are the parts of -binding as Grid Engine keeps them.
type bindingParts struct {
	strategy, cores, socket, core, step, explicit string
	kind                                          int
}

func parseBinding(text string) bindingParts {
	b := bindingParts{strategy: "no_job_binding", cores: "0", socket: "0", core: "0", step: "0"}
	if text == "" {
		b.explicit = "no_explicit_binding"
		return b
	}
	b.kind = 3
	word, rest, two := strings.Cut(text, " ")
	if !two {
		word, rest = "set", text
	}
	switch word {
	case "pe":
		b.kind = 1
	case "env":
		b.kind = 2
	}
	var parameters string
	b.strategy, parameters, _ = strings.Cut(rest, ":")
	if b.strategy == "explicit" {
		b.explicit = rest
		return b
	}
	fields := strings.Split(parameters, ":")
	b.cores, fields = fields[0], fields[1:]
	if b.strategy == "striding" && len(fields) > 0 {
		b.step, fields = fields[0], fields[1:]
	}
	if len(fields) == 0 {
		b.strategy += "_automatic"
		return b
	}
	b.socket, b.core, _ = strings.Cut(fields[0], ",")
	return b
}

// attribute is a line of the complex.
type attribute struct {
	name string
	kind int // Grid Engine's number of the type
}

// kindNumbers are the numbers of the types of attributes.
var kindNumbers = map[string]int{
	"INT": 1, "STRING": 2, "TIME": 3, "MEMORY": 4, "BOOL": 5, "CSTRING": 6, "HOST": 7, "DOUBLE": 8, "RESTRING": 9,
}

// kinds returns the attributes of the complex by name and shortcut.
func attributeKinds(ctx context.Context, inv *command.Invocation) (map[string]attribute, error) {
	var reply api.ShowReply
	if err := inv.Client.Call(ctx, api.VerbShow, &api.ShowRequest{Kind: "complex"}, &reply); err != nil {
		return nil, inv.CallFailed(err)
	}
	kinds := map[string]attribute{}
	for line := range strings.Lines(reply.Text) {
		if f := strings.Fields(line); len(f) > 2 && line[0] != '#' {
			a := attribute{f[0], kindNumbers[f[2]]}
			kinds[f[0]], kinds[f[1]] = a, a
		}
	}
	return kinds, nil
}

// resources writes requests of -l, as the complex defines them.
func (x document) resources(name string, requests []api.Resource, kinds map[string]attribute) {
	list(x, name, "qstat_l_requests", requests, func(r api.Resource) {
		kind, name, value := inComplex(r, kinds)
		x.Text("CE_name", name)
		x.Number("CE_valtype", kind)
		x.Text("CE_stringval", value)
		x.Real("CE_doubleval", doubleValue(kind, value), 6)
		x.Number("CE_relop", 0)
		x.Number("CE_consumable", 0)
		x.Number("CE_dominant", 0)
		x.Real("CE_pj_doubleval", 0, 6)
		x.Number("CE_pj_dominant", 0)
		x.Number("CE_requestable", 0)
		x.Number("CE_tagged", 0)
	})
}

// inComplex returns a request by the full name of its attribute, with a time in
// seconds.
func inComplex(r api.Resource, kinds map[string]attribute) (kind int, name, value string) {
	a, ok := kinds[r.Name]
	if !ok {
		return kindNumbers["STRING"], r.Name, r.Value // it was removed meanwhile
	}
	if n, ok := argument.Seconds(r.Value); ok && a.kind == kindNumbers["TIME"] {
		return a.kind, a.name, strconv.Itoa(n)
	}
	return a.kind, a.name, r.Value
}

// doubleValue returns a requested value as a number; 0 if it is not one.
func doubleValue(kind int, text string) float64 {
	if strings.EqualFold(text, "infinity") {
		return math.MaxFloat64
	}
	switch kind {
	case kindNumbers["INT"], kindNumbers["DOUBLE"], kindNumbers["MEMORY"]:
		unit := 1.0
		if n := len(text); n > 0 {
			if power := strings.IndexByte("kmgt", text[n-1]|0x20); power >= 0 {
				base := 1000.0
				if text[n-1] < 'a' {
					base = 1024
				}
				text, unit = text[:n-1], math.Pow(base, float64(power+1))
			}
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(n, 0) || math.IsNaN(n) {
			return 0
		}
		return n * unit
	case kindNumbers["TIME"]:
		n, _ := argument.Seconds(text)
		return float64(n)
	case kindNumbers["BOOL"]:
		if strings.EqualFold(text, "true") || text == "1" {
			return 1
		}
	}
	return 0
}

// messages writes why pending jobs wait, if there are any.
func (x document) messages(jobs []api.Detail) {
	opened := false
	for i := range jobs {
		for _, reason := range waitingReasons(&jobs[i]) {
			if !opened {
				x.Open("SME_message_list")
				opened = true
			}
			x.Open("element")
			x.Open("MES_job_number_list")
			x.Open("ulong_sublist")
			x.Number("ULNG_value", jobs[i].Job)
			x.End()
			x.End()
			x.Number("MES_message_number", reasonNumber(&jobs[i]))
			x.Text("MES_message", reason)
			x.End()
		}
	}
	if opened {
		x.End()
	}
}

// waitingReasons returns why a job waits or is in error.
func waitingReasons(d *api.Detail) []string {
	if len(d.Reasons) == 0 && inError(d) {
		return []string{"Job is in error state"}
	}
	return d.Reasons
}

func inError(d *api.Detail) bool {
	return slices.ContainsFunc(d.Tasks, func(t api.TaskDetail) bool { return strings.HasPrefix(t.State, "E") })
}

// reasonNumber returns Grid Engine's number of the reason why a job waits; 0 if
// the reason does not lie in the job itself.
func reasonNumber(d *api.Detail) int {
	const startTime, errorState, held, dependencies, enoughTasks = 31, 32, 33, 35, 45
	switch {
	case strings.ContainsAny(d.Holds, "uosa"):
		return held
	case d.Holds != "":
		return dependencies
	case d.Request.After.After(time.Now()):
		return startTime
	case inError(d):
		return errorState
	case d.Request.MaxRun > 0 && len(d.Tasks) >= d.Request.MaxRun:
		return enoughTasks
	}
	return 0
}

// document is a document of qstat or qhost.
type document struct{ *output.XML }
