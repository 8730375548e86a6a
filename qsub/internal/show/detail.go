package show

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/output"
)

// originKeys are the SGE_O_ variables that qstat -j shows, and their keys.
var originKeys = []struct{ variable, key string }{
	{"SGE_O_HOME=", "sge_o_home"},
	{"SGE_O_LOGNAME=", "sge_o_log_name"},
	{"SGE_O_PATH=", "sge_o_path"},
	{"SGE_O_SHELL=", "sge_o_shell"},
	{"SGE_O_TZ=", "sge_o_tz"},
	{"SGE_O_WORKDIR=", "sge_o_workdir"},
	{"SGE_O_HOST=", "sge_o_host"},
}

// Job prints all about a job, in the lines of Grid Engine's qstat -j and in
// their order. A job without a number is one that is not submitted, as -verify
// shows it. With cores bindings are shown.
func Job(b *bufio.Writer, d *api.Detail, cores bool) {
	r := &d.Request
	draft := d.Job == 0
	say := func(key, value string) { fmt.Fprintf(b, "%-28s%s\n", key+":", api.Visible(value)) }
	// has prints a key unless its value is empty.
	has := func(key, value string) {
		if value != "" {
			say(key, value)
		}
	}
	path := func(key, value string) {
		if value != "" {
			say(key, pathList(value))
		}
	}
	if draft {
		say("job_number", "unassigned")
	} else {
		fmt.Fprintln(b, strings.Repeat("=", 62))
		say("job_number", strconv.Itoa(d.Job))
		has("exec_file", d.ScriptFile)
		say("submission_time", output.Date(d.Submitted))
	}
	say("owner", d.Owner)
	say("uid", strconv.Itoa(d.UID))
	say("group", d.Group)
	say("gid", strconv.Itoa(d.GID))
	for _, k := range originKeys {
		has(k.key, originValue(r, k.variable))
	}
	if !r.After.IsZero() {
		say("execution_time", output.Date(r.After))
	}
	account := r.Account
	if account == "" && !draft {
		account = "sge"
	}
	has("account", account)
	if w := r.Work; w != nil && w.Activation != nil && w.Activation.Home != nil {
		say("from", w.Activation.Home.String())
	}
	has("checkpoint_object", r.Checkpoint)
	if n, ok := argument.Seconds(r.CheckpointWhen); ok {
		say("checkpoint_interval", fmt.Sprintf("%d seconds", n))
	} else {
		has("checkpoint_attr", padded(r.CheckpointWhen))
	}
	has("cwd", r.Cwd)
	path("stderr_path_list", r.Stderr)
	if r.Reserve {
		say("reserve", "y")
	}
	if r.Merge {
		say("merge", "y")
	}
	has("hard resource_list", resources(r.Hard))
	has("soft resource_list", resources(r.Soft))
	has("mail_options", r.Mail)
	has("mail_list", mailList(d))
	say("notify", strings.ToUpper(strconv.FormatBool(r.Notify)))
	say("job_name", r.Name)
	path("stdout_path_list", r.Stdout)
	path("stdin_path_list", r.Stdin)
	if r.Priority != 0 {
		say("priority", strconv.Itoa(r.Priority))
	}
	say("jobshare", "0") // there is no share tree
	has("hard_queue_list", strings.Join(r.Queues, ","))
	has("soft_queue_list", strings.Join(r.SoftQueues, ","))
	has("restart", string(r.Rerun))
	if r.Shell != "" {
		say("shell_list", "NONE:"+r.Shell)
	}
	if draft {
		say("verify", "-verify")
	}
	say("env_list", envList(r, draft))
	has("job_args", strings.Join(r.Args, ","))
	has("master hard queue_list", strings.Join(r.MasterQueues, ","))
	if draft && !r.Binary {
		say("script_size", strconv.Itoa(len(r.Script)))
	}
	has("script_file", r.Command)
	if !draft {
		has("project", r.Project)
	}
	if draft && !r.Binary {
		fmt.Fprintf(b, "%-23s\n%s\n", "script_ptr:", r.Script)
	}
	if r.PE != "" {
		fmt.Fprintf(b, "parallel environment:  %s range: %s\n", api.Visible(r.PE), slotRanges(r.Slots))
	}
	for _, p := range []struct {
		key  string
		list []string
	}{{"jid_predecessor_list", r.HoldJobs}, {"ja_ad_predecessor_list", r.HoldArray}, {"jid_ok_predecessor_list", r.HoldOK}, {"ja_ad_ok_predecessor_list", r.HoldArrayOK}} {
		if len(p.list) > 0 {
			fmt.Fprintf(b, "%s (req): %s\n", p.key, api.Visible(strings.Join(p.list, ",")))
			has(p.key, strings.Join(digits(d.WaitsFor), ","))
		}
	}
	has("jid_successor_list", strings.Join(digits(d.Followers), ","))
	has("ja_ad_successor_list", strings.Join(digits(d.ArrayFollowers), ","))
	if n := strings.Index("wevp", r.Verify); draft && r.Verify != "" && n >= 0 {
		say("verify_suitable_queues", strconv.Itoa(n+1))
	}
	if r.Tasks.IsArray() {
		say("job-array tasks", cmp.Or(r.Only, r.Tasks.String()))
		if r.MaxRun > 0 {
			say("maximum concurrency", strconv.Itoa(r.MaxRun))
		}
		has("pending tasks", d.Pending)
		if d.Job != 0 {
			say("finished tasks", strconv.Itoa(d.Finished))
		}
	}
	has("context", contextList(r.Context))
	for _, a := range r.Attributes {
		say("attribute", a)
	}
	has("sandbox", r.Sandbox)
	has("stage_in_list", stagedIn(r.StageIn))
	has("stage_out_list", stagedOut(r.StageOut))
	has("stage_out_to", r.StageOutTo)
	has("stage_out_when", string(r.WhenOut))
	if cores {
		say("binding", binding(r.Binding))
	}
	say("job_type", jobKinds(r))
	has("claim", claimed(r.Work))
	has("holds", d.Holds)
	inError := writeTasks(b, d.Tasks, cores)
	reasons := d.Reasons
	if inError && len(reasons) == 0 {
		reasons = []string{"Job is in error state"}
	}
	for i, reason := range reasons {
		key := "scheduling info:"
		if i > 0 {
			key = ""
		}
		fmt.Fprintf(b, "%-28s%s\n", key, api.Visible(reason))
	}
}

// jobKinds returns the words for -b, -shell and -now.
func jobKinds(r *api.SubmitRequest) string {
	var words []string
	if r.Now {
		words = append(words, "immediate")
	}
	if r.Binary {
		words = append(words, "binary")
	}
	if r.NoShell {
		words = append(words, "noshell")
	}
	if len(words) == 0 {
		return "NONE"
	}
	return strings.Join(words, ",")
}

// stagedIn returns a list as -stagein has it.
func stagedIn(list []api.Staged) string {
	items := make([]string, len(list))
	for i, s := range list {
		if items[i] = string(s.Place); s.Name != "" {
			items[i] = string(s.Name + "=" + s.Place)
		}
	}
	return strings.Join(items, ",")
}

// stagedOut returns a list as -stageout has it.
func stagedOut(list []api.Staged) string {
	items := make([]string, len(list))
	for i, s := range list {
		if items[i] = string(s.Name); s.Place != "" {
			items[i] += "=" + string(s.Place)
		}
	}
	return strings.Join(items, ",")
}

// claimed returns the claim of a job that was not submitted by qsub, and the
// name that the claimant has for the job.
func claimed(w *api.Work) string {
	if w == nil {
		return ""
	}
	text := fmt.Sprintf("slot=%s, holder=%s", w.Slot, w.Holder)
	if w.Identity != "" {
		text += ", work=" + w.Identity
	}
	return text
}

// pathList returns a path list as qstat -j shows it, with NONE for what is not given.
func pathList(text string) string {
	items := argument.List(text)
	for i, item := range items {
		host, path, has := strings.Cut(item, ":")
		if !has {
			host, path = "NONE", item
		}
		items[i] = host + ":NONE:" + path
	}
	return strings.Join(items, ",")
}

// padded returns the letters of -c with the blanks that Grid Engine prints
// behind them.
func padded(letters string) string {
	if letters == "" {
		return ""
	}
	return letters + "    "
}

// mailList returns who gets mail: those of -M, or the owner.
func mailList(d *api.Detail) string {
	to := slices.Clone(d.Request.MailTo)
	owner, host := d.Owner, originValue(&d.Request, "SGE_O_HOST=")
	if owner == "" {
		owner = originValue(&d.Request, "SGE_O_LOGNAME=")
	}
	if len(to) == 0 && owner != "" && host != "" {
		return owner + "@" + host
	}
	for i, address := range to {
		if !strings.Contains(address, "@") {
			to[i] += "@NONE"
		}
	}
	return strings.Join(to, ",")
}

// writeTasks prints the lines of tasks that run or are in error. As in Grid Engine,
// lines with the same key stand together. It reports whether any task is in error.
func writeTasks(b *bufio.Writer, tasks []api.TaskDetail, cores bool) (inError bool) {
	say := func(t *api.TaskDetail, key, value string) {
		if value != "" {
			fmt.Fprintf(b, "%s %*d:%12s%s\n", key, 14-len(key), t.Task, "", api.Visible(value))
		}
	}
	for i := range tasks {
		t := &tasks[i]
		inError = inError || strings.HasPrefix(t.State, "E")
		say(t, "job_state", t.State)
		if !t.Started.IsZero() {
			say(t, "start_time", stamp(t.Started))
		}
		say(t, "queue", t.Queue)
		if t.Run > 0 {
			say(t, "restarts", strconv.Itoa(t.Run))
		}
	}
	for i := range tasks {
		for _, x := range tasks[i].MatchExp {
			say(&tasks[i], "expanded", string(x))
		}
	}
	for i := range tasks {
		if u := tasks[i].Usage; u != nil {
			say(&tasks[i], "usage", fmt.Sprintf("cpu=%s, mem=%.5f GB s, io=%.5f GB, vmem=%s, maxvmem=%s",
				clock(u.CPU), u.Mem, u.IO, megabytes(u.VMem), megabytes(u.MaxVMem)))
			say(&tasks[i], "limits", limits(u))
		}
	}
	for i := range tasks {
		for _, sub := range tasks[i].Subtasks {
			text := sub.ID + ", queue=" + sub.Queue + ", start_time=" + stamp(sub.Started)
			if u := sub.Usage; u != nil {
				text += ", cpu=" + clock(u.CPU) + ", maxvmem=" + megabytes(u.MaxVMem)
			}
			say(&tasks[i], "pe_task", text)
		}
	}
	for i := range tasks {
		if x := tasks[i].Transfer; x != nil {
			say(&tasks[i], map[bool]string{false: "stage_in", true: "stage_out"}[x.Output], transferText(x, time.Now()))
		}
	}
	for i := range tasks {
		for j := range tasks[i].Hooks {
			say(&tasks[i], "hook", hookRun(&tasks[i].Hooks[j]))
		}
	}
	for i := range tasks {
		if cores && tasks[i].Queue != "" {
			say(&tasks[i], "binding", cmp.Or(tasks[i].Binding, "NONE"))
		}
	}
	for i := range tasks {
		say(&tasks[i], "suspended", tasks[i].Suspended)
	}
	for i := range tasks {
		say(&tasks[i], "silent", tasks[i].Silent)
	}
	for i := range tasks {
		if reason := errorReason(&tasks[i]); reason != "" {
			fmt.Fprintf(b, "%-16s %6d:      %s\n", "error reason", tasks[i].Task, api.Visible(reason))
		}
	}
	return inError
}

// errorReason returns why a task is in error, behind the time as in Grid
// Engine; "" if it is not.
func errorReason(t *api.TaskDetail) string {
	if t.Reason == "" || t.ErrorTime.IsZero() {
		return t.Reason
	}
	return stamp(t.ErrorTime) + " " + t.Reason
}

// transferText describes how files travel: how far they are, how fast, and for how long
// still, at that speed.
func transferText(x *api.Transfer, now time.Time) string {
	text := sizeText(float64(x.Bytes))
	if x.Total > 0 {
		text += " of " + sizeText(float64(x.Total))
	}
	rate, left := speed(x, now)
	if rate > 0 {
		text += ", " + sizeText(rate) + "/s"
	}
	if left > 0 {
		text += fmt.Sprintf(", %.0f s left", left.Seconds())
	}
	if x.Peer != "" {
		text += map[bool]string{false: ", from ", true: ", to "}[x.Output != x.Away] + x.Peer
	}
	text += fmt.Sprintf(", attempt %d", x.Attempt)
	switch {
	case x.Queued:
		text += ", waits for its turn"
	case x.Done:
	case x.Since.IsZero():
		text += ", waits"
	}
	if x.Failure != "" {
		text += ", last: " + x.Failure
	}
	if x.Left != "" {
		text += ", " + x.Left
	}
	return text
}

// speed returns the bytes that a transfer has carried a second, and for how long it goes on
// at that speed; 0: not known.
func speed(x *api.Transfer, now time.Time) (rate float64, left time.Duration) {
	took := now.Sub(x.Since).Seconds()
	carried := x.Bytes - x.Before
	if x.Since.IsZero() || x.Queued || took < 1 || carried <= 0 {
		return 0, 0
	}
	rate = float64(carried) / took
	if x.Total > x.Bytes {
		left = time.Duration(float64(x.Total-x.Bytes) / rate * float64(time.Second))
	}
	return rate, left
}

// hookRun describes a run of a hook: its name, its start, its duration and its end.
func hookRun(h *api.HookRun) string {
	text := fmt.Sprintf("%s of %s, start_time=%s, took=%.3fs", h.Hook, h.Keyword, stamp(h.Started), h.Took)
	if h.Count > 0 {
		text += fmt.Sprintf(", times=%d, skipped=%d", h.Count, h.Skipped)
	}
	if h.Running {
		return text + ", runs"
	}
	return text + ", " + h.Result
}

// limits returns the usage of a task beside its limits. Which of the two peaks
// of memory counts depends on how its limit is enforced.
func limits(u *api.Usage) string {
	of := func(name, value, limit string, limited bool) string {
		if !limited {
			return name + "=" + value
		}
		return name + "=" + value + " of " + limit
	}
	items := []string{
		of("wallclock", clock(u.Wallclock), clock(u.TimeLimit), u.TimeLimit > 0),
		of("cpu", clock(u.CPU), clock(u.CPULimit), u.CPULimit > 0),
		"rss=" + megabytes(u.RSS),
		of("maxrss", megabytes(u.MaxRSS), megabytes(u.MemLimit), u.MemLimit > 0 && u.LimitsFrom == "cgroup"),
		of("maxvmem", megabytes(u.MaxVMem), megabytes(u.MemLimit), u.MemLimit > 0 && u.LimitsFrom != "cgroup"),
		of("pids", strconv.Itoa(u.PIDs), strconv.Itoa(u.PIDsLimit), u.PIDsLimit > 0),
	}
	if u.LimitsFrom != "" {
		items = append(items, "by "+u.LimitsFrom)
	}
	return strings.Join(items, ", ")
}

// clock returns seconds as [days:]hours:minutes:seconds.
func clock(seconds float64) string {
	n := int64(seconds)
	text := fmt.Sprintf("%02d:%02d:%02d", n/3600%24, n/60%60, n%60)
	if days := n / 86400; days > 0 {
		text = fmt.Sprintf("%d:%s", days, text)
	}
	return text
}

// megabytes returns a number of bytes with three decimals and a unit.
func megabytes(n float64) string {
	if n == 0 {
		return "N/A"
	}
	return output.Scaled(n, "", "K", "M", "G", "T", "P")
}

// resources returns a list as that of -l.
func resources(list []api.Resource) string {
	items := make([]string, len(list))
	for i, r := range list {
		items[i] = r.Name + "=" + r.Value
	}
	return strings.Join(items, ",")
}

// slotRanges returns ranges as those of -pe.
func slotRanges(list []api.Slots) string {
	items := make([]string, len(list))
	for i, s := range list {
		items[i] = strconv.Itoa(s.Min)
		switch {
		case s.Max == s.Min+1:
			items[i] += "," + strconv.Itoa(s.Max)
			continue
		case s.Max != s.Min:
			items[i] += "-" + strconv.Itoa(s.Max)
		}
		if s.Step > 1 {
			items[i] += ":" + strconv.Itoa(s.Step)
		}
	}
	return strings.Join(items, ",")
}

// binding returns -binding with its default for the first word.
func binding(text string) string {
	switch word, _, _ := strings.Cut(text, " "); {
	case text == "":
		return "NONE"
	case slices.Contains([]string{"env", "pe", "set"}, word):
		return text
	}
	return "set " + text
}

// originValue returns the value of a variable of the environment that the job
// was submitted in.
func originValue(r *api.SubmitRequest, prefix string) string {
	for _, v := range r.Origin {
		if value, ok := strings.CutPrefix(v, prefix); ok {
			return value
		}
	}
	return ""
}

// stamp returns a time as the tables of qstat have it.
func stamp(t time.Time) string { return t.Local().Format("01/02/2006 15:04:05") }

// envList returns an environment as qstat -j shows it: TERM, which every job
// has, comes first, and an empty value is NONE. For -verify an empty variable
// is only its name.
func envList(r *api.SubmitRequest, draft bool) string {
	var items []string
	for _, v := range append([]string{"TERM=" + environmentValue(r.Env, "TERM")}, r.Env...) {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "TERM" && len(items) > 0:
			continue
		case value == "" && draft:
			v = name
		case value == "":
			v = name + "=NONE"
		}
		items = append(items, v)
	}
	return strings.Join(items, ",")
}

// environmentValue returns the value of a variable, or "".
func environmentValue(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// contextList returns a context as qstat -j shows it.
func contextList(context []string) string {
	items := make([]string, len(context))
	for i, v := range context {
		name, value, _ := strings.Cut(v, "=")
		if value == "" {
			value = "NONE"
		}
		items[i] = name + "=" + value
	}
	return strings.Join(items, ",")
}
