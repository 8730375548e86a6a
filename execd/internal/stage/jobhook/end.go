package jobhook

import (
	"fmt"
	"time"

	"paddock/execd/internal/hook"
	"paddock/execd/internal/stage/exit"
	"paddock/spool"
)

// RunPost runs the script that the job wants to be run after it, for a step, and reports
// whether it has ended.
func (x *Hooks) RunPost(step string, attempts int) (over bool, err error) {
	h := x.Post
	res, err := x.await(h, true, nil, func() ([]byte, error) { return nil, nil })
	if spool.Unread(err) || exit.Again(err, attempts) {
		return false, err
	}
	if err != nil {
		// The directory is gone, or a power cut has left half of it: it will never be
		// known how to call it.
		x.host.Log.Warn(fmt.Sprintf("job %v: script after the job: %v", x.of, err))
		res = failed(h, err)
	}
	if res == nil {
		return false, nil
	}
	if err := x.Note(HookRun{Step: step, Result: res}); err != nil {
		return false, err
	}
	x.called()
	x.PostStatus = statusOf(res)
	return true, nil
}

// failed is the result of a hook that could not be called.
func failed(h *hook.Hook, err error) *hook.Result {
	return &hook.Result{Keyword: h.Keyword, Hook: h.Name, Started: time.Now(), Err: err}
}

// RunEnd runs a hook that reports the end of a job, or of its output, for a step, with the
// ad that stdin makes.
func (x *Hooks) RunEnd(h *hook.Hook, step string, args []string, stdin func() ([]byte, error), attempts int) (exit.Result, error) {
	res, err := x.await(h, true, args, stdin)
	if exit.Again(err, attempts) {
		return exit.Failed, err
	}
	if err != nil {
		// Nobody is helped by a job that never ends for want of its ad.
		x.host.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s result=%q", x.of, h.Keyword, h.Name, err))
		res = failed(h, err)
		x.exitTries = maxExitTries
	}
	if res == nil {
		return exit.InProgress, nil
	}
	if scarce(res.Err) && attempts < maxScarce {
		x.called()
		return exit.Failed, &exit.Retry{Err: res.Err}
	}
	if res.Err != nil && x.exitTries < maxExitTries {
		x.exitTries++
		x.host.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s result=%q (tried again)", x.of, h.Keyword, h.Name, res.Err))
		x.called()
		return x.RunEnd(h, step, args, stdin, attempts)
	}
	if !res.OK() {
		x.host.Log.Warn(fmt.Sprintf("job %v: hook: keyword=%s hook=%s took=%.3fs result=%q", x.of, h.Keyword, h.Name, res.Took.Seconds(), res.String()))
	}
	if err := x.Note(HookRun{Step: step, Result: res}); err != nil {
		return exit.Failed, err
	}
	x.called()
	x.exitTries = 0
	return exit.Nothing, nil // it is noted
}

// maxExitTries is how often a hook for the end of a job that cannot be started is
// tried again.
const maxExitTries = 1

// maxScarce is how many more tries there are if descriptors, processes or memory lack to
// start it, half a minute in all: that passes, and a source that is not told waits for ever.
const maxScarce = 5
