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

// plainRequest is a SubmitRequest without its methods.
type plainRequest SubmitRequest

// wireRequest is the JSON form of a SubmitRequest: strings that may have any
// bytes are Texts, which shadow the fields of the same names.
type wireRequest struct {
	Name    Text   `json:"name"`
	Account Text   `json:"account,omitempty"`
	Command Text   `json:"command"`
	Args    []Text `json:"args,omitempty"`
	Shell   Text   `json:"shell,omitempty"`
	Cwd     Text   `json:"cwd,omitempty"`
	Stdin   Text   `json:"stdin,omitempty"`
	Stdout  Text   `json:"stdout,omitempty"`
	Stderr  Text   `json:"stderr,omitempty"`
	Env     []Text `json:"env,omitempty"`
	Origin  []Text `json:"origin,omitempty"`
	*plainRequest
}

// MarshalJSON implements json.Marshaler; see Text.
func (r SubmitRequest) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireRequest{
		Text(r.Name), Text(r.Account), Text(r.Command), texts(r.Args), Text(r.Shell), Text(r.Cwd),
		Text(r.Stdin), Text(r.Stdout), Text(r.Stderr), texts(r.Env), texts(r.Origin), (*plainRequest)(&r),
	})
}

// UnmarshalJSON implements json.Unmarshaler; see Text.
func (r *SubmitRequest) UnmarshalJSON(b []byte) error {
	w := wireRequest{plainRequest: (*plainRequest)(r)}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	r.Name, r.Account, r.Command, r.Args = string(w.Name), string(w.Account), string(w.Command), plains(w.Args)
	r.Shell, r.Cwd = string(w.Shell), string(w.Cwd)
	r.Stdin, r.Stdout, r.Stderr = string(w.Stdin), string(w.Stdout), string(w.Stderr)
	r.Env, r.Origin = plains(w.Env), plains(w.Origin)
	return nil
}

// plainWork is a Work without its methods.
type plainWork Work

// wireWork is the JSON form of a Work, as wireRequest.
type wireWork struct {
	Ad       Text `json:"ad"`
	Identity Text `json:"identity,omitempty"`
	*plainWork
}

// MarshalJSON implements json.Marshaler; see Text.
func (w Work) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireWork{Text(w.Ad), Text(w.Identity), (*plainWork)(&w)})
}

// UnmarshalJSON implements json.Unmarshaler; see Text.
func (w *Work) UnmarshalJSON(b []byte) error {
	wire := wireWork{plainWork: (*plainWork)(w)}
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	w.Ad, w.Identity = string(wire.Ad), string(wire.Identity)
	return nil
}

func texts(list []string) []Text {
	if list == nil {
		return nil
	}
	out := make([]Text, len(list))
	for i, s := range list {
		out[i] = Text(s)
	}
	return out
}

func plains(list []Text) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// VersionLine returns the first line of the output of -help. Programs look for
// GE in its first word and for a version with dots in the second: these are of
// the Grid Engine whose commands and formats this system has.
func VersionLine(version string) string { return "SGE 8.1.9 (Paddock " + version + ")" }
