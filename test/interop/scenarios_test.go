package interop

import (
	"maps"
	"strings"

	"golang.org/x/sys/unix"
)

const posix = "shell_start_mode=posix_compliant"

// The jobs of many scenarios.
const (
	// noted only says who it is.
	noted = "@NOTE@ job \"$@\"\n"
	// signalled logs the signals that come, until it is told to go. Behind it
	// may stand the code that it exits with, and how long it stays.
	signalled = noted + "exec perl @DIR@/signalled @LOG@ @EVENTS@/go"
	// deaf ignores what can be ignored.
	deaf = "trap '' HUP INT QUIT TERM USR1 USR2 XCPU TSTP TTIN TTOU\necho ready >>@LOG@\nuntil [ -e @EVENTS@/go ]; do sleep 0.02; done\n"
	// leaves starts a process that leaves the job's session, and waits until it has.
	leaves = "setsid sh -c 'echo >@EVENTS@/outside; exec sleep 1000' &\nuntil [ -s @EVENTS@/outside ]; do sleep 0.02; done\n"
	// untilGo is put behind what a script does first.
	untilGo = "until [ -e @EVENTS@/go ]; do sleep 0.1; done\n"
)

// ready waits for the job signalled.
var ready = wait("ready")

// Keys and scripts of many scenarios.
var (
	prologAndEpilog = []string{"prolog=@DIR@/prolog $job_id $host", "epilog=@DIR@/epilog $queue"}
	epilogNoted     = "@NOTE@ epilog $SGE_JOBEXIT_STAT \"$@\"\n"

	parallel = []string{
		"pe=tight", "pe_slots=3", "host_slots=3", "pe_hostfile=@JOB@/pe_hostfile", "pe_stdout_path=@HOME@", "pe_stderr_path=@HOME@",
		"pe_start=@DIR@/start $pe_hostfile $host $job_id $pe $pe_slots", "pe_stop=@DIR@/stop $job_owner $queue", "epilog=@DIR@/epilog",
	}

	// task is what sge_execd writes for a task of a parallel job on its host,
	// with a port where no client listens.
	task = []string{"pe_task_id=1.gehost", "pe=tight", "pe_slots=1", "pe_start=none", "pe_stop=none", "qrsh_control_port=localhost:1"}

	// afs is of a job with an AFS token, which is token.
	afs     = []string{"use_afs=1", "coshepherd=@DIR@/coshepherd", "set_token_cmd=@DIR@/settoken  'a  b'", "token_extend_time=3600"}
	token   = map[string]string{"job/token.afs": "TOKEN"}
	renewer = map[string]string{
		// Which would log at the same time as the coshepherd.
		"prolog":   "until grep -q renew @LOG@; do sleep 0.1; done\n@NOTE@ prolog \"$@\"\n",
		"settoken": "echo \"settoken $* $(id -u) $(pwd) $(cat) $(tr -d '\\0' </proc/$$/cmdline)\" >>@LOG@\n",
		"coshepherd": "trap 'echo ends >>@LOG@; exit 3' TERM\necho \"renew $* $(id -u) $(pwd)\" >>@LOG@\n" +
			"while :; do sleep 0.1; done\n",
	}

	methods = []string{
		"suspend_method=@DIR@/method suspend $host $job_owner $job_id $job_name $queue $job_pid \"a  b\"",
		"resume_method=@DIR@/method resume $job_pid $ja_task_id", "terminate_method=@DIR@/method terminate $job_pid",
	}

	noticed = []string{"notify=15"}

	staging = []string{
		"tmpdir=@DIR@/events", "fs_stdin_file_staging=1", "fs_stdout_file_staging=1", "fs_stderr_file_staging=1",
		"fs_stdin_host=hostin", "fs_stdout_host=hostout", "fs_stderr_host=hosterr", "merge_stderr=0",
		"stdin_path=/far/away/in.txt", "stdout_path=/far/away/out.txt", "stderr_path=/far/away/err.txt",
		"prolog=@DIR@/prolog $fs_stdin_host $fs_stdin_path $fs_stdin_tmp_path $fs_stdin_file_staging" +
			" $fs_stdout_host $fs_stdout_path $fs_stdout_tmp_path $fs_stdout_file_staging" +
			" $fs_stderr_host $fs_stderr_path $fs_stderr_tmp_path $fs_stderr_file_staging $stdin_path $stdout_path $stderr_path",
		"epilog=@DIR@/epilog",
	}
)

// keys returns lists of config keys as one; the last of equal ones counts.
func keys(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// procedures returns the scripts of a parallel job with some replaced.
func procedures(replaced map[string]string) map[string]string {
	scripts := map[string]string{
		"prolog": "@NOTE@ prolog \"$@\"\necho prolog; echo loud prolog >&2\n",
		"start":  "@NOTE@ start \"$@\"\necho start; echo loud start >&2\n",
		"stop":   "@NOTE@ stop $SGE_JOBEXIT_STAT \"$@\"\necho stop\n",
		"epilog": epilogNoted + "echo epilog\n",
		"method": "@NOTE@ \"$@\"\necho never seen\n[ $1 != terminate ] || touch @EVENTS@/go\n",
		"ckpt":   "@NOTE@ \"$@\"\n[ $1 != migrate ] || kill -KILL -$2\n",
	}
	maps.Copy(scripts, replaced)
	return scripts
}

// checkpoint returns the keys of a checkpoint job.
func checkpoint(kind string, more ...string) []string {
	return append([]string{
		"ckpt_job=1", "ckpt_interface=" + kind, "ckpt_restarted=0", "ckpt_pid=0", "ckpt_osjobid=0", "ckpt_dir=/tmp", "ckpt_signal=none",
		"ckpt_interval=0", "ckpt_migr_command=@DIR@/ckpt migrate $job_pid", "ckpt_rest_command=@DIR@/ckpt restart $job_pid",
		"ckpt_command=@DIR@/ckpt ckpt $job_pid $host $ja_task_id $job_owner $job_id $job_name $queue $ckpt_dir $ckpt_signal",
		"ckpt_clean_command=@DIR@/ckpt clean $job_pid", "epilog=@DIR@/epilog",
	}, more...)
}

var scenarios = []scenario{
	// How a job ends.
	{name: "exit 0", script: "echo fine; echo loud >&2\n", trace: true},
	{name: "exit 3", script: "exit 3\n", set: []string{"njob_args=1", "job_arg1=a b"}, trace: true},
	{name: "exit 99 reschedules", script: "exit 99\n", code: 25, trace: true},
	{name: "exit 100 is the application's error", script: "exit 100\n", code: 30, trace: true},
	{name: "exit 99 when forbidden", script: "exit 99\n", set: []string{"forbid_reschedule=1"}},
	{name: "exit 100 when forbidden", script: "exit 100\n", set: []string{"forbid_apperror=1"}},
	{name: "exit 127 and 255 are the job's", script: "exit 255\n"},
	{name: "ended by a signal", script: "kill -TERM $$\n", trace: true},
	{name: "ended by a real-time signal", script: "kill -40 $$\n"},
	{name: "dumped core", script: "ulimit -c unlimited 2>/dev/null; kill -SEGV $$\n", set: []string{"cwd=/tmp/no-core-here", "s_core=0", "h_core=0"}, code: 28},
	{name: "killed", script: "kill -KILL $$\n"},

	// What is run.
	{
		name: "arguments with blanks", script: `for a; do echo "<$a>"; done` + "\n",
		set: []string{"njob_args=4", "job_arg1=a  b", "job_arg2=", "job_arg3=$HOME", "job_arg4='x'"},
	},
	{name: "posix_compliant", script: "echo $0 $1\n", set: []string{posix, "njob_args=1", "job_arg1=one"}},
	{name: "script from standard input", script: "echo from stdin $0 $1\n", set: []string{"shell_start_mode=script_from_stdin", "njob_args=1", "job_arg1=one"}},
	{name: "unknown start mode", script: "echo $0\n", set: []string{"shell_start_mode=whatever"}},
	{name: "login shell", script: "echo $0\n", set: []string{posix, "use_login_shell=1"}, files: map[string]string{"home/.profile": "echo profile\n"}, env: "HOME=@HOME@\n"},
	{name: "binary through a login shell", set: []string{posix, "use_login_shell=1", "handle_as_binary=1", "script_file=echo $0; echo"}},
	{name: "binary through the shell", set: []string{posix, "handle_as_binary=1", "script_file=echo", "njob_args=3", "job_arg1=a  b", "job_arg2=", "job_arg3=$HOME"}, differ: meant{"Output": &emptyArgument}},
	{name: "binary without a shell", set: []string{posix, "handle_as_binary=1", "no_shell=1", "script_file=/bin/echo", "njob_args=2", "job_arg1=a  b", "job_arg2=c"}},
	{name: "script without interpreter line", set: []string{"script_file=@DIR@/plain"}, files: map[string]string{"plain": "echo plain $0\n"}, code: 11},
	{
		name: "starter method", script: "echo never\n", set: []string{posix, "starter_method=@DIR@/starter", "njob_args=1", "job_arg1=a b"},
		scripts: map[string]string{"starter": "@NOTE@ starter \"$@\"\necho $0\n"},
	},
	{
		name: "starter method and login shell", set: []string{posix, "use_login_shell=1", "starter_method=@DIR@/starter", "handle_as_binary=1", "script_file=echo"},
		scripts: map[string]string{"starter": "@NOTE@ starter \"$@\"\n"},
	},
	{name: "starter method that is missing", script: "true\n", set: []string{posix, "starter_method=/no/such/starter"}, code: 27},
	{name: "missing program", set: []string{posix, "handle_as_binary=1", "no_shell=1", "script_file=/no/such/program"}, code: 27},
	{name: "missing script", set: []string{"script_file=/no/such/script", "epilog=@DIR@/epilog"}, scripts: procedures(nil), code: 11, trace: true},
	{name: "script that is not executable", set: []string{"script_file=@DIR@/in"}, code: 11},
	{name: "missing shell", script: "true\n", set: []string{posix, "shell_path=/no/such/shell"}, code: 27},
	{
		name: "a config line from an argument's newline", script: noted, set: []string{"njob_args=1", "job_arg1=x"}, raw: "epilog=@DIR@/epilog\n",
		scripts: procedures(nil), differ: meant{"Code": &twoValues, "ExitStatus": &twoValues, "Error": &twoValues, "Files": &twoValues, "UsageKeys": &twoValues, "Usage": &twoValues, "Output": &twoValues, "Log": &twoValues, "Environment": &twoValues},
	},
	{name: "a key twice with the same value", script: noted, raw: "epilog=none\n"},
	{name: "keys nobody knows", script: noted, raw: "some_new_key=1\nanother key\n"},
	{
		name: "keys of Open Cluster Scheduler", script: noted, scripts: procedures(nil),
		set: []string{
			"sge_root=/opt/ocs", "sge_cell=c1", "usage_collection=1", "ijs_reconnect_timeout=0", "tls=0", "script_timeout=300",
			"enable_systemd=1", "systemd_slice=ocs-jobs.slice", "systemd_scope=ocs.1.scope", "devices_allow=NONE",
			"binding_instance=NONE", "binding_to_use=NONE", "binding_cpuset=NONE", "submission_time=1795187788000000",
			"prolog=@DIR@/prolog $sge_root $sge_cell", "epilog=@DIR@/epilog $sge_cell",
		},
		drop: []string{"add_grp_id", "pe_qsort", "enable_windomacc"},
	},
	{
		name: "devices that a job may use", script: noted, set: []string{"devices_allow=/dev/null:rw"},
		differ: meant{"Code": &devices, "ExitStatus": &devices, "Error": &devices, "Files": &devices, "UsageKeys": &devices, "Usage": &devices, "Output": &devices, "Log": &devices, "Environment": &devices},
	},

	// Streams and directory.
	{name: "missing working directory", script: "true\n", set: []string{"cwd=/no/such/directory"}, code: 28, trace: true},
	{name: "output that cannot be opened", script: "true\n", set: []string{"stdout_path=/no/such/directory/out"}, code: 26, trace: true},
	{name: "errors that cannot be opened", script: "true\n", set: []string{"stderr_path=/no/such/directory/out", "merge_stderr=0"}, code: 26},
	{name: "output into a directory", script: "echo here\n", set: []string{"stdout_path=@HOME@", "stderr_path=@HOME@", "merge_stderr=0", "job_name=into", "job_id=17"}},
	{name: "output to a file that exists", script: "echo here\necho loud >&2\n", set: []string{"stdout_path=@EVENTS@/log"}},
	{name: "output and errors apart", script: "echo here\necho loud >&2\n", set: []string{"merge_stderr=0", "stderr_path=@HOME@/err"}},
	{name: "output and errors to one file, not merged", script: "echo here\necho loud >&2\n", set: []string{"merge_stderr=0"}},
	{name: "array task", script: noted + "echo task\n", set: []string{"stdout_path=@HOME@", "stderr_path=@HOME@", "ja_task_id=5", "job_name=arr"}},
	{name: "input file", script: "cat\n", set: []string{"stdin_path=@DIR@/in"}},
	{name: "input that is missing", script: "cat\n", set: []string{"stdin_path=/no/such/input"}, code: 26, differ: meant{"Error": &says}},
	{name: "input that is a directory", script: "cat 2>&1 | sed 's/.*: //'\n", set: []string{"stdin_path=@HOME@"}, code: 26},
	{name: "file staging", script: noted + "cat; echo job; echo loud >&2\n", set: staging, files: map[string]string{"events/in.txt": "staged\n"}, scripts: procedures(map[string]string{
		"epilog": epilogNoted + "cd @EVENTS@ && for f in out.txt err.txt; do echo \"$f: $(cat $f)\" >>@LOG@; done\n",
	}), differ: meant{"Log": &stagedInput}},
	{name: "file staging without the input", script: noted, set: staging, scripts: procedures(nil), code: 26, differ: meant{"Error": &says, "Log": &stagedInput}},

	// What the job is.
	{name: "what a job sees", script: probe, env: "TMPDIR=@HOME@\nTEXT=a=b  c\n", set: []string{"add_grp_id=65541"}},
	{name: "who a job is", script: noted, session: true, set: []string{"add_grp_id=65542", "enable_addgrp_kill=1"}, trace: true},
	{name: "nice value", script: noted, set: []string{"priority=7"}},
	{name: "a group of the submitter's choice", script: noted + "touch @EVENTS@/file; stat -c %G @EVENTS@/file >>@LOG@\n", set: []string{"qsub_gid=@GROUP@", "add_grp_id=65543", "prolog=@DIR@/prolog"}, scripts: procedures(nil)},
	{
		name: "limits", script: "ulimit -St; ulimit -Ht; ulimit -Sf; ulimit -Hf; ulimit -Sc; ulimit -Hc; ulimit -Ss; ulimit -Hn\n",
		set: []string{"s_cpu=7", "h_cpu=00:00:09", "s_fsize=4M", "h_fsize=8M", "h_core=0", "s_core=0", "s_stack=2M", "h_stack=4M", "s_descriptors=64", "h_descriptors=128"},
	},
	{
		name: "limits times slots", script: "ulimit -St; ulimit -Ht; ulimit -Sv; ulimit -Ss; ulimit -Hs; ulimit -Hn; ulimit -Sd\n",
		set: []string{"host_slots=3", "s_cpu=10", "h_cpu=20", "h_vmem=1G", "s_vmem=2G", "s_stack=2M", "h_stack=4M", "h_stack_is_consumable_job=1", "s_descriptors=1000", "h_descriptors=2000", "s_data=1g"},
	},
	{name: "limits in a procedure", script: "true\n", set: []string{"prolog=@DIR@/prolog", "s_cpu=7", "h_cpu=9", "h_core=0", "s_core=0"}, scripts: map[string]string{"prolog": "ulimit -St; ulimit -Ht; ulimit -Hc\n"}},
	// Of limits close to each other a busy host may pass both at once.
	{name: "processor time limit", script: "ulimit -c 0; while :; do :; done\n", set: []string{"s_cpu=1", "h_cpu=100"}},
	{name: "hard processor time limit", script: "ulimit -c 0; while :; do :; done\n", set: []string{"s_cpu=1", "h_cpu=1"}},
	{name: "user below the minimum", script: "true\n", set: []string{"min_uid=60000"}, code: 11},
	{name: "group below the minimum", script: "true\n", set: []string{"min_gid=60000"}, code: 11},
	{name: "unknown user", script: "true\n", set: []string{"job_owner=nobody-of-that-name"}, code: 11, trace: true, differ: meant{"Files": &pidFirst}},
	{name: "without the shepherd's environment", script: noted, set: []string{"inherit_env=0"}},
	{name: "bound to a processor", script: noted + "grep Cpus_allowed_list: /proc/self/status >>@LOG@\n", set: []string{"binding=explicit:0,0:ScC", "prolog=@DIR@/prolog"}, scripts: procedures(nil), trace: true},
	{name: "told of a binding", script: noted + "grep Cpus_allowed_list: /proc/self/status >>@LOG@\n", set: []string{"binding=env_explicit:0,0:ScC"}},
	{name: "bound to a processor that is not there", script: noted + "grep Cpus_allowed_list: /proc/self/status >>@LOG@\n", set: []string{"binding=explicit:7,7:S"}},
	{name: "AFS without its keys", script: noted, set: []string{"use_afs=1"}, code: 29, trace: true},
	{name: "AFS without a token", script: noted, set: keys(afs, prologAndEpilog), scripts: procedures(nil), code: 29},
	{
		name: "AFS", script: noted, set: keys(afs, prologAndEpilog),
		files: token, scripts: procedures(renewer), trace: true,
	},
	{name: "AFS in a parallel job", script: noted, set: keys(afs, parallel), files: token, scripts: procedures(map[string]string{
		"settoken": renewer["settoken"], "coshepherd": "@NOTE@ renew \"$@\"\n",
		"start": "until grep -q renew @LOG@; do sleep 0.1; done\n",
	}), differ: meant{"Log": &tokenSays, "Environment": &tokenSays}},
	{name: "AFS token that cannot be set", script: noted, set: keys(afs, prologAndEpilog), files: token, scripts: procedures(map[string]string{"settoken": "cat >/dev/null; exit 99\n"}), code: 29},
	{name: "AFS token without a program to set it", script: noted, set: keys(afs, []string{"set_token_cmd=/no/such/program"}), files: token, code: 29, differ: meant{"Error": &tokenSays}},
	{name: "AFS token that nobody renews", script: noted, set: keys(afs, []string{"coshepherd=/no/such/program"}), files: token, scripts: renewer},
	{
		name: "AFS token by a program that says so", script: noted, set: keys(afs, []string{"coshepherd=/bin/true"}), files: token, code: 29,
		scripts: map[string]string{"settoken": "cat >/dev/null; echo fine\n"},
		differ:  meant{"Code": &tokenSays, "ExitStatus": &tokenSays, "Error": &tokenSays, "Files": &tokenSays, "UsageKeys": &tokenSays, "Usage": &tokenSays, "Output": &tokenSays, "Log": &tokenSays, "Environment": &tokenSays},
	},

	// What a job does to itself and leaves behind.
	{name: "removes its own files", script: "rm -f @HOME@/out $0 @DIR@/in; echo lost; exit 4\n"},
	{
		name: "writes its own verdict", script: "for f in exit_status error; do chmod u+w @JOB@/$f; echo 25 >@JOB@/$f; done 2>/dev/null\ntrue\n", code: 25,
		differ: meant{"Code": &notTheOwners, "ExitStatus": &notTheOwners, "Error": &notTheOwners, "Files": &notTheOwners, "UsageKeys": &notTheOwners, "Usage": &notTheOwners},
	},
	{name: "child holds the output", script: "sleep 1000 & echo here; exit 5\n"},
	{name: "child that has left the session", script: leaves + "exit 5\n", differ: meant{"Left": &allIsKilled}, leaves: onlyTheirs},
	{name: "child that has left the session, additional group", script: leaves + "exit 5\n", set: []string{"add_grp_id=65544", "enable_addgrp_kill=1"}},
	{name: "many children", script: "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo $i; exit 6\n"},

	// Keys that are missing: one of each kind of reader.
	{name: "no admin_user", script: "true\n", drop: []string{"admin_user"}, code: 7, differ: meant{"Files": &pidFirst}},
	{name: "no prolog", script: "true\n", drop: []string{"prolog"}, code: 7},
	{name: "no script_timeout", script: "true\n", drop: []string{"script_timeout"}, code: 7},
	{name: "no notify", script: "true\n", drop: []string{"notify"}, code: 7},
	{name: "no script_file", script: "true\n", drop: []string{"script_file"}, code: 11, differ: meant{"Code": &missingKeys, "ExitStatus": &missingKeys}},
	{name: "no job_owner", script: "true\n", drop: []string{"job_owner"}, code: 7, differ: meant{"Code": &missingKeys, "ExitStatus": &missingKeys, "Files": &missingKeys}},
	{name: "no cwd", script: "true\n", drop: []string{"cwd"}, code: 11},
	{name: "no shell_path", script: "true\n", drop: []string{"shell_path"}, set: []string{posix}, code: 11},
	{name: "no h_vmem", script: "true\n", drop: []string{"h_vmem"}, code: 11},
	{name: "no stdout_path", script: "true\n", drop: []string{"stdout_path"}, code: 11},
	{name: "no epilog", script: "true\n", drop: []string{"epilog"}, code: 14, differ: meant{"Code": &missingKeys, "ExitStatus": &missingKeys, "Files": &missingKeys, "UsageKeys": &missingKeys, "Usage": &missingKeys, "Output": &missingKeys}},
	{name: "no pe_stdout_path", script: noted, set: parallel, drop: []string{"pe_stdout_path"}, scripts: procedures(nil), code: 9},
	{name: "no second argument", script: "true\n", set: []string{"njob_args=2", "job_arg1=a"}, code: 11, differ: meant{"Output": &missingKeys}},
	{name: "no forbid_reschedule after exit 99", script: "exit 99\n", drop: []string{"forbid_reschedule"}, code: 11, differ: meant{"Code": &missingKeys, "ExitStatus": &missingKeys, "Error": &missingKeys}},
	{name: "no binding", script: "true\n", drop: []string{"binding"}, code: 7, differ: meant{"Code": &missingKeys, "ExitStatus": &missingKeys, "Error": &missingKeys, "Files": &missingKeys, "UsageKeys": &missingKeys, "Usage": &missingKeys, "Output": &missingKeys}},
	{name: "no methods, inherit_env, add_grp_id", script: noted, drop: []string{"suspend_method", "resume_method", "terminate_method", "inherit_env", "add_grp_id"}},

	// Prolog and epilog.
	{name: "prolog and epilog", script: noted + "exit 4\n", session: true, set: prologAndEpilog, scripts: procedures(nil), trace: true},
	{name: "prolog and inherited variables", script: noted, set: prologAndEpilog, scripts: procedures(nil), inherit: []string{"INHERITED=1"}, differ: meant{"Environment": &inherited}},
	{name: "prolog as root", script: noted, set: []string{"prolog=root@@DIR@/prolog one", "epilog=none"}, scripts: procedures(nil), env: "LD_LIBRARY_PATH=/evil\nBASH_ENV=/evil\nPERL5LIB=/evil\nLC_ALL=C\nMINE=1\n", differ: meant{"Environment": &fixedEnvironment}, trace: true},
	{name: "prolog exit 1", script: noted, set: prologAndEpilog, scripts: procedures(map[string]string{"prolog": "exit 1\n"}), code: 8, trace: true},
	{name: "prolog exit 99", script: noted, set: prologAndEpilog, scripts: procedures(map[string]string{"prolog": "exit 99\n"}), code: 25, trace: true},
	{name: "prolog exit 99 when forbidden", script: noted, set: keys(prologAndEpilog, []string{"forbid_reschedule=1"}), scripts: procedures(map[string]string{"prolog": "exit 99\n"}), code: 25},
	{name: "prolog exit 100", script: noted, set: prologAndEpilog, scripts: procedures(map[string]string{"prolog": "exit 100\n"}), code: 30, trace: true},
	{name: "prolog dies of a signal", script: noted, set: prologAndEpilog, scripts: procedures(map[string]string{"prolog": "kill -TERM $$\n"}), code: 8, trace: true},
	{name: "prolog is missing", script: noted, set: keys(prologAndEpilog, []string{"prolog=/no/such/prolog x"}), scripts: procedures(nil), code: 7, trace: true},
	{name: "prolog is not executable", script: noted, set: keys(prologAndEpilog, []string{"prolog=@DIR@/in"}), scripts: procedures(nil), code: 7},
	{name: "prolog is a directory", script: noted, set: keys(prologAndEpilog, []string{"prolog=/tmp x"}), scripts: procedures(nil), code: 27, differ: meant{"Code": &notExecuted, "ExitStatus": &notExecuted}},
	{name: "prolog of an unknown user", script: noted, set: keys(prologAndEpilog, []string{"prolog=nobody-of-that-name@@DIR@/prolog"}), scripts: procedures(nil), code: 7, trace: true},
	{name: "prolog with an unknown variable", script: noted, set: keys(prologAndEpilog, []string{"prolog=@DIR@/prolog $nonsense"}), scripts: procedures(nil), code: 7, differ: meant{"Error": &says}},
	{name: "prolog with a variable of others", script: noted, set: keys(prologAndEpilog, []string{"prolog=@DIR@/prolog $pe_slots"}), scripts: procedures(nil), code: 7, differ: meant{"Error": &says}},
	{name: "prolog with a dollar sign", script: noted, set: keys(prologAndEpilog, []string{"prolog=@DIR@/prolog a$$b"}), scripts: procedures(nil), code: 7, differ: meant{"Error": &says}},
	{name: "prolog with sge_root", script: noted, set: keys(prologAndEpilog, []string{"prolog=@DIR@/prolog $sge_root"}), scripts: procedures(nil), code: 7, differ: meant{"Error": &says}},
	{
		name: "prolog with all variables", script: noted, scripts: procedures(nil),
		set: []string{"prolog=@DIR@/prolog $host $ja_task_id $job_owner $job_id $job_name $queue $processors $stdin_path $stdout_path $stderr_path $merge_stderr x$host-y"},
	},
	{name: "prolog with an empty variable", script: noted, set: []string{"prolog=@DIR@/prolog a=$job_name $job_name $host", "job_name="}, scripts: procedures(nil), differ: meant{"Log": &emptyVariable}},
	{name: "prolog with quotes and tabs", script: noted, set: []string{"prolog=@DIR@/prolog \"a  b\"\t\tc  'd e'  "}, scripts: procedures(nil)},
	{name: "prolog and epilog fail", script: noted, set: prologAndEpilog, scripts: procedures(map[string]string{"prolog": "exit 1\n", "epilog": "exit 3\n"}), code: 8},
	{name: "prolog leaves a child", script: noted, set: []string{"prolog=@DIR@/prolog"}, scripts: map[string]string{"prolog": "sleep 1000 &\n"}, leaves: both},
	{name: "epilog exit 3", script: noted, set: prologAndEpilog, scripts: procedures(map[string]string{"epilog": "exit 3\n"}), code: 15, trace: true},
	{name: "epilog exit 99", script: noted + "exit 7\n", set: prologAndEpilog, scripts: procedures(map[string]string{"epilog": epilogNoted + "exit 99\n"}), code: 25},
	{name: "epilog dies of a signal", script: noted, set: prologAndEpilog, scripts: procedures(map[string]string{"epilog": "kill -KILL $$\n"}), code: 15},
	{name: "epilog is missing", script: noted, set: []string{"epilog=/no/such/epilog"}, code: 14, trace: true},
	{name: "epilog with an unknown variable", script: noted, set: []string{"epilog=@DIR@/epilog $job_pid"}, scripts: procedures(nil), code: 14, differ: meant{"Error": &says}},
	{name: "epilog after a job that was ended by a signal", script: "kill -TERM $$\n", set: prologAndEpilog, scripts: procedures(nil)},
	{name: "epilog after exit 99", script: "exit 99\n", set: prologAndEpilog, scripts: procedures(map[string]string{"epilog": epilogNoted + "exit 100\n"}), code: 25, trace: true},

	// Parallel environments.
	{name: "parallel job", script: noted + "exit 4\n", set: keys(parallel, []string{"prolog=@DIR@/prolog"}), scripts: procedures(nil), trace: true},
	{name: "parallel array task, streams apart", script: noted, set: keys(parallel, []string{"merge_stderr=0", "stderr_path=@HOME@", "stdout_path=@HOME@", "ja_task_id=5", "job_name=arr", "job_id=17"}), scripts: procedures(nil)},
	{name: "parallel without procedures", script: noted, set: keys(parallel, []string{"pe_start=none", "pe_stop=NONE"}), scripts: procedures(nil)},
	{name: "pe_start exit 3", script: noted, set: parallel, scripts: procedures(map[string]string{"start": "exit 3\n"}), code: 10, trace: true},
	{name: "pe_start exit 99", script: noted, set: parallel, scripts: procedures(map[string]string{"start": "exit 99\n"}), code: 25},
	{name: "pe_start dies of a signal", script: noted, set: parallel, scripts: procedures(map[string]string{"start": "kill -TERM $$\n"}), code: 10},
	{name: "pe_start is missing", script: noted, set: keys(parallel, []string{"pe_start=/no/such/start"}), scripts: procedures(nil), code: 9, trace: true},
	{name: "pe_start with an unknown variable", script: noted, set: keys(parallel, []string{"pe_start=@DIR@/start $nonsense"}), scripts: procedures(nil), code: 9, differ: meant{"Error": &says, "Output": &procedureError, "Log": &procedureError, "Environment": &procedureError}},
	{name: "pe_start cannot open its output", script: noted, set: keys(parallel, []string{"pe_stdout_path=/no/such/directory/out"}), scripts: procedures(nil), code: 26},
	{name: "pe_start leaves a daemon", script: "kill -0 $(cat @EVENTS@/daemon) && echo there >>@LOG@\n", set: parallel, scripts: procedures(map[string]string{
		"start": "sleep 1000 & echo $! >@EVENTS@/daemon\n", "stop": "kill $(cat @EVENTS@/daemon) && echo stopped >>@LOG@\n",
	})},
	{name: "pe_stop exit 3", script: noted, set: parallel, scripts: procedures(map[string]string{"stop": "exit 3\n"}), code: 13, trace: true},
	{name: "pe_stop is missing", script: noted, set: keys(parallel, []string{"pe_stop=/no/such/stop"}), scripts: procedures(nil), code: 12, trace: true},
	{name: "pe_stop exit 99 after exit 100", script: "exit 100\n", set: parallel, scripts: procedures(map[string]string{"stop": "exit 99\n"}), code: 30, trace: true},
	{name: "all procedures fail", script: noted, set: parallel, scripts: procedures(map[string]string{"start": "exit 3\n", "stop": "exit 4\n", "epilog": "exit 5\n"}), code: 10},
	{name: "prolog of a parallel job fails", script: noted, set: keys(parallel, []string{"prolog=@DIR@/prolog"}), scripts: procedures(map[string]string{"prolog": "exit 1\n"}), code: 8},
	{name: "parallel job is missing", set: keys(parallel, []string{"script_file=/no/such/script"}), scripts: procedures(nil), code: 11},

	{
		name: "task of a parallel job", script: noted + "echo out; echo loud >&2; exit 4\n", trace: true,
		set: keys(task, []string{"stdout_path=@HOME@", "stderr_path=@HOME@", "merge_stderr=0", "job_name=petask", "ja_task_id=5"}),
	},
	{name: "task that cannot be started", set: keys(task, []string{"script_file=/no/such/script"}), code: 11},
	{name: "job with a client", script: noted, set: keys(prologAndEpilog, []string{"qrsh_control_port=localhost:1"}), scripts: procedures(nil)},

	// Signals.
	{name: "kill", script: signalled, steps: []step{ready, send(unix.SIGTSTP)}, trace: true},
	{name: "kill of a deaf job", script: deaf, steps: []step{ready, send(unix.SIGTSTP)}},
	{name: "kill, then the epilog", script: signalled, set: prologAndEpilog, scripts: procedures(nil), steps: []step{ready, send(unix.SIGTSTP)}},
	{name: "carriers of signals", script: signalled, steps: []step{
		ready, send(unix.SIGUSR1), wait("got USR1"), send(unix.SIGUSR2), wait("got XCPU"),
		send(unix.SIGWINCH), wait("got WINCH"), send(unix.SIGCONT), wait("got CONT"), touch("go"),
	}, trace: true},
	{name: "signals by number", script: signalled, steps: []step{ready, sendNumber("15"), wait("got TERM"), sendNumber("12"), wait("got USR2"), sendNumber("15"), wait("got TERM", 2), touch("go")}, trace: true},
	{name: "stop and continue", script: signalled, steps: []step{ready, sendNumber("19"), inState("T"), send(unix.SIGCONT), wait("got CONT"), touch("go")}, trace: true},
	{name: "kill of a stopped job", script: signalled, steps: []step{ready, sendNumber("19"), inState("T"), send(unix.SIGTSTP)}},
	{name: "no file of the signal's number", script: signalled, steps: []step{ready, send(unix.SIGTTIN), send(unix.SIGWINCH), wait("got WINCH"), touch("go")}},
	{name: "a signal that does not exist", script: signalled, steps: []step{ready, sendNumber("99"), send(unix.SIGWINCH), wait("got WINCH"), touch("go")}},
	{name: "migration of a job without checkpoints", script: signalled, steps: []step{ready, send(unix.SIGTTOU)}, trace: true},
	{name: "signals with an additional group", script: signalled, set: []string{"add_grp_id=65545", "enable_addgrp_kill=1"}, steps: []step{
		ready, send(unix.SIGUSR1), wait("got USR1"), send(unix.SIGWINCH), wait("got WINCH"), touch("go"),
	}, differ: meant{"Log": &oneSignal}},
	{name: "kill reaches who has left the session", script: leaves + signalled, set: []string{"add_grp_id=65546", "enable_addgrp_kill=1"}, steps: []step{ready, send(unix.SIGTSTP)}},
	{
		name: "the shepherd is told to terminate", script: signalled, steps: []step{ready, send(unix.SIGTERM), touch("go")}, code: -1,
		differ: meant{"Code": &staysAlive, "ExitStatus": &staysAlive, "UsageKeys": &staysAlive, "Usage": &staysAlive, "Files": &staysAlive},
	},
	{name: "the shepherd's terminal hangs up", script: signalled, steps: []step{ready, send(unix.SIGHUP), touch("go")}},
	{name: "a pipe breaks, an alarm rings", script: signalled, steps: []step{ready, send(unix.SIGPIPE), send(unix.SIGALRM), touch("go")}},
	{
		name: "kill during the prolog", script: noted, set: prologAndEpilog,
		scripts: procedures(map[string]string{"prolog": "@NOTE@ prolog\n" + untilGo + "echo prolog ends >>@LOG@\n"}),
		steps:   []step{wait("prolog"), send(unix.SIGTSTP), traced("queued signal KILL"), touch("go")}, differ: meant{"Log": &proceduresDie},
	},
	{
		// Ours delivers it a second after the start: until then the job must be perl.
		name: "a signal during the prolog", script: strings.TrimPrefix(signalled, noted), set: prologAndEpilog,
		scripts: procedures(map[string]string{"prolog": "@NOTE@ prolog\nuntil [ -e @EVENTS@/prolog ]; do sleep 0.02; done\n"}),
		steps:   []step{wait("prolog"), send(unix.SIGUSR1), traced("queued signal USR1"), touch("prolog"), ready, wait("got USR1"), touch("go")},
		differ:  meant{"Wallclock": &soon},
	},
	{
		name: "migration during the prolog", script: noted, set: prologAndEpilog,
		scripts: procedures(map[string]string{"prolog": "@NOTE@ prolog\n" + untilGo}),
		steps:   []step{wait("prolog"), send(unix.SIGTTOU), traced("queued signal TTOU"), touch("go")},
	},
	{
		name: "kill during the epilog", script: noted, set: []string{"epilog=@DIR@/epilog"},
		scripts: procedures(map[string]string{"epilog": "@NOTE@ epilog\n" + untilGo + "echo epilog ends >>@LOG@\n"}),
		steps:   []step{wait("epilog"), send(unix.SIGTSTP), traced("queued signal KILL"), touch("go")},
	},
	{
		name: "a prolog longer than script_timeout", script: noted, set: []string{"prolog=@DIR@/prolog", "script_timeout=1"},
		scripts: map[string]string{"prolog": "@NOTE@ prolog\nsleep 20; echo prolog ends >>@LOG@\n"},
		differ:  meant{"Code": &proceduresDie, "ExitStatus": &proceduresDie, "Error": &proceduresDie, "Files": &proceduresDie, "UsageKeys": &proceduresDie, "Usage": &proceduresDie, "Log": &proceduresDie, "Environment": &proceduresDie},
	},

	// Control methods.
	{
		name: "methods", script: signalled, set: methods, scripts: procedures(nil), trace: true,
		steps: []step{ready, sendNumber("19"), wait("suspend"), traced("reaped suspend"), send(unix.SIGCONT), wait("resume"), traced("reaped resume"), send(unix.SIGTSTP), wait("terminate")},
	},
	{
		name: "methods with an additional group", script: signalled, set: keys(methods, []string{"add_grp_id=65547", "enable_addgrp_kill=1"}), scripts: procedures(nil),
		steps: []step{ready, sendNumber("19"), wait("suspend"), traced("reaped suspend"), send(unix.SIGTSTP), wait("terminate")},
	},
	{
		name: "a method's session", script: signalled, set: methods, scripts: procedures(nil), session: true, inherit: []string{"INHERITED=1"},
		steps: []step{ready, sendNumber("19"), wait("suspend"), touch("go")}, differ: meant{"Log": &methodsSession},
	},
	{name: "methods that are signals", script: signalled, set: []string{"suspend_method=SIGUSR1", "resume_method=SIGUSR2", "terminate_method=15"}, trace: true, steps: []step{
		ready, sendNumber("19"), wait("got USR1"), send(unix.SIGCONT), wait("got USR2"), send(unix.SIGTSTP), wait("got TERM"), touch("go"),
	}},
	{name: "a method that is shell", script: signalled, set: []string{"suspend_method=/bin/echo '$job_pid  $queue' >>@LOG@; echo second >>@LOG@"}, steps: []step{ready, sendNumber("19"), wait("second"), touch("go")}},
	{name: "a method that is no signal", script: noted, set: []string{"suspend_method=SIGFOO"}, code: 7, trace: true, differ: meant{"Files": &pidFirst}},
	{name: "a method that is neither", script: noted, set: []string{"terminate_method=relative/path"}, code: 7, differ: meant{"Files": &pidFirst}},
	{
		name: "a method that still runs", script: signalled, set: []string{"suspend_method=@DIR@/method suspend"}, trace: true,
		scripts: map[string]string{"method": "@NOTE@ suspend\nuntil [ -e @EVENTS@/method ]; do sleep 0.02; done\nexit 3\n"},
		steps:   []step{ready, sendNumber("19"), wait("suspend"), sendNumber("19"), traced("still active"), touch("method"), traced("reaped suspend"), sendNumber("19"), wait("suspend", 2), touch("go")},
	},
	{
		name: "a method that outlives the job", script: signalled, set: []string{"suspend_method=@DIR@/method suspend", "epilog=@DIR@/epilog"},
		scripts: procedures(map[string]string{"method": "@NOTE@ suspend\nuntil grep -q done @LOG@; do sleep 0.02; done\nuntil ! kill -0 $(cat @JOB@/job_pid) 2>/dev/null; do sleep 0.02; done; echo method ends >>@LOG@\n"}),
		steps:   []step{ready, sendNumber("19"), wait("suspend"), touch("go")},
	},
	{
		name: "a terminate method that does nothing", script: signalled, set: []string{"terminate_method=@DIR@/method terminate"},
		scripts: map[string]string{"method": "@NOTE@ terminate\n"},
		steps:   []step{ready, send(unix.SIGTSTP), wait("terminate"), traced("reaped terminate"), send(unix.SIGTSTP), wait("terminate", 2), touch("go")},
	},
	{name: "a terminate method that is missing", script: signalled, set: []string{"terminate_method=/no/such/method"}, steps: []step{ready, send(unix.SIGTSTP), traced("reaped terminate"), touch("go")}},
	{
		name: "a terminate method with an unknown variable", leaves: onlyTheirs, script: signalled, set: []string{"terminate_method=/bin/echo $nonsense"}, steps: []step{ready, send(unix.SIGTSTP), traced("nonsense")}, code: 11,
		differ: meant{"Code": &methodsError, "ExitStatus": &methodsError, "Error": &methodsError, "Files": &methodsError, "UsageKeys": &methodsError, "Usage": &methodsError, "Left": &methodsError},
	},

	// Notification. Where a step follows a notice, it is not to be late on a busy host.
	{name: "notice of a kill", script: signalled, set: noticed, steps: []step{ready, send(unix.SIGTSTP), wait("got USR2"), send(unix.SIGTSTP), traced("ignoring repeated KILL notification")}, trace: true},
	{name: "notice of a stop", script: signalled, set: noticed, steps: []step{ready, sendNumber("19"), wait("got USR1"), sendNumber("19"), inState("T"), send(unix.SIGCONT), wait("got CONT"), touch("go")}, trace: true},
	{name: "notice of a stop that is taken back", script: signalled, set: []string{"notify=60"}, steps: []step{ready, sendNumber("19"), wait("got USR1"), send(unix.SIGCONT), wait("got CONT"), touch("go")}, trace: true},
	{name: "notice of a stop, then of a kill", script: signalled, set: noticed, steps: []step{ready, sendNumber("19"), wait("got USR1"), send(unix.SIGTSTP), wait("got USR2")}, trace: true},
	{name: "a stop after the notice of a kill", script: signalled, set: noticed, steps: []step{ready, send(unix.SIGTSTP), wait("got USR2"), sendNumber("19")}},
	{
		name: "continue after the notice of a kill", script: signalled + " 0 60", set: noticed, steps: []step{ready, send(unix.SIGTSTP), wait("got USR2"), send(unix.SIGCONT), wait("got CONT"), touch("go")},
		differ: meant{"Usage": &noticeStays, "Log": &noticeStays},
	},
	{name: "a job that ends when it is noticed", script: signalled, set: []string{"notify=60"}, steps: []step{ready, send(unix.SIGTSTP), wait("got USR2"), touch("go")}},
	{name: "notices of the administrator's choice", script: signalled, set: []string{"notify=15", "notify_kill_type=0", "notify_kill=TERM", "notify_susp_type=0", "notify_susp=28"}, steps: []step{
		ready, sendNumber("19"), wait("got WINCH"), send(unix.SIGCONT), wait("got CONT"), send(unix.SIGTSTP), wait("got TERM"),
	}, trace: true},
	{name: "no notices", script: signalled, set: []string{"notify=60", "notify_kill_type=2", "notify_susp_type=2"}, steps: []step{
		ready, sendNumber("19"), inState("T"), send(unix.SIGCONT), wait("got CONT"), send(unix.SIGTSTP),
	}, trace: true},
	{name: "notices without their keys", script: signalled, set: []string{"notify=5"}, drop: []string{"notify_kill_type", "notify_kill", "notify_susp_type", "notify_susp"}, steps: []step{ready, send(unix.SIGTSTP), wait("got USR2")}},
	{name: "notice before a method", script: signalled, set: keys(methods, []string{"notify=5"}), scripts: procedures(nil), steps: []step{ready, send(unix.SIGTSTP), wait("got USR2"), wait("terminate")}},
	{name: "no notice of other signals", script: signalled, set: []string{"notify=60"}, steps: []step{ready, send(unix.SIGUSR2), wait("got XCPU"), touch("go")}},

	// Checkpoints. There is to be one before the job ends, and no other.
	{name: "checkpoint at an interval", script: signalled, set: checkpoint("application-level", "ckpt_interval=15"), scripts: procedures(nil), steps: []step{ready, wait("ckpt"), traced("after regular checkpoint"), touch("go")}, trace: true},
	{name: "checkpoint, then migration", script: signalled, set: checkpoint("hibernator", "ckpt_interval=15"), scripts: procedures(nil), steps: []step{ready, wait("ckpt"), traced("after regular checkpoint"), send(unix.SIGTTOU)}, trace: true},
	{name: "migration", script: signalled, set: checkpoint("cpr"), scripts: procedures(nil), steps: []step{ready, send(unix.SIGTTOU)}, trace: true},
	{name: "migration of an application", script: signalled, set: checkpoint("application-level"), scripts: procedures(nil), steps: []step{ready, send(unix.SIGTTOU)}},
	{name: "migration command fails", script: signalled, set: checkpoint("hibernator"), scripts: procedures(map[string]string{"ckpt": "@NOTE@ \"$@\"\nkill -KILL -$2\nexit 3\n"}), steps: []step{ready, send(unix.SIGTTOU)}},
	{name: "migration command leaves the job alone", script: signalled, set: checkpoint("hibernator"), scripts: procedures(map[string]string{"ckpt": "@NOTE@ \"$@\"\n"}), steps: []step{ready, send(unix.SIGTTOU), wait("migrate"), traced("after migration request"), touch("go")}},
	{name: "migration of a transparent job", script: signalled, set: checkpoint("transparent", "ckpt_signal=usr1"), scripts: procedures(nil), steps: []step{ready, send(unix.SIGTTOU)}, trace: true},
	{name: "migration of a userdefined job", script: signalled, set: checkpoint("userdefined"), scripts: procedures(nil), steps: []step{ready, send(unix.SIGTTOU)}},
	{name: "checkpoint signal at an interval", script: signalled, set: checkpoint("userdefined", "ckpt_signal=USR2", "ckpt_interval=15"), scripts: procedures(nil), steps: []step{ready, wait("got USR2"), touch("go")}, trace: true},
	{name: "transparent without a signal", script: noted, set: checkpoint("transparent"), scripts: procedures(nil), code: 7, trace: true},
	{name: "checkpoint signal nobody knows", script: noted, set: checkpoint("transparent", "ckpt_signal=SIGUSR1"), scripts: procedures(nil), code: 7},
	{name: "checkpoint interface nobody knows", script: signalled, set: checkpoint("whatever"), scripts: procedures(nil), steps: []step{ready, send(unix.SIGTTOU)}},
	{name: "checkpoint keys incomplete", script: noted, set: checkpoint("hibernator"), drop: []string{"ckpt_dir"}, scripts: procedures(nil), code: 7},
	{name: "checkpoint job ends by itself", script: signalled + " 3", set: checkpoint("hibernator"), scripts: procedures(nil), steps: []step{ready, touch("go")}, trace: true},
	{name: "checkpoint job is killed", script: signalled, set: checkpoint("hibernator"), scripts: procedures(nil), steps: []step{ready, send(unix.SIGTSTP)}},
	{name: "transparent job ends by itself", script: noted, set: checkpoint("transparent", "ckpt_signal=usr1"), scripts: procedures(nil)},
	{name: "no clean command", script: noted, set: checkpoint("hibernator", "ckpt_clean_command=none"), scripts: procedures(nil), trace: true},
	{name: "restart from nothing", script: noted, set: checkpoint("hibernator", "ckpt_restarted=1", "ckpt_pid=4194300"), scripts: procedures(nil)},
	{name: "restart of an application", script: noted, set: checkpoint("application-level", "ckpt_restarted=2", "ckpt_pid=4194300"), scripts: procedures(nil)},
	{name: "restart from a checkpoint", script: noted, set: checkpoint("hibernator", "ckpt_restarted=2", "ckpt_pid=4194300"), scripts: procedures(map[string]string{"ckpt": "@NOTE@ \"$@\"\nexit 7\n"}), differ: meant{"Files": &pidFirst, "Log": &restartStreams, "Environment": &restartStreams}},
	{name: "restart without command", script: noted, set: checkpoint("cpr", "ckpt_restarted=2", "ckpt_pid=4194300", "ckpt_rest_command=none"), scripts: procedures(nil)},
}
