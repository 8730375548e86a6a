package hook

import (
	"strconv"
	"strings"

	"paddock/execd/internal/user"
)

// basePath is the PATH of hooks.
const basePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// BaseEnvironment returns the environment of a hook of the daemon. It is made from
// nothing, so that execd's own does not matter.
func BaseEnvironment(u *user.User, host string) []string {
	return []string{
		"PATH=" + basePath,
		"HOME=" + u.Home,
		"SHELL=/bin/sh",
		"USER=" + u.Name,
		"LOGNAME=" + u.Name,
		"TMPDIR=/tmp",
		"HOSTNAME=" + host,
		"BATCH_SYSTEM=HTCondor",
	}
}

// Job is what the hooks of a job find in their environment besides the job's own
// variables. Fields that are empty or zero are left out.
type Job struct {
	Env       []string // Grid Engine's variables and the user's; the last of a name counts
	Scratch   string   // directory of the job, TMPDIR
	Iwd       string   // initial working directory of the job
	Slot      string   // name of the slot: slot1, slot1_2
	MachineAd string   // file with the slot's ad
	JobAd     string   // file with the job's ad
	Bin       string   // directory of the commands
	PIDs      []int    // first processes of the job
	Threads   int      // slots of the job
	Starter   int      // pid of execd, which runs the job
}

// threadVariables tell programs how many threads they may start.
var threadVariables = []string{
	"OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
	"JULIA_NUM_THREADS", "GOMAXPROCS",
}

// JobEnvironment returns the environment of a hook of a job: that of a hook of the
// daemon, overridden by the job's, overridden by what HTCondor tells hooks. The hook
// has the rights of the job's user, so that his environment gives him no power.
func JobEnvironment(u *user.User, host string, j *Job) []string {
	e := environment{at: map[string]int{}}
	e.add(BaseEnvironment(u, host)...)
	e.add(j.Env...)
	for _, v := range threadVariables {
		if _, ok := e.at[v]; j.Threads > 0 && !ok { // the job may have set it
			e.set(v, strconv.Itoa(j.Threads))
		}
	}
	e.set("BATCH_SYSTEM", "HTCondor")
	for _, v := range []string{"TMPDIR", "TEMP", "TMP", "_CONDOR_SCRATCH_DIR"} {
		e.set(v, j.Scratch)
	}
	e.set("_CONDOR_SLOT", j.Slot)
	e.set("_CONDOR_MACHINE_AD", j.MachineAd)
	e.set(jobAdName, j.JobAd)
	e.set("_CONDOR_JOB_IWD", j.Iwd)
	e.set("_CONDOR_BIN", j.Bin)
	pids := make([]string, len(j.PIDs))
	for i, pid := range j.PIDs {
		pids[i] = strconv.Itoa(pid)
	}
	e.set("_CONDOR_JOB_PIDS", strings.Join(pids, ","))
	if j.Starter > 0 {
		e.set("CONDOR_STARTER_PID", strconv.Itoa(j.Starter))
	}
	return e.list
}

const jobAdName = "_CONDOR_JOB_AD"

// JobMark returns the variable that the environments of all hooks of one job have, and
// of no other.
func JobMark(env []string) string {
	for _, v := range env {
		if strings.HasPrefix(v, jobAdName+"=") {
			return v
		}
	}
	return ""
}

// environment is a list of variables in which each name stands once.
type environment struct {
	list []string
	at   map[string]int
}

func (e *environment) add(variables ...string) {
	for _, v := range variables {
		name, _, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.IndexByte(v, 0) >= 0 {
			continue
		}
		if i, ok := e.at[name]; ok {
			e.list[i] = v
			continue
		}
		e.at[name] = len(e.list)
		e.list = append(e.list, v)
	}
}

// set sets a variable unless the value is empty.
func (e *environment) set(name, value string) {
	if value != "" {
		e.add(name + "=" + value)
	}
}
