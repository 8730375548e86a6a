package launch

import (
	"cmp"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/internal/schedule"
	"paddock/spool"
)

// defaultPath is the PATH of a job that brought none.
const defaultPath = "/usr/local/bin:/bin:/usr/bin"

// cell is SGE_CELL: there is but one.
const cell = "default"

// hookMark begins the variables by which execd knows the processes of its hooks. A hook may
// submit a job with its environment, which must not be taken for one.
const hookMark = "PADDOCK_HOOK_"

// environment composes the file environment in sge_execd's order. A variable
// of the user's keeps its place and gets our value where it is not the user's
// to choose.
func (l *Launcher) environment(o *Order, jobDir string) []string {
	r, home := o.Request, o.Task.Home()
	e := &env{at: map[string]int{}}
	var origin []string
	for _, v := range r.Origin {
		if strings.HasPrefix(v, "TERM=") {
			e.addVariable(v)
		} else {
			origin = append(origin, v)
		}
	}
	for _, v := range r.Env {
		if !strings.HasPrefix(v, hookMark) {
			e.addVariable(v)
		}
	}
	tmpdir := o.tmpdir()
	path := e.get("PATH")
	if path == "" {
		path = defaultPath
	}
	if !strings.HasPrefix(path, tmpdir+":") { // of a task with -V it is the job's
		path = tmpdir + ":" + path
	}
	e.set("PATH", path)
	sandbox := o.sandbox()
	if sandbox != "" {
		e.set("PWD", sandbox)
		e.set("PADDOCK_SANDBOX", sandbox)
		e.set("_CONDOR_SCRATCH_DIR", sandbox)
	} else if r.Cwd != "" {
		e.set("PWD", o.dir(l.Host))
	}
	e.set("REQNAME", r.Name)
	e.set("HOME", o.Owner.Home)
	e.set("SHELL", o.shell(l.Host))
	e.set("USER", o.Owner.Name)
	e.set("LOGNAME", o.Owner.Name)
	e.set("JOB_NAME", r.Name)
	e.set("JOB_SCRIPT", o.program())
	e.set("SGE_BINARY_PATH", l.BinDir)
	e.set("REQUEST", r.Name)
	e.set("HOSTNAME", l.Host)
	e.set("QUEUE", o.Queue.Name)
	e.set("JOB_ID", strconv.Itoa(home.Job))
	e.set("ENVIRONMENT", "BATCH")
	e.set("ARC", Arch())
	e.set("NQUEUES", strconv.Itoa(len(o.Grant.Queues)))
	e.set("NSLOTS", strconv.Itoa(o.Grant.Slots()))
	e.set("NHOSTS", "1")
	e.set("RESTARTED", strconv.Itoa(restarted(o.Task)))
	if o.PE != nil {
		e.set("PE", o.PE.Name)
		if o.Sub == nil {
			e.set("PE_HOSTFILE", filepath.Join(jobDir, spool.FilePEHostfile))
		}
		if o.PE.ControlSlaves {
			e.set("SGE_RSH_COMMAND", "builtin")
		}
	}
	if o.Ckpt != nil {
		e.set("SGE_CKPT_ENV", o.Ckpt.Name)
		if o.Ckpt.Dir != "" {
			e.set("SGE_CKPT_DIR", o.Ckpt.Dir)
		}
	}
	e.units(o.Grant.Debits)
	if display := o.display(); display != "" {
		e.set("DISPLAY", display)
	}
	e.set("TMPDIR", tmpdir)
	e.set("TMP", tmpdir)
	for _, v := range origin {
		if strings.HasPrefix(v, "SGE_O_") {
			e.addVariable(v)
		}
	}
	if home.Host != "" {
		e.set("SGE_O_HOST", home.Host)
	}
	e.set("SGE_CELL", cell)
	first, last, step, task := "undefined", "undefined", "undefined", "undefined"
	if t := home.Array; t.IsArray() {
		first, last, step = strconv.Itoa(t.First), strconv.Itoa(t.Last), strconv.Itoa(t.Step)
		task = strconv.Itoa(home.Task)
	}
	e.set("SGE_TASK_ID", task)
	e.set("SGE_TASK_FIRST", first)
	e.set("SGE_TASK_LAST", last)
	e.set("SGE_TASK_STEPSIZE", step)
	e.set("SGE_ARCH", Arch())
	e.set("SGE_ROOT", l.SGERoot)
	e.set("SGE_ACCOUNT", account(r))
	e.set("SGE_JOB_SPOOL_DIR", jobDir)
	if l.PaddockDir != "" {
		// A job can submit to the execd it came from.
		e.set("PADDOCK_DIR", l.PaddockDir)
	}
	if o.Slot != "" {
		ads := jobDir
		if o.Sub != nil {
			ads = filepath.Dir(jobDir) // the run's, whose ads they are
		}
		e.published(o.Slot, cmp.Or(sandbox, tmpdir), ads)
	}
	return e.list
}

// published tells the job on a slot what HTCondor's starter does: the name of the slot,
// its scratch directory, and the directory that has its ad and the slot's.
func (e *env) published(slot, scratch, ads string) {
	e.set("BATCH_SYSTEM", "HTCondor")
	e.set("_CONDOR_SCRATCH_DIR", scratch)
	e.set("_CONDOR_SLOT", slot)
	e.set("_CONDOR_MACHINE_AD", filepath.Join(ads, spool.FileHookSlotAd))
	e.set("_CONDOR_JOB_AD", filepath.Join(ads, spool.FileHookJobAd))
}

// units tells the job which units of resources with named units it has: in
// SGE_HGR_<resource>, as Univa's and later Grid Engines do, and in
// CUDA_VISIBLE_DEVICES those of a resource whose name begins with gpu, by the
// numbers their names end with, or as they are if CUDA knows them by such names.
func (e *env) units(debits []schedule.Debit) {
	ids := map[string][]string{}
	for _, d := range debits {
		for _, id := range d.IDs {
			if !slices.Contains(ids[d.Name], id) { // counted on several levels
				ids[d.Name] = append(ids[d.Name], id)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		e.set("SGE_HGR_"+name, strings.Join(ids[name], " "))
		if !strings.HasPrefix(name, "gpu") {
			continue
		}
		var numbers []string
		for _, id := range ids[name] {
			if !strings.HasPrefix(id, "GPU-") && !strings.HasPrefix(id, "MIG-") {
				id = id[len(strings.TrimRight(id, "0123456789")):]
			}
			numbers = append(numbers, id)
		}
		if !slices.Contains(numbers, "") {
			e.set("CUDA_VISIBLE_DEVICES", strings.Join(numbers, ","))
		}
	}
}

// env is an environment in which each name stands once, in order.
type env struct {
	list []string
	at   map[string]int
}

func (e *env) set(name, value string) {
	v := name + "=" + value
	if i, ok := e.at[name]; ok {
		e.list[i] = v
		return
	}
	e.at[name] = len(e.list)
	e.list = append(e.list, v)
}

func (e *env) addVariable(v string) {
	if name, value, ok := strings.Cut(v, "="); ok && name != "" {
		e.set(name, value)
	}
}

func (e *env) get(name string) string {
	if i, ok := e.at[name]; ok {
		return e.list[i][len(name)+1:]
	}
	return ""
}

// Arch returns Grid Engine's name of this machine's architecture.
func Arch() string {
	switch runtime.GOARCH {
	case "386":
		return "lx-x86"
	default:
		return "lx-" + runtime.GOARCH
	}
}

// hosts is the file pe_hostfile, which serial jobs have too.
func (l *Launcher) hosts(o *Order) []spool.PEHost {
	hosts := make([]spool.PEHost, len(o.Grant.Queues))
	processors := cmp.Or(o.Queue.Processors, "UNDEFINED")
	if cores, ok := strings.CutPrefix(o.Binding, "pe_explicit:"); ok {
		processors = cores[:strings.LastIndexByte(cores, ':')] // without the topology
	}
	for i, q := range o.Grant.Queues {
		hosts[i] = spool.PEHost{Host: l.Host, Slots: q.Slots, Instance: q.Queue + "@" + l.Host, Processors: processors}
	}
	return hosts
}
