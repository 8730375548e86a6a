package pack

import (
	"fmt"
	"strings"
)

// Have is what a receiver has of a tree, by which an attempt goes on where another was
// interrupted. The zero Have is nothing.
type Have struct {
	Items         uint64
	Bytes         uint64 // of them, without holes
	Offset        int64  // of the file behind them; 0: nothing of it
	Data          uint64 // of that file, without holes
	List, Root    Digest
	Partial, File Digest // with Offset: what List is with that file, and the digest of what it has
}

const haveForm = "paddock-have 2 %016x %016x %016x %016x %s %s %s %s"

// String returns it as a line without its end, always of the same length.
func (h Have) String() string {
	return fmt.Sprintf(haveForm, h.Items, h.Bytes, uint64(h.Offset), h.Data, h.List, h.Root, h.Partial, h.File)
}

// ParseHave reads what String has written; "" is nothing.
func ParseHave(text string) (Have, error) {
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return Have{}, nil
	}
	var h Have
	var at uint64
	var digests [4][]byte
	_, err := fmt.Sscanf(text, "paddock-have 2 %x %x %x %x %x %x %x %x", &h.Items, &h.Bytes, &at, &h.Data, &digests[0], &digests[1], &digests[2], &digests[3])
	h.Offset = int64(at)
	for i, d := range []*Digest{&h.List, &h.Root, &h.Partial, &h.File} {
		copy(d[:], digests[i])
	}
	if err != nil || h.Offset < 0 || h.String() != text {
		return Have{}, fmt.Errorf("%.50q does not say what somebody has", text)
	}
	return h, nil
}
