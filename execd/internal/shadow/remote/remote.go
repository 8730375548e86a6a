// Package remote keeps the claims on slots of other hosts over a restart of execd, in the directory
// remote of the spool. Their files have the secrets of the claims.
//
// Package shadow alone imports it.
package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/aside"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// format is that of the files.
const format = 1

// MaxLease is the longest lease, in seconds: a year.
const MaxLease = 365 * 24 * 60 * 60

// Claim is a claim on disk, from before the first run under it until it is given back or
// its lease is over. What runs under it is in the records of jobs.
type Claim struct {
	Format int         `json:"format"`
	ID     api.ClaimID `json:"id"` // with its secret
	Host   string      `json:"host"`
	User   string      `json:"user"` // for whom it was asked, by his name here
	Slot   string      `json:"slot"` // its name on the host
	Queue  string      `json:"queue"`
	Lease  int         `json:"lease"`        // seconds
	Ad     string      `json:"ad,omitempty"` // of the slot as it was granted, in old syntax
}

// Public is what the claim is called where its secret is not to be seen.
func (r *Claim) Public() string { return r.ID.String() }

// Name names a claim: two hosts may call themselves, and their claims, the same.
type Name struct{ Host, Public string }

// Name returns the name of a claim.
func (r *Claim) Name() Name { return Name{r.Host, r.Public()} }

// Check refuses a claim of which its host says what cannot be.
func (r *Claim) Check() error {
	if r.Lease < api.MinLease || r.Lease > MaxLease || !api.IsName(r.Queue) || !api.IsName(r.Slot) {
		return errors.New("it grants a claim that has no slot or no lease")
	}
	_, err := file(r)
	return err
}

// maxFile bounds a file, written or read.
const maxFile = 64 << 10

// maxID bounds the id of a claim, in bytes.
const maxID = 1024

// file returns the name of the file of a claim: the host, and the two numbers of its id.
func file(r *Claim) (string, error) {
	parts := strings.Split(string(r.ID), "#")
	if len(parts) != 4 || len(r.ID) > maxID || strings.ContainsFunc(string(r.ID), func(c rune) bool { return c <= ' ' || c >= 0x7f }) || !isNumber(parts[1]) || !isNumber(parts[2]) || parts[3] == "" {
		return "", errors.New("its id is none of a claim")
	}
	name := r.Host + "." + parts[1] + "." + parts[2]
	if r.Host == "" || r.Host[0] == '.' || strings.ContainsAny(r.Host, "/\x00") || len(name) > 255 {
		return "", errors.New("its host has no name of a host")
	}
	return name, nil
}

func isNumber(text string) bool {
	return text != "" && len(text) <= 20 && strings.Trim(text, "0123456789") == ""
}

// parse reads the file of a claim. The error does not repeat what is in it.
func parse(name string, data []byte) (*Claim, error) {
	var r Claim
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, errors.New("not a claim")
	}
	if r.Format > format {
		return nil, fmt.Errorf("%w: the claim has %d, this execd reads %d", spool.ErrFormat, r.Format, format)
	}
	switch want, err := file(&r); {
	case err != nil:
		return nil, err
	case want != name:
		return nil, errors.New("it has the id of another claim")
	case r.Format < 1 || r.Lease < 1 || r.Lease > MaxLease || r.Queue == "":
		return nil, errors.New("a claim of no slot")
	}
	return &r, nil
}

// Store is that of the files.
type Store struct{ Root *spool.Root }

func (s *Store) path(name string) string { return s.Root.Path(spool.DirRemote, name) }

// Put writes a claim. When it returns without an error the claim is durable.
func (s *Store) Put(r *Claim) error {
	r.Format = format
	name, err := file(r)
	if err != nil {
		return fmt.Errorf("cannot store claim %s: %w", r.Public(), err)
	}
	data, err := json.Marshal(r)
	if err == nil && len(data) >= maxFile {
		err = fmt.Errorf("it has %d bytes, at most %d are possible", len(data)+1, maxFile)
	}
	if err == nil {
		err = atomicfile.WriteDurable(s.path(name), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot store claim %s: %w", r.Public(), err)
	}
	return nil
}

// Remove removes a claim that is over. A power cut may bring it back: then its host does
// not know it any more.
func (s *Store) Remove(r *Claim) error {
	name, err := file(r)
	if err == nil {
		err = atomicfile.Remove(s.path(name))
	}
	if err != nil {
		return fmt.Errorf("cannot remove claim %s: %w", r.Public(), err)
	}
	return nil
}

// Load returns the claims that an earlier execd has left. Files that are none are set
// aside; one that cannot be read may be a claim under which a job runs, so it is an error.
func (s *Store) Load(log *slog.Logger) (list []*Claim, err error) {
	names, err := s.Root.ListRemote()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := spool.ReadFile(s.path(name), maxFile)
		var r *Claim
		if err == nil {
			r, err = parse(name, data)
		}
		switch {
		case err == nil:
			list = append(list, r)
		case spool.Unread(err), errors.Is(err, spool.ErrFormat):
			return nil, fmt.Errorf("cannot read %s/%s: %w", spool.DirRemote, name, err)
		default:
			_ = aside.Put(s.Root, log, s.path(name), fmt.Errorf("cannot read it: %w", err)) // it was told
		}
	}
	return list, nil
}
