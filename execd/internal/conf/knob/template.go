package knob

import "strings"

// template is a set of knobs that "use CATEGORY : NAME(arguments)" stands for. Its text
// is in the language itself; $(1) is the first argument, $(1:text) has a default, and
// $(3+) is the third and all behind it.
type template struct {
	text        string
	least, most int    // arguments
	refused     string // why it cannot be used
	warning     string // why it has no effect
	fits        func(args []string) bool
}

// These are the reasons why templates cannot be used, or have no effect.
const (
	hereAnyway = "jobs are submitted to execd itself"
	noPool     = "every execd is a host of its own"
	noNetwork  = "the file peers says which hosts may connect"
	sensors    = "load_sensor of sge_conf is for that"
	desktop    = "POLICY : DESKTOP has what of it there is here"
	noCores    = "nobody counts the cores that a job uses, qsub -binding holds it to those that it has"
	noDisk     = "nobody counts the disk that a job uses, h_fsize of queues limits its files"
	notSlots   = "slots are those of the queues"
)

const many = 99

// templates are those templates of HTCondor that concern a machine that runs jobs, by
// category and name in capitals.
var templates = map[string]map[string]*template{
	"ROLE": {
		"EXECUTE": {}, "PERSONAL": {}, "GET_HTCONDOR_EXECUTE": {},
		"SUBMIT": {warning: hereAnyway}, "GET_HTCONDOR_SUBMIT": {warning: hereAnyway},
		"CENTRALMANAGER": {warning: noPool}, "GET_HTCONDOR_CENTRAL_MANAGER": {warning: noPool},
	},
	"SECURITY": {
		"HOST_BASED": {warning: noNetwork}, "USER_BASED": {warning: noNetwork}, "WITH_AUTHENTICATION": {warning: noNetwork},
		"STRONG": {warning: noNetwork}, "RECOMMENDED_V9_0": {warning: noNetwork, most: many},
		"GET_HTCONDOR_IDTOKENS": {warning: noNetwork}, "FIPS": {warning: noNetwork},
	},
	"FEATURE": {
		"PARTITIONABLESLOT": {most: 2, fits: wholeMachine, text: "PARTITIONABLE_QUEUES = *"},
		"STATICSLOTS":       {most: many, fits: func(args []string) bool { return len(args) == 0 }},
		"GPUS":              {refused: "GPUs are complex_values of the host"},
		"GPUSMONITOR":       {refused: sensors}, "MONITOR": {refused: sensors},
		"STARTDCRONONESHOT": {refused: sensors}, "STARTDCRONPERIODIC": {refused: sensors}, "STARTDCRONCONTINUOUS": {refused: sensors},
		"ONESHOTCRONHOOK": {refused: sensors}, "PERIODICCRONHOOK": {refused: sensors}, "CONTINUOUSCRONHOOK": {refused: sensors},
		"UWCS_DESKTOP_POLICY_VALUES": {refused: desktop},
	},
	"POLICY": {
		"ALWAYS_RUN_JOBS": {text: `
			WANT_SUSPEND = false
			WANT_VACATE = true
			SUSPEND = false
			CONTINUE = true
			PREEMPT = false
			START = true
			KILL = false
			MaxJobRetirementTime = 2147483647
			CLAIM_WORKLIFE = 1200
		`},
		// The load is not looked at, since it includes that of the jobs.
		"DESKTOP": {text: `
			START = KeyboardIdle > $(StartIdleTime:15 * 60)
			IS_OWNER = Start =?= false
			WANT_SUSPEND = true
			SUSPEND = KeyboardIdle < 60
			CONTINUE = KeyboardIdle > $(ContinueIdleTime:5 * 60) && time() - EnteredCurrentActivity > 10
			PREEMPT = Activity == "Suspended" && time() - EnteredCurrentActivity > $(MaxSuspendTime:10 * 60)
			WANT_VACATE = true
			KILL = false
			MaxJobRetirementTime = 0
			CLAIM_WORKLIFE =
		`},
		"UWCS_DESKTOP": {refused: desktop},
		"LIMIT_JOB_RUNTIMES": {most: 1, text: `
			MAX_JOB_RUNTIME = $(1:24 * 3600)
			MaxJobRetirementTime = $(MAX_JOB_RUNTIME) + 120
			PREEMPT = Activity == "Busy" && time() - EnteredCurrentActivity > $(MAX_JOB_RUNTIME)
		`},
		"PREEMPT_IF_RUNTIME_EXCEEDS": {most: 1, text: `
			MAX_JOB_RUNTIME = $(1:24 * 3600)
			PREEMPT_RUNTIME_EXCEEDS = JobStart =!= undefined && time() - JobStart > $(MAX_JOB_RUNTIME)
			use POLICY : PREEMPT_IF(PREEMPT_RUNTIME_EXCEEDS)
		`},
		"HOLD_IF_RUNTIME_EXCEEDS": {most: 1, text: `
			MAX_JOB_RUNTIME = $(1:24 * 3600)
			HOLD_RUNTIME_EXCEEDS = JobStart =!= undefined && time() - JobStart > $(MAX_JOB_RUNTIME)
			use POLICY : WANT_HOLD_IF(HOLD_RUNTIME_EXCEEDS, $(HOLD_SUBCODE_RUNTIME_EXCEEDS:103), \
				$(HOLD_REASON_RUNTIME_EXCEEDS:the job ran longer than $(MAX_JOB_RUNTIME) seconds))
		`},
		"PREEMPT_IF_MEMORY_EXCEEDED": {text: `
			MEMORY_EXCEEDED = MemoryUsage =!= undefined && MemoryUsage > Memory
			use POLICY : PREEMPT_IF(MEMORY_EXCEEDED)
		`},
		"HOLD_IF_MEMORY_EXCEEDED": {text: `
			MEMORY_EXCEEDED = MemoryUsage =!= undefined && MemoryUsage > Memory
			use POLICY : WANT_HOLD_IF(MEMORY_EXCEEDED, $(HOLD_SUBCODE_MEMORY_EXCEEDED:102), \
				$(HOLD_REASON_MEMORY_EXCEEDED:the job used more memory than its slot has))
		`},
		"PREEMPT_IF_CPUS_EXCEEDED": {refused: noCores}, "HOLD_IF_CPUS_EXCEEDED": {refused: noCores}, "STARTD_PUBLISH_CPUSUSAGE": {refused: noCores},
		"PREEMPT_IF_DISK_EXCEEDED": {refused: noDisk}, "HOLD_IF_DISK_EXCEEDED": {refused: noDisk},
		"PREEMPT_IF": {least: 1, most: 1, text: `
			PREEMPT = ($($(1))) || ($(PREEMPT))
			MaxJobRetirementTime = ($($(1))) =?= true ? -1 : ($(MaxJobRetirementTime))
			WANT_SUSPEND = ($($(1))) =!= true && ($(WANT_SUSPEND))
		`},
		"WANT_HOLD_IF": {least: 3, most: many, text: `
			use POLICY : PREEMPT_IF($(1))
			WANT_HOLD = ($($(1))) || ($(WANT_HOLD:false))
			WANT_HOLD_SUBCODE = ($($(1))) =?= true ? ($(2)) : ($(WANT_HOLD_SUBCODE:undefined))
			WANT_HOLD_REASON = ($($(1))) =?= true ? "$(3+)" : ($(WANT_HOLD_REASON:undefined))
		`},
	},
}

// wholeMachine reports whether a slot is of the first type and has the whole machine,
// as one of a queue has.
func wholeMachine(args []string) bool {
	for i, only := range []string{"1", "100%"} {
		if i < len(args) && args[i] != "" && args[i] != only {
			return false
		}
	}
	return true
}

// use reads templates: CATEGORY : NAME NAME(arguments).
func (l *lines) use(text string, line int) {
	category, names, _ := strings.Cut(text, ":")
	category, names = strings.TrimSpace(category), strings.Trim(names, " \t,")
	if category == "" || names == "" {
		l.problem(line, "use: want use CATEGORY : NAME")
		return
	}
	for names != "" {
		name, args, rest, ok := cutCall(names)
		if !ok {
			l.problem(line, "use: the arguments of %s have no end", shorten(names))
			return
		}
		l.template(category, name, args, line)
		names = strings.Trim(rest, " \t,")
	}
}

// cutCall cuts NAME or NAME(arguments) from the beginning of a text.
func cutCall(text string) (name string, args []string, rest string, ok bool) {
	end := strings.IndexAny(text, " \t,(")
	if end < 0 {
		return text, nil, "", true
	}
	name, rest = text[:end], strings.TrimLeft(text[end:], " \t")
	if !strings.HasPrefix(rest, "(") {
		return name, nil, rest, true
	}
	depth, start := 0, 1
	for i := range len(rest) {
		switch c := rest[i]; {
		case c == '(':
			depth++
		case c == ',' && depth == 1:
			args = append(args, strings.TrimSpace(rest[start:i]))
			start = i + 1
		case c == ')':
			if depth--; depth > 0 {
				continue
			}
			if last := strings.TrimSpace(rest[start:i]); last != "" || args != nil {
				args = append(args, last)
			}
			return name, args, rest[i+1:], true
		}
	}
	return "", nil, "", false
}

// template reads the text of a template in its place.
func (l *lines) template(category, name string, args []string, line int) {
	t := templates[key(category)][key(name)]
	what := shorten(category) + " : " + shorten(name)
	why := ""
	switch {
	case t == nil:
		why = "there is no such template here"
	case t.refused != "":
		why = t.refused
	case t.fits != nil && !t.fits(args):
		why = notSlots
	case len(args) < t.least:
		why = "it needs more arguments"
	case len(args) > t.most:
		why = "it has too many arguments"
	case t.warning != "":
		l.r.add(Problem{File: l.file, Line: line, Text: "use " + what + " has no effect here: " + t.warning, Warning: true})
		return
	}
	if why != "" {
		l.problem(line, "cannot use %s: %s", what, why)
		return
	}
	inner := &lines{r: l.r, file: l.file, text: fill(t.text, args), at: line}
	inner.read()
}

// fill replaces the arguments in the text of a template.
func fill(text string, args []string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$(")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		n := int(rest[0]) - '1'
		if n < 0 || n > 8 {
			b.WriteString("$(")
			text = rest
			continue
		}
		what, rest, _ := strings.Cut(rest[1:], ")")
		switch {
		case n >= len(args) || args[n] == "":
			b.WriteString(strings.TrimPrefix(what, ":"))
		case what == "+":
			b.WriteString(strings.Join(args[n:], ", "))
		default:
			b.WriteString(args[n])
		}
		text = rest
	}
}
