package slot

import (
	"fmt"
	"strconv"
	"strings"
)

// ID names a slot of the host.
type ID struct {
	Number  int // from 1, over all queues of the host by seq_no and name; 0: no slot
	Dynamic int // M of slotN_M, which was carved out of slotN; 0: it was not carved
}

// Static returns the name of a slot that was not carved.
func Static(number int) ID { return ID{Number: number} }

// String returns the numbers, 1 or 1_2; empty for no slot.
func (id ID) String() string {
	switch {
	case id.Number == 0:
		return ""
	case id.Dynamic > 0:
		return strconv.Itoa(id.Number) + "_" + strconv.Itoa(id.Dynamic)
	}
	return strconv.Itoa(id.Number)
}

// Name returns what stands before the @ of the slot's name, slot1 or slot1_2.
func (id ID) Name() string { return "slot" + id.String() }

// Parent returns the slot that it was carved out of, or the slot itself.
func (id ID) Parent() ID { return Static(id.Number) }

// IsDynamic reports whether the slot was carved out of another.
func (id ID) IsDynamic() bool { return id.Dynamic > 0 }

// IsZero reports whether it names no slot.
func (id ID) IsZero() bool { return id == ID{} }

// ParseID reads a slot as people write it: 1, 1_2, slot1_2, and with the name of
// the host behind an @.
func ParseID(text string) (ID, error) {
	name, _, _ := strings.Cut(text, "@")
	name = strings.TrimPrefix(name, "slot")
	first, second, carved := strings.Cut(name, "_")
	id := ID{Number: positive(first)}
	if carved {
		id.Dynamic = positive(second)
	}
	if id.Number == 0 || carved && id.Dynamic == 0 {
		return ID{}, fmt.Errorf("%q is no slot", text)
	}
	return id, nil
}

// positive reads a number as it is written by String; 0: it is none.
func positive(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || strconv.Itoa(n) != text {
		return 0
	}
	return n
}

// MarshalText is String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseID; empty is no slot.
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}
