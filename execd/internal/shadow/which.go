package shadow

import (
	"slices"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
)

// stays says why a job runs on no host but this one; empty: it may leave. Its files are
// reached by a file system that the hosts share.
func stays(j *job.Job) string {
	r := j.Terms().Needs.Request()
	switch {
	case j.Interactive:
		return "interactive jobs run on this host alone"
	case r.PE != "":
		return "parallel jobs run on this host alone"
	case r.Checkpoint != "":
		return "jobs with a checkpointing interface run on this host alone"
	case r.Sandbox == api.SandboxYes:
		return "jobs with a sandbox run on this host alone"
	case ad.NamesHooks(r.Attributes):
		return "jobs with hooks of their own run on this host alone"
	case len(r.Queues) > 0, len(r.MasterQueues) > 0, slices.ContainsFunc(r.Hard, namesPlace):
		return "jobs that ask for a queue or a host run on this host alone"
	case r.Now:
		return "it is to start at once or never"
	}
	return ""
}

// namesPlace reports whether a resource is the name of a queue or a host, or its shortcut.
func namesPlace(r api.Resource) bool {
	return slices.Contains([]string{"qname", "q", "hostname", "h"}, r.Name)
}

// class has jobs alike: what a host says of one of them it would say of the others.
type class struct {
	owner string
	needs job.Needs
}

func classOf(j *job.Job) class { return class{j.Owner, j.Terms().Needs} }

// These bound what other hosts may have us read and evaluate: the ad of a slot in bytes, the
// slots of a host, and the steps of a round.
const (
	maxAd      = 256 << 10
	maxSlots   = 1024
	matchSteps = 300_000
)

// slotAd is a slot of another host that a job may get.
type slotAd struct {
	name string
	ad   *classad.Ad
}

// free reports whether a slot may be claimed without waiting.
func free(s *api.SlotStatus) bool {
	return s.Activity == "Idle" && (s.Holder == "" || s.Holder == "queue") && s.State != "Owner"
}

// unfit says why a slot does not take a job, or the job not the slot; empty: they match.
// Both ads may be of users or hosts that mean no good: package classad bounds what
// an expression may cost.
func unfit(work, slot *classad.Ad, domain string, now time.Time, steps *int) string {
	env := &classad.Env{My: slot, Target: work, Now: now, Steps: steps}
	if d, _ := env.Attr("FileSystemDomain").Str(); domain == "" || d != domain {
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
