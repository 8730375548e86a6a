package classad

import (
	"hash/maphash"
	"iter"
	"strings"
)

// Ad is a set of named expressions. Names do not differ by case; their
// spelling and order are kept. An ad does not change once it has been made:
// any number of goroutines may evaluate it.
type Ad struct {
	attrs []attr
	index []int32 // open addressing by hash, attribute plus one; nil for few
}

type attr struct {
	name    string
	expr    node
	hash    uint32
	private bool
}

// Attr is an attribute, for New and With.
type Attr struct {
	Name string
	Expr Expr
}

// few is the number of attributes up to which an ad has no index.
const few = 8

// seed is random, so that nobody can choose names that collide in the index.
var seed = maphash.MakeSeed()

// hashName returns a hash that is the same for all spellings of a name.
func hashName(name string) uint32 {
	var buf [64]byte
	if len(name) > len(buf) {
		return uint32(maphash.String(seed, strings.ToLower(name)))
	}
	for i := range len(name) {
		buf[i] = lower(name[i])
	}
	return uint32(maphash.Bytes(seed, buf[:len(name)]))
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// equalFold compares names and strings as the language does: only the letters
// of ASCII have a case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// New makes an ad. Of attributes with the same name the last one counts.
func New(attrs ...Attr) *Ad {
	ad := &Ad{attrs: make([]attr, 0, len(attrs))}
	for _, a := range attrs {
		ad.put(a.Name, a.Expr.node())
	}
	return ad
}

// With returns a copy of the ad with the given attributes set.
func (ad *Ad) With(attrs ...Attr) *Ad {
	c := &Ad{attrs: make([]attr, len(ad.attrs), len(ad.attrs)+len(attrs))}
	copy(c.attrs, ad.attrs)
	c.reindex()
	for _, a := range attrs {
		c.put(a.Name, a.Expr.node())
	}
	return c
}

// Without returns a copy of the ad without the named attributes.
func (ad *Ad) Without(names ...string) *Ad {
	c := &Ad{attrs: make([]attr, 0, len(ad.attrs))}
next:
	for _, a := range ad.attrs {
		for _, name := range names {
			if equalFold(a.name, name) {
				continue next
			}
		}
		c.attrs = append(c.attrs, a)
	}
	c.reindex()
	return c
}

// Len returns the number of attributes.
func (ad *Ad) Len() int { return len(ad.attrs) }

// Lookup returns the expression of an attribute.
func (ad *Ad) Lookup(name string) (Expr, bool) {
	if i := ad.find(name, hashName(name)); i >= 0 {
		return Expr{ad.attrs[i].expr}, true
	}
	return Expr{}, false
}

// All ranges over the attributes in their order, private ones too.
func (ad *Ad) All() iter.Seq2[string, Expr] {
	return func(yield func(string, Expr) bool) {
		for _, a := range ad.attrs {
			if !yield(a.name, Expr{a.expr}) {
				return
			}
		}
	}
}

// Equal reports whether two ads have the same attributes, in any order.
func (ad *Ad) Equal(other *Ad) bool {
	if len(ad.attrs) != len(other.attrs) {
		return false
	}
	for _, a := range ad.attrs {
		i := other.find(a.name, a.hash)
		if i < 0 || !equal(a.expr, other.attrs[i].expr) {
			return false
		}
	}
	return true
}

// Private reports whether an attribute is a secret, such as the id of a claim:
// it is not printed with the others, and the ad at the other side of a match
// does not see it.
func Private(name string) bool {
	switch len(name) {
	case len("ClaimId"):
		return equalFold(name, "ClaimId")
	case len("ClaimIds"):
		return equalFold(name, "ClaimIds")
	case len("Capability"):
		return equalFold(name, "Capability")
	case len("ClaimIdList"):
		return equalFold(name, "ClaimIdList") || equalFold(name, "TransferKey")
	case len("ChildClaimIds"):
		if equalFold(name, "ChildClaimIds") || equalFold(name, "PairedClaimId") {
			return true
		}
	}
	const prefix = "_condor_priv"
	return len(name) >= len(prefix) && equalFold(name[:len(prefix)], prefix)
}

// secret reports whether an attribute is private. The Capability of a GPU is a number,
// and is for all to see.
func secret(name string, expr node) bool {
	if !Private(name) {
		return false
	}
	l, ok := expr.(*literal)
	return !ok || l.v.kind != IntKind && l.v.kind != RealKind || !equalFold(name, "Capability")
}

// find returns the index of an attribute, -1 if the ad does not have it.
func (ad *Ad) find(name string, hash uint32) int {
	if ad.index == nil {
		for i := range ad.attrs {
			if a := &ad.attrs[i]; a.hash == hash && equalFold(a.name, name) {
				return i
			}
		}
		return -1
	}
	mask := uint32(len(ad.index) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		i := int(ad.index[at]) - 1
		if i < 0 {
			return -1
		}
		if a := &ad.attrs[i]; a.hash == hash && equalFold(a.name, name) {
			return i
		}
	}
}

// put sets an attribute of an ad that nobody else has seen yet.
func (ad *Ad) put(name string, expr node) {
	hash := hashName(name)
	if i := ad.find(name, hash); i >= 0 {
		ad.attrs[i].expr, ad.attrs[i].private = expr, secret(name, expr)
		return
	}
	ad.attrs = append(ad.attrs, attr{name, expr, hash, secret(name, expr)})
	if 3*len(ad.attrs) > 2*len(ad.index) {
		ad.reindex()
		return
	}
	ad.enter(len(ad.attrs) - 1)
}

func (ad *Ad) reindex() {
	if len(ad.attrs) <= few {
		return
	}
	size := 4 * few
	// The index has room for as many attributes as the slice, so that it is made once.
	for 2*size < 3*cap(ad.attrs) {
		size *= 2
	}
	ad.index = make([]int32, size)
	for i := range ad.attrs {
		ad.enter(i)
	}
}

func (ad *Ad) enter(i int) {
	mask := uint32(len(ad.index) - 1)
	at := ad.attrs[i].hash & mask
	for ad.index[at] != 0 {
		at = (at + 1) & mask
	}
	ad.index[at] = int32(i + 1)
}
