package shadow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
)

// stays says why a job runs on no host but this one; empty: it may leave. Its files are
// reached by a file system that the hosts share, or travel into its sandbox and out of it.
func (s *Shadows) stays(j *job.Job) string {
	t := j.Terms()
	r := t.Needs.Request()
	why := staysWith(r, t.Session)
	if why == "" && !travels(r) && s.Domain() == "" {
		why = "FILESYSTEM_DOMAIN is not set"
	}
	return why
}

// staysWith is stays for what a job asks for, and how it is connected.
func staysWith(r *api.SubmitRequest, s *job.Session) string {
	switch {
	case s != nil && s.Display != "":
		return "jobs of qsh run on this host alone"
	case s != nil && s.Daemon != "":
		return "interactive jobs that are not connected by qrsh itself (sge_conf(5)) run on this host alone"
	case r.PE != "":
		return "parallel jobs run on this host alone"
	case r.Checkpoint != "":
		return "jobs with a checkpointing interface run on this host alone"
	case travels(r) && s != nil:
		return "interactive jobs with a sandbox run on this host alone"
	case travels(r) && ad.NamesPlugins(r.Attributes):
		return "jobs with file transfer plugins of their own run on this host alone"
	case ad.NamesHooks(r.Attributes):
		return "jobs with hooks of their own run on this host alone"
	}
	return ""
}

// unreached says why the session of an interactive job on a host would not find its client.
func unreached(s *job.Session, p *api.PeerStatus) string {
	if s == nil || !loopback(s.Client.Address) || loopback(p.Address) {
		return ""
	}
	return "qrsh listens at an address of this host alone (-listen)"
}

// loopback reports whether an address with a port is one that only its own host can reach.
func loopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// class has jobs alike: what a host says of one of them it would say of the others.
type class struct {
	owner       string
	needs       job.Needs
	interactive bool
}

func classOf(j *job.Job) class { return class{j.Owner, j.Terms().Needs, j.Interactive} }

// These bound what other hosts may have us read and evaluate: the ad of a slot in bytes, the
// slots of a host, and the steps of a round.
const (
	maxAd      = 256 << 10
	maxSlots   = 1024
	matchSteps = 300_000
)

// slotAd is a slot of another host that a job may get.
type slotAd struct {
	name, queue string
	ad          *classad.Ad
}

// anyDomain is the domain of jobs that need no file system which hosts share. It is no word.
const anyDomain = " "

// unfit says why a slot does not take a job, or the job not the slot; empty: they match.
// Both ads may be of users or hosts that mean no good: package classad bounds what
// an expression may cost.
func unfit(work, slot *classad.Ad, domain string, now time.Time, steps *int) string {
	env := &classad.Env{My: slot, Target: work, Now: now, Steps: steps}
	if d, _ := env.Attr("FileSystemDomain").Str(); domain != anyDomain && (domain == "" || d != domain) {
		return "FILESYSTEM_DOMAIN is another one"
	}
	if !env.Attr("Start").True() {
		return "START is false"
	}
	env = &classad.Env{My: work, Target: slot, Now: now, Steps: steps}
	if !env.Attr("Requirements").True() {
		return "the job's Requirements are not met"
	}
	return ""
}

// unplugged says what a job has brought to it that no plugin of the host of a slot takes; empty:
// nothing. What goes to URLs is sent from here.
func unplugged(r *api.SubmitRequest, slot *classad.Ad) string {
	takes, _ := (&classad.Env{My: slot}).Attr("HasFileTransferPluginMethods").Str()
	for _, u := range r.URLs() {
		if u.Option == api.FieldStageIn && !slices.Contains(strings.Split(takes, ","), u.Scheme) {
			return fmt.Sprintf("no plugin there takes %s://", api.Short(u.Scheme))
		}
	}
	return ""
}

// parts are what slots are carved of, as an ad has them.
var parts = []string{"Cpus", "Memory", "Disk", "GPUs"}

// short says of what a partitionable slot has too little left for a job; empty: of nothing.
func short(work, slot *classad.Ad, now time.Time, steps *int) string {
	if !isPartitionable(slot) {
		return ""
	}
	has := &classad.Env{My: slot, Target: work, Now: now, Steps: steps}
	wants := &classad.Env{My: work, Target: slot, Now: now, Steps: steps}
	for _, name := range parts {
		want, _ := wants.Attr("Request" + name).Number()
		if left, _ := has.Attr(name).Number(); left < want {
			return fmt.Sprintf("too little %s is left", name)
		}
	}
	return ""
}

// deducted returns the ad of a partitionable slot as it is when a slot is carved out of it for a
// job.
func deducted(slot, work *classad.Ad, now time.Time, steps *int) *classad.Ad {
	has := &classad.Env{My: slot, Target: work, Now: now, Steps: steps}
	wants := &classad.Env{My: work, Target: slot, Now: now, Steps: steps}
	var attrs []classad.Attr
	for _, name := range parts {
		want, _ := wants.Attr("Request" + name).Number()
		if left, ok := has.Attr(name).Number(); ok {
			attrs = append(attrs, classad.Attr{Name: name, Expr: classad.Int(int64(left - want)).Expr()})
		}
	}
	return slot.With(attrs...)
}
