package shadow

import (
	"context"
	"errors"
	"slices"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
)

// attributes returns those of a run by now that its host needs: as references were expanded
// when it was started, and as they stand in what was altered since.
func (r *run) attributes() []string {
	now := api.SubmitRequest{Attributes: r.task.Job.Terms().Needs.Attributes()}
	return ad.Elsewhere(ad.Expanded(&now, r.task.Needs.Attributes(), r.Host.Store.Matched(r.task)).Attributes)
}

// alter has the host of a run know the attributes that it has by now.
func (r *run) alter(ctx context.Context) error {
	r.mu.Lock()
	over := r.over != nil
	r.mu.Unlock()
	now, known := r.attributes(), r.altered != nil
	if over || known && slices.Equal(now, r.altered) || !known && len(now)+len(ad.Elsewhere(r.task.Needs.Attributes())) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := r.On(r.host.name, "").AlterRun(limited, api.AlterRunRequest{Sandbox: api.SandboxID(r.sandbox()), Attributes: now})
	switch e, refused := errors.AsType[*api.Error](err); {
	case refused && e.Code != api.CodeInternal && e.Code != api.CodeTryAgain: // it would be again
		r.warnf("%v: its attributes stay what they were on %s: %v", r, r.host.name, err)
	case err != nil:
		return err
	}
	r.altered = append([]string{}, now...)
	return nil
}
