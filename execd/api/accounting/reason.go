package accounting

import (
	"strconv"
	"strings"
)

// maxReason bounds the field of the reason, which may quote names of users.
const maxReason = 1000

// escape returns a reason as a field: characters that would end the field, and
// control characters, are written as % and two hexadecimal digits.
func escape(reason string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(reason) {
		c := reason[i]
		special := c < ' ' || c == ':' || c == '%' || c == 0x7f
		if size := b.Len() + 1; size > maxReason || special && size+2 > maxReason {
			break
		}
		if special {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape reverses escape. Anything else stays as it is.
func unescape(field []byte) string {
	text := string(field)
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		c, err := strconv.ParseUint(after[:min(2, len(after))], 16, 8)
		if err != nil || len(after) < 2 {
			b.WriteByte('%')
			text = after
			continue
		}
		b.WriteByte(byte(c))
		text = after[2:]
	}
}
