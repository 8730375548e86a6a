package base

import (
	"fmt"
	"syscall"

	"paddock/execd/internal/job"
	"paddock/execd/internal/policy"
)

// Obey records what the policy of a job that runs wants, and reports whether it is to be
// killed for that now.
func (h *Host) Obey(t *job.Task, v *policy.Verdict) bool {
	want := job.Want{Signal: int(syscall.SIGKILL), By: v.By()}
	if v.Action == policy.Hold {
		want.Slot, want.Requeue, want.Error = true, !t.Job.Interactive, v.Reason
		want.Code, want.Subcode, want.Cause = v.Code, v.Subcode, v.Reason
	}
	news, err := h.Store.Evict(t, want)
	if err != nil {
		h.Log.Error(err.Error()) // it is done all the same
	}
	if news {
		h.Log.Info(fmt.Sprintf("job %v: is %s by %s", t, map[policy.Action]string{policy.Hold: "held", policy.Remove: "deleted"}[v.Action], v.By()))
	}
	return news
}
