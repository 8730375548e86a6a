// Package spool is the contract between execd and shepherd: the names, modes
// and bytes of the files they exchange, and the life of the directories that
// hold them. It may be imported by execd and shepherd, never by the client
// commands, and imports nothing of the project but spool/atomicfile, since
// every job pays for what the shepherd links.
package spool

import "io/fs"

// Files of a job directory. Names and bytes are Grid Engine's, except for the
// last thirteen, which only our own daemons know.
const (
	FileConfig       = "config"
	FileEnvironment  = "environment"
	FilePEHostfile   = "pe_hostfile"
	FileTrace        = "trace"
	FilePID          = "pid"
	FileJobPID       = "job_pid"
	FileAddGrpID     = "addgrpid"
	FileOSJobID      = "osjobid"
	FileError        = "error"
	FileExitStatus   = "exit_status"
	FileUsage        = "usage"
	FileSignal       = "signal"
	FileCheckpointed = "checkpointed"
	FileAboutToExit  = "shepherd_about_to_exit"
	FileLock         = "lock"
	FileSignals      = "signals"
	FileArgs         = "args"
	FileSession      = "session"
	FileLease        = "lease"
	FileLost         = "lost"
	FileKept         = "kept"
	FileTasks        = "tasks"
	FileAccounting   = "accounting"
	FileHooks        = "hooks"
	FileJobAd        = "job_ad"
	FileHookJobAd    = "job.ad"
	FileHookSlotAd   = "machine.ad"
)

// Directories and files of the spool of a host.
const (
	DirStaging    = "staging"
	DirActive     = "active_jobs"
	DirFinished   = "finished"
	DirCorrupt    = "corrupt"
	DirJobs       = "jobs"
	DirScripts    = "job_scripts"
	DirEnded      = "ended_jobs"
	DirClaims     = "claims"
	DirEvictions  = "evictions"
	DirReports    = "reports"
	DirFences     = "fences"
	DirSandboxes  = "sandboxes"
	DirRemote     = "remote"
	FileMessages  = "messages"
	FileExecdPID  = "execd.pid"
	FileExecdLock = "execd.lock"
	FileSeqNum    = "job_seq_num"
	FileQueues    = "queues"
	FileShares    = "shares"
	FileOutputs   = "outputs"
	FileOutputs1  = "outputs.1"
	FileDrain     = "drain"
	FileFormat    = "format"
	FileID        = "id"
)

// A File is a row of the table of files.
type File struct {
	Name   string
	Writer string
	Reader string
	When   string
	Mode   fs.FileMode
	// Durable says why the file is synced before anyone is told of it. Empty
	// means that it may be lost with the power: what must outlive that stands in
	// the records, jobs/, which execd syncs.
	Durable string
}

// Files is the table of all files that have a name of their own in the spool,
// those of a job directory first. Modes are those of our own execd; under a
// foreign one the files that its administrator's user must read are his.
var Files = []File{
	{FileConfig, "execd", "shepherd", "before the shepherd starts", 0o600, ""},
	{FileEnvironment, "execd", "shepherd", "before the shepherd starts", 0o600, ""},
	{FilePEHostfile, "execd", "job, PE procedures", "before the shepherd starts", 0o444, ""},
	{FileArgs, "execd", "shepherd", "before the shepherd starts, when an argument does not fit into config", 0o600, ""},
	{FileLock, "execd, the shepherd under a foreign execd", "execd", "held while the shepherd lives", 0o600, ""},
	{FileTrace, "shepherd", "people", "all along, appended", 0o644, ""},
	{FilePID, "shepherd", "execd", "once the shepherd takes signals", 0o644, ""},
	{FileJobPID, "shepherd", "people", "after the job is forked", 0o644, ""},
	{FileAddGrpID, "shepherd", "execd", "before the job is executed", 0o644, ""},
	{FileOSJobID, "shepherd", "execd", "before the job is executed, never on Linux", 0o644, ""},
	{FileError, "shepherd", "execd", "created empty, one line for each failure", 0o644, ""},
	{FileExitStatus, "shepherd", "execd", "created empty, written last", 0o644, ""},
	{FileUsage, "shepherd", "execd", "after the job, before pe_stop and epilog", 0o644, ""},
	{FileSignal, "execd", "shepherd", "for each signal, replaced", 0o644, ""},
	{FileSignals, "execd", "shepherd", "for each signal, appended", 0o600, ""},
	{FileCheckpointed, "shepherd", "execd", "when the job ended to migrate", 0o644, ""},
	{FileAboutToExit, "shepherd", "execd", "interactive jobs and PE tasks, before the exit code is sent", 0o644, ""},
	{FileSession, "execd", "qrsh-session", "interactive jobs, replaced when a client comes back", 0o600, ""},
	{FileLease, "execd", "shepherd, those of tasks too", "jobs under a claim with a lease, replaced at each renewal", 0o600, ""},
	{FileLost, "shepherd", "execd", "while an interactive job is to be stopped for want of a client", 0o644, ""},
	{FileKept, "execd", "execd", "when the directory stays for people, at the end", 0o600, ""},
	{FileTasks, "execd", "execd", "jobs in which tasks were started, for each, replaced", 0o600, ""},
	{FileAccounting, "execd", "execd", "tasks of jobs, at their end", 0o600, "after a power cut a task must not be accounted twice"},
	{FileHooks, "execd", "execd", "jobs with hooks, scripts, a sandbox, an event log or mail, for each step, appended", 0o600, ""},
	{FileJobAd, "execd", "execd", "when a hook has changed the job, replaced", 0o600, ""},
	{FileHookJobAd, "execd", "hooks of the job, whose owner's it is", "before the first hook or a job on a slot, replaced", 0o600, ""},
	{FileHookSlotAd, "execd", "hooks of the job, whose owner's it is", "before the first hook or a job on a slot, replaced", 0o600, ""},

	{FileMessages, "execd", "people", "all along, appended", 0o644, ""},
	{FileExecdPID, "execd", "people", "while execd runs", 0o644, ""},
	{FileExecdLock, "execd", "execd", "held while execd runs", 0o600, ""},
	{FileSeqNum, "execd", "execd", "before the record with the highest number goes", 0o644, ""},
	{FileQueues, "execd", "execd", "when somebody disables, suspends or clears a queue", 0o644, "an administrator relies on it"},
	{FileShares, "execd", "execd", "every ten minutes in which jobs ended, and at the end", 0o644, ""},
	{FileOutputs, "execd", "execd", "when a job is first started, appended", 0o600, ""},
	{FileOutputs1, "execd", "execd", "when outputs has grown to 1 MB, in its place", 0o600, ""},
	{FileDrain, "execd", "execd", "while no job is to be started", 0o644, "after a power cut the host is still to be emptied"},
	{FileFormat, "execd", "execd", "when execd first uses the spool", 0o644, "an older execd must not misread what a newer one has left"},
	{FileID, "execd", "execd", "when a sandbox is first made", 0o644, "after a power cut the sandboxes are still this spool's"},
}

// A Place is a row of the table of directories.
type Place struct {
	Name  string
	Means string
	Mode  fs.FileMode
}

// Places is the table of the directories below the root. Users pass through
// those that lead to what a job may open and into none of the others.
var Places = []Place{
	{DirStaging, "job directories being built", 0o700},
	{DirActive, "jobs that will run, run, or have ended", 0o711},
	{DirFinished, "jobs whose processes are over", 0o711},
	{DirCorrupt, "what a human must look at", 0o700},
	{DirJobs, "the records of jobs and tasks", 0o700},
	{DirScripts, "job scripts, each for its owner alone", 0o711},
	{DirEnded, "records and scripts of the last jobs that have ended, for qresub", 0o700},
	{DirClaims, "claims of slots that are not the queue's, with their secrets", 0o700},
	{DirEvictions, "ends of claims of fetched work that are to be told", 0o700},
	{DirReports, "ends of fetched work that are to be told until they are heard", 0o700},
	{DirFences, "which activations of claims start no job any more", 0o700},
	{DirSandboxes, "sandboxes of jobs, each its owner's", 0o711},
	{DirRemote, "claims on slots of other hosts, with their secrets", 0o700},
}

// ModeOf returns the mode of a file by name: that of the table, or 0600 for a
// name that is not in it.
func ModeOf(name string) fs.FileMode {
	for i := range Files {
		if Files[i].Name == name {
			return Files[i].Mode
		}
	}
	return 0o600
}
