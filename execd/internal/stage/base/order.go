package base

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/launch"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/stage/exit"
	"paddock/execd/internal/user"
)

// ErrGone is matched when something that was granted was taken out of the
// configuration since. A job of the queue waits for its return, as it would have if its
// turn had come a moment later.
var ErrGone = errors.New("does not exist any more")

// Order gathers what the directory of a run of a task is made from, for a request.
func (h *Host) Order(t *job.Task, request *api.SubmitRequest) (*launch.Order, error) {
	c := h.Config()
	o := &launch.Order{Task: t, Request: request, Global: &c.Global, Queue: c.Queue(t.Start.Queue), Grant: t.Start.Grant, Binding: t.Start.Binding}
	if request.Work != nil {
		o.EndSignal = endSignal(request)
		if id, err := slot.ParseID(string(request.Work.Slot)); err == nil { // execd has written it
			o.Slot = id.Name()
		}
	}
	if o.Queue == nil {
		return nil, fmt.Errorf("queue %q %w", t.Start.Queue, ErrGone)
	}
	var err error
	if pe := o.Grant.PE; pe != "" {
		if o.PE = c.PEs[pe]; o.PE == nil {
			return nil, fmt.Errorf("parallel environment %q %w", pe, ErrGone)
		}
	}
	if ckpt := o.Request.Checkpoint; ckpt != "" {
		if o.Ckpt = c.Checkpoints[ckpt]; o.Ckpt == nil {
			return nil, fmt.Errorf("checkpointing interface %q %w", ckpt, ErrGone)
		}
	}
	limit(c, o)
	if o.Owner, err = h.Owner(t); err != nil {
		return nil, err
	}
	if o.Owner.Name != t.Job.Owner {
		return nil, fmt.Errorf("uid %d was user %s when the job was submitted and is %s now", t.Job.UID, t.Job.Owner, o.Owner.Name)
	}
	if o.Script, err = h.Store.Script(t.Job); err != nil {
		return nil, err
	}
	return o, nil
}

// Match expands what the job of a task that was taken refers to of its slot, and notes it
// before the start is recorded. It returns the request of the run.
func (h *Host) Match(t *job.Task, request *api.SubmitRequest, slot func() *classad.Ad) (*api.SubmitRequest, error) {
	if !ad.Refers(request) || !h.From(t).Queued() { // what came with its slot was expanded there
		return request, nil
	}
	expanded, err := ad.Expand(request, h.JobAd(t), slot(), time.Now())
	if err != nil {
		return nil, err
	}
	h.Store.Match(t, expanded)
	return ad.Expanded(request, request.Attributes, expanded), nil
}

// Owner returns who owns the job of a task. A *exit.Retry says that nobody could tell.
func (h *Host) Owner(t *job.Task) (*user.User, error) {
	owner, err := h.Users.ByID(context.Background(), t.Job.UID)
	if err != nil && !errors.Is(err, user.ErrUnknown) {
		return nil, &exit.Retry{Err: err}
	}
	return owner, err
}

// EndSignal is the signal by which a task is asked to end.
func (h *Host) EndSignal(t *job.Task) syscall.Signal {
	request, err := h.Store.Request(t.Job)
	if err != nil {
		return syscall.SIGTERM
	}
	return endSignal(request)
}

// endSignal is the signal by which what was requested is asked to end.
func endSignal(request *api.SubmitRequest) syscall.Signal {
	if request.Work == nil {
		return syscall.SIGTERM
	}
	return ad.KillSig(request.Work.Ad)
}

// limit sets the limits of a run, the queue's, or what the job asked for with
// -l where that is less, and what else it asked for there.
func limit(c *conf.Config, o *launch.Order) {
	o.Devices = launch.Devices(c, o.Grant.Debits)
	o.SRT, o.HRT = queue.WallClock(c, o.Queue, o.Request.Hard)
	asked := map[string]launch.Limit{}
	for _, r := range o.Request.Hard {
		a := c.Attribute(r.Name)
		if a == nil {
			continue
		}
		if a.Name == launch.PrivateTmp && a.Kind == conf.KindBool {
			v, _ := conf.ParseValue(a.Kind, r.Value) // checked at submission
			o.PrivateTmp = v.Number != 0
		}
		if a.Name == launch.ScratchLimit && a.Kind == conf.KindMemory {
			v, _ := conf.ParseValue(a.Kind, r.Value)
			if a.Consumable == conf.ConsumableYes { // for each slot
				v.Number *= float64(o.Grant.Slots())
			}
			o.ScratchLimit = uint64(min(max(v.Number, 1), conf.MaxScratch))
		}
		if a.Name != "s_rt" && a.Name != "h_rt" && (strings.HasPrefix(a.Name, "s_") || strings.HasPrefix(a.Name, "h_")) {
			asked[a.Name] = launch.Limit{Limit: conf.Limit{Key: a.Name, Value: r.Value}, ForJob: a.Consumable == conf.ConsumableJob}
		}
	}
	for _, l := range o.Queue.Limits {
		if _, ok := asked[l.Key]; !ok {
			o.Limits = append(o.Limits, launch.Limit{Limit: l})
		}
	}
	for _, l := range asked {
		o.Limits = append(o.Limits, l)
	}
}
