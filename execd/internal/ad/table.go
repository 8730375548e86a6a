package ad

// A Row is an attribute of job ads for which a request or a job directory has something
// of the same meaning. job(5) shows the table.
type Row struct {
	Attribute string
	Kind      string // string, integer, boolean, expression
	// Otherwise is the default for an ad of fetched work that does not have the
	// attribute; "-": the ad must have it.
	Otherwise string
	// Field is the field of api.SubmitRequest in JSON; "": none. The first attribute
	// that an ad has of those with the same field counts.
	Field string
	Key   string // key of config, or "the file NAME", in the job directory; "": none
	Reads bool   // the attribute of an ad of fetched work becomes the field
	// Writes says that the field of a job of qsub becomes the attribute in its ad.
	Writes bool
}

// Table has the attributes in the order in which job(5) has them.
var Table = []Row{
	{"Cmd", "string", "-", "command", "script_file", true, true},
	{"Arguments", "string", "none", "args", "job_arg", true, true},
	{"Args", "string", "none", "args", "job_arg", true, false},
	{"Environment", "string", "none", "env", "the file environment", true, true},
	{"Env", "string", "none", "env", "the file environment", true, false},
	{"Script", "string", "none", "script", "script_file", true, false},
	{"Shell", "string", "that of the queue", "shell", "shell_path", true, false},
	{"AsSubmitted", "boolean", "false", "", "", true, false},
	{"NoShell", "boolean", "true", "no_shell", "no_shell", true, false},
	{"Iwd", "string", "the scratch directory", "cwd", "cwd", true, true},
	{"In", "string", "/dev/null", "stdin", "stdin_path", true, true},
	{"Out", "string", "/dev/null", "stdout", "stdout_path", true, true},
	{"Err", "string", "/dev/null", "stderr", "stderr_path", true, true},
	{"JobBatchName", "string", "the file name in Cmd", "name", "job_name", true, true},
	{"AccountingGroup", "string", "none", "account", "account", true, true},
	{"ArrayTasks", "string", "none", "tasks", "", true, false},
	{"ArrayTask", "integer", "none", "only", "ja_task_id", true, false},
	{"RequestCpus", "integer", "1", "slots", "pe_slots", true, true},
	{"RequestMemory", "integer", "1", "hard", "h_vmem", true, true},
	{"RequestDisk", "integer", "1", "hard", "paddock_scratch_limit", true, true},
	{"JobPrio", "integer", "", "priority", "", false, true},
	{"PE", "string", "", "pe", "pe", false, true},
	{"Rerunable", "boolean", "", "rerun", "", false, true},
	{"JobMaxRunning", "integer", "", "max_run", "", false, true},
	{"WantNotify", "boolean", "false", "notify", "notify", true, true},
	{"Mail", "string", "none", "mail", "mail_options", true, false},
	{"MailTo", "string", "the owner", "mail_to", "mail_list", true, false},
	{"Reserve", "boolean", "", "reserve", "", false, true},
	{"Checkpoint", "string", "", "checkpoint", "ckpt_interface", false, true},
	{"Interactive", "boolean", "", "interactive", "pty", false, true},
	{"ShouldTransferFiles", "string", "YES if there is one of the next four", "sandbox", "", true, true},
	{"TransferInput", "string", "none", "stage_in", "", true, true},
	{"TransferOutput", "string", "all files that are new or changed", "stage_out", "", true, true},
	{"TransferOutputRemaps", "string", "none", "stage_out", "", true, true},
	{"OutputDestination", "string", "Iwd", "stage_out_to", "", true, true},
	{"WhenToTransferOutput", "string", "ON_EXIT", "when_out", "", true, true},
	{"PreserveRelativePaths", "boolean", "false", "", "", true, false},
	{"JobUniverse", "integer", "5", "", "", true, true},
	{"JarFiles", "string", "none", "args", "job_arg", true, false},
	{"KillSig", "string, integer", "SIGTERM", "", "", true, false},
	{"PreCmd", "string", "none", "", "", true, false},
	{"PreArguments", "string", "none", "", "", true, false},
	{"PostCmd", "string", "none", "", "", true, false},
	{"PostArguments", "string", "none", "", "", true, false},
	{"StarterUserLog", "string", "none", "", "", true, false},
	{"StarterUserLogUseXML", "boolean", "false", "", "", true, false},
	{"OutputAd", "string", "none", "", "", true, false},
	{"JobLeaseDuration", "integer", "none", "", "", true, false},
	{"HookKeyword", "string", "that of the slot", "", "", true, false},
	{"ClusterId", "integer", "1", "", "job_id", true, true},
	{"ProcId", "integer", "0", "", "ja_task_id", true, true},
	{"Requirements", "expression", "true", "", "", true, true},
	{"Rank", "expression", "0.0", "", "", true, true},
}
