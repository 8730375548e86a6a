package ad

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"paddock/classad"
)

// SlotInfo is what the ad of a slot says. A field that is zero, and cannot be so of any
// slot, is left out.
type SlotInfo struct {
	ID            int // of the slot, from 1
	Dynamic       int // number of a slot that was carved out of it; 0: it was not
	Partitionable bool
	Host, Queue   string
	Domain        string // of its file systems; empty: they are its own
	Address       string // at which execd takes claims
	Platform      Platform
	Version       string    // of execd
	Methods       []string  // schemes of URLs from which files come to jobs of the host
	Started       time.Time // execd
	Now           time.Time // in the zone of ClockMin and ClockDay

	State, Activity               string
	EnteredState, EnteredActivity time.Time
	Spent                         []Spent

	Cpus                         int
	Memory                       int64 // MiB
	Disk                         int64 // KiB
	GPUs, TotalSlotGPUs          int   // of a slot that is carved, or was
	TotalCpus, TotalSlotCpus     int
	TotalMemory, TotalSlotMemory int64 // MiB
	TotalDisk, TotalSlotDisk     int64 // KiB
	DetectedCpus                 int
	DetectedMemory               int64 // MiB
	TotalSlots                   int   // of the host
	Children                     []Child
	Pending                      []Pending

	Load SlotLoad

	// Policy has the expressions of the slot, such as Start and Rank, as they are
	// configured. Start is true by default, and Rank 0.
	Policy                  []classad.Attr
	RetirementTimeRemaining int64 // seconds; -1: it is not retiring
	CurrentRank             float64
	Draining                bool
	BrokenReason            string

	Claim *Claim   // nil: nobody has it
	Job   *SlotJob // nil: nothing runs

	// Extra are the attributes of STARTD_ATTRS and, copied out of the ad of the
	// job, of STARTD_JOB_ATTRS. They are not laid over what the slot itself says.
	Extra []classad.Attr

	Dropped Dropped
}

// Dropped is how much of what was to be said of jobs could not be since execd was started.
type Dropped struct{ Updates, History, Startd, Log uint64 }

// Child is a slot that was carved out of a partitionable one.
type Child struct {
	Dynamic int // its number
	State   string
	Cpus    int
	Memory  int64 // MiB
	Disk    int64 // KiB
	GPUs    int
}

// Pending is a sandbox whose run is over and whose output leaves it.
type Pending struct {
	ID  string
	KiB int64
}

// Spent is how long a slot was in a state and an activity since execd started.
type Spent struct {
	State, Activity string
	Time            time.Duration
}

// SlotLoad is the load of the host. A duration is the time since something happened
// last; negative: it is not known.
type SlotLoad struct {
	LoadAvg, OwnLoadAvg       float64       // of the host, and the part that jobs make
	KeyboardIdle, ConsoleIdle time.Duration // since somebody typed
	CpusUsage                 float64       // cores that the job of the slot uses
	VirtualMemory             int64         // KiB of swap that are free
}

// Claim is the claim on a slot.
type Claim struct {
	Public string // id without its secret
	Secret string // the id; empty: it is not to be in the ad
	// Owner is the user for whom it is, User the same with a domain, and Holder the
	// claimant.
	Owner, User, Holder string
	Run, Suspended      time.Duration // of its jobs together
}

// SlotJob is what runs on a slot.
type SlotJob struct {
	ID, GlobalID               string
	Universe                   int
	Started                    time.Time
	Processes                  int
	ImageSize, ResidentSetSize int64 // KiB
	Run, Suspended             time.Duration
}

// Slot returns the ad of a slot.
func Slot(in SlotInfo) *classad.Ad {
	b := newBuilder(nil)
	b.attrs = append(b.attrs, in.Extra...) // first, so that no name of an administrator's hides one of the slot's
	in.identity(&b)
	in.state(&b)
	in.amounts(&b)
	in.load(&b)
	in.policy(&b)
	in.claim(&b)
	in.job(&b)
	in.dropped(&b)
	return b.over(nil)
}

// name returns the name of a slot without its host.
func (in *SlotInfo) name() string {
	if in.Dynamic > 0 {
		return fmt.Sprintf("slot%d_%d", in.ID, in.Dynamic)
	}
	return fmt.Sprintf("slot%d", in.ID)
}

func (in *SlotInfo) identity(b *builder) {
	b.text("MyType", "Machine")
	b.text("TargetType", "Job")
	b.text("Name", in.name()+"@"+in.Host)
	b.text("Machine", in.Host)
	b.text("FileSystemDomain", cmp.Or(in.Domain, in.Host))
	b.integer("SlotID", int64(in.ID))
	kind := "Static"
	switch {
	case in.Dynamic > 0:
		kind = "Dynamic"
		b.integer("DSlotID", int64(in.Dynamic))
		b.flag("DynamicSlot", true)
		b.text("ParentSlotName", fmt.Sprintf("slot%d@%s", in.ID, in.Host))
	case in.Partitionable:
		kind = "Partitionable"
		b.flag("PartitionableSlot", true)
		b.integer("NumDynamicSlots", int64(len(in.Children)))
	}
	b.text("SlotType", kind)
	b.text("Queue", in.Queue)
	b.text("StartdIpAddr", in.Address)
	b.text("MyAddress", in.Address)
	in.Platform.write(b)
	b.text("CondorVersion", in.Version)
	b.text("HasFileTransferPluginMethods", strings.Join(in.Methods, ","))
	b.at("DaemonStartTime", in.Started)
}

func (in *SlotInfo) state(b *builder) {
	b.text("State", in.State)
	b.text("Activity", in.Activity)
	b.at("EnteredCurrentState", in.EnteredState)
	b.at("EnteredCurrentActivity", in.EnteredActivity)
	b.at("MyCurrentTime", in.Now)
	for _, s := range in.Spent {
		b.integer("TotalTime"+s.State+s.Activity, seconds(s.Time))
	}
}

func (in *SlotInfo) amounts(b *builder) {
	b.integer("Cpus", int64(in.Cpus))
	b.integer("Memory", in.Memory)
	b.integer("Disk", in.Disk)
	for _, a := range []struct {
		name string
		n    int64
	}{
		{"TotalCpus", int64(in.TotalCpus)},
		{"TotalMemory", in.TotalMemory},
		{"TotalDisk", in.TotalDisk},
		{"TotalSlotCpus", int64(in.TotalSlotCpus)},
		{"TotalSlotMemory", in.TotalSlotMemory},
		{"TotalSlotDisk", in.TotalSlotDisk},
		{"DetectedCpus", int64(in.DetectedCpus)},
		{"DetectedMemory", in.DetectedMemory},
		{"TotalSlots", int64(in.TotalSlots)},
	} {
		if a.n != 0 {
			b.integer(a.name, a.n)
		}
	}
	if in.Partitionable || in.Dynamic > 0 {
		b.integer("GPUs", int64(in.GPUs))
		b.integer("TotalSlotGPUs", int64(in.TotalSlotGPUs))
	}
	if in.Partitionable {
		in.children(b)
	}
	in.pending(b)
}

// pending adds the sandboxes whose output leaves them.
func (in *SlotInfo) pending(b *builder) {
	var disk int64
	ids := make([]classad.Value, len(in.Pending))
	for i, p := range in.Pending {
		disk += p.KiB
		ids[i] = classad.String(p.ID)
	}
	b.integer("PendingSandboxes", int64(len(ids)))
	b.integer("PendingSandboxDisk", disk)
	if len(ids) > 0 {
		b.value("PendingSandboxIds", classad.List(ids...))
	}
}

// children adds lists with an element for each slot that was carved out of it.
func (in *SlotInfo) children(b *builder) {
	list := func(name string, of func(*Child) classad.Value) {
		values := make([]classad.Value, len(in.Children))
		for i := range in.Children {
			values[i] = of(&in.Children[i])
		}
		b.value(name, classad.List(values...))
	}
	list("ChildDSlotID", func(c *Child) classad.Value { return classad.Int(int64(c.Dynamic)) })
	list("ChildState", func(c *Child) classad.Value { return classad.String(c.State) })
	list("ChildCpus", func(c *Child) classad.Value { return classad.Int(int64(c.Cpus)) })
	list("ChildMemory", func(c *Child) classad.Value { return classad.Int(c.Memory) })
	list("ChildDisk", func(c *Child) classad.Value { return classad.Int(c.Disk) })
	list("ChildGPUs", func(c *Child) classad.Value { return classad.Int(int64(c.GPUs)) })
}

func (in *SlotInfo) load(b *builder) {
	b.number("LoadAvg", in.Load.LoadAvg)
	b.number("CondorLoadAvg", in.Load.OwnLoadAvg)
	if in.Load.KeyboardIdle >= 0 {
		b.integer("KeyboardIdle", seconds(in.Load.KeyboardIdle))
	}
	if in.Load.ConsoleIdle >= 0 {
		b.integer("ConsoleIdle", seconds(in.Load.ConsoleIdle))
	}
	if !in.Now.IsZero() {
		b.integer("ClockMin", int64(in.Now.Hour()*60+in.Now.Minute()))
		b.integer("ClockDay", int64(in.Now.Weekday()))
	}
	b.number("CpusUsage", in.Load.CpusUsage)
	b.integer("VirtualMemory", in.Load.VirtualMemory)
}

// within is WithinResourceLimits of a slot, which bounds what a job may ask for, and
// requirements its Requirements.
var (
	within       = mustParse("TARGET.RequestCpus <= MY.Cpus && TARGET.RequestMemory <= MY.Memory && TARGET.RequestDisk <= MY.Disk")
	requirements = mustParse("START && WithinResourceLimits")
)

func mustParse(text string) classad.Expr {
	e, err := classad.Parse(text)
	if err != nil {
		panic(err) // it is ours
	}
	return e
}

func (in *SlotInfo) policy(b *builder) {
	b.flag("Start", true)
	b.expr("WithinResourceLimits", within)
	b.expr("Requirements", requirements)
	b.number("Rank", 0)
	b.attrs = append(b.attrs, in.Policy...)
	if in.RetirementTimeRemaining >= 0 && in.Claim != nil {
		b.integer("RetirementTimeRemaining", in.RetirementTimeRemaining)
	}
	b.number("CurrentRank", in.CurrentRank)
	b.flag("Draining", in.Draining)
	b.text("SlotBrokenReason", in.BrokenReason)
}

func (in *SlotInfo) claim(b *builder) {
	c := in.Claim
	if c == nil {
		return
	}
	b.text("RemoteOwner", c.Owner)
	b.text("RemoteUser", c.User)
	b.text("RemoteScheddName", c.Holder)
	b.text("PublicClaimId", c.Public)
	b.text("ClaimId", c.Secret)
	b.integer("TotalClaimRunTime", seconds(c.Run))
	b.integer("TotalClaimSuspendTime", seconds(c.Suspended))
}

func (in *SlotInfo) job(b *builder) {
	j := in.Job
	if j == nil {
		return
	}
	b.text("JobId", j.ID)
	b.text("GlobalJobId", j.GlobalID)
	b.integer("JobUniverse", int64(j.Universe))
	b.at("JobStart", j.Started)
	b.integer("NumPids", int64(j.Processes))
	b.integer("ImageSize", j.ImageSize)
	b.integer("ResidentSetSize", j.ResidentSetSize)
	if j.ResidentSetSize > 0 {
		b.integer("MemoryUsage", (j.ResidentSetSize+1023)/1024)
	}
	b.integer("TotalJobRunTime", seconds(j.Run))
	b.integer("TotalJobSuspendTime", seconds(j.Suspended))
}

func (in *SlotInfo) dropped(b *builder) {
	b.integer("JobUpdatesDropped", int64(in.Dropped.Updates))
	b.integer("HistoryDropped", int64(in.Dropped.History))
	b.integer("StartdHistoryDropped", int64(in.Dropped.Startd))
	b.integer("JobQueueLogDropped", int64(in.Dropped.Log))
}

// seconds returns a duration in seconds, as ads have it.
func seconds(d time.Duration) int64 { return int64(math.Round(d.Seconds())) }
