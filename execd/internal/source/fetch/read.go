package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/slot"
	"paddock/execd/internal/source"
)

// failure says in what way a hook did not come to its own end; empty: it did,
// whatever its exit status.
func failure(r *hook.Result, h *hook.Hook) string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.TimedOut && h.Served:
		return fmt.Sprintf("not answered within its limit of %v", h.Limit)
	case r.TooLong && h.Served:
		return fmt.Sprintf("answered by more than %d bytes", h.MaxOutput)
	case r.TimedOut:
		return fmt.Sprintf("killed after its limit of %v", h.Limit)
	case r.TooLong:
		return fmt.Sprintf("killed after more than %d bytes of output", h.MaxOutput)
	case r.Status < 0:
		return fmt.Sprintf("killed by signal %d (%v)", -r.Status, syscall.Signal(-r.Status))
	}
	return ""
}

// read makes work of what the fetch hook has printed; nil: there is none. why says
// why the answer as a whole means nothing. The exit status does not count
// (REQ-HOOK-22).
func (w *worker) read(r *hook.Result, h *hook.Hook) (c *fetched, why string) {
	if why := failure(r, h); why != "" {
		return nil, why
	}
	ad, script, err := parse(r.Stdout)
	r.Stdout = nil // a script may be large
	if err != nil {
		return nil, err.Error()
	}
	if ad == nil {
		return nil, ""
	}
	return &fetched{slot: w.slot, keyword: w.keyword, ad: ad, script: script}, ""
}

// parse reads an ad as a hook prints it: an attribute = expression on each line. A
// single line that is none makes all of it worthless: half a job is not the job
// that somebody wants to have run (REQ-HOOK-105). No attribute at all is no work. The
// script that comes in it is no part of what is returned as the ad.
func parse(text []byte) (work *classad.Ad, script []byte, err error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil, nil
	}
	if before, _, found := bytes.Cut(text, []byte{0}); found {
		return nil, nil, fmt.Errorf("its answer is no ad: line %d: a NUL byte", 1+bytes.Count(before, []byte("\n")))
	}
	rest, script, err := ad.CutScript(text)
	if err != nil {
		return nil, nil, fmt.Errorf("its answer is no ad: %w", err)
	}
	work, err = classad.ParseOld(rest)
	if err != nil {
		if syntax, ok := errors.AsType[*classad.SyntaxError](err); ok {
			return nil, nil, fmt.Errorf("its answer is no ad: line %d: %s", syntax.Line, unquoted(syntax.Msg))
		}
		return nil, nil, fmt.Errorf("its answer is no ad: %s", short(err.Error()))
	}
	if work.Len() == 0 && script == nil {
		return nil, nil, nil
	}
	return work, script, nil
}

// unquoted is a message without what it repeats of the answer: everybody may read
// it, in the slot's ad and the log, and the answer may have passwords.
func unquoted(msg string) string {
	before, _, found := strings.Cut(msg, `"`)
	if found {
		return before + "text"
	}
	return msg
}

// short bounds what of an answer comes into the log, on one line.
func short(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, s)
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "..."
	}
	return s
}

// prepare completes the ad of what was fetched for a slot (REQ-HOOK-64, -106), and
// makes the request for a job of it.
func (w *worker) prepare(c *fetched) error {
	slot := w.layer.slotAd(w.slot)
	env := &classad.Env{My: slot}
	o := ad.RequestOptions{Slot: slot, Now: time.Now(), Config: w.layer.o.Config(), Script: c.script}
	whole, r, err := source.Request(c.ad, w.keyword, env.Attr("PartitionableSlot").True(), o)
	if whole != nil {
		c.ad, c.request = whole, r
	}
	return err
}

// work is what the job's record keeps of where it came from.
func work(c *fetched, identity string) *api.Work {
	return &api.Work{Ad: c.ad.OldString(), Identity: identity, Slot: api.SlotID(c.slot.String()), Claim: c.id, Holder: slot.FetchHolder}
}
