package api

import (
	"encoding/json"
	"unicode/utf8"
)

// Text is a string of any bytes in JSON: file names and environment variables
// need not be UTF-8, and encoding/json would replace the bytes that are not.
// Such a string is sent as {"base64": "..."}, any other as itself.
type Text string

type base64Text struct {
	Base64 []byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(base64Text{[]byte(t)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var enc base64Text
		err := json.Unmarshal(b, &enc)
		*t = Text(enc.Base64)
		return err
	}
	return json.Unmarshal(b, (*string)(t))
}

// each returns a list with each of its texts as the other type.
func each[To, From ~string](list []From) []To {
	if list == nil {
		return nil
	}
	out := make([]To, len(list))
	for i, s := range list {
		out[i] = To(s)
	}
	return out
}

// VersionLine returns the first line of the output of -help. Programs look for
// GE in its first word and for a version with dots in the second: these are of
// the Grid Engine whose commands and formats this system has.
func VersionLine(version string) string { return "SGE 8.1.9 (Paddock " + version + ")" }
