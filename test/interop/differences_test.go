package interop

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/test/harness"
)

// difference is one that is meant between Grid Engine's shepherd and ours.
type difference struct {
	page      string // what it is and why, as it stands in shepherd(8)
	elsewhere string // what shows it, when no scenario does
	sometimes bool   // it is not there in every run
}

// The list of section DIFFERENCES FROM GRID ENGINE of shepherd(8), in its
// order, is made of these.
var differences = []*difference{
	&unsupported, &devices, &tokenSays, &twoValues, &missingKeys, &pidFirst, &notTheOwners, &says, &procedureError, &emptyVariable, &emptyArgument,
	&inherited, &fixedEnvironment, &proceduresDie, &notExecuted, &oneWord, &quoted, &methodNames, &methodsError, &methodsSession,
	&lastKill, &restartStreams, &checkpointed, &oneSignal, &soon, &noSignalFile, &staysAlive, &allIsKilled, &noticeStays,
	&ownLimits, &stagedInput, &qsubGID, &rootsOwn, &jobsPath, &softLimit, &limitsLast,
}

var (
	unsupported = difference{elsewhere: "tests of the shepherd and under Grid Engine", page: `
Interactive jobs
.Pq Cm script_file No QRSH, QLOGIN, QRLOGIN, INTERACTIVE
have a client program and a protocol of their own under
.Xr execd 8 ,
and are handed over to Grid Engine's shepherd under its execd.`}

	devices = difference{page: `
A job with
.Cm devices_allow
is refused: its use of other devices would not be prevented.
Grid Engine 8.1.9 ignores the keys of Open Cluster Scheduler 9.`}

	tokenSays = difference{page: `
.Cm set_token_cmd
and
.Cm coshepherd
have sessions and an environment of their own, and
.Cm set_token_cmd
may take no longer than
.Cm script_timeout ;
it may print something, which ends it in Grid Engine.`}

	twoValues = difference{page: `
The first value of a key in
.Pa config
counts, and a different one is an error of that job; Grid Engine takes the last one.
Otherwise a newline in an argument of a job could name a program to be run as root.`}

	missingKeys = difference{page: `
A missing key is noticed before the job starts, and blamed on the job if the start of the job needs it; Grid Engine
notices it when it needs the key, when the job may have run.
.Cm binding
and the keys that are needed only when the job exits with 99 or 100 may be missing.`}

	pidFirst = difference{page: `
.Pa pid
is written before
.Pa config
is read, and
.Pa addgrpid
before the starter may proceed.`}

	says = difference{page: `
Some messages in
.Pa error
say more: which procedure has an unknown variable, and the system's error.`}

	procedureError = difference{page: `
A variable in a procedure that is unknown, or has no value, is an error of that procedure, and what follows runs as after
any other; Grid Engine's shepherd ends there.`}

	emptyArgument = difference{page: `
An empty argument of a binary that is run by a shell is an empty word; Grid Engine glues the next argument to it.`}

	inherited = difference{page: `
With
.Cm inherit_env
the job inherits the environment of the shepherd, and so do methods and checkpoint commands; prolog, epilog and the
procedures of a parallel environment do not.`}

	methodsSession = difference{page: `
Methods and checkpoint commands run in sessions of their own, not in that of the shepherd.`}

	restartStreams = difference{page: `
A restart command takes the job's place with its session, streams and files; in Grid Engine it is run as a method, and at
its end the process group with the number from before the restart is killed, whichever that is by then.`}

	notTheOwners = difference{page: `
The job cannot write
.Pa exit_status ,
.Pa error
and
.Pa trace ,
which belong to the owner in Grid Engine, who could report any end, and put queue and host into an error state.`}

	emptyVariable = difference{page: `
A variable of a procedure that is empty is an empty word; in Grid Engine the command ends there.`}

	fixedEnvironment = difference{page: `
A procedure that runs as another user than the job's owner gets an environment of its own, and neither that of the job nor the
job's limits; Grid Engine takes a list of variables out of the job's environment, which is incomplete.`}

	proceduresDie = difference{page: `
A procedure that takes longer than
.Cm script_timeout
is ended, and so are
.Cm prolog
and
.Cm pe_start
when the job is to be killed; in Grid Engine a prolog that hangs cannot be ended.`}

	notExecuted = difference{page: `
A procedure that exists and cannot be executed counts as not started, like one that does not exist; Grid Engine reports 27.`}

	oneWord = difference{elsewhere: "tests of package command", page: `
Blanks in a value do not make words of a procedure's command, and the user of
.Ar user Ns @
cannot come from a variable.`}

	quoted = difference{elsewhere: "tests of package command", page: `
Values are quoted for the shell that runs control methods and checkpoint commands.`}

	methodNames = difference{elsewhere: "tests of package command", page: `
A value of
.Cm suspend_method
and the like that is neither a command nor a number must begin with
.Li SIG ,
while Grid Engine cuts off three bytes, whatever they are; and an invalid
.Cm notify_kill
or
.Cm notify_susp
with type 0 is refused, for which Grid Engine sends no warning.`}

	lastKill = difference{elsewhere: "tests of the shepherd under our execd", page: `
.Dv SIGCONT
follows the signal of a
.Cm terminate_method
if the job is suspended; if a method cannot be run the job is killed by the signal; and the third kill by
.Xr execd 8
is by the signal.`}

	checkpointed = difference{elsewhere: "tests of the shepherd under our execd", page: `
.Pa checkpointed
is not empty under
.Xr execd 8 .`}

	noSignalFile = difference{elsewhere: "tests of package control", page: `
.Dv SIGTTIN
without a readable
.Pa signal
does nothing; Grid Engine sends the job
.Dv SIGTTIN .`}

	ownLimits = difference{elsewhere: "tests of the shepherd under our execd", page: `
.Cm paddock_s_rt
and
.Cm paddock_h_rt
are watched by the shepherd; Grid Engine's execd watches the limits itself.`}

	stagedInput = difference{page: `
.Li $fs_stdin_path
of a procedure is the job's input that is to be staged; in Grid Engine it is the procedure's own,
.Pa /dev/null .`}

	qsubGID = difference{elsewhere: "tests of the starter", page: `
.Cm qsub_gid
must be one of the owner's groups.`}

	rootsOwn = difference{elsewhere: "tests of the starter", page: `
Exported shell functions are also removed from the environment of root's own jobs, and
.Ev ENVIRONMENT
and
.Ev TMPDIR ,
which execd writes, are not.`}

	jobsPath = difference{elsewhere: "tests of the shepherd", page: `
A program without a slash is looked up in the job's
.Ev PATH ,
not in that of the shepherd.`}

	methodsError = difference{page: `
A control method with an unknown variable is not run, and the default signal is sent; Grid Engine's shepherd ends there, and
the job goes on without a parent.`}

	oneSignal = difference{sometimes: true, page: `
Each process gets each signal once, and signals in quick succession are not lost; with
.Cm enable_addgrp_kill
Grid Engine sends a signal twice.`}

	staysAlive = difference{page: `
.Dv SIGTERM
and
.Dv SIGINT
do not end the shepherd: the job would be left without a parent.`}

	allIsKilled = difference{page: `
All processes that the job leaves behind are killed, in whatever session, and their usage is counted; Grid Engine finds them by the
additional group id alone.`}

	noticeStays = difference{page: `
A kill whose warning was sent always follows; in Grid Engine another signal to the job in between makes it forget the kill.`}

	softLimit = difference{elsewhere: "a test of the starter", page: `
A soft limit above the hard one is lowered to it; Grid Engine does so for
.Cm s_vmem
alone, and the kernel refuses the others.`}

	soon = difference{page: `
Signals that came before the job are delivered a second after its start, not ten.`}

	limitsLast = difference{elsewhere: "the traces", page: `
Limits are traced after the switch of users: they are set last.`}
)

// TestDifferences compares the list in shepherd(8) with the one here.
func TestDifferences(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man", "man8", "shepherd.8"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), ".Sh DIFFERENCES FROM GRID ENGINE\n.Bl -bullet\n")
	section, _, end := strings.Cut(section, ".El\n")
	if !ok || !end {
		t.Fatal("shepherd(8) has no list of differences")
	}
	var want strings.Builder
	for _, d := range differences {
		want.WriteString(".It" + d.page + "\n")
	}
	if section != want.String() {
		t.Errorf("shepherd(8) lists other differences; the list is\n.Bl -bullet\n%s.El", want.String())
	}
}

// TestDifferencesShown looks that each difference is one that something shows.
func TestDifferencesShown(t *testing.T) {
	for _, d := range differences {
		shown := slices.ContainsFunc(scenarios, func(sc scenario) bool {
			for _, m := range sc.differ {
				if m == d {
					return true
				}
			}
			return false
		})
		if shown == (d.elsewhere != "") {
			t.Errorf("shown by a scenario: %t, elsewhere: %q:%s", shown, d.elsewhere, d.page)
		}
	}
	for _, sc := range scenarios {
		for part, d := range sc.differ {
			if !slices.Contains(differences, d) {
				t.Errorf("%s: %s: the difference is not listed", sc.name, part)
			}
		}
	}
}
