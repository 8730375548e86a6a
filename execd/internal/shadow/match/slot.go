package match

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/schedule"
)

// These bound what other hosts may have us read: the ad of a slot in bytes, and the slots of a
// host.
const (
	maxAd    = 256 << 10
	maxSlots = 1024
)

// Slot is a slot of another host that a job may get.
type Slot struct {
	Name, Queue string
	ad          *classad.Ad
}

// Slots reads what a host says of its slots: those that are free, and the queues of all, by the
// names of the slots.
func Slots(reply *api.SlotsReply) (free []Slot, queues map[string]string) {
	queues = map[string]string{}
	for i := range reply.Slots {
		t := &reply.Slots[i]
		if len(t.Ad) > maxAd || len(free) == maxSlots {
			continue
		}
		queues[string(t.Slot)] = t.Queue
		if t.Free() == 0 {
			continue
		}
		if ad, err := classad.ParseOld(t.Ad); err == nil {
			free = append(free, Slot{string(t.Slot), t.Queue, ad})
		}
	}
	return free, queues
}

// Queue returns the queue of the slot that a host has granted: its ad says it, or what was read
// of the slots of the host.
func Queue(r *api.ClaimReply, queues map[string]string) string {
	if ad, err := classad.ParseOld(r.Ad); err == nil {
		if q, ok := (&classad.Env{My: ad}).Attr("Queue").Str(); ok {
			return q
		}
	}
	return queues[string(r.Slot)]
}

// LeftOvers reads the ad of what is left of a partitionable slot. Nothing is carved out of one that
// cannot be read.
func LeftOvers(text string) *classad.Ad {
	if ad, err := classad.ParseOld(text); err == nil && len(text) <= maxAd {
		return ad
	}
	return classad.New()
}

// IsPartitionable reports whether a slot is one that others are carved out of.
func (t *Slot) IsPartitionable() bool { return isPartitionable(t.ad) }

func isPartitionable(slot *classad.Ad) bool {
	return (&classad.Env{My: slot}).Attr("PartitionableSlot").True()
}

// Search is that for a slot for one job.
type Search struct {
	Config  *conf.Config
	Request *api.SubmitRequest
	Ad      *classad.Ad // of the job
	Domain  string      // of the file systems that this host shares with others; empty: it shares none
	Now     time.Time
	Steps   *int // that are left to evaluate ads
}

// Best returns a slot of a host that the job may get; nil: there is none, and why, or whether
// that is for the state of the slots. Of those that it may get it is one that has most of what
// the job names behind -soft.
func (s *Search) Best(host string, slots []Slot) (best *Slot, why string, state bool) {
	least := 0
	for i := range slots {
		t := &slots[i]
		ok, soft := schedule.Admits(s.Config, s.Request, schedule.Place{Host: host, Queue: t.Queue})
		if !ok || best != nil && soft >= least {
			continue
		}
		text := s.unfit(t.ad)
		if text == "" {
			text = s.short(t.ad)
			state = state || text != ""
		}
		if text != "" {
			why = text
			continue
		}
		if best, least = t, soft; soft == 0 {
			break
		}
	}
	return best, why, state
}

// Carve returns the ad of a partitionable slot as it is when a slot is carved out of it for the
// job; nil: that is not possible.
func (s *Search) Carve(left *classad.Ad) *classad.Ad {
	if s.unfit(left) != "" || s.short(left) != "" {
		return nil
	}
	var attrs []classad.Attr
	for _, name := range parts {
		want, has, ok := s.part(name, left)
		if ok {
			attrs = append(attrs, classad.Attr{Name: name, Expr: classad.Int(int64(has - want)).Expr()})
		}
	}
	return left.With(attrs...)
}

// AdFor returns the ad of the job as it is sent for a slot: where the job names queues no slot of
// another one takes it.
func (s *Search) AdFor(slot *Slot) *classad.Ad {
	if !schedule.Steered(s.Config, s.Request) {
		return s.Ad
	}
	requirements := "true"
	if e, ok := s.Ad.Lookup("Requirements"); ok {
		requirements = e.String()
	}
	e, err := classad.Parse(fmt.Sprintf("(%s) && TARGET.Queue == %v", requirements, classad.String(slot.Queue).Expr()))
	if err != nil {
		return s.Ad // it cannot be: both parts were read before
	}
	return s.Ad.With(classad.Attr{Name: "Requirements", Expr: e})
}

// of returns what evaluates one of the two ads beside the other.
func (s *Search) of(my, target *classad.Ad) *classad.Env {
	return &classad.Env{My: my, Target: target, Now: s.Now, Steps: s.Steps}
}

// unfit says why a slot does not take the job, or the job not the slot; empty: they match.
func (s *Search) unfit(slot *classad.Ad) string {
	if why := s.unplugged(slot); why != "" {
		return why
	}
	its := s.of(slot, s.Ad)
	if d, _ := its.Attr("FileSystemDomain").Str(); !Travels(s.Request) && (s.Domain == "" || d != s.Domain) {
		return "FILESYSTEM_DOMAIN is another one"
	}
	if !its.Attr("Start").True() {
		return "START is false"
	}
	if !s.of(s.Ad, slot).Attr("Requirements").True() {
		return "the job's Requirements are not met"
	}
	return ""
}

// unplugged says what the job has brought to it that no plugin of the host of a slot takes;
// empty: nothing. What goes to URLs is sent from here.
func (s *Search) unplugged(slot *classad.Ad) string {
	takes, _ := (&classad.Env{My: slot}).Attr("HasFileTransferPluginMethods").Str()
	for _, u := range s.Request.URLs() {
		if u.Option == api.FieldStageIn && !slices.Contains(strings.Split(takes, ","), u.Scheme) {
			return fmt.Sprintf("no plugin there takes %s://", api.Short(u.Scheme))
		}
	}
	return ""
}

// parts are what slots are carved of, as an ad has them.
var parts = []string{"Cpus", "Memory", "Disk", "GPUs"}

// part returns how much of a part the job wants, and how much of it a slot has; not ok: it has
// none.
func (s *Search) part(name string, slot *classad.Ad) (want, has float64, ok bool) {
	want, _ = s.of(s.Ad, slot).Attr("Request" + name).Number()
	has, ok = s.of(slot, s.Ad).Attr(name).Number()
	return want, has, ok
}

// short says of what a partitionable slot has too little left for the job; empty: of nothing.
func (s *Search) short(slot *classad.Ad) string {
	if !isPartitionable(slot) {
		return ""
	}
	for _, name := range parts {
		if want, has, _ := s.part(name, slot); has < want {
			return fmt.Sprintf("too little %s is left", name)
		}
	}
	return ""
}
