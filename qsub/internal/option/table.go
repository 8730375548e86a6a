package option

import (
	"slices"
	"strings"
)

// one names the single argument of an option.
func one(arg string) []string { return []string{arg} }

// table is every option of every command, and the only place where an option
// is made known. What an option of qsub does stands in the table of qsub's
// request, keyed by the same names.
var table = append(also(rows), later()...)

// also gives qalter the options of qsub that it has too.
func also(rows []Option) []Option {
	altered := strings.Fields(`-@ -a -ac -ar -A -binding -c -ckpt -cwd -dc -dl -e -hard -he -hold_jid -hold_jid_ad -i -j -js -jsv
		-l -m -M -masterq -N -notify -o -p -P -pe -q -r -R -S -sc -soft -tc -v -V -verify -w -wd`)
	for i := range rows {
		if rows[i].Commands&Qsub != 0 && slices.Contains(altered, rows[i].Name) {
			rows[i].Commands |= Qalter
		}
	}
	return rows
}

// later are the options of Grid Engine's qconf that ours has not yet.
func later() []Option {
	var list []Option
	for name := range strings.FieldsSeq(`
		-aattr -Aattr -acal -Acal -ackpt -Ackpt -aconf -Aconf -ae -Ae -ah -ahgrp -Ahgrp -am -ao -ap -Ap -aprj -Aprj
		-aq -Aq -arqs -Arqs -as -astnode -astree -Astree -at -au -Au -auser -Auser -clearusage -cq -dattr -Dattr -dcal
		-dckpt -dconf -de -dh -dhgrp -dm -do -dp -dprj -dq -drqs -ds -dstnode -dstree -du -dul -duser -ke -kej -kec
		-km -ks -kt -mattr -Mattr -mc -Mc -mcal -Mcal -mckpt -Mckpt -mconf -Mconf -me -Me -mhgrp -Mhgrp -mp -Mp -mprj
		-Mprj -mq -Mq -mrqs -Mrqs -msconf -Msconf -mstnode -mstree -Mstree -mu -Mu -muser -Muser -purge -rattr -Rattr
		-rsstnode -scal -scall -sconfl -sds -secl -sep -sh -shgrp_resolved -shgrp_tree -sobjl -sprj -sprjl -srqs -srqsl
		-ss -sst -sstnode -sstree -suser -suserl -tsm`) {
		list = append(list, Option{Name: name, Commands: Qconf, Refused: true, Help: "not there yet"})
	}
	return list
}

// rows are those that have a line of their own.
var rows = []Option{
	{Name: "-@", Args: one("file"), Kind: File, Commands: Qsub, Repeat: true, Help: "read further options from a file"},
	{Name: "-a", Args: one("date_time"), Kind: Text, Commands: Qsub, Help: "request a start time"},
	{Name: "-ac", Args: one("context_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "add context variables"},
	{Name: "-ar", Args: one("ar_id"), Kind: Text, Commands: Qsub, Refused: true, Why: "there are no advance reservations", Help: "run in an advance reservation"},
	{Name: "-ar", Args: one("ar_id"), Kind: List, Commands: Qacct, Help: "list an advance reservation"},
	{Name: "-A", Args: one("account_string"), Kind: Text, Commands: Qsub, Help: "account string in the accounting record"},
	{Name: "-A", Args: one("account_string"), Kind: List, Commands: Qacct, Help: "list by account string"},
	{Name: "-b", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Help: "the operand is a command, not a script to send"},
	{Name: "-b", Args: one("begin_time"), Kind: Text, Commands: Qacct, Help: "jobs started after"},
	{Name: "-binding", Args: one("[type] strategy"), Kind: Text, Before: []string{"env", "pe", "set"}, Commands: Qsub, Help: "bind the job to processor cores"},
	{Name: "-c", Args: one("n|s|m|x|r|interval"), Kind: Text, Commands: Qsub, Help: "when to checkpoint"},
	{Name: "-c", Args: one("job_queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "clear the error state of jobs or queues"},
	{Name: "-cb", Commands: Qstat, Help: "show the binding of jobs, as is the default"},
	{Name: "-ckpt", Args: one("ckpt_name"), Kind: Text, Commands: Qsub, Help: "checkpointing environment"},
	{Name: "-clear", Commands: Qsub, Help: "forget all options so far"},
	{Name: "-cwd", Commands: Qsub, Help: "run the job in the current directory"},
	{Name: "-C", Args: one("prefix"), Kind: Text, Commands: Qsub, Help: "prefix of options in the script; '' for none"},
	{Name: "-cj", Args: one("job_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "clear the error state of jobs"},
	{Name: "-cq", Args: one("queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "clear the error state of queues"},
	{Name: "-d", Args: one("days"), Kind: Text, Commands: Qacct, Help: "jobs started in the last days"},
	{Name: "-d", Args: one("queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "disable queues: nothing is started in them"},
	{Name: "-D", Args: one("department"), Kind: List, Commands: Qacct, Help: "list by department"},
	{Name: "-dc", Args: one("variable_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "delete context variables"},
	{Name: "-display", Args: one("display"), Kind: Text, Commands: Elsewhere, Help: "X display of an interactive job"},
	{Name: "-dl", Args: one("date_time"), Kind: Text, Commands: Qsub, Refused: true, Why: "jobs are not ordered by a deadline; -a delays a job", Help: "deadline to start"},
	{Name: "-e", Args: one("path_list"), Kind: File, Commands: Qsub, Help: "file for standard error"},
	{Name: "-e", Args: one("end_time"), Kind: Text, Commands: Qacct, Help: "jobs started before"},
	{Name: "-e", Args: one("queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "enable queues"},
	{Name: "-E", Commands: Qacct, Help: "select by end time, not start"},
	{Name: "-explain", Args: one("a|c|A|E"), Kind: Text, Commands: Qstat, Help: "show queues and why they are in these states"},
	{Name: "-ext", Commands: Qstat, Help: "show additional attributes"},
	{Name: "-f", Commands: Qdel, Help: "delete at once, whatever the job's processes do"},
	{Name: "-f", Args: one("file"), Kind: File, Commands: Qacct, Help: "read this accounting file"},
	{Name: "-f", Commands: Qmod, Help: "force the action"},
	{Name: "-f", Commands: Qstat, Help: "show queues with their jobs"},
	{Name: "-F", Args: one("attributes"), Kind: List, Commands: Qstat | Qhost, Repeat: true, Help: "show the values of attributes, all or these"},
	{Name: "-g", Args: one("group"), Kind: List, Commands: Qacct, Help: "list by group"},
	{Name: "-g", Args: one("c|d|t"), Kind: Text, Commands: Qstat, Repeat: true, Help: "c: queues' slots; d: array tasks; t: jobs' slots"},
	{Name: "-h", Commands: Qsub, Help: "submit with a user hold"},
	{Name: "-h", Args: one("host"), Kind: List, Commands: Qacct, Help: "list by host"},
	{Name: "-h", Args: one("u|o|s"), Kind: Text, Commands: Qhold | Qrls, Help: "holds of user, operator, system; default u"},
	{Name: "-h", Args: one("u|o|s|n|U|O|S"), Kind: Text, Commands: Qalter | Qresub, Repeat: true, Help: "holds to set; U, O, S and n take them away"},
	{Name: "-h", Args: one("host_list"), Kind: Text, Commands: Qhost, Repeat: true, Help: "show these hosts"},
	{Name: "-hard", Commands: Qsub, Repeat: true, Help: "the following requests must be met"},
	{Name: "-he", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Refused: true, Why: "Grid Engine refuses it too", Help: "hard error handling"},
	{Name: "-help", Commands: programs, Help: "print this help"},
	{Name: "-hold_jid", Args: one("job_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "wait for the end of jobs"},
	{Name: "-hold_jid_ad", Args: one("job_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "wait for the end of array tasks"},
	{Name: "-i", Args: one("path_list"), Kind: File, Commands: Qsub, Help: "file for standard input"},
	{Name: "-inherit", Commands: Elsewhere, Help: "start a task of a parallel job"},
	{Name: "-j", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Help: "write standard error into standard output"},
	{Name: "-j", Args: one("job_list"), Kind: Text, Commands: Qstat, Repeat: true, Help: "show all about jobs, by number, name or pattern"},
	{Name: "-j", Args: one("job"), Kind: List, Commands: Qacct, Help: "list a job by number, name or pattern, or all"},
	{Name: "-j", Commands: Qhost, Help: "show the jobs that run"},
	{Name: "-js", Args: one("job_share"), Kind: Text, Commands: Qsub, Refused: true, Why: "there is no share tree; see -p", Help: "share of the job"},
	{Name: "-json", Commands: Qstat | Qhost | Qselect | Qconf | Qacct, Help: "print JSON"},
	{Name: "-json", Commands: Qalter | Qresub, Help: "print JSON"},
	{Name: "-jsv", Args: one("jsv_url"), Kind: Text, Commands: Qsub, Refused: true, Why: "jobs are checked by execd alone", Help: "script that verifies the submission"},
	{Name: "-l", Args: one("resource_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "request resources"},
	{Name: "-l", Args: one("resource_list"), Kind: Text, Commands: Qstat | Qhost | Qselect, Repeat: true, Help: "select by resources"},
	{Name: "-l", Args: one("resource_list"), Kind: Text, Commands: Qacct, Repeat: true, Refused: true, Why: "what queues have today says nothing of jobs that are over; -q selects by queue", Help: "select by resources of the queue"},
	{Name: "-m", Args: one("b|e|a|s|n"), Kind: Text, Commands: Qsub, Repeat: true, Help: "when to send mail"},
	{Name: "-m", Commands: Qacct, Help: "list only master tasks"},
	{Name: "-M", Args: one("mail_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "whom to send mail"},
	{Name: "-masterq", Args: one("queue_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "queues for the master task"},
	{Name: "-N", Args: one("name"), Kind: Text, Commands: Qsub, Help: "name of the job"},
	{Name: "-ncb", Commands: Qhost, Help: "leave out sockets, cores and threads"},
	{Name: "-ncb", Commands: Qstat, Help: "leave out the binding of jobs"},
	{Name: "-ne", Commands: Qstat, Help: "with -f: leave out queues without jobs"},
	{Name: "-noshell", Commands: Elsewhere, Help: "start the command of qrsh without a shell"},
	{Name: "-nostdin", Commands: Elsewhere, Help: "no standard input for the command of qrsh"},
	{Name: "-notify", Commands: Qsub, Help: "warn the job before it is killed or suspended"},
	{Name: "-now", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Help: "start at once or not at all"},
	{Name: "-o", Args: one("path_list"), Kind: File, Commands: Qsub, Help: "file for standard output"},
	{Name: "-o", Args: one("owner"), Kind: List, Commands: Qacct, Help: "list by owner"},
	{Name: "-ot", Args: one("tickets"), Kind: Text, Commands: Elsewhere, Help: "override tickets"},
	{Name: "-ot", Args: one("tickets"), Kind: Text, Commands: Qalter, Refused: true, Why: "priorities are not made of override tickets; see -p", Help: "override tickets"},
	{Name: "-p", Args: one("priority"), Kind: Text, Commands: Qsub, Help: "priority of the job"},
	{Name: "-P", Args: one("project"), Kind: Text, Commands: Qsub, Refused: true, Why: "there are no projects; -A marks a job for accounting", Help: "project of the job"},
	{Name: "-P", Args: one("project"), Kind: List, Commands: Qacct, Help: "list by project"},
	{Name: "-pe", Args: []string{"pe_name", "slot_range"}, Kind: Text, Commands: Qsub, Help: "parallel environment and slots"},
	{Name: "-pe", Args: one("pe_name"), Kind: List, Commands: Qacct, Help: "list by parallel environment"},
	{Name: "-pe", Args: one("pe_list"), Kind: Text, Commands: Qstat | Qselect, Repeat: true, Help: "select queues by parallel environment"},
	{Name: "-pri", Commands: Qstat, Help: "show priorities"},
	{Name: "-pty", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Help: "has no effect on a batch job"},
	{Name: "-q", Args: one("queue_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "run in one of these queues"},
	{Name: "-q", Args: one("queue"), Kind: List, Commands: Qacct, Help: "list by queue"},
	{Name: "-q", Args: one("queue_list"), Kind: Text, Commands: Qstat | Qselect, Repeat: true, Help: "select queues by name or pattern"},
	{Name: "-q", Commands: Qhost, Help: "show the queues"},
	{Name: "-qs", Args: one("a|c|d|o|s|u|A|C|D|E|S"), Kind: Text, Commands: Qstat | Qselect, Repeat: true, Help: "select queues that are in one of these states"},
	{Name: "-r", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Help: "start the job again when its run was cut short"},
	{Name: "-r", Commands: Qstat, Help: "show requested resources"},
	{Name: "-r", Args: one("job_queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "start jobs, or all of queues, again"},
	{Name: "-R", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Help: "reserve resources"},
	{Name: "-reload", Commands: Qconf, Help: "have execd read its configuration again"},
	{Name: "-rj", Args: one("job_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "start jobs again"},
	{Name: "-rq", Args: one("queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "start all jobs of queues again"},
	{Name: "-s", Args: one("p|r|s|z|h|a"), Kind: Text, Commands: Qstat, Repeat: true, Help: "pending, running, suspended, finished, held, all"},
	{Name: "-s", Args: one("job_queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "suspend jobs or queues"},
	{Name: "-S", Args: one("path_list"), Kind: File, Commands: Qsub, Help: "shell that runs the job"},
	{Name: "-sc", Args: one("context_list"), Kind: Text, Commands: Qsub, Repeat: true, Help: "set the context"},
	{Name: "-sc", Commands: Qconf, Help: "show the attributes that can be requested"},
	{Name: "-sckpt", Args: one("ckpt_name"), Kind: Text, Commands: Qconf, Repeat: true, Help: "show a checkpointing environment"},
	{Name: "-sckptl", Commands: Qconf, Help: "list the checkpointing environments"},
	{Name: "-sconf", Args: one("host"), Kind: List, Commands: Qconf, Repeat: true, Help: "show the configuration, global or of a host"},
	{Name: "-se", Args: one("host"), Kind: Text, Commands: Qconf, Repeat: true, Help: "show an execution host"},
	{Name: "-sel", Commands: Qconf, Help: "list the execution hosts"},
	{Name: "-shell", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Help: "start the command of -b y through a shell"},
	{Name: "-shgrp", Args: one("group"), Kind: Text, Commands: Qconf, Repeat: true, Help: "show a host group"},
	{Name: "-shgrpl", Commands: Qconf, Help: "list the host groups"},
	{Name: "-sj", Args: one("job_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "suspend jobs"},
	{Name: "-slots", Args: one("slots"), Kind: List, Commands: Qacct, Help: "list by slots"},
	{Name: "-sm", Commands: Qconf, Help: "list the managers"},
	{Name: "-so", Commands: Qconf, Help: "list the operators"},
	{Name: "-soft", Commands: Qsub, Repeat: true, Help: "the following requests may be met"},
	{Name: "-sp", Args: one("pe_name"), Kind: Text, Commands: Qconf, Repeat: true, Help: "show a parallel environment"},
	{Name: "-spl", Commands: Qconf, Help: "list the parallel environments"},
	{Name: "-sq", Args: one("queue_list"), Kind: Text, Commands: Qconf, Repeat: true, Help: "show queues"},
	{Name: "-sq", Args: one("queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "suspend queues and the jobs in them"},
	{Name: "-sql", Commands: Qconf, Help: "list the queues"},
	{Name: "-ssconf", Commands: Qconf, Help: "show the configuration of the scheduler"},
	{Name: "-su", Args: one("list_names"), Kind: Text, Commands: Qconf, Repeat: true, Help: "show lists of users"},
	{Name: "-sul", Commands: Qconf, Help: "list the lists of users"},
	{Name: "-suspend_remote", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Elsewhere, Help: "suspend the remote job with qrsh"},
	{Name: "-sync", Args: one("y[es]|n[o]"), Kind: YesNo, Commands: Qsub, Help: "wait for the end and return the exit code"},
	{Name: "-t", Args: one("first[-last[:step]]"), Kind: Text, Commands: Qsub, Help: "submit an array job with these tasks"},
	{Name: "-t", Args: one("first[-last[:step]]"), Kind: Text, Commands: Qacct, Help: "list these tasks of the job of -j"},
	{Name: "-t", Commands: Qstat, Help: "show tasks of parallel jobs"},
	{Name: "-t", Args: one("first[-last[:step]]"), Kind: Text, Commands: Qdel | Qhold | Qrls | Qmod, Repeat: true, Help: "only these tasks of the job before it"},
	{Name: "-t", Args: one("first[-last[:step]]"), Kind: Text, Commands: Qalter, Repeat: true, Help: "only these tasks of the job before it; with -h"},
	{Name: "-tc", Args: one("number"), Kind: Text, Commands: Qsub, Help: "run at most so many tasks at once; 0 for all"},
	{Name: "-terse", Commands: Qsub, Help: "print the job's number only"},
	{Name: "-u", Args: one("owner"), Kind: List, Commands: Qacct, Help: "list by owner"},
	{Name: "-u", Args: one("user_list"), Kind: Text, Commands: Elsewhere, Help: "alter jobs of these users"},
	{Name: "-u", Args: one("user_list"), Kind: Text, Commands: Qalter, Repeat: true, Help: "jobs of these users; '*' for all"},
	{Name: "-u", Args: one("user_list"), Kind: Text, Commands: Qstat | Qdel | Qhold | Qrls | Qhost, Repeat: true, Help: "jobs of these users; '*' for all"},
	{Name: "-U", Args: one("user_list"), Kind: Text, Commands: Qstat | Qselect, Repeat: true, Help: "select queues by access"},
	{Name: "-urg", Commands: Qstat, Help: "show urgency"},
	{Name: "-us", Args: one("job_queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "resume jobs or queues"},
	{Name: "-usj", Args: one("job_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "resume jobs"},
	{Name: "-usq", Args: one("queue_list"), Kind: Text, Commands: Qmod, Repeat: true, Help: "resume queues and the jobs in them"},
	{Name: "-v", Args: one("variable[=value],..."), Kind: Vars, Commands: Qsub, Repeat: true, Help: "export environment variables"},
	{Name: "-V", Commands: Qsub, Help: "export the whole environment"},
	{Name: "-verbose", Commands: Elsewhere, Help: "show the progress of qrsh"},
	{Name: "-verify", Commands: Qsub, Help: "show the job, do not submit it"},
	{Name: "-version", Commands: programs, Help: "print the version"},
	{Name: "-w", Args: one("e|w|n|p|v"), Kind: Text, Commands: Qsub, Help: "check whether the job can be scheduled"},
	{Name: "-wd", Args: one("directory"), Kind: Dir, Commands: Qsub, Help: "run the job in this directory"},
	{Name: "-xml", Commands: Qstat | Qhost, Refused: true, Help: "print XML"},
}
