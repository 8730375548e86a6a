package conf

import "time"

// PE is a parallel environment, sge_pe(5), with the parameters that one host needs.
type PE struct {
	Name            string
	Slots           int      // slots: for all its jobs together
	UserLists       []string // user_lists: who may use it; empty: everybody
	XUserLists      []string // xuser_lists: who may not
	StartProcArgs   string   // start_proc_args; empty: none
	StopProcArgs    string   // stop_proc_args; empty: none
	AllocationRule  int      // a fixed number of slots a host; 0: $pe_slots, $fill_up or $round_robin, all the same on one host
	Rule            string   // allocation_rule as written
	ControlSlaves   bool     // control_slaves
	JobIsFirstTask  bool     // job_is_first_task
	UrgencySlots    string   // urgency_slots: min, max, avg or a number
	AccountingTotal bool     // accounting_summary
}

// Checkpoint is a checkpointing interface, checkpoint(5).
type Checkpoint struct {
	Name    string // ckpt_name
	Kind    string // interface: userdefined, hibernator, cpr, cray-ckpt, transparent, application-level
	Command string // ckpt_command; empty: none, as for all commands
	Migrate string // migr_command
	Restart string // restart_command
	Clean   string // clean_command
	Dir     string // ckpt_dir
	Signal  string // signal; empty: none
	When    string // when: letters of m, s, x, r
}

// Kind is the type of a complex attribute.
type Kind string

// The kinds are those of complex(5), and RSMAP of later Grid Engines: a resource whose
// units have names.
const (
	KindInt      Kind = "INT"
	KindDouble   Kind = "DOUBLE"
	KindTime     Kind = "TIME"
	KindMemory   Kind = "MEMORY"
	KindBool     Kind = "BOOL"
	KindString   Kind = "STRING"
	KindCString  Kind = "CSTRING"
	KindREString Kind = "RESTRING"
	KindHost     Kind = "HOST"
	KindRSMap    Kind = "RSMAP"
)

// Number reports whether values of the kind are numbers.
func (k Kind) Number() bool {
	switch k {
	case KindInt, KindDouble, KindTime, KindMemory, KindBool, KindRSMap:
		return true
	default:
		return false
	}
}

// Consumable says how a request of an attribute is counted.
type Consumable string

// The values of the column consumable.
const (
	ConsumableNo  Consumable = "NO"
	ConsumableYes Consumable = "YES" // for each slot
	ConsumableJob Consumable = "JOB" // once for the job
)

// Requestable says whether a job may, or must, ask for an attribute.
type Requestable string

// The values of the column requestable.
const (
	RequestableNo     Requestable = "NO"
	RequestableYes    Requestable = "YES"
	RequestableForced Requestable = "FORCED" // where it has a value, only jobs that ask for it run
)

// Attribute is a line of complex(5).
type Attribute struct {
	Name, Shortcut string
	Kind           Kind
	Relop          string // ==, >=, >, <, <=, != or EXCL
	Requestable    Requestable
	Consumable     Consumable
	Default        string  // the amount for a job that does not ask
	Urgency        float64 // for each unit
}

// Value is a value of an attribute, or a request of it.
type Value struct {
	Text   string   // as it was written
	Number float64  // of kinds that are numbers: bytes, seconds, 0 and 1; +Inf for INFINITY
	IDs    []string // the names of the units of a RSMAP
	// Devices are the device nodes of units, by the names of the units; nil: they have
	// none.
	Devices map[string][]Device
}

// Device is a device node of a unit of a RSMAP, and what a job that has the unit may do
// with it.
type Device struct {
	Path        string
	Read, Write bool
}

// Values are the complex_values of a queue or host, by name of the attribute.
type Values map[string]Value

// Threshold is an element of load_thresholds or suspend_thresholds.
type Threshold struct {
	Attribute *Attribute
	Value     Value
}

// Subordinate is an element of subordinate_list: the queue is suspended when this one
// has so many slots in use; 0: when all of them are.
type Subordinate struct {
	Queue string
	Slots int
}

// UserList is an access_list(5).
type UserList struct {
	Name    string
	ACL     bool     // type has ACL; a list that is only a department admits nobody
	Entries []string // users, and groups behind an @
}

// Project is a project(5).
type Project struct {
	Name      string
	ACL, XACL []string // user lists: who may have jobs in it, empty: everybody; who may not
}

// Scheduling has the parameters of sched_conf(5) that have a meaning on one host.
type Scheduling struct {
	MaxUserRunning  int           // maxujobs: running jobs of one user; 0: no limit
	MaxReservation  int           // max_reservation: waiting jobs that may have reservations; 0: none
	DefaultDuration time.Duration // default_duration: assumed run time of a job without h_rt; 0: for ever
	HalfTime        time.Duration // halftime: when half of the usage of a user is forgotten; 0: never
	UsageWeights    struct{ CPU, Mem, IO float64 }
	WeightPriority  float64 // weight_priority: of qsub -p
	WeightTicket    float64 // weight_ticket: of the share of the user
	WeightUrgency   float64 // weight_urgency: of waiting time and of the urgency of resources
	WeightWaiting   float64 // weight_waiting_time: for each second
	LoadFormula     string  // load_formula: sorts queues with queue_sort_method load
	SortBySeqNo     bool    // queue_sort_method seqno
}
