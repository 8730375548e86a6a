package base

import (
	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/job"
)

// QueueAd returns the ad of a task as the queue has it: what was asked for and, if it was
// started, where, and what references have become there. What hooks have made of it where it
// runs is not in it. T is nil for one that waits.
func (h *Host) QueueAd(j *job.Job, number int, request *api.SubmitRequest, t *job.Task) *classad.Ad {
	own := *request
	in := ad.JobInfo{
		Number: j.Number, Task: number, Host: h.Name, Owner: j.Owner, Group: j.Group, Submitted: j.Submitted,
		Request: &own, Status: ad.StatusIdle, Resources: ad.AskedIn(h.Config(), request.Hard),
	}
	if t != nil {
		own.Attributes = t.Needs.Attributes() // an alteration counts from the next run on
		in.Status, in.EnteredStatus, in.Started, in.Starts = ad.StatusRunning, t.Started, t.Started, t.Run+1
		in.Queue, in.Slots = t.Start.Queue, t.Slots()
		if g := t.Start.Grant; g != nil {
			in.PE = g.PE
		}
	}
	of := ad.Job(in)
	if t != nil {
		of = ad.WithExpansions(of, t.Start.MatchExp)
	}
	return of
}
