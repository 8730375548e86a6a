package admit

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/queue"
)

// Check refuses what can never become a job, whoever submits it.
func Check(r *api.SubmitRequest) error {
	reject := func(format string, args ...any) error {
		return api.Errorf(api.CodeRejected, "job rejected: "+format, args...)
	}
	if err := r.Check(); err != nil {
		return err
	}
	if len(r.HoldArray)+len(r.HoldArrayOK) > 0 && !r.Tasks.IsArray() {
		return job.ErrNoArray
	}
	if r.Binding != "" {
		if err := queue.CheckBinding(r.Binding); err != nil {
			return err
		}
	}
	when := r.CheckpointWhen
	if _, err := conf.ParseTime(when); when != "" && err != nil && strings.Trim(when, "nsmx") != "" {
		return reject("%q is no value of -c", api.Short(when))
	}
	if err := mayBeContext(r.Context); err != nil {
		return err
	}
	if err := mayHaveAttributes(r); err != nil {
		return reject("%v", err)
	}
	return mayBeTold(r.MailTo)
}

// mayHaveAttributes refuses attributes that a job may not have, and malformed ones that
// execd reads.
func mayHaveAttributes(r *api.SubmitRequest) error {
	if len(r.Attributes) == 0 {
		return nil
	}
	if _, err := ad.Attributes(r.Attributes); err != nil {
		return err
	}
	_, err := ownExtras(r)
	return err
}

// ownExtras reads the attributes for execd. It does not matter where the job is to run.
func ownExtras(r *api.SubmitRequest) (ad.Extras, error) {
	return ad.OwnExtras(ad.Job(ad.JobInfo{Number: 1, Task: 1, Submitted: time.Now(), Request: r, Iwd: "/"}), time.Now())
}

// CheckCheckpoint refuses what makes no sense with or without -ckpt, once the interface
// is known to exist.
func CheckCheckpoint(r *api.SubmitRequest) error {
	when := r.CheckpointWhen
	switch none := when == "" || strings.Contains(when, "n"); {
	case r.Checkpoint == "" && !none:
		return api.Errorf(api.CodeRejected, "checkpointing denied")
	case r.Checkpoint != "" && none && when != "":
		return api.Errorf(api.CodeRejected, "job rejected: checkpointing with \"-c n\" requested")
	}
	return nil
}

// mayBeContext refuses a context that cannot be shown in a line.
func mayBeContext(context []string) error {
	total := 0
	for i, v := range context {
		total += len(v) + 1
		name, _, _ := strings.Cut(v, "=")
		same := func(other string) bool {
			n, _, _ := strings.Cut(other, "=")
			return n == name
		}
		if name == "" || v != api.Visible(v) || slices.ContainsFunc(context[:i], same) {
			return api.Errorf(api.CodeRejected, "job rejected: %q is not a context variable", api.Short(v))
		}
	}
	if len(context) > api.MaxWords || total > api.MaxContext {
		return api.Errorf(api.CodeRejected, "job rejected: the context has %d variables of %d bytes, at most %d of %d are possible", len(context), total, api.MaxWords, api.MaxContext)
	}
	return nil
}

// mayBeTold refuses addresses that no mail can be sent to.
func mayBeTold(addresses []string) error {
	if len(addresses) > api.MaxWords {
		return api.Errorf(api.CodeRejected, "job rejected: %d mail addresses are too many, at most %d are possible", len(addresses), api.MaxWords)
	}
	for _, a := range addresses {
		if err := api.CheckAddress(a); err != nil {
			return err
		}
	}
	return nil
}

// resolving bounds the time for looking up the hosts of a job's paths; hosts without an
// answer by then are taken to exist.
const resolving = 2 * time.Second

// KnownHosts refuses paths of -o, -e and -i on hosts that do not exist: the job would
// write to another file than its owner thinks, or to none.
func KnownHosts(ctx context.Context, c *conf.Config, r *api.SubmitRequest) error {
	ctx, cancel := context.WithTimeout(ctx, resolving)
	defer cancel()
	for _, paths := range []string{r.Stdout, r.Stderr, r.Stdin} {
		for entry := range strings.SplitSeq(paths, ",") {
			host, path, has := strings.Cut(entry, ":")
			if has && path == "" {
				return api.Errorf(api.CodeRejected, "paths may not be empty strings")
			}
			if !has || host == "" || strings.Contains(host, "/") || c.IsHere(host) {
				continue
			}
			if _, err := net.DefaultResolver.LookupHost(ctx, host); err != nil && ctx.Err() == nil {
				return api.Errorf(api.CodeRejected, "can't resolve hostname %q", api.Short(host))
			}
		}
	}
	return nil
}
