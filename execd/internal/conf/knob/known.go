package knob

import (
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/classad"
)

// Kind is the type of the value of a knob.
type Kind string

// The kinds, in the words of hooks.conf(5).
const (
	Expression Kind = "expression" // of classad(7), evaluated when it is needed
	Number     Kind = "number"     // whole, not negative; may be calculated
	Seconds    Kind = "seconds"    // the same, and at most a year
	Truth      Kind = "boolean"
	List       Kind = "list"    // of words
	Keyword    Kind = "keyword" // letters, digits and underscores
	Path       Kind = "path"
	Args       Kind = "arguments"
	Address    Kind = "address" // a port behind a colon, and before it an address of this host or nothing
)

// Want is the type of the value of an expression.
type Want string

// These are the types of values, in the words of problems.
const (
	Condition Want = "a boolean or a number"
	Amount    Want = "a number"
	Whole     Want = "a whole number"
	Text      Want = "a string"
)

// Pilot is what the batch system is called in a job of which execd runs, as a pilot, which
// sets it.
const Pilot = "PilotScheduler"

// PilotJob is the job of the batch system that a pilot is, which sets it.
const PilotJob = "PilotJobId"

// PilotEnd is when a pilot ends, which sets it if it does.
const PilotEnd = "DaemonStopTime"

// NoClaimShutdown is for how long no slot of a pilot may be in use.
const NoClaimShutdown = "STARTD_NOCLAIM_SHUTDOWN"

// Known is a knob that execd reads.
type Known struct {
	Name     string // in that of a family N stands for a slot's number, KEYWORD for a keyword and NAME for a name
	Kind     Kind
	Least    int64    // of numbers: the smallest
	Default  string   // "": not set
	Meaning  string   // in one line
	Words    []string // of lists: the words allowed in any case of letters, in capitals; nil: any
	Patterns bool     // of lists: the words are patterns of path.Match
	Wants    Want     // of expressions; empty for a family whose members are forms of other knobs
	Else     string   // of expressions: what happens with another value

	family *regexp.Regexp // matches the names of a family, in capitals; nil: it is one knob
}

func (k *Known) pattern() bool { return k.family != nil }

// hook matches the knobs of a hook with an ending.
func hook(ending string) *regexp.Regexp {
	return regexp.MustCompile(`^.+_HOOK_(FETCH_WORK|REPLY_FETCH|REPLY_CLAIM|EVICT_CLAIM|RENEW_CLAIM|PREPARE_JOB|PREPARE_JOB_BEFORE_TRANSFER|UPDATE_JOB_INFO|JOB_EXIT|OUTPUT_DONE|REPORT_WORK)` + ending + `$`)
}

// universe matches the expressions that are for jobs of one universe.
func universe(name string) *regexp.Regexp {
	return regexp.MustCompile(`^(WANT_SUSPEND|SUSPEND|CONTINUE|PREEMPT|KILL|WANT_VACATE)_` + name + `$`)
}

// universes matches the endings of expressions for jobs of one universe.
var universes = regexp.MustCompile(`_(VANILLA|VM)$`)

// known is every knob that execd reads, in the order of hooks.conf(5).
var known = []Known{
	{Name: "START", Kind: Expression, Wants: Condition, Else: "no job is taken", Default: "true", Meaning: "whether the slot takes a job"},
	{Name: "RANK", Kind: Expression, Wants: Amount, Else: "it counts as 0", Default: "0.0", Meaning: "how much the slot prefers a job; the higher one preempts"},
	{Name: "IS_OWNER", Kind: Expression, Wants: Condition, Else: "it counts as true", Default: "false", Meaning: "whether the owner has the machine for himself, and the slot is offered to nobody"},
	{Name: "WANT_SUSPEND", Kind: Expression, Wants: Condition, Else: "it counts as false", Default: "false", Meaning: "whether SUSPEND is looked at rather than PREEMPT"},
	{Name: "SUSPEND", Kind: Expression, Wants: Condition, Else: "it counts as false", Default: "false", Meaning: "whether the job is suspended"},
	{Name: "CONTINUE", Kind: Expression, Wants: Condition, Else: "it counts as false", Default: "true", Meaning: "whether a suspended job goes on"},
	{Name: "PREEMPT", Kind: Expression, Wants: Condition, Else: "it counts as false", Default: "false", Meaning: "whether the job has to leave"},
	{Name: "KILL", Kind: Expression, Wants: Condition, Else: "it counts as false", Default: "false", Meaning: "whether a job that is leaving is killed at once"},
	{Name: "WANT_VACATE", Kind: Expression, Wants: Condition, Else: "it counts as true", Default: "true", Meaning: "whether a job that has to leave is asked first"},
	{Name: "WANT_HOLD", Kind: Expression, Wants: Condition, Else: "it counts as false", Meaning: "whether a job that has to leave by PREEMPT is put on hold"},
	{Name: "WANT_HOLD_REASON", Kind: Expression, Wants: Text, Else: "the reason is that of a policy that gives none", Meaning: "the reason that is then shown"},
	{Name: "WANT_HOLD_SUBCODE", Kind: Expression, Wants: Whole, Else: "it counts as 0", Meaning: "the number that is then shown beside code 21"},
	{Name: "MaxJobRetirementTime", Kind: Expression, Wants: Amount, Else: "it counts as 0", Default: "0", Meaning: "seconds that a job may run in all before it really has to leave"},
	{Name: "MachineMaxVacateTime", Kind: Expression, Wants: Amount, Else: "it counts as 0", Default: "600", Meaning: "seconds that a job has to end after it was asked to"},
	{Name: "NAME_VANILLA", Kind: Expression, Meaning: "an expression in the place of NAME, for jobs of the vanilla universe, as those of queues are", family: universe("VANILLA")},
	{Name: "NAME_VM", Kind: Expression, Meaning: "the same for jobs of the vm universe", family: universe("VM")},

	{Name: "POLLING_INTERVAL", Kind: Seconds, Least: 1, Default: "5", Meaning: "how often a claimed slot looks at expressions that change with the time"},
	{Name: "UPDATE_INTERVAL", Kind: Seconds, Least: 1, Default: "300", Meaning: "the same for a slot that is not claimed"},
	{Name: "CLAIM_WORKLIFE", Kind: Seconds, Least: -1, Default: "1200", Meaning: "how long a claim takes new jobs; -1: for ever"},
	{Name: "ALIVE_INTERVAL", Kind: Seconds, Least: 1, Default: "300", Meaning: "how often a holder has to renew his claim, if he says nothing else"},
	{Name: "MAX_CLAIM_ALIVES_MISSED", Kind: Number, Least: 1, Default: "6", Meaning: "after how many missed renewals the claim is lost"},
	{Name: "MATCH_TIMEOUT", Kind: Seconds, Least: 1, Default: "120", Meaning: "how long a matched slot waits for its claim"},
	{Name: NoClaimShutdown, Kind: Seconds, Default: "300", Meaning: "how long no slot of a pilot may be in use before it ends; 0: for ever"},
	{Name: "KILLING_TIMEOUT", Kind: Seconds, Least: 1, Default: "30", Meaning: "how long a killed job has to be gone before its whole family is killed"},
	{Name: "CLAIM_USERS", Kind: List, Patterns: true, Meaning: "who may claim slots beside managers: users, or patterns"},
	{Name: "REMOTE_OWNERS", Kind: List, Patterns: true, Meaning: "users, or patterns, as whom work of other hosts may run; root never"},
	{Name: "ADDRESS", Kind: Address, Default: ":6445", Meaning: "where other hosts are listened for, if this one executes their work"},
	{Name: "FILESYSTEM_DOMAIN", Kind: List, Meaning: "a word for the file systems that this host shares with others of the same word; not set: it shares none"},
	{Name: "TLS_CERT_FILE", Kind: Path, Meaning: "the certificate of this host, if a site's own CA has made it"},
	{Name: "TLS_KEY_FILE", Kind: Path, Meaning: "its key"},
	{Name: "TLS_CA_FILE", Kind: Path, Meaning: "the certificates of that CA"},
	{Name: "MEMORY", Kind: Number, Least: 1, Meaning: "how many MiB the slots of the host have together, if it has more"},
	{Name: "PARTITIONABLE_QUEUES", Kind: List, Meaning: "queues whose slots are one, of which each job has as much as it requests; *: all"},
	{Name: "MODIFY_REQUEST_EXPR_REQUESTCPUS", Kind: Expression, Wants: Amount, Else: "no request is met", Default: "quantize(RequestCpus, {1})", Meaning: "how many slots of such a queue a request is worth"},
	{Name: "MODIFY_REQUEST_EXPR_REQUESTMEMORY", Kind: Expression, Wants: Amount, Else: "no request is met", Default: "quantize(RequestMemory, {128})", Meaning: "how many MiB"},
	{Name: "MODIFY_REQUEST_EXPR_REQUESTDISK", Kind: Expression, Wants: Amount, Else: "no request is met", Default: "quantize(RequestDisk, {1024})", Meaning: "how many KiB of disk"},
	{Name: "MODIFY_REQUEST_EXPR_REQUESTGPUS", Kind: Expression, Wants: Amount, Else: "no request is met", Default: "RequestGPUs", Meaning: "how many GPUs"},
	{Name: "STARTD_ATTRS", Kind: List, Meaning: "knobs whose values, which are expressions, become attributes of slots"},
	{Name: "STARTD_JOB_ATTRS", Kind: List, Meaning: "attributes of the job that are copied to the ad of its slot"},
	{
		Name: "STARTD_SLOT_ATTRS", Kind: List, Meaning: "attributes that each slot has of all slots of the host, as slot2_State",
		Words: []string{"STATE", "ACTIVITY", "ENTEREDCURRENTSTATE", "ENTEREDCURRENTACTIVITY", "REMOTEUSER", "JOBID"},
	},

	{Name: "EXECUTE", Kind: Path, Meaning: "the directory in which sandboxes are made"},
	{Name: "MAX_TRANSFER_INPUT_MB", Kind: Number, Meaning: "how much may be brought into a sandbox; 0: any amount"},
	{Name: "MAX_TRANSFER_OUTPUT_MB", Kind: Number, Meaning: "how much may be brought out of one; 0: any amount"},
	{Name: "MAX_TRANSFER_ITEMS", Kind: Number, Default: "10000000", Meaning: "how many files, directories and links come from another host for a run; 0: any number"},
	{Name: "MAX_CONCURRENT_UPLOADS", Kind: Number, Default: "10", Meaning: "how many outputs are copied at the same time; 0: any number"},
	{Name: "MAX_CONCURRENT_DOWNLOADS", Kind: Number, Default: "10", Meaning: "the same of inputs"},
	{Name: "TRANSFER_BANDWIDTH", Kind: Number, Default: "0", Meaning: "how many bytes a second are copied in all; 0: any number"},
	{Name: "FILETRANSFER_PLUGINS", Kind: List, Meaning: "programs that take files of sandboxes from URLs and to them"},
	{Name: "TRANSFER_PLUGIN_STALL", Kind: Seconds, Least: 1, Default: "7200", Meaning: "how long such a program may do nothing"},
	{Name: "RESERVED_DISK", Kind: Number, Default: "1024", Meaning: "how many MB of the disk with the sandboxes jobs leave free"},
	{Name: "ASYNC_STAGEOUT", Kind: Truth, Default: "true", Meaning: "whether slots are free before the output of their jobs has arrived"},
	{Name: "MAX_OUTPUT_TRANSFERS_PER_CLAIM", Kind: Number, Default: "2", Meaning: "how much output of a claim, or of a slot of the queue, may be on its way while the next job runs"},
	{Name: "TRANSFER_PATIENCE", Kind: Seconds, Default: "86400", Meaning: "how long output that cannot be delivered is tried again before somebody has to look"},
	{Name: "SANDBOX_KEEP", Kind: Seconds, Default: "604800", Meaning: "how long it waits for that before it is given up, and its sandbox is removed; 0: for ever"},

	{Name: "HISTORY", Kind: Path, Meaning: "the file to which the ads of jobs are written that leave the queue"},
	{Name: "STARTD_HISTORY", Kind: Path, Meaning: "the file to which the ads of runs are written that leave a slot of this host"},
	{Name: "MAX_HISTORY_LOG", Kind: Number, Least: 1, Default: "20971520", Meaning: "how many bytes such a file may have before it gets another name"},
	{Name: "MAX_HISTORY_ROTATIONS", Kind: Number, Least: 1, Default: "2", Meaning: "how many of those are kept"},
	{Name: "JOB_QUEUE_LOG", Kind: Path, Meaning: "the log by which other programs follow the queue"},

	{Name: "FetchWorkDelay", Kind: Expression, Wants: Whole, Else: "300 is taken", Default: "300", Meaning: "seconds from the end of one fetch to the next"},
	{Name: "FETCH_OWNERS", Kind: List, Patterns: true, Meaning: "users, or patterns, whose work may be fetched when execd runs as root"},
	{Name: "FETCH_WORK_AHEAD", Kind: Truth, Default: "false", Meaning: "ask for the next work while JOB_EXIT tells of the last"},
	{Name: "FETCH_SEND_CLAIM_ID", Kind: Truth, Default: "false", Meaning: "give the secret claim id to REPLY_FETCH and EVICT_CLAIM"},

	{Name: "STARTD_JOB_HOOK_KEYWORD", Kind: Keyword, Meaning: "the hooks of slots that have no keyword of their own"},
	{
		Name: "SLOTN_JOB_HOOK_KEYWORD", Kind: Keyword, Meaning: "the hooks of slot N",
		family: regexp.MustCompile(`^SLOT[0-9]+(_[0-9]+)?_JOB_HOOK_KEYWORD$`),
	},
	{Name: "STARTER_JOB_HOOK_KEYWORD", Kind: Keyword, Meaning: "the hooks of all jobs, whatever their ads say"},
	{Name: "STARTER_DEFAULT_JOB_HOOK_KEYWORD", Kind: Keyword, Meaning: "the hooks of jobs whose ads name none that there are"},
	{Name: "STARTER_INITIAL_UPDATE_INTERVAL", Kind: Seconds, Least: 1, Default: "8", Meaning: "from the start of a job to the first UPDATE_JOB_INFO"},
	{Name: "STARTER_UPDATE_INTERVAL", Kind: Seconds, Least: 1, Default: "300", Meaning: "from one UPDATE_JOB_INFO to the next"},
	{Name: "PERIODIC_EXPR_INTERVAL", Kind: Seconds, Least: 1, Default: "60", Meaning: "how often the policy of a job is looked at that changes with the time"},
	{Name: "SHADOW_QUEUE_UPDATE_INTERVAL", Kind: Seconds, Least: 1, Default: "900", Meaning: "how often what is known of a run on another host is recorded"},
	{Name: "SHADOW_LAZY_QUEUE_UPDATE", Kind: Truth, Default: "true", Meaning: "whether NumJobStarts and NumJobReconnects wait for that, too"},
	{Name: "SHADOW_JOB_CLEANUP_RETRY_DELAY", Kind: Seconds, Least: 1, Default: "30", Meaning: "how long until the end of such a run is tried again to be recorded"},
	{Name: "SHADOW_MAX_JOB_CLEANUP_RETRIES", Kind: Number, Default: "5", Meaning: "how often, before its job is to run again"},
	{Name: "DEFAULT_USERLOG_FORMAT_OPTIONS", Kind: List, Words: []string{"XML", "JSON", "ISO_DATE", "SUB_SECOND", "UTC", "LEGACY"}, Meaning: "how event logs of jobs are written: XML, JSON, ISO_DATE, SUB_SECOND, UTC, LEGACY"},
	{Name: "HOOK_UPDATE_ON_SUSPEND", Kind: Truth, Default: "true", Meaning: "call UPDATE_JOB_INFO when a job is suspended or goes on, too"},

	{Name: "KEYWORD_HOOK_NAME", Kind: Path, Meaning: "the program that the hook NAME is", family: hook("")},
	{Name: "KEYWORD_HOOK_NAME_TIMEOUT", Kind: Seconds, Least: 1, Meaning: "how long it may run", family: hook("_TIMEOUT")},
	{Name: "KEYWORD_HOOK_NAME_MAX_OUTPUT", Kind: Number, Default: "1048576", Meaning: "bytes it may print; FETCH_WORK 100663296 by default", family: hook("_MAX_OUTPUT")},
	{Name: "KEYWORD_HOOK_NAME_MAX_PROCESSES", Kind: Number, Least: 1, Default: "64", Meaning: "processes it may have at a time", family: hook("_MAX_PROCESSES")},
	{
		Name: "KEYWORD_HOOK_PREPARE_JOB_ARGS", Kind: Args, Meaning: "arguments of the PREPARE_JOB hooks",
		family: regexp.MustCompile(`^.+_HOOK_PREPARE_JOB(_BEFORE_TRANSFER)?_ARGS$`),
	},
	{
		Name: "KEYWORD_HOOK_PREPARE_JOB_SLOT_AD", Kind: Truth, Default: "true", Meaning: "give the ad of the slot to PREPARE_JOB, behind that of the job",
		family: regexp.MustCompile(`^.+_HOOK_PREPARE_JOB_SLOT_AD$`),
	},
	{
		Name: "KEYWORD_HOOK_SERVER", Kind: Path, Meaning: "the program that stays and answers the hooks of execd that have none",
		family: regexp.MustCompile(`^.+_HOOK_SERVER$`),
	},
	{
		Name: "KEYWORD_HOOK_SERVER_HOOKS", Kind: List, Words: []string{"FETCH_WORK", "REPLY_FETCH", "EVICT_CLAIM", "RENEW_CLAIM", "REPORT_WORK"},
		Meaning: "which of them it answers, by default all", family: regexp.MustCompile(`^.+_HOOK_SERVER_HOOKS$`),
	},

	{Name: "LOCAL_CONFIG_DIR", Kind: List, Meaning: "directories whose files are read behind this one, in lexical order"},
}

// Table returns the knobs that execd reads, in the order of hooks.conf(5).
func Table() []Known { return known }

// Find returns the knob that execd reads under a name, with or without the name of a
// daemon before it; nil if it reads none.
func Find(name string) *Known {
	name = bare(key(name))
	for i := range known {
		k := &known[i]
		if k.pattern() && k.family.MatchString(name) || !k.pattern() && key(k.Name) == name {
			return k
		}
	}
	return nil
}

// bare returns a name in capitals without the name of a daemon before it.
func bare(name string) string {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return rest
		}
	}
	return name
}

// elsewhere are knobs that would change something in HTCondor and have no effect here,
// with what to use instead.
var elsewhere = map[string]string{
	"LOCAL_CONFIG_FILE": "include the file instead",
	"NUM_CPUS":          "slots of queues say how many jobs run",
	"START_BACKFILL":    "there are no backfill jobs", "EVICT_BACKFILL": "there are no backfill jobs", "ENABLE_BACKFILL": "there are no backfill jobs",
	"RUNBENCHMARKS":                 "no benchmarks are run",
	"STARTER_HOOK_JOB_EXIT_TIMEOUT": "KEYWORD_HOOK_JOB_EXIT_TIMEOUT is",
	"USER_JOB_WRAPPER":              "starter_method of queues is for that", "ALLOW_DAEMON": "the file peers says which hosts may connect",
	"RESERVED_MEMORY":               "complex_values of the host say what there is",
	"SLOT_WEIGHT":                   "shares are of the slots of queues",
	"CLAIM_PARTITIONABLE_LEFTOVERS": "who claims a slot has what he requests",
	"SLOTS_CONNECTED_TO_KEYBOARD":   "all slots see the keyboard", "SLOTS_CONNECTED_TO_CONSOLE": "all slots see the console",
	"STARTD_LATCH_EXPRS": "no attribute is kept from one look to the next", "MOUNT_UNDER_SCRATCH": "PRIVATE_TMP of execd_params is for that",
	"JOB_RENICE_INCREMENT": "priority of queues is for that", "CGROUP_MEMORY_LIMIT_POLICY": "h_rss and the like of queues and jobs are limits",
	"STARTD_SLOT_EXPRS": "STARTD_SLOT_ATTRS is for that", "STARTD_EXPRS": "STARTD_ATTRS is for that",
}

// identity are the knobs that say as which user, where and in what environment jobs
// run. They are refused unless they say what is so in any case: nobody must rely on one
// that has no effect.
var identity = []struct {
	names *regexp.Regexp
	so    func(v string) bool // reports that a value changes nothing; nil: every value would
	why   string
}{
	{regexp.MustCompile(`^(SLOT[0-9]+(_[0-9]+)?|VM[0-9]+|NOBODY_SLOT)_USER$`), nil, "jobs run as their owners"},
	{regexp.MustCompile(`^STARTER_ALLOW_RUNAS_OWNER$`), says(true), "jobs run as their owners"},
	{regexp.MustCompile(`^(DEDICATED_EXECUTE_ACCOUNT_REGEXP|EXECUTE_LOGIN_IS_DEDICATED)$`), says(false), "no account is for jobs alone, and what a job leaves is found by its control group"},
	{regexp.MustCompile(`^(ENFORCE|ASSIGN)_CPU_AFFINITY$`), says(false), "qsub -binding is for that"},
	{regexp.MustCompile(`^SLOT[0-9]+_CPU_AFFINITY$`), nil, "qsub -binding is for that"}, // the value 0 is a core
	{regexp.MustCompile(`^SLOT[0-9]+_EXECUTE$`), nil, "EXECUTE is where all slots have their sandboxes"},
	{regexp.MustCompile(`^(NAMED_CHROOT|SINGULARITY_JOB)$`), says(false), "starter_method of queues is for that"},
}

// says returns a function that reports whether a value is this boolean.
func says(want bool) func(string) bool {
	return func(v string) bool {
		b, err := truth(v)
		return err == nil && b == want
	}
}

// refused says why a value of a knob is refused, "" if it is not.
func refused(name, v string) string {
	for _, k := range identity {
		if v != "" && k.names.MatchString(name) && (k.so == nil || !k.so(v)) {
			return k.why
		}
	}
	return ""
}

var slotType = regexp.MustCompile(`^(NUM_SLOTS(_TYPE_[0-9]+)?|SLOT_TYPE_[0-9]+(_.*)?)$`)

// unread says why a knob has no effect here, "" if it may have one.
func unread(name string) string {
	switch {
	case strings.HasPrefix(name, "SLOT_TYPE_") && strings.HasSuffix(name, "_PARTITIONABLE"):
		return "PARTITIONABLE_QUEUES is for that"
	case slotType.MatchString(name):
		return "slots are those of the queues"
	case strings.HasPrefix(name, "MACHINE_RESOURCE_"):
		return "complex_values of the host say what there is"
	case strings.HasPrefix(name, "STARTD_CRON_"):
		return sensors
	}
	return elsewhere[name]
}

// check returns what is wrong with a value.
func (k *Known) check(v string) error {
	var err error
	switch k.Kind {
	case Expression:
		_, err = parse(v)
	case Number, Seconds:
		var n int64
		n, err = number(v)
		switch {
		case err != nil:
		case n < k.Least:
			err = fmt.Errorf("want at least %d, not %s", k.Least, v)
		case k.Kind == Seconds && n > int64(longest/time.Second):
			err = fmt.Errorf("%s seconds are more than a year", v)
		}
	case Truth:
		_, err = truth(v)
	case Keyword:
		if !IsKeyword(v) {
			err = fmt.Errorf("%s is no keyword: letters, digits and underscores", strconv.Quote(v))
		}
	case Args:
		_, err = Arguments(v)
	case List:
		for _, word := range words(v) {
			if err = k.checkWord(word); err != nil {
				break
			}
		}
	case Address:
		_, port, e := net.SplitHostPort(v)
		if _, bad := strconv.ParseUint(port, 10, 16); e != nil || bad != nil {
			err = fmt.Errorf("want a port with a colon before it, as in :6445, not %s", strconv.Quote(shorten(v)))
		}
	case Path:
	}
	if err != nil && strings.Contains(v, "#") {
		err = fmt.Errorf("%w (a comment needs a line of its own)", err)
	}
	return err
}

// checkWord returns what is wrong with a word of a list.
func (k *Known) checkWord(word string) error {
	if k.Words != nil && !slices.Contains(k.Words, strings.ToUpper(word)) {
		return fmt.Errorf("%s is none of %s", strconv.Quote(word), strings.Join(k.Words, ", "))
	}
	if k.Patterns {
		if _, err := path.Match(word, ""); err != nil {
			return fmt.Errorf("%s is no pattern", strconv.Quote(shorten(word)))
		}
	}
	return nil
}

// mistakes returns the part of an expression that is an error whatever the ads are, ""
// if none is. It is no reason to refuse a file: a part that is never evaluated may be
// meant for another daemon.
func mistakes(e classad.Expr) string {
	found := e.Mistakes()
	if len(found) == 0 {
		return ""
	}
	return strings.Join(found, "; ") + ", which is an error when it is looked at"
}

// odd describes a mistake in the expression of the knob name, or a constant value that
// is of no use, and what happens then; empty if it has neither, or depends on ads or the
// time. An expression may be undefined on purpose.
func (k *Known) odd(name, v string) string {
	if k.Kind != Expression {
		return ""
	}
	if k.pattern() {
		k = Find(universes.ReplaceAllString(bare(name), ""))
	}
	e, err := parse(v)
	if err != nil {
		return ""
	}
	if text := mistakes(e); text != "" {
		if k.Else != "" {
			text += ": " + k.Else
		}
		return text
	}
	if !e.References(nil, nil).Constant() {
		return ""
	}
	c := (&classad.Env{}).Eval(e)
	ok := c.Kind() == classad.UndefinedKind
	switch k.Wants {
	case Condition, Amount:
		_, number := c.Number()
		ok = ok || number
	case Whole:
		ok = ok || c.Kind() == classad.IntKind
	case Text:
		ok = ok || c.Kind() == classad.StringKind
	}
	switch {
	case ok:
		return ""
	case c.Kind() == classad.ErrorKind:
		return fmt.Sprintf("want %s, not an error (%s): %s", k.Wants, shorten(c.Reason()), k.Else)
	}
	return fmt.Sprintf("want %s, not the %v %s: %s", k.Wants, c.Kind(), shorten(c.String()), k.Else)
}

// longest is the longest time that a knob may have.
const longest = 365 * 24 * time.Hour

// IsKeyword reports whether a word may name a set of hooks: it becomes a part of names
// of knobs, and may come from a job's ad.
func IsKeyword(word string) bool {
	if word == "" || len(word) > maxName {
		return false
	}
	for _, c := range []byte(word) {
		if c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

func parse(v string) (classad.Expr, error) {
	e, err := classad.ParseOldExpr(v)
	if bad, ok := errors.AsType[*classad.SyntaxError](err); ok {
		return e, fmt.Errorf("not an expression: column %d: %s", bad.Column, bad.Msg)
	}
	return e, err
}

// constant evaluates a value that may only contain constants.
func constant(v string) (classad.Value, error) {
	e, err := parse(v)
	if err != nil {
		return classad.Value{}, err
	}
	return (&classad.Env{}).Eval(e), nil
}

// number parses a whole number of 32 bits.
func number(v string) (int64, error) {
	if n, err := strconv.ParseInt(v, 10, 32); err == nil {
		return n, nil
	}
	c, err := constant(v)
	if err != nil {
		return 0, fmt.Errorf("want a whole number: %w", err)
	}
	n, ok := c.Int()
	if !ok || n != int64(int32(n)) {
		return 0, fmt.Errorf("want a whole number, not %s", v)
	}
	return n, nil
}

// truth parses a boolean: a word, or a constant expression.
func truth(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true", "yes", "t", "y", "1":
		return true, nil
	case "false", "no", "f", "n", "0":
		return false, nil
	}
	c, err := constant(v)
	if err == nil {
		if b, ok := c.Bool(); ok {
			return b, nil
		}
		if n, ok := c.Number(); ok {
			return n != 0, nil
		}
	}
	return false, fmt.Errorf("want true or false, not %s", v)
}

// Arguments splits the arguments of a program, in either of HTCondor's two forms. Plain
// arguments have blanks between them, and \" stands for a quote. If all of them are in
// double quotes, single quotes keep blanks together, and either quote is written twice
// to stand for itself.
func Arguments(v string) ([]string, error) {
	v = strings.TrimSpace(v)
	if !strings.HasPrefix(v, `"`) {
		if rest := strings.ReplaceAll(v, `\"`, ""); strings.Contains(rest, `"`) {
			return nil, errors.New(`a double quote among plain arguments is written \"`)
		}
		return strings.Fields(strings.ReplaceAll(v, `\"`, `"`)), nil
	}
	v = v[1:]
	var args []string
	var arg strings.Builder
	some, quoted := false, false // some: an argument has begun, perhaps an empty one; quoted: within single quotes
	for i := 0; i < len(v); i++ {
		c := v[i]
		switch {
		case c == '"' && strings.HasPrefix(v[i+1:], `"`), c == '\'' && quoted && strings.HasPrefix(v[i+1:], "'"):
			arg.WriteByte(c)
			some = true
			i++
		case c == '"' && quoted:
			return nil, errors.New("arguments have a single quote without its end")
		case c == '"' && strings.TrimSpace(v[i+1:]) != "":
			return nil, fmt.Errorf("something stands behind the double quote that ends the arguments: %q", v[i+1:])
		case c == '"':
			if some {
				args = append(args, arg.String())
			}
			return args, nil
		case c == '\'':
			quoted, some = !quoted, true
		case !quoted && strings.IndexByte(" \t\r\n", c) >= 0:
			if some {
				args = append(args, arg.String())
			}
			arg.Reset()
			some = false
		default:
			arg.WriteByte(c)
			some = true
		}
	}
	return nil, errors.New("arguments have a double quote without its end")
}
