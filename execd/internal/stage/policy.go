package stage

import (
	"paddock/classad"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/policy"
)

// watch has the policy of a job looked at while it runs. Of what came from elsewhere who sent
// it does so.
func (r *Runner) watch(l *life) {
	t := l.task
	if !r.From(t).Queued() || !policy.Any(t.Job.Terms().Needs.Attributes()) {
		return
	}
	l.hooks.Policy = &policy.Watch{
		Config: r.Config,
		Ad: func() (*classad.Ad, policy.Times) {
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
