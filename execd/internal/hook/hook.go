// Package hook runs the programs of a site that are called at fixed points: it knows
// which there are, by what keyword they are found, and how one is run. Only packages of
// execd import it.
//
// A keyword names a set of hooks; hooks.conf says which program each of them is
// (package knob). The table of them is made anew at each reload.
package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"paddock/execd/api"
)

// Name is a hook: what stands behind KEYWORD_HOOK_ in hooks.conf.
type Name string

// The hooks, in the order of a job's life.
const (
	FetchWork                Name = "FETCH_WORK"                  // is there work for this slot?
	ReplyFetch               Name = "REPLY_FETCH"                 // what became of fetched work
	EvictClaim               Name = "EVICT_CLAIM"                 // the slot is taken from fetched work
	RenewClaim               Name = "RENEW_CLAIM"                 // may fetched work go on?
	PrepareJobBeforeTransfer Name = "PREPARE_JOB_BEFORE_TRANSFER" // before files are staged in
	PrepareJob               Name = "PREPARE_JOB"                 // before the job is started
	UpdateJobInfo            Name = "UPDATE_JOB_INFO"             // how the job is, from time to time
	JobExit                  Name = "JOB_EXIT"                    // the job has ended
	OutputDone               Name = "OUTPUT_DONE"                 // its output has arrived, or is given up
	ReportWork               Name = "REPORT_WORK"                 // how fetched work has ended, until that is heard
)

// Server is no hook, but the program that answers hooks of its keyword for which no program
// is named.
const Server Name = "SERVER"

// Names are all hooks, in the order of a job's life.
var Names = []Name{FetchWork, ReplyFetch, EvictClaim, RenewClaim, PrepareJobBeforeTransfer, PrepareJob, UpdateJobInfo, JobExit, OutputDone, ReportWork}

// Hook is a program to be called, and what it may use.
type Hook struct {
	Keyword      string        // of its set, in capitals
	Name         Name          // which hook it is
	Path         string        // absolute
	Args         []string      // of hooks that may have arguments, behind execd's own
	Limit        time.Duration // how long it may run
	MaxOutput    int64         // bytes of its standard output
	MaxProcesses int           // processes it may have at a time, itself among them
	// Served says that Path is the hook server of the keyword, which is asked.
	Served bool
	// Own marks a program of the user whose rights it has: only with these rights its
	// path may be looked at.
	Own bool
}

// How many bytes and processes a hook may have if hooks.conf does not say.
const (
	DefaultMaxOutput    = 1 << 20
	DefaultMaxFetched   = api.MaxScript + api.MaxScript/2 // of FETCH_WORK: an ad may bring a script, with escapes
	DefaultMaxProcesses = 64
)

// knobName is the knob that names the hook's program.
func knobName(keyword string, n Name) string { return keyword + "_HOOK_" + string(n) }

// Check says why the hook's program must not be run as it is. It has to be a regular
// file that its owner may execute, and neither the file nor its directory may be
// writable for everybody. For a link this holds for both directories. The file is
// looked at anew each time.
func (h *Hook) Check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("cannot use hook %s: %s: %s", knobName(h.Keyword, h.Name), shown(h.Path), fmt.Sprintf(format, args...))
	}
	if !filepath.IsAbs(h.Path) {
		return fail("not an absolute path")
	}
	info, err := os.Stat(h.Path)
	if err != nil {
		return fail("%v", cause(err))
	}
	resolved, err := filepath.EvalSymlinks(h.Path)
	if err != nil {
		return fail("%v", cause(err))
	}
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return fail("not a regular file")
	case mode.Perm()&0o100 == 0:
		return fail("mode %04o does not let its owner execute it", mode.Perm())
	case mode.Perm()&0o002 != 0:
		return fail("mode %04o lets everybody write it", mode.Perm())
	}
	for _, dir := range []string{filepath.Dir(h.Path), filepath.Dir(resolved)} {
		above, err := os.Stat(dir)
		if err != nil {
			return fail("cannot look at %s: %v", shown(dir), cause(err))
		}
		if mode := above.Mode().Perm(); mode&0o002 != 0 {
			return fail("mode %04o of %s lets everybody put another file in its place", mode, shown(dir))
		}
	}
	return nil
}

// shown writes a path for a message, as one line whatever it contains.
func shown(path string) string {
	if strings.ContainsFunc(path, func(c rune) bool { return !unicode.IsPrint(c) || c == utf8.RuneError }) {
		return strconv.Quote(path)
	}
	return path
}

// cause returns an error without the path, which the message has already.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
