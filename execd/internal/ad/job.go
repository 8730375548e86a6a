package ad

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// JobStatus is the state of a job as ads number it.
type JobStatus int

// The states.
const (
	StatusIdle      JobStatus = 1
	StatusRunning   JobStatus = 2
	StatusRemoved   JobStatus = 3
	StatusCompleted JobStatus = 4
	StatusHeld      JobStatus = 5
	StatusTransfer  JobStatus = 6 // it has ended, and its output is on its way
	StatusSuspended JobStatus = 7
)

// The universes: what kind of program a job is.
const (
	universeVanilla = 5
	universeJava    = 10
)

// JobInfo is what the ad of a job says.
type JobInfo struct {
	Number, Task  int // task 1 of a job that is no array
	Host          string
	Owner, Group  string
	Submitted     time.Time
	Request       *api.SubmitRequest // with Work: of a job that did not come by qsub
	Status        JobStatus
	EnteredStatus time.Time
	Starts        int       // runs that were begun, this one too
	Started       time.Time // this run; zero: it does not run

	// Queue, PE and the fields below are what the job was granted; empty and 0:
	// nothing yet.
	Queue, PE string
	Slots     int
	Slot      string // name of the slot
	SlotID    int

	Transfer *api.Transfer // of its files, which is under way or waits; nil: there is none
	Hold     *Forced       // why it is held; nil: it is not

	// Resources are those of Request.Hard, as AskedIn reads them.
	Resources []Asked
	// Iwd, In, Out and Err are the working directory and the streams as they are
	// used; empty: as they were requested.
	Iwd, In, Out, Err string

	// Environment says that the ad has the environment: it is for a hook of the job,
	// or for root.
	Environment bool

	// Only names the attributes of a job of qsub that are wanted beside those of -attr;
	// nil: all.
	Only []string
}

// Asked is a resource that a job asks for with -l.
type Asked struct {
	Name   string
	Kind   conf.Kind
	Value  conf.Value
	PerJob bool // else the value is for each slot
}

// AboutResources reports whether an attribute of one of the names may be made of
// JobInfo.Resources; nil stands for all names.
func AboutResources(names []string) bool {
	const request = "request"
	return names == nil || slices.ContainsFunc(names, func(s string) bool {
		return len(s) >= len(request) && strings.EqualFold(s[:len(request)], request)
	})
}

// AskedIn returns the resources of a request. It leaves out those that are no longer
// defined, or whose values are not of their kind.
func AskedIn(c *conf.Config, hard []api.Resource) []Asked {
	var list []Asked
	for _, r := range hard {
		a := c.Attribute(r.Name)
		if a == nil {
			continue
		}
		v, err := conf.ParseValue(a.Kind, r.Value)
		if err != nil {
			continue // checked at submission; the complex was changed since
		}
		list = append(list, Asked{Name: a.Name, Kind: a.Kind, Value: v, PerJob: !perSlot(a)})
	}
	return list
}

// perSlot reports whether a request of an attribute counts for each slot, as limits
// and consumables do.
func perSlot(a *conf.Attribute) bool {
	limit := strings.HasPrefix(a.Name, "h_") || strings.HasPrefix(a.Name, "s_")
	return a.Consumable == conf.ConsumableYes || limit && a.Consumable != conf.ConsumableJob
}

// The attributes of complex(5) that RequestMemory and RequestDisk stand for: the first
// that a job asks for.
var (
	memoryResources = []string{limitMemory, "h_rss", "mem_free", "virtual_free", "s_vmem", "s_rss"}
	diskResources   = []string{limitDisk}
)

// The resources that limit a job of fetched work.
const (
	limitMemory = "h_vmem"
	limitDisk   = "scratch_limit"
)

// unasked is the value of RequestCpus, RequestMemory and RequestDisk of a job that does
// not request them.
const unasked = 1

// ours are the attributes that execd alone sets, whatever the ad says that a job came
// with.
var ours = []string{
	"Owner", "User", "OwnerGroup", "JobId", "JobStatus", "EnteredCurrentStatus", "NumJobStarts", "JobStartDate",
	"JobCurrentStartDate", "QDate", "Queue", "PE", "SlotID", "RemoteHost", "HoldReason",
	"TransferringInput", "TransferringOutput", "TransferQueued",
}

// environments are the attributes with an environment in them.
var environments = []string{"Environment", "Env", "PreEnvironment", "PostEnvironment"}

// Job returns the ad of a job. A job that came with one has that, with the attributes of
// execd laid over it.
func Job(in JobInfo) *classad.Ad {
	b := newBuilder(in.Only)
	in.context(&b) // first, so that no name of a user's hides one of ours
	in.resources(&b)
	in.identity(&b)
	in.launch(&b)
	in.sandbox(&b)
	in.state(&b)
	if w := in.Request.Work; w == nil || w.Ad == "" {
		own, _ := Attributes(in.Request.Attributes) // it is checked
		return b.over(own)
	}
	base, _ := classad.ParseOldLenient(in.Request.Work.Ad) // read strictly when it came
	return b.under(base, in.Environment)
}

// under returns a copy of base with those of the attributes set that execd alone sets,
// or that base does not have.
func (b *builder) under(base *classad.Ad, environment bool) *classad.Ad {
	out := slices.Clone(ours)
	for name := range base.All() {
		if classad.Private(name) {
			out = append(out, name)
		}
	}
	has := func(name string) bool {
		_, ok := base.Lookup(name)
		return ok
	}
	var over builder
	for _, a := range b.attrs {
		other := "" // that says the same
		switch a.Name {
		case "Arguments":
			other = "Args"
		case "Environment":
			other = "Env"
		}
		if contains(ours, a.Name) || !has(a.Name) && !has(other) {
			over.attrs = append(over.attrs, a)
		}
	}
	if !environment {
		out = append(out, environments...)
	}
	return over.over(base.Without(out...))
}

// Public returns the ad of a job without what its owner and root alone may know.
func Public(job *classad.Ad) *classad.Ad { return job.Without(environments...) }

// context adds the variables of qsub -ac.
func (in *JobInfo) context(b *builder) {
	for _, c := range in.Request.Context {
		name, value, _ := strings.Cut(c, "=")
		b.long("Context_"+name, value)
	}
}

// resources adds the resources of qsub -l, each as Request and its name, for the whole
// job.
func (in *JobInfo) resources(b *builder) {
	if !AboutResources(b.only) {
		return
	}
	slots := float64(in.slots())
	total := func(a Asked) conf.Value {
		if !a.PerJob && a.Kind.Number() && a.Kind != conf.KindBool && a.Kind != conf.KindTime {
			a.Value.Number *= slots
		}
		return a.Value
	}
	for _, a := range in.Resources {
		b.value("Request"+a.Name, resourceValue(a.Kind, total(a)))
	}
	// first returns the first of the resources that is asked for, in units.
	first := func(names []string, unit float64) int64 {
		for _, name := range names {
			for _, a := range in.Resources {
				if n := total(a).Number; a.Name == name && a.Kind == conf.KindMemory && n > 0 && n < 1<<62 {
					return int64(math.Ceil(n / unit))
				}
			}
		}
		return unasked
	}
	b.integer("RequestCpus", int64(in.slots()))
	b.integer("RequestMemory", first(memoryResources, 1<<20))
	b.integer("RequestDisk", first(diskResources, 1<<10))
}

// slots returns how many slots the job has, or needs at least.
func (in *JobInfo) slots() int {
	if in.Slots > 0 {
		return in.Slots
	}
	if len(in.Request.Slots) > 0 {
		return in.Request.Slots[0].Min
	}
	return 1
}

// GlobalID returns the GlobalJobId of a task, named <job>.<task>, of a job of this
// execd.
func GlobalID(host, task string, submitted time.Time) string {
	return host + "#" + task + "#" + strconv.FormatInt(submitted.Unix(), 10)
}

func (in *JobInfo) identity(b *builder) {
	r := in.Request
	b.text("MyType", "Job")
	b.text("TargetType", "Machine")
	b.integer("ClusterId", int64(in.Number))
	b.integer("ProcId", int64(in.Task))
	if b.wants("JobId") || b.wants("GlobalJobId") {
		id := strconv.Itoa(in.Number) + "." + strconv.Itoa(in.Task)
		b.text("JobId", id)
		b.text("GlobalJobId", GlobalID(in.Host, id, in.Submitted))
	}
	b.text("Owner", in.Owner)
	if b.wants("User") {
		b.text("User", in.Owner+"@"+in.Host)
	}
	b.text("OwnerGroup", in.Group)
	b.integer("JobUniverse", universeVanilla)
	b.text("JobBatchName", r.Name)
	b.text("AccountingGroup", r.Account)
	b.at("QDate", in.Submitted)
	b.flag("Requirements", true)
	b.number("Rank", 0)
}

// launch adds what is run, and how.
func (in *JobInfo) launch(b *builder) {
	r := in.Request
	b.text("Cmd", r.Command)
	b.long("Arguments", FormatArguments(r.Args))
	if in.Environment {
		b.long("Environment", FormatEnvironment(r.Env))
	}
	b.text("Iwd", cmp.Or(in.Iwd, r.Cwd))
	b.text("In", cmp.Or(in.In, r.Stdin, devNull))
	out := cmp.Or(in.Out, r.Stdout)
	b.text("Out", out)
	if r.Merge {
		b.text("Err", out)
	} else {
		b.text("Err", cmp.Or(in.Err, r.Stderr))
	}
	b.integer("JobPrio", int64(r.Priority))
	if r.Rerun != api.RerunDefault {
		b.flag("Rerunable", r.Rerun == api.RerunYes)
	}
	if r.MaxRun > 0 {
		b.integer("JobMaxRunning", int64(r.MaxRun))
	}
	b.flag("WantNotify", r.Notify)
	b.flag("Reserve", r.Reserve)
	b.text("Checkpoint", r.Checkpoint)
	b.flag("Interactive", r.Interactive != nil)
	b.text("PE", cmp.Or(in.PE, r.PE))
}

func (in *JobInfo) state(b *builder) {
	if x := in.Transfer; x != nil {
		if x.Output {
			in.Status = StatusTransfer
		}
		b.flag("TransferringInput", !x.Output)
		b.flag("TransferringOutput", x.Output)
		b.flag("TransferQueued", x.Queued)
	}
	b.integer("JobStatus", int64(in.Status))
	b.at("EnteredCurrentStatus", in.EnteredStatus)
	if h := in.Hold; h != nil {
		b.forced("HoldReason", h)
	}
	b.integer("NumJobStarts", int64(in.Starts))
	b.at("JobStartDate", in.Started)
	b.at("JobCurrentStartDate", in.Started)
	b.text("Queue", in.Queue)
	b.text("RemoteHost", in.Slot)
	if in.SlotID > 0 {
		b.integer("SlotID", int64(in.SlotID))
	}
}

// resourceValue returns a value of complex(5) as a value of an ad.
func resourceValue(kind conf.Kind, v conf.Value) classad.Value {
	switch {
	case kind == conf.KindBool:
		return classad.Bool(v.Number != 0)
	case kind.Number():
		return amount(v.Number)
	}
	return classad.String(v.Text)
}
