package claim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"paddock/execd/internal/aside"
	"paddock/execd/internal/slot"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// recordFormat is the format of the files in claims/.
const recordFormat = 1

// How a claim was made, in its record.
const (
	requested = "program"
	offered   = "fetch"
)

// record is a claim on disk: everything that cannot be found out again.
type record struct {
	Format int       `json:"format"`
	ID     string    `json:"id"` // with its secret
	Queue  string    `json:"queue"`
	Index  int       `json:"place"` // of the slot in its queue, from 1
	Kind   string    `json:"kind"`  // whether it was requested or offered
	Holder string    `json:"holder"`
	UID    int       `json:"uid"`
	Host   string    `json:"host,omitempty"` // that has named the holder
	Since  time.Time `json:"since"`
	// SinceUp is the uptime of the host at Since. The next execd counts by it, since the
	// clock may have been set.
	SinceUp time.Duration `json:"since_up,omitempty"`
	Lease   int           `json:"lease,omitempty"` // seconds; 0: for ever
	// Ends is when that is over, in the form of the file lease. In another life of the host
	// it means nothing, and the lease begins anew.
	Ends     string `json:"ends,omitempty"`
	Priority int    `json:"priority,omitempty"`
	Waiting  bool   `json:"waiting,omitempty"` // for the slot
	Ad       string `json:"ad,omitempty"`      // of the job that was claimed for, in old syntax

	Partitionable bool           `json:"partitionable,omitempty"` // the slot is, and others are carved out of it
	Dynamic       int            `json:"dynamic,omitempty"`       // number of a dynamic slot
	Has           slot.Resources `json:"has,omitzero"`            // of a dynamic slot
}

// Store keeps claims over a restart of execd, in the directory claims of the spool.
type Store struct {
	root *spool.Root

	mu    sync.Mutex
	left  map[string]bool // guarded by mu; files of claims that are over and could not be removed
	sizes map[string]int  // guarded by mu; of files that this Store has written
}

// NewStore returns the store of a spool.
func NewStore(root *spool.Root) *Store {
	return &Store{root: root, left: map[string]bool{}, sizes: map[string]int{}}
}

// path returns the file of a claim, which has no part of the secret in its name.
func (s *Store) path(id ID) (string, error) {
	boot, seq, ok := id.sequence()
	if !ok {
		return "", fmt.Errorf("internal error: claim %v has no number", id)
	}
	return s.root.Path(spool.DirClaims, strconv.FormatInt(boot, 10)+"."+strconv.FormatUint(seq, 10)), nil
}

// put writes a claim. When it returns without an error the claim is durable. Again says that it
// was before: what is new of it then is another lease, which means nothing when the power comes
// back, and the work that it is for, which has a record.
func (s *Store) put(id ID, r *record, again bool) error {
	path, err := s.path(id)
	if err != nil {
		return err
	}
	r.Format, r.ID = recordFormat, id.Reveal()
	data, err := json.Marshal(r)
	if err == nil && len(data) >= maxRecord {
		err = fmt.Errorf("it has %d bytes with its ad, at most %d are possible", len(data)+1, maxRecord)
	}
	if err == nil {
		err = s.removeLeft() // a restart would give the slot to what was there before
	}
	if err == nil {
		err = s.write(path, append(data, '\n'), again)
	}
	if err != nil {
		return fmt.Errorf("cannot store claim %v: %w", id, err)
	}
	return nil
}

// maxAppended bounds a file with more than one record, in bytes.
const maxAppended = 64 << 10

// write writes a record. One that was there before gets a line behind it, which spares the file
// system to find a new inode, as long as there is room.
func (s *Store) write(path string, data []byte, again bool) error {
	s.mu.Lock()
	size := s.sizes[path]
	s.mu.Unlock()
	var err error
	switch {
	case !again:
		size, err = 0, atomicfile.WriteDurable(path, data, 0o600)
	case size == 0 || size+len(data) > maxAppended:
		// A file that replaces another has its contents when the power comes back (ext4,
		// XFS, Btrfs).
		size, err = 0, atomicfile.Write(path, data, 0o600)
	default:
		err = atomicfile.Append(path, data, 0o600)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sizes[path] = size + len(data); err != nil {
		delete(s.sizes, path)
	}
	return err
}

// remove removes a claim that is over. When it returns without an error no restart finds
// the claim. After an error no other claim is written before this one is removed.
func (s *Store) remove(id ID) error {
	path, err := s.path(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.left[path] = true
	delete(s.sizes, path)
	s.mu.Unlock()
	if err := s.removeLeft(); err != nil {
		return fmt.Errorf("cannot remove claim %v: %w", id, err)
	}
	return nil
}

// removeLeft removes the files of all claims that are over.
func (s *Store) removeLeft() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.left) == 0 {
		return nil
	}
	for path := range s.left {
		if err := atomicfile.Remove(path); err != nil {
			return err
		}
	}
	if err := atomicfile.SyncDir(s.root.Path(spool.DirClaims)); err != nil {
		return err
	}
	clear(s.left)
	return nil
}

// maxRecord bounds a file in claims/, written or read. Fetched work may have a larger ad,
// if the administrator lets hooks print that much.
const maxRecord = 16 << 20

// load returns the claims that an earlier execd has left. Files that are not claims are
// set aside. A file that cannot be read may be a claim, whose slot must not be given to
// others, so it is an error.
func (s *Store) load(log *slog.Logger) (records []record, err error) {
	names, err := s.root.ListClaims()
	if err != nil {
		return nil, err
	}
	damaged := map[string]error{}
	for _, name := range names {
		r, err := s.read(name)
		switch {
		case err == nil:
			records = append(records, *r)
		case spool.Unread(err), errors.Is(err, spool.ErrFormat):
			return nil, fmt.Errorf("cannot read claims/%s: %w", name, err)
		default:
			damaged[name] = err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(damaged)) {
		_ = aside.Put(s.root, log, s.root.Path(spool.DirClaims, name), fmt.Errorf("cannot read it: %w", damaged[name])) // it was told
	}
	slices.SortFunc(records, older)
	return records, nil
}

// older orders claims by when they were made, but those that waited come last: of two on
// one slot the older has it and the other waited, and the clock by which a start of execd
// is known may have been set back between the two.
func older(a, b record) int {
	waits := map[bool]int{true: 1}
	first, _ := ParseID(a.ID) // they were read
	second, _ := ParseID(b.ID)
	boot1, seq1, _ := first.sequence()
	boot2, seq2, _ := second.sequence()
	return cmp.Or(waits[a.Waiting]-waits[b.Waiting], cmp.Compare(boot1, boot2), cmp.Compare(seq1, seq2))
}

// lastRecord returns the record of a file that was written last. What was cut short behind it was
// promised to nobody.
func lastRecord(data []byte) (r record, ok bool) {
	for len(data) > 0 && !ok {
		line := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
		r = record{}
		ok = json.Unmarshal(data[line:], &r) == nil
		data = data[:line]
	}
	return r, ok
}

func (s *Store) read(name string) (*record, error) {
	data, err := spool.ReadFile(s.root.Path(spool.DirClaims, name), maxRecord)
	if err != nil {
		return nil, err
	}
	r, ok := lastRecord(data)
	if !ok {
		return nil, errors.New("not a claim") // an error of json would have a piece of it
	}
	if r.Format > recordFormat {
		return nil, fmt.Errorf("%w: the claim has %d, this execd reads %d", spool.ErrFormat, r.Format, recordFormat)
	}
	id, err := ParseID(r.ID)
	if err != nil {
		return nil, err
	}
	switch want, err := s.path(id); {
	case err != nil || filepath.Base(want) != name:
		return nil, errors.New("it has the id of another claim")
	case r.Format < 1 || r.Queue == "" || r.Index < 1 || r.Lease < 0 || r.Dynamic < 0 || r.Kind != offered && r.Kind != requested:
		return nil, errors.New("a claim of no slot")
	}
	return &r, nil
}

// Keep writes a claim to disk, also when it is there already and for other work now. It
// blocks, and no lock may be held. If the first write fails the claim is released. An
// error of a later one only changes what RANK sees after a restart.
func (t *Table) Keep(id ID) error {
	t.mu.Lock()
	c := t.byPublic(id.String())
	t.mu.Unlock()
	if c == nil {
		return nil
	}
	c.file.Lock()
	defer c.file.Unlock()
	return c.keep()
}

// keep is Keep. c.file is held, so that what is written last is what is so.
func (c *claim) keep() error {
	t := c.table
	t.mu.Lock()
	id, store := c.id, t.o.Store
	if c.over || store == nil {
		t.mu.Unlock()
		return nil
	}
	r, again := c.record(), c.stored
	t.mu.Unlock()
	err := store.put(id, r, again)
	t.mu.Lock()
	defer t.mu.Unlock()
	c.stored = true // after an error it may be there all the same, and not be durable
	switch {
	case c.over: // meanwhile
		t.effects = append(t.effects, Effect{Do: Forget, id: id})
	case err != nil && !again: // nobody is to find it
		c.on.handle(slot.Release{Claim: c.number})
		c.on.tidy()
	}
	return err
}

// record returns the record of a claim.
func (c *claim) record() *record {
	age := c.table.o.Now().Sub(c.made)
	r := record{
		Queue: c.on.slot.Queue, Index: c.on.slot.Index, Kind: requested, Holder: c.holder, UID: c.by.UID, Host: c.by.Host, Since: c.made, SinceUp: c.table.o.Uptime() - age,
		Lease: int(c.lease / time.Second), Priority: c.priority, Waiting: c.waiting,
		Partitionable: c.on.slot.isParent(), Dynamic: c.on.slot.Dynamic, Has: c.on.slot.has,
	}
	if c.offered {
		r.Kind = offered
	}
	if c.ad != nil {
		r.Ad = c.ad.OldString()
	}
	if c.ends > 0 {
		r.Ends = string(c.spoolLease().Append(nil))
	}
	return &r
}

// File does what a Forget or a Rewrite says to the file of a claim. It blocks.
func (t *Table) File(e Effect) error {
	if e.Do == Rewrite {
		return t.Keep(e.id)
	}
	t.mu.Lock()
	store := t.o.Store
	t.mu.Unlock()
	if store == nil {
		return nil
	}
	return store.remove(e.id)
}
