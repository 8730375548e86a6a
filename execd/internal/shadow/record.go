package shadow

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

// recordFormat is the format of the files in remote/.
const recordFormat = 1

// record is a claim on disk, from before the first run under it until it is given back or
// its lease is over. What runs under it is in the records of jobs.
type record struct {
	Format int         `json:"format"`
	ID     api.ClaimID `json:"id"` // with its secret
	Host   string      `json:"host"`
	User   string      `json:"user"` // for whom it was asked, by his name here
	Slot   string      `json:"slot"` // its name on the host
	Queue  string      `json:"queue"`
	Lease  int         `json:"lease"`        // seconds
	Ad     string      `json:"ad,omitempty"` // of the slot as it was granted, in old syntax
}

// public is what the claim is called where its secret is not to be seen.
func (r *record) public() string { return r.ID.String() }

// claimName names a claim: two hosts may call themselves, and their claims, the same.
type claimName struct{ host, public string }

func (r *record) name() claimName { return claimName{r.Host, r.public()} }

// maxRecord bounds a file in remote/, written or read.
const maxRecord = 64 << 10

// maxID bounds the id of a claim, in bytes.
const maxID = 1024

// nameOf returns the name of the file of a claim: the host, and the two numbers of its id.
func nameOf(r *record) (string, error) {
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
func parse(name string, data []byte) (*record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, errors.New("not a claim")
	}
	if r.Format > recordFormat {
		return nil, fmt.Errorf("%w: the claim has %d, this execd reads %d", spool.ErrFormat, r.Format, recordFormat)
	}
	switch want, err := nameOf(&r); {
	case err != nil:
		return nil, err
	case want != name:
		return nil, errors.New("it has the id of another claim")
	case r.Format < 1 || r.Lease < 1 || r.Lease > maxLease || r.Queue == "":
		return nil, errors.New("a claim of no slot")
	}
	return &r, nil
}

// records keeps the claims over a restart, in the directory remote of the spool.
type records struct{ root *spool.Root }

func (s *records) path(name string) string { return s.root.Path(spool.DirRemote, name) }

// put writes a claim. When it returns without an error the claim is durable.
func (s *records) put(r *record) error {
	r.Format = recordFormat
	name, err := nameOf(r)
	if err != nil {
		return fmt.Errorf("cannot store claim %s: %w", r.public(), err)
	}
	data, err := json.Marshal(r)
	if err == nil && len(data) >= maxRecord {
		err = fmt.Errorf("it has %d bytes, at most %d are possible", len(data)+1, maxRecord)
	}
	if err == nil {
		err = atomicfile.WriteDurable(s.path(name), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot store claim %s: %w", r.public(), err)
	}
	return nil
}

// remove removes a claim that is over. A power cut may bring it back: then its host does
// not know it any more.
func (s *records) remove(r *record) error {
	name, err := nameOf(r)
	if err == nil {
		err = atomicfile.Remove(s.path(name))
	}
	if err != nil {
		return fmt.Errorf("cannot remove claim %s: %w", r.public(), err)
	}
	return nil
}

// load returns the claims that an earlier execd has left. Files that are none are set
// aside; one that cannot be read may be a claim under which a job runs, so it is an error.
func (s *records) load(log *slog.Logger) (list []*record, err error) {
	names, err := s.root.ListRemote()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		data, err := spool.ReadFile(s.path(name), maxRecord)
		var r *record
		if err == nil {
			r, err = parse(name, data)
		}
		switch {
		case err == nil:
			list = append(list, r)
		case spool.Unread(err), errors.Is(err, spool.ErrFormat):
			return nil, fmt.Errorf("cannot read %s/%s: %w", spool.DirRemote, name, err)
		default:
			_ = aside.Put(s.root, log, s.path(name), fmt.Errorf("cannot read it: %w", err)) // it was told
		}
	}
	return list, nil
}
