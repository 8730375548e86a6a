package hook

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/conf/spell"
)

// defaultLimit is how long a hook may run if hooks.conf does not say. That of
// UPDATE_JOB_INFO is its interval, since there is one of them at a time.
var defaultLimit = map[Name]time.Duration{
	FetchWork: 60 * time.Second, ReplyFetch: 30 * time.Second, EvictClaim: 30 * time.Second, RenewClaim: 30 * time.Second,
	PrepareJobBeforeTransfer: 600 * time.Second, PrepareJob: 600 * time.Second, JobExit: 30 * time.Second, OutputDone: 30 * time.Second,
	ReportWork: 30 * time.Second,
}

// updateInterval is the default of STARTER_UPDATE_INTERVAL.
const updateInterval = 300 * time.Second

// These knobs say which keyword is used.
const (
	everySlot  = "STARTD_JOB_HOOK_KEYWORD"
	everyJob   = "STARTER_JOB_HOOK_KEYWORD"
	defaultJob = "STARTER_DEFAULT_JOB_HOOK_KEYWORD"
	ofKeyword  = "_JOB_HOOK_KEYWORD"
)

// alias is a hook that HTCondor documents and never calls.
const alias = "REPLY_CLAIM"

// absent are hooks that other programs than the execution daemon call, or none, with
// the reason why they do nothing here.
var absent = map[string]string{
	"EVICT_JOB":          "nothing ever calls it",
	"SHADOW_PREPARE_JOB": "a job that is sent to another host has the hooks of that host",
	"TRANSLATE_JOB":      "there is no job router", "JOB_FINALIZE": "there is no job router", "JOB_CLEANUP": "there is no job router",
}

// Table is all hooks of hooks.conf, by keyword. It never changes; a nil Table is valid
// and has none. NewTable looks at the programs.
type Table struct {
	knobs    *knob.Set
	hooks    map[string]map[Name]*Hook // by keyword in capitals
	servers  map[string]*Hook          // the same
	broken   map[*Hook]bool
	problems []knob.Problem
}

// NewTable makes a table of the hooks in hooks.conf.
func NewTable(k *knob.Set) *Table {
	t := &Table{knobs: k, hooks: map[string]map[Name]*Hook{}, servers: map[string]*Hook{}, broken: map[*Hook]bool{}}
	for _, name := range k.Names() {
		if keyword, hook, ok := split(name); ok {
			t.add(keyword, hook, name)
		}
	}
	for _, name := range k.Names() { // now it is known which hooks have programs of their own
		if keyword, ok := strings.CutSuffix(name, knobName("", Server)); ok && knob.IsKeyword(keyword) {
			t.addServer(keyword, name)
		}
	}
	t.unknown()
	t.keywords()
	slices.SortFunc(t.problems, func(a, b knob.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Text, b.Text))
	})
	return t
}

// split splits the name of a knob that names a hook's program.
func split(name string) (keyword string, n Name, ok bool) {
	for _, n := range append(slices.Clone(Names), alias) {
		if keyword, ok := strings.CutSuffix(name, knobName("", n)); ok && knob.IsKeyword(keyword) {
			return keyword, n, true
		}
	}
	return "", "", false
}

// add adds the hook that a knob names.
func (t *Table) add(keyword string, n Name, knobName string) {
	k := t.knobs.Get(knobName)
	if k.Default {
		return
	}
	if n == alias {
		instead := keyword + "_HOOK_" + string(ReplyFetch)
		if _, ok := t.knobs.Lookup(instead); ok {
			t.warn(k, "not read: %s is set, and means the same", instead)
			return
		}
		t.warn(k, "taken as %s, which is the hook's name", instead)
		n = ReplyFetch
	}
	h := t.hook(keyword, n, knobName, k.Value)
	if n == PrepareJob || n == PrepareJobBeforeTransfer {
		args, ok := t.knobs.Lookup(knobName + "_ARGS")
		if !ok {
			args, _ = t.knobs.Lookup(keyword + "_HOOK_" + string(PrepareJob) + "_ARGS")
		}
		h.Args, _ = knob.Arguments(args) // its form was checked when it was read
	}
	t.check(h, k)
	t.enter(h)
}

// addServer adds a hook server, and the hooks that it is to answer.
func (t *Table) addServer(keyword, name string) {
	k := t.knobs.Get(name)
	if k.Default {
		return
	}
	server := &Hook{Keyword: keyword, Name: Server, Path: k.Value}
	t.check(server, k)
	t.servers[keyword] = server
	answers := t.knobs.Words(name + "_HOOKS") // none: all
	for _, n := range ofDaemon {
		listed := slices.ContainsFunc(answers, func(a string) bool { return strings.EqualFold(a, string(n)) })
		if t.hooks[keyword][n] != nil || len(answers) > 0 && !listed {
			continue
		}
		h := t.hook(keyword, n, knobName(keyword, n), server.Path)
		h.Served = true
		t.broken[h] = t.broken[server]
		t.enter(h)
	}
}

// hook makes a hook with the bounds that knobs of a name give it.
func (t *Table) hook(keyword string, n Name, name, path string) *Hook {
	output := DefaultMaxOutput
	if n == FetchWork {
		output = DefaultMaxFetched
	}
	return &Hook{
		Keyword: keyword, Name: n, Path: path,
		Limit:        t.limit(n, name),
		MaxOutput:    int64(t.knobs.Int(name+"_MAX_OUTPUT", output)),
		MaxProcesses: t.knobs.Int(name+"_MAX_PROCESSES", DefaultMaxProcesses),
	}
}

// check notes whether the program that a knob names must not be run.
func (t *Table) check(h *Hook, k knob.Knob) {
	if err := h.Check(); err != nil {
		t.problems = append(t.problems, knob.Problem{File: k.File, Line: k.Line, Text: err.Error()})
		t.broken[h] = true
	}
}

func (t *Table) enter(h *Hook) {
	if t.hooks[h.Keyword] == nil {
		t.hooks[h.Keyword] = map[Name]*Hook{}
	}
	t.hooks[h.Keyword][h.Name] = h
}

// limit returns how long a hook may run.
func (t *Table) limit(n Name, knobName string) time.Duration {
	d := defaultLimit[n]
	if n == UpdateJobInfo {
		d = t.knobs.Duration("STARTER_UPDATE_INTERVAL", updateInterval)
	}
	return t.knobs.Duration(knobName+"_TIMEOUT", d)
}

func (t *Table) warn(k knob.Knob, format string, args ...any) {
	t.problems = append(t.problems, knob.Problem{File: k.File, Line: k.Line, Text: k.Name + ": " + fmt.Sprintf(format, args...), Warning: true})
}

// unknown warns of knobs that name a hook which nothing calls under a keyword that
// exists. Knobs that others refer to are variables of the site's own.
func (t *Table) unknown() {
	keywords := map[string]bool{}
	for keyword := range t.hooks {
		keywords[keyword] = true
	}
	for _, name := range t.knobs.Names() {
		if v, ok := t.knobs.Lookup(name); ok && strings.HasSuffix(name, ofKeyword) {
			keywords[strings.ToUpper(v)] = true
		}
	}
	for _, name := range t.knobs.Names() {
		k := t.knobs.Get(name)
		if k.Default || knob.Find(name) != nil || t.knobs.Refers(name) {
			continue
		}
		for keyword := range keywords {
			hook, ok := strings.CutPrefix(name, keyword+"_HOOK_")
			switch {
			case !ok:
			case absent[hook] != "":
				t.warn(k, "never called here: %s", absent[hook])
			default:
				t.warn(k, "there is no hook %s, nor anything of that name about one%s", hook, meant(hook))
			}
		}
	}
}

// meant returns the hook that was probably meant.
func meant(hook string) string {
	var names []string
	for _, n := range Names {
		names = append(names, string(n))
	}
	if best := spell.Nearest(names, hook, len(hook)/3+1); best != "" {
		return fmt.Sprintf(", did you mean %s?", best)
	}
	return ""
}

// keywords warns of keywords that name nothing.
func (t *Table) keywords() {
	for _, name := range t.knobs.Names() {
		if k := t.knobs.Get(name); strings.HasSuffix(name, ofKeyword) && knob.Find(name) != nil && !k.Default && t.hooks[strings.ToUpper(k.Value)] == nil {
			t.warn(k, "keyword %s has no hooks", k.Value)
		}
	}
}

// keyword returns the value of a knob that is a keyword, in capitals.
func (t *Table) keyword(knobName string) string {
	v, _ := t.knobs.Lookup(knobName)
	return strings.ToUpper(v)
}

// SlotKeyword returns the keyword of a slot, else that of the slot it was carved from,
// else that of all slots; "" for none. The slot is named by its numbers: "3", or "1_2"
// for one that was carved from slot 1.
func (t *Table) SlotKeyword(slot string) string {
	if t == nil {
		return ""
	}
	names := []string{slot}
	if parent, _, carved := strings.Cut(slot, "_"); carved {
		names = append(names, parent)
	}
	for _, name := range names {
		if keyword := t.keyword("SLOT" + name + ofKeyword); keyword != "" {
			return keyword
		}
	}
	return t.keyword(everySlot)
}

// JobKeyword returns the keyword of a job with ad as the HookKeyword of its ad, "" for
// none: the one that all jobs have, or else the ad's if there is a hook under it, or
// else the default. The note says why the ad's is not used, for the log. ad may be
// anything, since it comes from a user.
func (t *Table) JobKeyword(ad string) (keyword, note string) {
	if t == nil {
		return "", ""
	}
	if forced := t.keyword(everyJob); forced != "" {
		if ad != "" && !strings.EqualFold(ad, forced) {
			note = fmt.Sprintf("keyword %.64q of the job's ad does not count: %s is set", ad, everyJob)
		}
		return forced, note
	}
	switch upper := strings.ToUpper(ad); {
	case ad == "":
	case !knob.IsKeyword(ad):
		note = fmt.Sprintf("keyword %.64q of the job's ad does not count: it is not made of letters, digits and underscores", ad)
	case len(t.hooks[upper]) == 0:
		note = fmt.Sprintf("keyword %.64q of the job's ad does not count: it has no hooks", ad)
	default:
		return upper, ""
	}
	return t.keyword(defaultJob), note
}

// Hook returns a hook under a keyword in any case of letters, or nil if there is none.
// A broken one that execd calls for itself is treated as missing. One that belongs to a
// job is returned, and its Check fails: a job whose hook cannot be called must not run
// without it.
func (t *Table) Hook(keyword string, n Name) *Hook {
	if t == nil {
		return nil
	}
	h := t.hooks[strings.ToUpper(keyword)][n]
	if h != nil && t.broken[h] {
		if slices.Contains(ofDaemon, n) {
			return nil
		}
	}
	return h
}

// SlotAd reports whether PREPARE_JOB under a keyword gets the ad of the slot behind
// that of the job.
func (t *Table) SlotAd(keyword string) bool {
	return t == nil || t.knobs.Bool(keyword+"_HOOK_PREPARE_JOB_SLOT_AD", true)
}

// Any reports whether there is any hook at all.
func (t *Table) Any() bool { return t != nil && len(t.hooks) > 0 }

// Keywords returns the keywords under which there are hooks, in capitals and in
// order.
func (t *Table) Keywords() []string {
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.hooks))
}

// Problems returns what is wrong with the hooks, by file and line: programs that must
// not be run and, as warnings, names that mean nothing.
func (t *Table) Problems() []knob.Problem {
	if t == nil {
		return nil
	}
	return t.problems
}
