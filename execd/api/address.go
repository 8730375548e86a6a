package api

import "strings"

// MaxAddress is the longest mail address, in bytes (RFC 5321, 4.5.3.1).
const MaxAddress = 254

// CheckAddress returns an error for what is not a plain mail address, user or
// user@host. Mailers take an argument with a dash in front for an option, one
// with a slash for a file and one with a bar for a program; none of these
// characters is allowed.
func CheckAddress(s string) error {
	local, host, at := strings.Cut(s, "@")
	if len(s) > MaxAddress || !addressPart(local) || at && !addressPart(host) {
		return Errorf(CodeRejected, "job rejected: %q is not a mail address, user or user@host", s[:min(len(s), 60)])
	}
	return nil
}

// addressPart reports whether a part of an address has only letters, digits,
// and punctuation behind the first character.
func addressPart(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_':
		case i > 0 && strings.IndexByte(".-+=", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
