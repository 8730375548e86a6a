package hook

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/conf/knob/knobtest"
)

// site is a directory with programs, and what hooks.conf says of them.
type site struct {
	t   *testing.T
	dir string
}

func newSite(t *testing.T, programs ...string) *site {
	t.Helper()
	s := &site{t, t.TempDir()}
	if err := os.Chmod(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		s.program(p, 0o755)
	}
	return s
}

func (s *site) program(name string, mode os.FileMode) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		s.t.Fatal(err)
	}
}

// table reads a hooks.conf in which DIR is the directory.
func (s *site) table(text string) *Table {
	s.t.Helper()
	return NewTable(knobtest.Parse(s.t, "DIR = "+s.dir+"\n"+text))
}

// path is what a hook is, without the directory; "" for none.
func (s *site) path(h *Hook) string {
	if h == nil {
		return ""
	}
	path, _ := filepath.Rel(s.dir, h.Path)
	return path
}

// told are the problems without the directory.
func (s *site) told(tab *Table) []string {
	var all []string
	for _, p := range tab.Problems() {
		all = append(all, strings.ReplaceAll(p.String(), s.dir, "DIR"))
	}
	return all
}

// TestServers has hook servers, which answer the hooks of execd that have no program.
func TestServers(t *testing.T) {
	s := newSite(t, "serve", "fetch", "exit")
	s.program("open", 0o757)
	tab := s.table(`
A_HOOK_SERVER = $(DIR)/serve
A_HOOK_FETCH_WORK = $(DIR)/fetch
A_HOOK_JOB_EXIT = $(DIR)/exit
A_HOOK_REPORT_WORK_TIMEOUT = 7
A_HOOK_REPORT_WORK_MAX_OUTPUT = 8
B_HOOK_SERVER = $(DIR)/serve
B_HOOK_SERVER_HOOKS = fetch_work, REPORT_WORK
C_HOOK_SERVER = $(DIR)/open
`)
	for keyword, want := range map[string]map[Name]string{
		"A": {FetchWork: "fetch", ReplyFetch: "serve+", EvictClaim: "serve+", RenewClaim: "serve+", ReportWork: "serve+", JobExit: "exit"},
		"B": {FetchWork: "serve+", ReportWork: "serve+"},
		"C": {},
	} {
		for _, n := range Names {
			h := tab.Hook(keyword, n)
			got := s.path(h)
			if h != nil && h.Served {
				got += "+"
			}
			if got != want[n] {
				t.Errorf("%s of %s is %q; want %q", n, keyword, got, want[n])
			}
		}
	}
	if h := tab.Hook("a", ReportWork); h.Limit != 7*time.Second || h.MaxOutput != 8 {
		t.Errorf("limits %v, %d; want those of the knobs", h.Limit, h.MaxOutput)
	}
	want := []string{"hooks.conf:10: cannot use hook C_HOOK_SERVER: DIR/open: mode 0757 lets everybody write it"}
	if diff := cmp.Diff(want, s.told(tab)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if _, problems := knob.Parse("hooks.conf", "A_HOOK_SERVER_HOOKS = JOB_EXIT\n"); len(problems) != 1 {
		t.Errorf("a hook of jobs is to be served: %v", problems)
	}
}

// TestSets has two sets of hooks on one host.
// REQ-HOOK-60, REQ-HOOK-67: a hook is KEYWORD_HOOK_NAME, and keywords are any
// words, in any case of letters.
// REQ-HOOK-66: paths may have variables of the site's own.
func TestSets(t *testing.T) {
	s := newSite(t, "a", "b", "c")
	tab := s.table(`
DATABASE_HOOK_DIR = $(DIR)
DATABASE_HOOK_FETCH_WORK = $(DATABASE_HOOK_DIR)/a
DATABASE_HOOK_REPLY_FETCH = $(DATABASE_HOOK_DIR)/b
4u_HOOK_fetch_work = $(DIR)/c
`)
	if got := s.told(tab); len(got) > 0 {
		t.Errorf("problems: %v", got)
	}
	for _, c := range []struct {
		keyword string
		name    Name
		want    string
	}{
		{"DATABASE", FetchWork, "a"},
		{"database", ReplyFetch, "b"},
		{"DATABASE", EvictClaim, ""},
		{"4U", FetchWork, "c"},
		{"4u", ReplyFetch, ""},
		{"", FetchWork, ""},
		{"OTHER", FetchWork, ""},
	} {
		if got := s.path(tab.Hook(c.keyword, c.name)); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.keyword, c.name, got, c.want)
		}
	}
	if diff := cmp.Diff([]string{"4U", "DATABASE"}, tab.Keywords()); diff != "" || !tab.Any() {
		t.Errorf("keywords (-want +got):\n%s", diff)
	}
}

// TestSlotKeyword looks for the keyword of a slot.
// REQ-HOOK-61, REQ-HOOK-62: a slot's own, then that of all slots. One that was
// carved from another has that one's between them.
func TestSlotKeyword(t *testing.T) {
	s := newSite(t)
	tab := s.table("STARTD_JOB_HOOK_KEYWORD = all\nSLOT1_JOB_HOOK_KEYWORD = one\nslot12_job_hook_keyword = twelve\nSLOT3_JOB_HOOK_KEYWORD =\nSLOT1_2_JOB_HOOK_KEYWORD = two\n")
	for slot, want := range map[string]string{
		"1": "ONE", "12": "TWELVE", "2": "ALL", "3": "ALL", "1_1": "ONE", "1_2": "TWO", "12_2": "TWELVE", "4_1": "ALL",
	} {
		if got := tab.SlotKeyword(slot); got != want {
			t.Errorf("slot %s has %q, want %q", slot, got, want)
		}
	}
}

// TestNoKeyword has hooks, and no knob that gives a slot or a job one of them.
// REQ-HOOK-63: then there are none for the slot.
func TestNoKeyword(t *testing.T) {
	s := newSite(t, "a")
	tab := s.table("X_HOOK_FETCH_WORK = $(DIR)/a\nSLOT2_JOB_HOOK_KEYWORD = X\n")
	if got := tab.SlotKeyword("1"); got != "" || tab.Hook(got, FetchWork) != nil {
		t.Errorf("slot 1 has %q", got)
	}
	if got := tab.SlotKeyword("2"); got != "X" {
		t.Errorf("slot 2 has %q", got)
	}
	if got, note := tab.JobKeyword(""); got != "" || note != "" {
		t.Errorf("jobs have %q: %s", got, note)
	}
}

// TestFourSlots is the example that every implementation is held to.
// REQ-HOOK-68: four slots; those without a keyword of their own have a set with
// fetch and reply, and slot 4 has one with fetch alone.
func TestFourSlots(t *testing.T) {
	s := newSite(t, "db_fetch", "db_reply", "web_fetch")
	tab := s.table(`
STARTD_JOB_HOOK_KEYWORD = DATABASE
SLOT4_JOB_HOOK_KEYWORD = WEB
DATABASE_HOOK_DIR = $(DIR)
DATABASE_HOOK_FETCH_WORK = $(DATABASE_HOOK_DIR)/db_fetch
DATABASE_HOOK_REPLY_FETCH = $(DATABASE_HOOK_DIR)/db_reply
WEB_HOOK_FETCH_WORK = $(DIR)/web_fetch
`)
	if got := s.told(tab); len(got) > 0 {
		t.Errorf("problems: %v", got)
	}
	for slot := 1; slot <= 4; slot++ {
		fetch, reply := "db_fetch", "db_reply"
		if slot == 4 {
			fetch, reply = "web_fetch", ""
		}
		keyword := tab.SlotKeyword(strconv.Itoa(slot))
		if got := s.path(tab.Hook(keyword, FetchWork)); got != fetch {
			t.Errorf("slot %d fetches with %q", slot, got)
		}
		if got := s.path(tab.Hook(keyword, ReplyFetch)); got != reply {
			t.Errorf("slot %d replies with %q", slot, got)
		}
	}
}

// TestForcedKeyword sets the keyword of all jobs.
// REQ-HOOK-65: it counts whatever the ad says.
func TestForcedKeyword(t *testing.T) {
	s := newSite(t, "a", "b")
	text := "A_HOOK_JOB_EXIT = $(DIR)/a\nB_HOOK_JOB_EXIT = $(DIR)/b\n"
	if got, note := s.table(text).JobKeyword("A"); got != "A" || note != "" {
		t.Errorf("without it: %q, %q", got, note)
	}
	tab := s.table(text + "STARTER_JOB_HOOK_KEYWORD = b\n")
	got, note := tab.JobKeyword("A")
	if got != "B" || note != `keyword "A" of the job's ad does not count: STARTER_JOB_HOOK_KEYWORD is set` || s.path(tab.Hook(got, JobExit)) != "b" {
		t.Errorf("%q, %q", got, note)
	}
	if got, note := tab.JobKeyword(""); got != "B" || note != "" {
		t.Errorf("no keyword in the ad: %q, %q", got, note)
	}
}

// TestJobKeyword looks for the keyword of a job.
// REQ-HOOK-113: the ad's if there is a hook under it, and else the default; what
// does not count is said.
func TestJobKeyword(t *testing.T) {
	s := newSite(t, "a")
	tab := s.table("A_HOOK_JOB_EXIT = $(DIR)/a\nSTARTER_DEFAULT_JOB_HOOK_KEYWORD = Dflt\nEMPTY_HOOK_JOB_EXIT =\n")
	for _, c := range []struct{ ad, want, note string }{
		{"", "DFLT", ""},
		{"a", "A", ""},
		{"B", "DFLT", `keyword "B" of the job's ad does not count: it has no hooks`},
		{"EMPTY", "DFLT", `keyword "EMPTY" of the job's ad does not count: it has no hooks`},
		{"A_HOOK_JOB", "DFLT", `keyword "A_HOOK_JOB" of the job's ad does not count: it has no hooks`},
		{"A\nB", "DFLT", `keyword "A\nB" of the job's ad does not count: it is not made of letters, digits and underscores`},
		{"EXECD.A", "DFLT", `keyword "EXECD.A" of the job's ad does not count: it is not made of letters, digits and underscores`},
	} {
		if got, note := tab.JobKeyword(c.ad); got != c.want || note != c.note {
			t.Errorf("%q: %q, %q, want %q, %q", c.ad, got, note, c.want, c.note)
		}
	}
	if got, note := tab.JobKeyword(strings.Repeat("x", 100_000)); got != "DFLT" || len(note) > 200 {
		t.Errorf("a long one: %q, %d bytes of note", got, len(note))
	}
}

// TestCheck looks at programs.
// REQ-HOOK-101: a program must exist, be a regular file, be executable for its
// owner, and neither it nor its directory may be writable for everybody. A bad
// one is as if not defined for what execd calls itself; for jobs it is there, and
// fails.
func TestCheck(t *testing.T) {
	s := newSite(t, "good")
	s.program("data", 0o644)
	s.program("open", 0o757)
	s.program("others", 0o677)
	open := filepath.Join(s.dir, "everybody")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	s.program("everybody/in", 0o755)
	if err := os.Chmod(open, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"link": "open", "far": "everybody/in"} {
		if err := os.Symlink(to, filepath.Join(s.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, want string }{
		{"DIR/good", ""},
		{"DIR/none", "no such file or directory"},
		{"DIR/none/none", "no such file or directory"},
		{"DIR", "not a regular file"},
		{"/dev/null", "not a regular file"},
		{"DIR/data", "mode 0644 does not let its owner execute it"},
		{"DIR/others", "mode 0677 does not let its owner execute it"},
		{"DIR/open", "mode 0757 lets everybody write it"},
		{"DIR/link", "mode 0757 lets everybody write it"},
		{"DIR/everybody/in", "mode 0777 of DIR/everybody lets everybody put another file in its place"},
		{"DIR/far", "mode 0777 of DIR/everybody lets everybody put another file in its place"},
		{"good", "not an absolute path"},
	} {
		text := strings.Replace(c.path, "DIR", "$(DIR)", 1)
		tab := s.table("X_HOOK_FETCH_WORK = " + text + "\nX_HOOK_JOB_EXIT = " + text + "\n")
		var want []string
		if c.want != "" {
			want = []string{"hooks.conf:2: cannot use hook X_HOOK_FETCH_WORK: " + c.path + ": " + c.want, "hooks.conf:3: cannot use hook X_HOOK_JOB_EXIT: " + c.path + ": " + c.want}
		}
		if diff := cmp.Diff(want, s.told(tab)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.path, diff)
		}
		if h := tab.Hook("X", FetchWork); (h != nil) != (c.want == "") {
			t.Errorf("%s: execd's hook is %v", c.path, h)
		}
		if h := tab.Hook("X", JobExit); h == nil || (h.Check() == nil) != (c.want == "") {
			t.Errorf("%s: the job's hook is %v", c.path, h)
		}
	}
}

// What a path has in it does not make two lines of a message.
func TestMessagesAreLines(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "a\nERROR b\x1b[2J")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(odd, "good"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(path string) string {
		err := (&Hook{Keyword: "K", Name: FetchWork, Path: path}).Check()
		if err == nil {
			t.Fatalf("%q is a hook", path)
		}
		return err.Error()
	}
	texts := []string{check(odd), check("no\nplace"), check(odd + "/none"), check(odd + "\xff")}
	if err := os.Chmod(odd, 0o777); err != nil {
		t.Fatal(err)
	}
	texts = append(texts, check(odd+"/good"))
	res := (&Runner{Log: slog.New(slog.DiscardHandler), Starter: &asuser.Starter{Shepherd: "/none"}}).Run(t.Context(), Call{Hook: &Hook{Keyword: "K", Name: FetchWork, Path: odd}})
	texts = append(texts, res.Err.Error())
	set, _ := knob.Parse("hooks.conf", "K_HOOK_FETCH_WORK @=end\n"+odd+"\nsecond\n@end\n")
	for _, p := range NewTable(set).Problems() {
		texts = append(texts, p.String())
	}
	for _, text := range texts {
		if strings.ContainsFunc(text, unicode.IsControl) || !strings.Contains(text, `\n`) {
			t.Errorf("%q is not a line that shows the path", text)
		}
	}
	if want := len(texts); want < 7 {
		t.Errorf("%d messages; want 7", want)
	}
}

// TestCached changes a program after the table was made.
// REQ-HOOK-102: what was found stays until the next reload.
func TestCached(t *testing.T) {
	s := newSite(t)
	text := "X_HOOK_FETCH_WORK = $(DIR)/late\n"
	before := s.table(text)
	s.program("late", 0o755)
	if before.Hook("X", FetchWork) != nil || len(before.Problems()) != 1 {
		t.Error("a table looked at the program again")
	}
	if after := s.table(text); after.Hook("X", FetchWork) == nil || len(after.Problems()) != 0 {
		t.Error("the next table did not")
	}
}

// TestLimits looks at what hooks may use.
// REQ-HOOK-115: every hook has a limit, by keyword. REQ-HOOK-116: and its output
// a bound, of 1 MiB by default.
func TestLimits(t *testing.T) {
	var text strings.Builder
	for _, n := range Names {
		fmt.Fprintf(&text, "X_HOOK_%s = $(DIR)/a\nY_HOOK_%[1]s = $(DIR)/a\nY_HOOK_%[1]s_TIMEOUT = 2 * 7\nY_HOOK_%[1]s_MAX_OUTPUT = 0\nY_HOOK_%[1]s_MAX_PROCESSES = 1\n", n)
	}
	s := newSite(t, "a")
	tab := s.table(text.String())
	if got := s.told(tab); len(got) > 0 {
		t.Errorf("problems: %v", got)
	}
	for n, want := range map[Name]time.Duration{
		FetchWork: 60 * time.Second, ReplyFetch: 30 * time.Second, EvictClaim: 30 * time.Second, RenewClaim: 30 * time.Second,
		PrepareJobBeforeTransfer: 600 * time.Second, PrepareJob: 600 * time.Second, UpdateJobInfo: 300 * time.Second, JobExit: 30 * time.Second,
	} {
		most := int64(1 << 20)
		if n == FetchWork {
			most = 96 << 20
		}
		if h := tab.Hook("X", n); h.Limit != want || h.MaxOutput != most || h.MaxProcesses != 64 {
			t.Errorf("%s: %+v", n, h)
		}
		if h := tab.Hook("Y", n); h.Limit != 14*time.Second || h.MaxOutput != 0 || h.MaxProcesses != 1 || h.Keyword != "Y" || h.Name != n {
			t.Errorf("%s: %+v", n, h)
		}
	}
	tab = s.table("STARTER_UPDATE_INTERVAL = 20\nX_HOOK_UPDATE_JOB_INFO = $(DIR)/a\n")
	if h := tab.Hook("X", UpdateJobInfo); h.Limit != 20*time.Second {
		t.Errorf("an update may take %v", h.Limit)
	}
}

// TestPrepare looks at what only prepare hooks have.
// REQ-HOOK-112: they have arguments, the same for both unless said otherwise.
func TestPrepare(t *testing.T) {
	s := newSite(t, "a")
	tab := s.table(`
X_HOOK_PREPARE_JOB = $(DIR)/a
X_HOOK_PREPARE_JOB_BEFORE_TRANSFER = $(DIR)/a
X_HOOK_PREPARE_JOB_ARGS = "one 'two words'"
X_HOOK_PREPARE_JOB_SLOT_AD = false
Y_HOOK_PREPARE_JOB_BEFORE_TRANSFER = $(DIR)/a
Y_HOOK_PREPARE_JOB_BEFORE_TRANSFER_ARGS = b
Y_HOOK_JOB_EXIT = $(DIR)/a
Y_HOOK_JOB_EXIT_ARGS = none
`)
	for _, c := range []struct {
		keyword string
		name    Name
		want    []string
	}{
		{"X", PrepareJob, []string{"one", "two words"}},
		{"X", PrepareJobBeforeTransfer, []string{"one", "two words"}},
		{"Y", PrepareJobBeforeTransfer, []string{"b"}},
		{"Y", JobExit, nil},
	} {
		if got := tab.Hook(c.keyword, c.name).Args; !slices.Equal(got, c.want) {
			t.Errorf("%s %s has %q", c.keyword, c.name, got)
		}
	}
	if tab.SlotAd("x") || !tab.SlotAd("Y") {
		t.Error("slot ads the wrong way round")
	}
	if diff := cmp.Diff([]string{"hooks.conf:10: Y_HOOK_JOB_EXIT_ARGS: there is no hook JOB_EXIT_ARGS, nor anything of that name about one"}, s.told(tab)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestAlias calls the reply hook by its other name.
// REQ-HOOK-114: it is taken for it, with a warning.
func TestAlias(t *testing.T) {
	s := newSite(t, "a", "b")
	tab := s.table("X_HOOK_REPLY_CLAIM = $(DIR)/a\nX_HOOK_REPLY_CLAIM_TIMEOUT = 7\n")
	if h := tab.Hook("X", ReplyFetch); s.path(h) != "a" || h.Limit != 7*time.Second || h.Name != ReplyFetch {
		t.Errorf("the hook is %+v", h)
	}
	if diff := cmp.Diff([]string{"hooks.conf:2: X_HOOK_REPLY_CLAIM: taken as X_HOOK_REPLY_FETCH, which is the hook's name"}, s.told(tab)); diff != "" || !tab.Problems()[0].Warning {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	tab = s.table("X_HOOK_REPLY_CLAIM = $(DIR)/a\nX_HOOK_REPLY_FETCH = $(DIR)/b\n")
	if h := tab.Hook("X", ReplyFetch); s.path(h) != "b" {
		t.Errorf("of both the hook is %+v", h)
	}
	if diff := cmp.Diff([]string{"hooks.conf:2: X_HOOK_REPLY_CLAIM: not read: X_HOOK_REPLY_FETCH is set, and means the same"}, s.told(tab)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestUnknown has names that mean nothing.
func TestUnknown(t *testing.T) {
	s := newSite(t, "a")
	tab := s.table(`X_HOOK_FETCH_WORK = $(DIR)/a
X_HOOK_FETCHWORK = $(DIR)/a
X_HOOK_EVICT_JOB = $(DIR)/a
X_HOOK_VARIABLE = 1
X_HOOK_NOTE = $(X_HOOK_VARIABLE)
STARTD_JOB_HOOK_KEYWORD = Y
STARTER_JOB_HOOK_KEYWORD = X
Y_HOOK_TRANSLATE_JOB = /x
UNUSED_HOOK_ANYTHING = /x
`)
	want := []string{
		"hooks.conf:3: X_HOOK_FETCHWORK: there is no hook FETCHWORK, nor anything of that name about one, did you mean FETCH_WORK?",
		"hooks.conf:4: X_HOOK_EVICT_JOB: never called here: nothing ever calls it",
		"hooks.conf:6: X_HOOK_NOTE: there is no hook NOTE, nor anything of that name about one",
		"hooks.conf:7: STARTD_JOB_HOOK_KEYWORD: keyword Y has no hooks",
		"hooks.conf:9: Y_HOOK_TRANSLATE_JOB: never called here: there is no job router",
	}
	if diff := cmp.Diff(want, s.told(tab)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	for _, p := range tab.Problems() {
		if !p.Warning {
			t.Errorf("not a warning: %v", p)
		}
	}
}

// TestEmpty asks tables that have nothing.
func TestEmpty(t *testing.T) {
	var none *Table
	for name, tab := range map[string]*Table{"nil": none, "no file": NewTable(nil)} {
		keyword, note := tab.JobKeyword("X")
		if tab.Any() || tab.Hook("X", FetchWork) != nil || tab.SlotKeyword("1") != "" || keyword != "" || len(tab.Problems())+len(tab.Keywords()) > 0 || !tab.SlotAd("X") {
			t.Errorf("%s: has something, keyword %q, note %q", name, keyword, note)
		}
	}
}

// TestNames holds the hooks against the knobs that are known of them.
func TestNames(t *testing.T) {
	for _, n := range append(slices.Clone(Names), alias) {
		for ending, want := range map[string]string{
			"": "KEYWORD_HOOK_NAME", "_TIMEOUT": "KEYWORD_HOOK_NAME_TIMEOUT", "_MAX_OUTPUT": "KEYWORD_HOOK_NAME_MAX_OUTPUT", "_MAX_PROCESSES": "KEYWORD_HOOK_NAME_MAX_PROCESSES",
		} {
			if k := knob.Find(knobName("X", n) + ending); k == nil || k.Name != want {
				t.Errorf("%s%s is known as %+v", n, ending, k)
			}
		}
	}
	if keyword, n, ok := split("A_HOOK_B_HOOK_PREPARE_JOB"); keyword != "A_HOOK_B" || n != PrepareJob || !ok {
		t.Errorf("%q, %q, %v", keyword, n, ok)
	}
}
