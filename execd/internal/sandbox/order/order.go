// Package order is what execd and execd-transfer say to each other: what is to be
// copied, how far it is, and what became of it. It has the standard library alone, and
// both ends import it.
package order

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Descriptors of execd-transfer, beside the standard ones: its orders come on 0.
const (
	Lock   = 3 // of the sandbox, held for as long as the process lives
	Report = 4 // where Lines go
	Files  = 5 // the directory in which the job works
	Say    = 6 // the directory for what is to be known of it later
	// With Pack and Unpack, the link and the memory of the ring, see package ring, by which a
	// tree comes or goes: the stream.
	Stream = 7
	Memory = 8
)

// FilesPath leads a process, and those that it starts, to Files.
const FilesPath = "/proc/self/fd/5"

// Names below the directory of a sandbox, which is execd's. The first two are
// directories of the owner of the job.
const (
	DirFiles = "files" // where the job works
	DirSay   = "say"
	FileLock = "lock" // held by the process for as long as it lives
)

// Names in the directory Say.
const (
	FileInputs = "inputs" // what was brought in, see Orders.Bring
	FileResult = "result" // the last result of Send: a Result in JSON
	FileStdout = "stdout" // what a job of another host writes, see Pack
	FileStderr = "stderr"

	// FileAppend begins the name of what is written down of a file before something is appended
	// to it: its numbers and its size.
	FileAppend = "append-"
	// FileReceived begins the name of what Unpack writes down of a part that has come: a
	// Result in JSON.
	FileReceived = "received-"
)

// MaxLine is the most that a line of Report and the orders may have, in bytes.
const (
	MaxLine   = 64 << 10
	MaxOrders = 4 << 20
)

// Orders is what one process is to do. Paths that do not begin with a slash are below
// Base, the directory from which the job was submitted.
type Orders struct {
	ID    string `json:"id"`              // 16 hex digits, the same in every attempt
	Base  string `json:"base"`            // where relative paths begin
	Max   int64  `json:"max,omitempty"`   // bytes that may be copied; 0: any number
	Items int64  `json:"items,omitempty"` // that a tree from the stream may have; 0: any number
	Root  bool   `json:"root,omitempty"`  // root owns the job
	Turn  bool   `json:"turn,omitempty"`  // it may move more than Brief bytes

	Plugins []Plugin `json:"plugins,omitempty"` // for what is a URL and no path
	Env     []string `json:"env,omitempty"`     // that plugins have beside their own
	Stall   int      `json:"stall,omitempty"`   // seconds in which a plugin may do nothing; 0: PluginTime

	Bring []Named `json:"bring,omitempty"`
	Send  *Send   `json:"send,omitempty"`
	// Discard is Send's, for what is not to arrive any more: what an attempt left at
	// the destination is removed.
	Discard bool `json:"discard,omitempty"`
	// Pack has what Bring or Send names written to the stream, and not copied. Send's names keep
	// their directories, and say nothing of a place.
	Pack *Pack `json:"pack,omitempty"`
	// Unpack has a tree from the stream put into the sandbox.
	Unpack *Unpack `json:"unpack,omitempty"`
	// Beside has the tree of Unpack and Send lie in a directory below this one, which is the
	// user's, instead of in the sandbox: so that it is renamed to where it belongs.
	Beside string `json:"beside,omitempty"`
	// Flush has what is in the sandbox written to the disk, and nothing copied. A sync is
	// still needed after it, and is a short one. While another worker is in the sandbox it
	// does nothing.
	Flush bool `json:"flush,omitempty"`
}

// Pack is how a tree is written to the stream.
type Pack struct {
	Have string `json:"have,omitempty"` // what the receiver has, as package pack writes it
	// Out and Err are the names under which the files FileStdout and FileStderr of Say are
	// there, before all else; what the sandbox calls so is left out. Empty: they are not.
	Out string `json:"out,omitempty"`
	Err string `json:"err,omitempty"`
	// Zstd has blocks compressed that become smaller by that.
	Zstd bool `json:"zstd,omitempty"`
}

// Unpack is a part of a tree that is read from the stream. It lies beside what was in the sandbox
// before, and in the place of what has the same names.
type Unpack struct {
	Part string `json:"part"` // small letters, another for each tree
	// Look has nothing read, but what was committed of it brought to its end, and said in
	// Have and OK of the Result how much there is. It is OK when it is all there.
	Look bool `json:"look,omitempty"`
	// Note has all that is in the sandbox then count as brought in.
	Note bool `json:"note,omitempty"`
}

// Brief is how many bytes are moved without a turn.
const Brief = 16 << 20

// Rate is how many bytes a process may copy in a second; 0: any number. It comes in a line
// of its own behind orders with a turn, again and again; the first is waited for.
type Rate struct {
	Rate int64 `json:"rate"`
}

// Named is a file or a directory with the place where it is to lie. Of Bring, From is a
// path of the user's and To a name in the sandbox; of Send, From is a name in the
// sandbox and To a path of the user's, below the destination unless it begins with a
// slash; "": its last part. A To that ends with a slash is a directory in which it lies
// by the last part of From.
type Named struct {
	From string `json:"from"`
	To   string `json:"to,omitempty"`
}

// Place returns To with the last part of From where it says nothing else.
func (n Named) Place() string {
	if n.To == "" || strings.HasSuffix(n.To, "/") {
		return n.To + path.Base(n.From)
	}
	return n.To
}

// Select says which files are output.
type Select string

// What Send sends.
const (
	Changed Select = "changed" // new or changed files, not directories, of the sandbox itself
	All     Select = "all"     // all that is new or changed
	Listed  Select = "listed"  // what Names lists, which must be there
)

// Send is what becomes of the output.
type Send struct {
	Select Select  `json:"select"`
	Names  []Named `json:"names,omitempty"` // and, of Changed and All, what has another name at the destination
	To     string  `json:"to,omitempty"`    // the destination; "": Base
	Home   string  `json:"home,omitempty"`  // the user's home directory, in which no dot file lands unless Names has it
	// Keep keeps the directories of a name, which otherwise lands by its last part.
	Keep bool `json:"keep,omitempty"`
	// Append is appended to files when all else has landed, and does not land itself.
	Append []Append `json:"append,omitempty"`
}

// Append is a file at the top of the sandbox that is appended to another; there may be none.
type Append struct {
	From string `json:"from"`
	To   string `json:"to"`   // a path of the user's, of the file or of the directory that it is in
	Name string `json:"name"` // its name there
}

// Progress is how far a transfer is.
type Progress struct {
	Bytes int64 `json:"bytes"`
	Total int64 `json:"total"`
	Files int   `json:"files"`
	// Before is how many of Bytes were there before, of a tree that goes on behind them.
	Before int64 `json:"before,omitempty"`
	// Queued says that it waits for its turn: only execd knows.
	Queued bool `json:"-"`
	// Left says at the end, in one line, what was left out; "": nothing.
	Left string `json:"-"`
	// Idle says that nothing is done before another host asks, and Lost that an attempt has
	// failed, after which it may ask again. Only execd knows.
	Idle bool  `json:"-"`
	Lost error `json:"-"`
}

// Line is what a process reports, at most once a second, and with Result at its end.
type Line struct {
	Progress
	Beat   int64   `json:"beat"`            // changes whenever something was done
	Waits  int     `json:"waits,omitempty"` // seconds for which nothing may be seen: the disk or a plugin works
	Result *Result `json:"result,omitempty"`
}

// MaxSkips is how many names Skips of Result has.
const MaxSkips = 20

// Result is what became of the orders.
type Result struct {
	ID      string   `json:"id,omitempty"`
	OK      bool     `json:"ok"`
	Bytes   int64    `json:"bytes"`
	Files   int      `json:"files"`
	Skipped int      `json:"skipped,omitempty"` // neither files, directories nor links, and to a URL no links either
	Skips   []string `json:"skips,omitempty"`   // the first of them
	Root    string   `json:"root,omitempty"`    // of Pack and Unpack: the digest of all
	Have    string   `json:"have,omitempty"`    // of Look

	Error     string `json:"error,omitempty"`
	Errno     int    `json:"errno,omitempty"`
	Permanent bool   `json:"permanent,omitempty"` // a second attempt would fail as well
	Turn      bool   `json:"turn,omitempty"`      // it needs one
}

// paths returns all that is a path and may have any bytes.
func (o *Orders) paths() []*string {
	list := []*string{&o.Base, &o.Beside}
	named := o.Bring
	if s := o.Send; s != nil {
		list, named = append(list, &s.To, &s.Home), s.Names
		for i := range s.Append {
			list = append(list, &s.Append[i].From, &s.Append[i].To, &s.Append[i].Name)
		}
	}
	for i := range o.Plugins {
		list = append(list, &o.Plugins[i].Path)
	}
	for i := range o.Env {
		list = append(list, &o.Env[i])
	}
	for i := range named {
		list = append(list, &named[i].From, &named[i].To)
	}
	return list
}

// Encode returns orders as they are sent. Paths are quoted: JSON has text alone, and a
// path need be none.
func (o *Orders) Encode() ([]byte, error) {
	c := *o
	c.Bring, c.Plugins, c.Env = slices.Clone(o.Bring), slices.Clone(o.Plugins), slices.Clone(o.Env)
	if o.Send != nil {
		s := *o.Send
		s.Names, s.Append = slices.Clone(s.Names), slices.Clone(s.Append)
		c.Send = &s
	}
	for _, p := range c.paths() {
		*p = strconv.QuoteToASCII(*p)
	}
	text, err := json.Marshal(c)
	if err == nil && len(text) > MaxOrders {
		err = fmt.Errorf("the orders have %d bytes, and at most %d are possible", len(text), MaxOrders)
	}
	return text, err
}

// Decode reads what Encode has written, and checks it.
func Decode(text []byte) (*Orders, error) {
	var o Orders
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&o)
	if err == nil {
		for _, p := range o.paths() {
			if *p == "" { // left out
				continue
			}
			if *p, err = strconv.Unquote(*p); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the orders: %w", err)
	}
	return &o, nil
}

// Plugin is a program that takes files from and to URLs, as HTCondor's do.
type Plugin struct {
	Scheme string `json:"scheme"`
	// Path that does not begin with a slash is a name in the sandbox, of a program of the
	// user's own: whether it takes a list is asked of it.
	Path string `json:"path"`
	Many bool   `json:"many,omitempty"` // it takes a list of files
}

// Limits of plugins, in seconds.
const (
	PluginTime    = 7200          // in which one may do nothing
	MaxPluginTime = 7 * 24 * 3600 // the most that Stall may be
	Spare         = 60            // that a worker has to end one
	AskTime       = 20            // in which one has to say what it can
)

// Methods is what a plugin can, as the word plugin of execd-transfer has asked it.
type Methods struct {
	Schemes []string `json:"schemes,omitempty"`
	Many    bool     `json:"many,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Scheme returns the scheme of a URL in small letters, "" for a path.
func Scheme(place string) string {
	scheme, _, ok := strings.Cut(place, "://")
	if scheme = strings.ToLower(scheme); !ok || scheme == "" || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+.-") != "" {
		return ""
	}
	return scheme
}

// maxPart bounds the name of a part.
const maxPart = 16

// MaxNames is how many names may be listed.
const MaxNames = 10000

// Check refuses orders that no user and no execd gives.
func (o *Orders) Check() error {
	if err := CheckID(o.ID); err != nil {
		return err
	}
	if !strings.HasPrefix(o.Base, "/") {
		return fmt.Errorf("the directory %q does not begin with a slash", o.Base)
	}
	for _, p := range o.Plugins {
		if !strings.HasPrefix(p.Path, "/") && CheckName(p.Path) != nil || Scheme(p.Scheme+"://") == "" {
			return fmt.Errorf("the plugin %q of %q has no path or no scheme", p.Path, p.Scheme)
		}
	}
	if o.Stall < 0 || o.Stall > MaxPluginTime {
		return fmt.Errorf("a plugin cannot do nothing for %d seconds", o.Stall)
	}
	words := 0
	for _, is := range []bool{o.Send != nil, len(o.Bring) > 0, o.Unpack != nil, o.Flush} {
		if is {
			words++
		}
	}
	if words != 1 || o.Pack != nil && (o.Unpack != nil || o.Flush) {
		return errors.New("either something is brought, something is sent, something is unpacked, or what there is is flushed")
	}
	switch {
	case o.Flush:
		return nil
	case o.Unpack != nil:
		if p := o.Unpack.Part; p == "" || len(p) > maxPart || strings.Trim(p, "abcdefghijklmnopqrstuvwxyz") != "" {
			return fmt.Errorf("%q is no name of a part", p)
		}
		return nil
	case o.Pack != nil:
		for _, name := range []string{o.Pack.Out, o.Pack.Err} {
			if name != "" && (CheckName(name) != nil || strings.Contains(name, "/")) {
				return fmt.Errorf("%q is no name of a stream", name)
			}
		}
	}
	if o.Send == nil {
		return checkBring(o.Bring)
	}
	switch o.Send.Select {
	case Changed, All, Listed:
	default:
		return fmt.Errorf("nobody selects %q", o.Send.Select)
	}
	if len(o.Send.Names) > MaxNames {
		return fmt.Errorf("more than %d names", MaxNames)
	}
	for _, n := range o.Send.Names {
		if err := CheckName(n.From); err != nil {
			return err
		}
	}
	for _, a := range o.Send.Append {
		if CheckName(a.From) != nil || strings.Contains(a.From, "/") || a.To == "" || CheckName(a.Name) != nil {
			return fmt.Errorf("%q is nothing to be appended to %q", a.From, a.To)
		}
	}
	return nil
}

// CheckID refuses what is no ID.
func CheckID(id string) error {
	if len(id) != 16 || strings.Trim(id, "0123456789abcdef") != "" {
		return fmt.Errorf("the id %q is not 16 hex digits", id)
	}
	return nil
}

func checkBring(names []Named) error {
	if len(names) > MaxNames {
		return fmt.Errorf("more than %d names", MaxNames)
	}
	taken := make(map[string]bool, len(names))
	for _, n := range names {
		to := n.Place()
		if err := CheckName(to); err != nil {
			return err
		}
		if n.From == "" || strings.ContainsRune(n.From, 0) {
			return fmt.Errorf("%q is no path", n.From)
		}
		if taken[to] {
			return fmt.Errorf("two inputs have the name %q", to)
		}
		taken[to] = true
	}
	return nil
}

// CheckName refuses a name in a sandbox that leads out of it, or that no file has.
func CheckName(name string) error {
	if name == "" || len(name) > 4095 || strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%q is no name in a sandbox", name)
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(name, "/"), "/") {
		if part == "" || part == "." || part == ".." || len(part) > 255 {
			return fmt.Errorf("%q is no name in a sandbox", name)
		}
	}
	return nil
}
