package api

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Staged is a file or a directory that is brought into the sandbox of a job, or
// out of it.
type Staged struct {
	// Name is its path in the sandbox. Of what is brought in it may be empty: then
	// it has the name of its source. Of what is brought out it may also be
	// StageAll, StageFiles or StageNone.
	Name Text `json:"name,omitempty"`
	// Place is where it is from, or where it goes: a path as those of SubmitRequest,
	// or a URL. Of what is brought out it may be empty: then it has the last part of
	// its name. A relative one is in the directory to which all output goes.
	Place Text `json:"place,omitempty"`
}

// The names of what is brought out that are no names of files. What else stands
// beside the first two says where it goes if it is there.
const (
	StageAll   = "."    // all that is new or changed
	StageFiles = "*"    // the same without directories
	StageNone  = "NONE" // nothing; it stands alone
)

// The values of qsub -sandbox.
const (
	SandboxYes = "y"
	SandboxNo  = "n"
)

// WhenOut says after which ends of a job its output is brought out.
type WhenOut string

// The values of qsub -when_out.
const (
	OutDefault WhenOut = ""        // as OutExit
	OutExit    WhenOut = "exit"    // whenever it has ended by itself
	OutSuccess WhenOut = "success" // when it has succeeded
	OutEvict   WhenOut = "evict"   // also when it has to leave its slot
	OutAlways  WhenOut = "always"  // also when it is deleted
)

// InSandbox returns the path in the sandbox of something that is brought in.
func (s *Staged) InSandbox() string {
	if s.Name != "" {
		return string(s.Name)
	}
	place := string(s.Place)
	if _, after, ok := cutScheme(place); ok {
		place, _, _ = strings.Cut(after, "?")
	}
	return path.Base(place)
}

// Destination returns where a file goes that is brought out by its name.
func (s *Staged) Destination() string {
	if s.Place != "" {
		return string(s.Place)
	}
	return path.Base(path.Clean(string(s.Name)))
}

// fileScheme begins a URL of a file on the host where the job runs.
const fileScheme = "file"

// PlainPlace returns the path that a place names, and whether it names one: URLs of
// other schemes than file do not.
func PlainPlace(place string) (string, bool) {
	scheme, after, ok := cutScheme(place)
	switch {
	case !ok:
		return place, true
	case scheme != fileScheme || !strings.HasPrefix(after, "/"):
		return "", false
	}
	return after, true
}

// cutScheme cuts a URL behind its scheme, which it returns in small letters.
func cutScheme(text string) (scheme, after string, ok bool) {
	scheme, after, ok = strings.Cut(text, "://")
	if scheme = strings.ToLower(scheme); !ok || scheme == "" || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" {
		return "", "", false
	}
	return scheme, after, true
}

// Scheme returns the scheme of a URL in small letters, "" for what is none.
func Scheme(place string) string {
	scheme, _, _ := cutScheme(place)
	return scheme
}

// URL is a place that is no path, with the option that names it.
type URL struct {
	Option Field
	Place  string
	Scheme string
}

// URLs returns all that a request names by URLs of other schemes than file.
func (r *SubmitRequest) URLs() []URL {
	var list []URL
	add := func(option Field, place string) {
		if _, plain := PlainPlace(place); !plain {
			list = append(list, URL{option, place, Scheme(place)})
		}
	}
	for i := range r.StageIn {
		add(FieldStageIn, string(r.StageIn[i].Place))
	}
	for i := range r.StageOut {
		add(FieldStageOut, string(r.StageOut[i].Place))
	}
	add(FieldStageOutTo, r.StageOutTo)
	return list
}

// stages reports whether a request says anything of a sandbox beside that there is one.
func (r *SubmitRequest) stages() (option string) {
	switch {
	case len(r.StageIn) > 0:
		return string(FieldStageIn)
	case len(r.StageOut) > 0:
		return string(FieldStageOut)
	case r.StageOutTo != "":
		return string(FieldStageOutTo)
	case r.WhenOut != OutDefault:
		return string(FieldWhenOut)
	}
	return ""
}

// checkSandbox refuses what no sandbox can be.
func (r *SubmitRequest) checkSandbox() error {
	if !slices.Contains([]string{"", SandboxYes, SandboxNo}, r.Sandbox) {
		return reject("%q is no value of -sandbox", Short(r.Sandbox))
	}
	if option := r.stages(); r.Sandbox != SandboxYes && option != "" {
		return reject("%s needs a sandbox: -sandbox y", option)
	}
	if r.Sandbox == SandboxYes && r.Interactive != nil {
		return reject("an interactive job has no sandbox")
	}
	if !slices.Contains([]WhenOut{OutDefault, OutExit, OutSuccess, OutEvict, OutAlways}, r.WhenOut) {
		return reject("%q is no value of -when_out", Short(string(r.WhenOut)))
	}
	if n := len(r.StageIn) + len(r.StageOut); n > MaxWords {
		return reject("%d files are brought in and out, at most %d are possible", n, MaxWords)
	}
	return firstOf(r.checkStageIn, r.checkStageOut, func() error {
		return checkPlace(string(FieldStageOutTo), r.StageOutTo)
	})
}

func firstOf(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *SubmitRequest) checkStageIn() error {
	const option = string(FieldStageIn)
	seen := map[string]bool{}
	for i := range r.StageIn {
		s := &r.StageIn[i]
		if s.Place == "" {
			return reject("%s: no file is named for %q", option, Short(string(s.Name)))
		}
		if err := checkPlace(option, string(s.Place)); err != nil {
			return err
		}
		if err := checkStaged(option, s.InSandbox(), seen); err != nil {
			return err
		}
	}
	return nil
}

func (r *SubmitRequest) checkStageOut() error {
	const option = string(FieldStageOut)
	seen, places := map[string]bool{}, map[string]bool{}
	for i := range r.StageOut {
		name, place := string(r.StageOut[i].Name), string(r.StageOut[i].Place)
		switch name {
		case StageAll, StageFiles, StageNone:
			if place != "" {
				return reject("%s: %s stands for many files, and cannot be called %q: see -stageout_to", option, name, Short(place))
			}
			if name == StageNone && len(r.StageOut) > 1 {
				return reject("%s: %s stands alone", option, name)
			}
			if seen[name] || seen[StageAll] && name == StageFiles || seen[StageFiles] && name == StageAll {
				return reject("%s: %q is there twice", option, name)
			}
			seen[name] = true
			continue
		}
		if err := firstOf(
			func() error { return checkStaged(option, name, seen) },
			func() error { return checkPlace(option, place) },
		); err != nil {
			return err
		}
		if place = r.StageOut[i].Destination(); places[place] {
			return reject("%s: two files would become %q", option, Short(place))
		}
		places[place] = true
	}
	return nil
}

// maxStagedName bounds each part of a path in a sandbox, as file systems do.
const maxStagedName = 255

// checkStaged refuses what is no path below a sandbox, or one that is there twice.
func checkStaged(option, name string, seen map[string]bool) error {
	switch clean := path.Clean(name); {
	case name == "":
		return reject("%s: an empty name", option)
	case len(name) > MaxPath:
		return reject("%s: a name has %d bytes, at most %d are possible", option, len(name), MaxPath)
	case hasControl(name):
		return reject("%s: %q contains a control character", option, Short(name))
	case !filepath.IsLocal(name) || clean == ".":
		return reject("%s: %q is not a name in the sandbox", option, Short(name))
	case slices.ContainsFunc(strings.Split(clean, "/"), func(part string) bool { return len(part) > maxStagedName }):
		return reject("%s: %q has more than %d bytes between two slashes", option, Short(name), maxStagedName)
	case seen[clean]:
		return reject("%s: %q is there twice", option, Short(clean))
	default:
		seen[clean] = true
		return nil
	}
}

// checkPlace refuses what is no path and no URL.
func checkPlace(option, place string) error {
	_, plain := PlainPlace(place)
	scheme, after, _ := cutScheme(place)
	switch {
	case len(place) > MaxPath:
		return reject("the path of %s has %d bytes, at most %d are possible", option, len(place), MaxPath)
	case hasControl(place):
		return reject("the path of %s contains a control character", option)
	case plain:
	case scheme == fileScheme:
		return reject("%s: %q names a file of no host: it is file:///PATH", option, Short(place))
	case after == "":
		return reject("%s: %q names nothing", option, Short(place))
	}
	return nil
}

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f })
}

// SandboxesRequest asks for the sandboxes of the host.
type SandboxesRequest struct{}

// SandboxesReply has them by job, and behind them those that no job has any more.
type SandboxesReply struct {
	Host      string          `json:"host"`
	Sandboxes []SandboxStatus `json:"sandboxes"`
}

// SandboxStatus is how a sandbox stands, or a directory beside them that is none.
type SandboxStatus struct {
	Dir     string       `json:"dir"`
	ID      string       `json:"id,omitempty"`
	Job     string       `json:"job,omitempty"`  // 12.1; empty: none has it any more
	From    string       `json:"from,omitempty"` // the submit host and its numbers, as in JobStatus; empty: this host
	User    string       `json:"user,omitempty"`
	Slot    SlotID       `json:"slot,omitempty"` // on which the job runs
	State   SandboxState `json:"state"`
	Created time.Time    `json:"created,omitzero"`
	Size    int64        `json:"size,omitempty"`  // bytes; 0: not known
	Limit   uint64       `json:"limit,omitempty"` // bytes; 0: none
	// Transfer is how its files travel; nil: none do.
	Transfer *Transfer `json:"transfer,omitempty"`
	Tries    int       `json:"tries,omitempty"` // of a transfer or of the removal
	Error    string    `json:"error,omitempty"` // of the last
}

// SandboxState says what becomes of a sandbox next.
type SandboxState string

// The states of a sandbox, in the order of an ordinary life, and those of what is left.
const (
	SandboxStaging   SandboxState = "staging"   // files are brought into it
	SandboxExecuting SandboxState = "executing" // its job runs
	SandboxSending   SandboxState = "sending"   // output is brought out of it
	SandboxStuck     SandboxState = "stuck"     // output waits until somebody has looked
	SandboxSent      SandboxState = "sent"      // it is about to be removed
	SandboxKept      SandboxState = "kept"      // it waits for the next run of its job
	SandboxLeft      SandboxState = "left"      // it could not be removed, which is tried again
	SandboxAlone     SandboxState = "alone"     // it may not be execd's, and is left alone
)
