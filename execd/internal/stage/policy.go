package stage

import (
	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/policy"
)

// watch has the policy of a job looked at while it runs, which it may be given meanwhile. Of
// what came from elsewhere who sent it does so.
func (r *Runner) watch(l *life) {
	t := l.task
	if !r.From(t).Queued() {
		return
	}
	l.hooks.Policy = &policy.Watch{
		Config: r.Config,
		Ad: func() (*classad.Ad, policy.Times) {
			if !l.hooks.HasPolicy() {
				return nil, policy.Times{}
			}
			used, _ := r.Usage.Usage(t.RunID())
			s := l.hooks.Status(used)
			return ad.Running(r.JobAd(t), s), policy.Times{Started: t.Started, Executing: s.Started}
		},
		Act: func(v policy.Verdict) {
			if r.Obey(t, &v) {
				l.kill()
			}
		},
	}
}
