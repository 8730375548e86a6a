package ad

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// devNull is In, Out and Err of work that does not have them.
const devNull = "/dev/null"

// RequestOptions are what a request needs beside the ad of work.
type RequestOptions struct {
	// Scratch is the scratch directory of the work, below which a relative Iwd is;
	// empty: not made yet, and the working directory and what is relative to it stay
	// relative, with a dot in front.
	Scratch string
	// Slot is the ad of the slot, to which expressions may refer; nil: none.
	Slot *classad.Ad
	Now  time.Time
	// Config has the resources that a job may ask for; nil: there are none, and
	// RequestMemory and RequestDisk limit nothing.
	Config *conf.Config
	// Cpus is how many slots the work may have at most; 0: as many as it asks
	// for. PE is the parallel environment in which it has more than one; empty:
	// it has one slot, whatever RequestCpus says.
	Cpus int
	PE   string
	// Script is the script that the work came with, see CutScript; nil: none.
	Script []byte
}

// Extras are the attributes of an ad of work that are no part of the request.
type Extras struct {
	KillSig     syscall.Signal // by which the job is asked to end; SIGTERM if nothing is said
	Pre, Post   *Command       // to be run before and after it; nil: none
	UserLog     string         // path of the event log that is written for it; empty: none
	UserLogXML  bool
	OutputAd    string        // path of the file for its ad when it has ended; empty: none
	HookKeyword string        // empty: none
	Lease       time.Duration // JobLeaseDuration; 0: none
}

// Command is a program with its arguments.
type Command struct {
	Path string // absolute, or relative to the working directory
	Args []string
}

var errNoCommand = errors.New("it must say what to run")

// DefaultJava is the virtual machine for work of the java universe.
const DefaultJava = "/usr/bin/java"

// Complete returns the ad of fetched work as it is kept: without secrets, with
// HookKeyword if it has none, and with defaults for attributes that it may lack. On a
// partitionable slot it must say how much of the slot it needs.
func Complete(work *classad.Ad, keyword string, partitionable bool) (*classad.Ad, error) {
	var secrets []string
	for name := range work.All() {
		if classad.Private(name) {
			secrets = append(secrets, name)
		}
	}
	var b builder
	missing := func(name string) bool {
		_, ok := work.Lookup(name)
		return !ok
	}
	for _, name := range []string{"RequestCpus", "RequestMemory", "RequestDisk"} {
		switch {
		case !missing(name):
		case partitionable:
			return nil, fmt.Errorf("cannot use ad of work: no %s, which a partitionable slot needs", name)
		default:
			b.integer(name, unasked)
		}
	}
	for _, a := range []struct {
		name  string
		value classad.Value
	}{
		{"MyType", classad.String("Job")},
		{"TargetType", classad.String("Machine")},
		{"JobUniverse", classad.Int(universeVanilla)},
		{"ClusterId", classad.Int(1)},
		{"ProcId", classad.Int(0)},
		{"Requirements", classad.Bool(true)},
		{"Rank", classad.Real(0)},
		{"HookKeyword", classad.String(keyword)},
	} {
		if missing(a.name) {
			b.value(a.name, a.value)
		}
	}
	full := b.over(work.Without(secrets...))
	if err := fits(full); err != nil {
		return nil, fmt.Errorf("cannot use ad of work: %w", err)
	}
	return full, nil
}

// fits returns an error for an ad that could not be read again.
func fits(ad *classad.Ad) error {
	_, err := classad.ParseOld(ad.OldString())
	return err
}

// Request returns the request that the ad of work amounts to: a binary that is
// run as it is, or a script, never a second time, with paths that are absolute where Iwd is, or
// Scratch is known. It does not look at the owner. An error names the attribute that
// is not what it should be.
func Request(work *classad.Ad, o RequestOptions) (*api.SubmitRequest, error) {
	r := newReader(work, &o)
	req := &api.SubmitRequest{Binary: true, NoShell: true, Rerun: api.RerunNo}
	command := r.program()
	if r.err == nil && command == "" && o.Script == nil {
		r.fail("Cmd", errNoCommand)
	}
	args := r.arguments("Arguments", "Args")
	switch universe := r.integer("JobUniverse", universeVanilla); universe {
	case universeVanilla:
		req.Command, req.Args = command, args
	case universeJava:
		req.Command, req.Args = DefaultJava, r.java(command, args)
	default:
		r.fail("JobUniverse", fmt.Errorf("%d%s is not supported, only 5 (vanilla) and 10 (java)", universe, universeName(universe)))
	}
	r.script(req)
	r.task(req)
	req.Env = r.environment()
	if !req.Binary {
		req.NoShell = false
	} else if _, has := r.value("NoShell"); has {
		req.NoShell = r.flag("NoShell")
	}
	req.Cwd = r.literal(r.cwd)
	req.Stdin, req.Stdout, req.Stderr = r.stream("In"), r.stream("Out"), r.stream("Err")
	req.Merge = req.Stdout == req.Stderr && req.Stdout != devNull && req.Stdout != ""
	req.Notify = r.flag("WantNotify")
	r.mail(req)
	req.Name = r.name(command)
	if req.Account = r.text("AccountingGroup"); r.err == nil {
		if err := api.CheckAccount(req.Account); err != nil {
			r.fail("AccountingGroup", err)
		}
	}
	r.resources(req)
	r.sandbox(req)
	if r.err != nil {
		return nil, r.err
	}
	return req, nil
}

// ExtrasOf returns the extras of an ad of work.
func ExtrasOf(work *classad.Ad, o RequestOptions) (Extras, error) {
	r := newReader(work, &o)
	e := Extras{
		KillSig: r.signal("KillSig", syscall.SIGTERM),
		Pre:     r.command("Pre"),
		Post:    r.command("Post"),
		UserLog: r.path("StarterUserLog", ""), UserLogXML: r.flag("StarterUserLogUseXML"),
		OutputAd: r.path("OutputAd", ""), HookKeyword: r.text("HookKeyword"),
	}
	const longest = 365 * 24 * 60 * 60
	lease := r.integer("JobLeaseDuration", 0)
	if r.err == nil && (lease < 0 || lease > longest) {
		r.fail("JobLeaseDuration", fmt.Errorf("%d is not a number of seconds from 0 to %d", lease, longest))
	}
	e.Lease = time.Duration(lease) * time.Second
	if r.err != nil {
		return Extras{}, r.err
	}
	return e, nil
}

// OwnExtras returns the extras of qsub -attr, from the whole ad of the job with its
// working directory as Iwd. A job of qsub has its event log by the name that the submit
// side of HTCondor gives it.
func OwnExtras(job *classad.Ad, now time.Time) (Extras, error) {
	r := newReader(job, &RequestOptions{Now: now})
	r.of = "-attr "
	e := Extras{
		KillSig: syscall.SIGTERM,
		UserLog: r.path("UserLog", ""), UserLogXML: r.flag("UserLogUseXML"),
		OutputAd: r.path("OutputAd", ""), HookKeyword: r.text("HookKeyword"),
	}
	if r.err != nil {
		return Extras{}, r.err
	}
	return e, nil
}

// KillSig returns the signal by which work is asked to end, as its ad says, which was read
// strictly when it came. For a signal that does not ask for an end, such as SIGSTOP, it
// returns SIGTERM.
func KillSig(text string) syscall.Signal {
	if !strings.Contains(strings.ToLower(text), "killsig") { // most have none: they need not be parsed
		return syscall.SIGTERM
	}
	work, _ := classad.ParseOldLenient(text)
	r := &reader{env: &classad.Env{My: work}, o: &RequestOptions{}}
	switch s := r.signal("KillSig", syscall.SIGTERM); {
	case r.err != nil, idle[s]:
		return syscall.SIGTERM
	default:
		return s
	}
}

// reader reads the attributes of an ad of work until the first that is wrong.
type reader struct {
	env *classad.Env
	o   *RequestOptions
	cwd string // absolute, or relative to the scratch directory
	iwd string // the directory of relative paths: absolute, or a dot
	of  string // begins the name of an attribute in errors
	raw bool   // paths are as qsub has them, see attrSubmitted
	err error
}

func newReader(work *classad.Ad, o *RequestOptions) *reader {
	r := &reader{env: &classad.Env{My: work, Target: o.Slot, Now: o.Now}, o: o, of: "cannot use ad of work: "}
	r.raw = r.flag(attrSubmitted)
	r.cwd, r.iwd = cmp.Or(o.Scratch, "."), "."
	switch iwd := r.text("Iwd"); {
	case r.raw && (iwd == "" || iwd == home || strings.HasPrefix(iwd, home+"/")):
		r.cwd = cmp.Or(iwd, home)
	case r.raw && !filepath.IsAbs(iwd):
		r.fail("Iwd", fmt.Errorf("%q is neither absolute nor below %s", api.Short(iwd), home))
	case filepath.IsAbs(iwd):
		r.cwd = iwd
	case iwd != "" && !filepath.IsLocal(iwd):
		r.fail("Iwd", fmt.Errorf("%q leads out of the scratch directory", api.Short(iwd)))
	default:
		if below := filepath.Clean(iwd); below != "." {
			r.cwd += "/" + below
		}
	}
	r.checkPath("Iwd", r.cwd)
	if filepath.IsAbs(r.cwd) {
		r.iwd = r.cwd
	}
	return r
}

// fail keeps the first error.
func (r *reader) fail(name string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%s%s: %w", r.of, name, err)
	}
}

// value returns the value of an attribute; ok is false where it is undefined.
func (r *reader) value(name string) (v classad.Value, ok bool) {
	if r.err != nil {
		return v, false
	}
	v = r.env.Attr(name)
	switch v.Kind() {
	case classad.UndefinedKind:
		return v, false
	case classad.ErrorKind:
		r.fail(name, errors.New(v.Reason()))
		return v, false
	}
	return v, true
}

// wrong fails for a value of the wrong kind.
func (r *reader) wrong(name, want string, v classad.Value) {
	r.fail(name, fmt.Errorf("want %s, not the %v %s", want, v.Kind(), api.Short(v.String())))
}

// text returns a string, "" where there is none.
func (r *reader) text(name string) string {
	v, ok := r.value(name)
	if !ok {
		return ""
	}
	s, ok := v.Str()
	switch {
	case !ok:
		r.wrong(name, "a string", v)
	case strings.ContainsRune(s, 0):
		r.fail(name, errors.New("it contains a NUL"))
	}
	return s
}

func (r *reader) integer(name string, otherwise int64) int64 {
	v, ok := r.value(name)
	if !ok {
		return otherwise
	}
	n, ok := v.Int()
	if f, isNumber := v.Number(); !ok && v.Kind() == classad.RealKind && isNumber && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		n, ok = int64(f), true
	}
	if !ok {
		r.wrong(name, "a whole number", v)
	}
	return n
}

func (r *reader) flag(name string) bool {
	v, ok := r.value(name)
	if !ok {
		return false
	}
	b, ok := v.Bool()
	if !ok {
		r.wrong(name, "true or false", v)
	}
	return b
}

func (r *reader) signal(name string, otherwise syscall.Signal) syscall.Signal {
	v, ok := r.value(name)
	if !ok {
		return otherwise
	}
	var s syscall.Signal
	var err error
	if word, isText := v.Str(); isText {
		if n, numErr := strconv.ParseInt(word, 10, 64); numErr == nil {
			s, err = signalNumbered(n)
		} else {
			s, err = signalNamed(word)
		}
	} else if n, isInt := v.Int(); isInt {
		s, err = signalNumbered(n)
	} else {
		r.wrong(name, "the name or the number of a signal", v)
	}
	if err != nil {
		r.fail(name, err)
	}
	return s
}

// path returns a path joined to Iwd, with a dot in front as long as that is not known.
func (r *reader) path(name, otherwise string) string {
	path := r.text(name)
	if r.err != nil || path == "" {
		return otherwise
	}
	if !filepath.IsAbs(path) {
		path = r.iwd + "/" + path
	}
	r.checkPath(name, path)
	return path
}

func (r *reader) checkPath(name, path string) {
	switch {
	case len(path) > api.MaxPath:
		r.fail(name, fmt.Errorf("the path has %d bytes, at most %d are possible", len(path), api.MaxPath))
	case strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f }):
		r.fail(name, errors.New("the path contains a control character"))
	}
}

// program returns the path in Cmd.
func (r *reader) program() string {
	if !r.raw {
		return r.path("Cmd", "")
	}
	path := r.text("Cmd")
	r.checkPath("Cmd", path)
	return path
}

// stream returns the path of a stream as a request has it.
func (r *reader) stream(name string) string {
	if r.raw {
		list := r.text(name)
		r.checkPath(name, list)
		return list
	}
	path := r.path(name, devNull)
	if strings.Contains(path, ",") {
		r.fail(name, errors.New("a path with a comma is not possible there"))
	}
	path = literal(path)
	if strings.Contains(path, ":") {
		path = ":" + path // else what is before it is a host
	}
	if r.err == nil && len(path) > api.MaxPath {
		r.fail(name, fmt.Errorf("the path has %d bytes, at most %d are possible", len(path), api.MaxPath))
	}
	return path
}

// literal returns a path in which execd expands nothing, unless it is to.
func (r *reader) literal(path string) string {
	if r.raw {
		return path
	}
	return literal(path)
}

// literal returns a path in which execd expands nothing.
func literal(path string) string { return strings.ReplaceAll(path, "$", "$$") }

// arguments returns a list of arguments in the new form or, if there is none, in the old
// one. old may be empty.
func (r *reader) arguments(name, old string) []string {
	var args []string
	if _, ok := r.value(name); ok || old == "" {
		var err error
		if args, err = ParseArguments(r.text(name)); err != nil {
			r.fail(name, err)
		}
	} else {
		name, args = old, ParseArgs(r.text(old))
	}
	r.bound(name, "an argument", args, api.MaxArgs)
	return args
}

// environment returns the variables, in the new form if there is one.
func (r *reader) environment() []string {
	name, parse := "Environment", ParseEnvironment
	if _, ok := r.value(name); !ok {
		name, parse = "Env", ParseEnv
	}
	env, err := parse(r.text(name))
	if err != nil {
		r.fail(name, err)
	}
	r.bound(name, "a variable", env, api.MaxEnv)
	return env
}

// bound fails for words that execve(2) would not take, one of them or all together.
func (r *reader) bound(name, one string, words []string, most int) {
	total := 0
	for _, w := range words {
		total += len(w) + 1
		if len(w) >= api.MaxVariable {
			r.fail(name, fmt.Errorf("%s has %d bytes, at most %d are possible", one, len(w), api.MaxVariable-1))
		}
	}
	if total > most {
		r.fail(name, fmt.Errorf("together they have %d bytes, at most %d are possible", total, most))
	}
}

// command returns the program of a pair of attributes such as PreCmd and PreArguments;
// nil if there is none.
func (r *reader) command(prefix string) *Command {
	path := r.path(prefix+"Cmd", "")
	if r.err != nil || path == "" {
		return nil
	}
	return &Command{Path: path, Args: r.arguments(prefix+"Arguments", prefix+"Args")}
}

// name returns a valid name for the job: that of the ad, or that of the file.
func (r *reader) name(command string) string {
	if name := r.text("JobBatchName"); name != "" {
		if err := api.CheckName(name); err != nil {
			r.fail("JobBatchName", err)
		}
		return name
	}
	name := filepath.Base(command)
	if api.CheckName(name) != nil {
		return "work"
	}
	return name
}

// task reads which task of an array the work is.
func (r *reader) task(req *api.SubmitRequest) {
	text, number := r.text("ArrayTasks"), r.integer("ArrayTask", 0)
	if r.err != nil || text == "" && number == 0 {
		return
	}
	t, err := api.ParseTasks(text)
	req.Tasks = t
	if err != nil || !t.IsArray() || req.CheckTasks() != nil {
		r.fail("ArrayTasks", fmt.Errorf("%q is not FIRST-LAST:STEP", api.Short(text)))
	} else if number < 1 || number > api.MaxTask || !t.Has(int(number)) {
		r.fail("ArrayTask", fmt.Errorf("%d is none of the tasks %s", number, text))
	}
	req.Only = strconv.FormatInt(number, 10)
}

// java returns the arguments of the virtual machine: the class path, of the jar
// that Cmd is or the directory in which it is, and of JarFiles, then those of the
// job, of which the first is the class.
func (r *reader) java(command string, args []string) []string {
	if r.err == nil && len(args) == 0 {
		r.fail("Arguments", errors.New("the first one must be the class to run"))
	}
	place := command
	if !strings.HasSuffix(command, ".jar") {
		place = filepath.Dir(command)
	}
	places := []string{place}
	for jar := range strings.FieldsFuncSeq(r.text("JarFiles"), func(c rune) bool { return c == ',' || isBlank(c) }) {
		if !filepath.IsAbs(jar) {
			jar = r.iwd + "/" + jar
		}
		r.checkPath("JarFiles", jar)
		places = append(places, jar)
	}
	path := strings.Join(places, ":")
	if len(path) >= api.MaxVariable {
		r.fail("JarFiles", fmt.Errorf("the class path has %d bytes, at most %d are possible", len(path), api.MaxVariable-1))
	}
	return append([]string{"-classpath", path}, args...)
}

// universeName returns the name of a universe that HTCondor had, in parentheses.
func universeName(n int64) string {
	name := map[int64]string{
		1: "standard", 4: "pvm", 7: "scheduler", 8: "mpi", 9: "grid", 11: "parallel", 12: "local", 13: "vm",
	}[n]
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

// The most that work may ask for: more is a mistake.
const (
	maxMemory = 1 << 40 // MiB
	maxDisk   = 1 << 50 // KiB
)

// resources adds the resources of the attributes Request... to the request.
func (r *reader) resources(req *api.SubmitRequest) {
	cpus := r.amount("RequestCpus", api.MaxSlots)
	if r.o.Cpus > 0 && cpus > int64(r.o.Cpus) {
		r.fail("RequestCpus", fmt.Errorf("%d are more than the %d of the slot", cpus, r.o.Cpus))
	}
	if r.o.PE != "" && cpus > 1 {
		req.PE, req.Slots = r.o.PE, []api.Slots{{Min: int(cpus), Max: int(cpus), Step: 1}}
	} else {
		cpus = 1
	}
	r.limit(req, limitMemory, r.amount("RequestMemory", maxMemory), "M", cpus)
	r.limit(req, limitDisk, r.amount("RequestDisk", maxDisk), "K", cpus)
	if r.o.Config == nil {
		return
	}
	for i := range r.o.Config.Complex {
		r.resource(req, &r.o.Config.Complex[i], cpus)
	}
}

// amount returns a number that the work asks for, else 1.
func (r *reader) amount(name string, most int64) int64 {
	n := r.integer(name, unasked)
	if r.err == nil && (n < 0 || n > most) {
		r.fail(name, fmt.Errorf("%d is not a number from 0 to %d", n, most))
	}
	return max(n, unasked)
}

// limit adds a resource of the kind MEMORY, if it exists and the work does not ask for
// it by its own name as well.
func (r *reader) limit(req *api.SubmitRequest, name string, n int64, unit string, slots int64) {
	if r.err != nil || n <= unasked || r.o.Config == nil {
		return
	}
	a := r.o.Config.Attribute(name)
	if a == nil || a.Name != name || a.Kind != conf.KindMemory || a.Requestable == conf.RequestableNo {
		return
	}
	if _, ok := r.value("Request" + name); ok {
		return
	}
	if perSlot(a) {
		n = (n + slots - 1) / slots
	}
	req.Hard = append(req.Hard, api.Resource{Name: name, Value: strconv.FormatInt(n, 10) + unit})
}

// notResources are the names of Request... that are no resources of complex(5).
var notResources = []string{"Cpus", "Memory", "Disk", "slots"}

// resource adds a resource of complex(5), if the work asks for it.
func (r *reader) resource(req *api.SubmitRequest, a *conf.Attribute, slots int64) {
	name := "Request" + a.Name
	if a.Requestable == conf.RequestableNo || contains(notResources, a.Name) {
		return
	}
	v, ok := r.value(name)
	if !ok {
		return
	}
	text, isText := v.Str()
	number, isNumber := v.Number()
	if b, isBool := v.Bool(); isBool {
		text = strings.ToUpper(strconv.FormatBool(b))
	} else if isNumber {
		if a.Kind.Number() && a.Kind != conf.KindBool && a.Kind != conf.KindTime && perSlot(a) {
			number /= float64(slots)
		}
		if a.Kind != conf.KindDouble {
			number = math.Ceil(number)
		}
		text = strconv.FormatFloat(number, 'f', -1, 64)
	} else if !isText {
		r.wrong(name, "a value of a resource", v)
	}
	if _, err := conf.ParseValue(a.Kind, text); err != nil {
		r.fail(name, err)
	}
	if r.err == nil {
		req.Hard = append(req.Hard, api.Resource{Name: a.Name, Value: text})
	}
}
