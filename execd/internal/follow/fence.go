package follow

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// name is that of a claim in this spool: the start of execd that has made it and its number,
// as its file in claims/ has them.
type name string

// nameOf returns the name of a claim with a public id; false: it is no such id.
func nameOf(public string) (name, bool) {
	parts := strings.Split(strings.TrimSuffix(public, "#..."), "#")
	if len(parts) < 3 {
		return "", false
	}
	n := name(parts[len(parts)-2] + "." + parts[len(parts)-1])
	return n, n.valid()
}

// valid reports whether it is the name of a file.
func (n name) valid() bool {
	boot, seq, _ := strings.Cut(string(n), ".")
	b, err1 := strconv.ParseInt(boot, 10, 64)
	s, err2 := strconv.ParseUint(seq, 10, 64)
	return err1 == nil && err2 == nil && string(n) == strconv.FormatInt(b, 10)+"."+strconv.FormatUint(s, 10)
}

// maxFence bounds a file in fences/, in bytes.
const maxFence = 32

// parseFence parses a fence: the highest counter of a claim that starts no job, on a line.
func parseFence(data []byte) (counter uint64, err error) {
	counter, err = strconv.ParseUint(strings.TrimSuffix(string(data), "\n"), 10, 64)
	if err != nil || string(data) != string(appendFence(counter)) {
		return 0, errors.New("not a fence")
	}
	return counter, nil
}

// appendFence is the file of a fence.
func appendFence(counter uint64) []byte { return append(strconv.AppendUint(nil, counter, 10), '\n') }

// readFences reads the fences of claims that last, and removes the others. Of a damaged one
// nothing that is followed is started any more under its claim: what it has fenced is not
// known.
func (a *Activations) readFences() error {
	names, err := a.Root.ListFences()
	if err != nil {
		return err
	}
	claims, err := a.Root.ListClaims()
	if err != nil {
		return err
	}
	for _, file := range names {
		path, n := a.Root.Path(spool.DirFences, file), name(file)
		if !slices.Contains(claims, file) {
			a.removeFence(n)
			continue
		}
		data, err := spool.ReadFile(path, maxFence)
		if err != nil && spool.Unread(err) {
			return fmt.Errorf("cannot read fences/%s: %w", file, err)
		}
		counter := uint64(math.MaxUint64)
		if err == nil {
			counter, err = parseFence(data)
		}
		if err != nil { // it stays, so that the next execd knows, too
			a.Log.Error(fmt.Sprintf("fences/%s: %v: nothing that is followed is started under its claim", file, err))
			counter = math.MaxUint64
		}
		a.spent[n], a.fences[n] = counter, counter
	}
	return nil
}

// Fence has an id that is not known refused from then on, under a claim of the caller's. That
// is on disk when it returns true. False: the id is known.
func (a *Activations) Fence(id api.SandboxID) (bool, error) {
	claim, counter, err := id.Parse()
	n, ok := nameOf(claim)
	if err != nil || !ok {
		return false, api.Refusef(api.RefusedMessage, "%q is no id of an activation", api.Short(string(id)))
	}
	a.file.Lock()
	defer a.file.Unlock()
	a.mu.Lock()
	if a.known[id] != nil {
		a.mu.Unlock()
		return false, nil
	}
	if !a.Claimed(claim) { // no id of it is accepted any more
		a.mu.Unlock()
		return true, nil
	}
	a.spent[n] = max(a.spent[n], counter)
	highest, done := a.spent[n], a.fences[n] >= counter
	a.mu.Unlock()
	if done {
		return true, nil
	}
	if err := atomicfile.WriteDurable(a.Root.Path(spool.DirFences, string(n)), appendFence(highest), 0o600); err != nil {
		return false, fmt.Errorf("cannot fence activation %q: %w", api.Short(string(id)), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fences[n] = highest
	return true, nil
}

// unfence removes the fence of a claim that is over.
func (a *Activations) unfence(n name) {
	a.file.Lock()
	defer a.file.Unlock()
	a.mu.Lock()
	_, is := a.fences[n]
	delete(a.fences, n)
	a.mu.Unlock()
	if is {
		a.removeFence(n)
	}
}

// removeFence removes the file of a fence. What cannot be removed the next execd removes.
func (a *Activations) removeFence(n name) {
	if err := atomicfile.Remove(a.Root.Path(spool.DirFences, string(n))); err != nil {
		a.Log.Warn(err.Error())
	}
}
