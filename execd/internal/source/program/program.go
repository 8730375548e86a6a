// Package program is the source of jobs that programs run under claims of their own. It
// decides who may have a claim, for how long, and as which user jobs run under it.
//
// Server reads what programs ask and writes the replies; package queue is in front of
// the slots. Only daemon and server import it; it imports ad, claim, follow, job, queue,
// source and user.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/claim"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/follow"
	"paddock/execd/internal/job"
	"paddock/execd/internal/queue"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
	"paddock/execd/internal/user"
)

// Programs are those that have jobs run under claims of their own. Who activates a
// claim is told by the reply, and by the end of his job.
type Programs struct {
	source.Queue
	Slots   *queue.Queue
	Sources source.Sources // none of their names is a user's
	Store   *job.Store
	Users   asuser.Users
	Config  func() *conf.Config
	// Accept makes a job of a request that a caller has for an owner and a group, or
	// refuses what nobody could submit either.
	Accept func(c job.Caller, owner *user.User, gid int, r *api.SubmitRequest) (*job.Job, error)
	// ClaimOver is told when a claim is over: whether it was released, or its lease is over.
	ClaimOver func(public string, released, expired bool)
	// Followed are those whose activation somebody follows.
	Followed *follow.Activations
	Host     string
	Log      *slog.Logger
}

// Queued implements source.Source: nobody would start the job again.
func (*Programs) Queued() bool { return false }

// Stray implements source.Source: it deletes a job, since its claim is over, or nobody
// was told of it.
func (p *Programs) Stray(j *job.Job) {
	p.Log.Warn(fmt.Sprintf("job %d: is not run again: its claim is over", j.Number))
	p.drop(j)
	p.Followed.Gone(j, "its claim is over")
}

// Abandoned implements source.Source.
func (p *Programs) Abandoned(j *job.Job, why slot.Hold) { p.Followed.Gone(j, why.Text) }

// Unstarted implements source.Source.
func (p *Programs) Unstarted(j *job.Job, reason string) { p.Followed.Gone(j, reason) }

// Evicted implements source.Source.
func (p *Programs) Evicted(e claim.Eviction) {
	p.Followed.Over(e.ID.String())
	why := slot.Reason(e.Code)
	p.ClaimOver(e.ID.String(), why == slot.ReasonReleased, why == slot.ReasonReconnectFailed)
}

func (p *Programs) drop(j *job.Job) {
	if err := p.Store.Drop(j); err != nil {
		p.Log.Error(fmt.Sprintf("job %d: %v", j.Number, err))
	}
}

// MayClaim refuses callers who may not claim slots: managers and operators may, the users
// of the knob CLAIM_USERS, and those of other hosts whose work may run here.
func (p *Programs) MayClaim(c job.Caller) error {
	if c.Name == queue.Holder || c.Name != source.Users && p.Sources[c.Name] != nil {
		return api.Errorf(api.CodeDenied, "denied: %q is the name of a holder of execd's own", c.Name)
	}
	if c.Host != "" { // the file peers and REMOTE_OWNERS have let him in
		if c.UID < 0 {
			return api.Errorf(api.CodeDenied, "denied: %s has not said for which user it claims slots", c.Host)
		}
		return nil
	}
	if c.Manager || c.Operator || !c.Unsure && source.Names(p.Config().Knobs, "CLAIM_USERS", c.Name) {
		return nil
	}
	return api.Errorf(api.CodeDenied, "denied: %q may not claim slots", c.Name)
}

// Claim gives the caller a slot, for the seconds of a lease; 0: as is configured.
func (p *Programs) Claim(c job.Caller, r claim.Request, seconds int) (g claim.Granted, err error) {
	if r.Priority > 0 && !c.Manager && !c.Operator {
		return g, api.Errorf(api.CodeDenied, "denied: a positive priority of a claim requires operator privileges")
	}
	if r.Lease, err = p.lease(seconds); err != nil {
		return g, err
	}
	r.Holder, r.Ad = c.Name, p.owned(c, r.Ad)
	if c.Host != "" {
		r.Holder += "@" + c.Host
	}
	return p.Slots.Claim(r)
}

// lease returns that of a claim: as is asked for, else as is configured.
func (p *Programs) lease(seconds int) (time.Duration, error) {
	most := max(source.Lease(p.Config().Knobs), api.MinLease*time.Second)
	switch {
	case seconds == 0:
		return most, nil
	case seconds < api.MinLease:
		return 0, api.Refusef(api.RefusedMessage, "a lease of %d seconds is too short, at least %d are possible", seconds, api.MinLease)
	}
	return time.Duration(min(seconds, int(most/time.Second))) * time.Second, nil
}

// owned returns the ad of a claim with its owner: the caller, or for a manager whom it
// names, as he may start that user's jobs.
func (p *Programs) owned(c job.Caller, text *classad.Ad) *classad.Ad {
	owner := ownerIn(text)
	if !c.Manager || owner == "" {
		owner = c.Name
	}
	if text == nil {
		text = classad.New()
	}
	return source.Owned(text.Without("OwnerGroup"), owner, cmp.Or(c.Host, p.Host))
}

// ownerIn returns the Owner that an ad names; empty: none.
func ownerIn(text *classad.Ad) string {
	if text == nil {
		return ""
	}
	name, _ := (&classad.Env{My: text}).Attr("Owner").Str()
	return name
}

// Activate has what an ad describes, or else a request, run under a claim, and returns
// its job. With an activation that is followed it was entered.
func (p *Programs) Activate(ctx context.Context, c job.Caller, id claim.ID, by claim.By, text *classad.Ad, r *api.SubmitRequest, of *api.Activation) (*job.Job, error) {
	on, holder, err := p.Slots.Starting(id, by)
	if err != nil {
		return nil, err
	}
	j, err := p.start(ctx, c, &api.Work{Slot: api.SlotID(on.String()), Claim: id.String(), Holder: holder, Activation: of}, on, text, r)
	if err != nil {
		p.Slots.Unstarted(id)
	}
	return j, err
}

// start makes a job of what is to run in a slot, and has it run.
func (p *Programs) start(ctx context.Context, c job.Caller, work *api.Work, on slot.ID, text *classad.Ad, r *api.SubmitRequest) (*job.Job, error) {
	owner, err := p.owner(ctx, c, ownerIn(text))
	if err != nil {
		return nil, err
	}
	gid := c.GID
	if owner.UID != c.UID {
		gid = owner.GID
	}
	if text != nil {
		o := ad.RequestOptions{Now: time.Now(), Config: p.Config(), Cpus: 1}
		if v, ok := p.Slots.Snapshot(on, true); ok {
			o.Slot, o.Cpus = v.Ad, max(int(v.Has.Cpus), 1)
		}
		if text, r, err = source.Request(text, "", false, o); err != nil {
			return nil, api.Refusef(api.RefusedRequirements, "%v", err)
		}
		work.Ad = text.OldString()
	}
	ofHost := work.Activation != nil && work.Activation.Home != nil // its execd follows it, and tells its client
	switch {
	case (r.Interactive != nil || r.Now) && !ofHost || r.Tasks.IsArray() || r.Verify != "" && r.Verify != "n" || r.Hold != "" || len(r.HoldJobs)+len(r.HoldArray)+len(r.HoldOK)+len(r.HoldArrayOK) > 0 || !r.After.IsZero():
		return nil, api.Refusef(api.RefusedRequirements, "a claim runs one task, at once: no array, no interactive job, nothing held")
	case len(r.Attributes) > 0 && (work.Activation == nil || work.Activation.Home == nil):
		return nil, api.Refusef(api.RefusedRequirements, "what runs under a claim has attributes by its ad alone")
	}
	r.Work = work
	j, err := p.Accept(c, owner, gid, r)
	if err != nil {
		return nil, err
	}
	if err := p.Slots.StartUnder(on, work.Claim, j, text); err != nil {
		p.drop(j)
		return nil, err
	}
	return j, nil
}

// owner returns as whom a job under a claim runs: as the caller, or for a manager as
// the Owner of the ad, see source.Owner.
func (p *Programs) owner(ctx context.Context, c job.Caller, name string) (*user.User, error) {
	if name == "" || name == c.Name {
		owner, err := p.Users.ByID(ctx, c.UID)
		if errors.Is(err, user.ErrUnknown) {
			err = api.Refusef(api.RefusedRequirements, "user %d is not known on this host", c.UID)
		}
		return owner, err
	}
	if !c.Manager {
		return nil, api.Errorf(api.CodeDenied, "denied: %q may not start jobs of %.60q", c.Name, name)
	}
	config := p.Config()
	owner, err := source.Owner(ctx, p.Users, name, config.Knobs, config.Global.MinUID)
	if errors.Is(err, user.ErrUnknown) {
		return nil, api.Refusef(api.RefusedRequirements, "user %.60q is not known on this host", name)
	}
	return owner, err
}
