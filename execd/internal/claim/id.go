package claim

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// secretBytes is the length of the secret of a claim id: it cannot be guessed.
const secretBytes = 32

// ID names a claim and is the right to use it: `<address>#boot#sequence#secret`.
// The part before the last # is public. Whoever has the secret after it can use the slot,
// so the type prints without it, and no encoder sees it: only Reveal returns it.
type ID struct {
	public string // up to and including the last #
	secret string // lower-case hexadecimal digits
}

// newID returns an id that nobody had before.
func newID(address string, boot int64, seq uint64) ID {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it never fails (crypto/rand)
	return ID{
		public: "<" + address + ">#" + strconv.FormatInt(boot, 10) + "#" + strconv.FormatUint(seq, 10) + "#",
		secret: hex.EncodeToString(secret),
	}
}

// PublicID parses what String returned. The result has no secret.
func PublicID(text string) ID { return ID{public: strings.TrimSuffix(text, "...")} }

// maxID bounds an id that comes from outside.
const maxID = 1024

// ParseID parses what Reveal returned. The error does not repeat the text.
func ParseID(text string) (ID, error) {
	i := strings.LastIndexByte(text, '#')
	switch {
	case len(text) > maxID:
		return ID{}, fmt.Errorf("cannot read claim id: it has %d bytes, at most %d are possible", len(text), maxID)
	case i < 0:
		return ID{}, fmt.Errorf("cannot read claim id: it has no #")
	case i == len(text)-1:
		return ID{}, fmt.Errorf("cannot read claim id: it has no secret")
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return ID{}, fmt.Errorf("cannot read claim id: it has a byte that is not printable")
		}
	}
	return ID{public: text[:i+1], secret: text[i+1:]}, nil
}

// String returns the public part, followed by three dots.
func (id ID) String() string {
	if id.public == "" {
		return ""
	}
	return id.public + "..."
}

// GoString keeps the secret out of %#v.
func (id ID) GoString() string { return strconv.Quote(id.String()) }

// Format keeps the secret out of every other verb of package fmt, which would
// print the fields.
func (id ID) Format(f fmt.State, verb rune) {
	if verb == 'q' || f.Flag('#') {
		_, _ = fmt.Fprint(f, id.GoString())
		return
	}
	_, _ = fmt.Fprint(f, id.String())
}

// Reveal returns the whole id, for its holder and for the spool only; empty: only its
// public part is known.
func (id ID) Reveal() string {
	if id.secret == "" {
		return ""
	}
	return id.public + id.secret
}

// Zero reports whether the id is empty.
func (id ID) Zero() bool { return id.public == "" }

// Equal compares two ids in constant time.
func (id ID) Equal(other ID) bool {
	same := subtle.ConstantTimeCompare([]byte(id.secret), []byte(other.secret))
	return same == 1 && id.secret != "" && id.public == other.public
}

// sequence returns the boot and the number of an id of ours.
func (id ID) sequence() (boot int64, seq uint64, ok bool) {
	parts := strings.Split(strings.TrimSuffix(id.public, "#"), "#")
	if len(parts) != 3 {
		return 0, 0, false
	}
	boot, err1 := strconv.ParseInt(parts[1], 10, 64)
	seq, err2 := strconv.ParseUint(parts[2], 10, 64)
	return boot, seq, err1 == nil && err2 == nil
}
