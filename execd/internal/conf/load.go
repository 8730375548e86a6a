package conf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Options say whose configuration is read, and from where.
type Options struct {
	Dir    string // the directory of the configuration; it may be missing
	Tmpdir string // tmpdir of queues that name none
	// ShellStartMode is the one of queues that name none; "": PosixCompliant.
	ShellStartMode string
	Host           string // this host, for overrides and hostlists
	// Environ is the environment, in which _CONDOR_NAME overrides the knob NAME.
	Environ []string

	// instead has what is read in place of files, to check a change before it is made;
	// nil: as if the file did not exist.
	instead map[string][]byte
	// closely is a file of which all values are checked, even if they are another
	// host's.
	closely string
	// kept is read instead of the files, if set.
	kept *kept
}

// Load reads the files below a directory. Missing files mean defaults: a host without
// configuration has one queue, all.q, with a slot for each processor, and one parallel
// environment, smp, whose slots are those of one host. The error joins a *Problem for
// each mistake.
func Load(o Options) (*Config, error) {
	c, problems := loadAll(o)
	if err := joined(problems); err != nil {
		return nil, err
	}
	return c, nil
}

// Check is Load for reports: it returns what could be read, with its warnings, even if
// there are mistakes.
func Check(o Options) (*Config, error) {
	c, problems := loadAll(o)
	return c, joined(problems)
}

// joined returns all mistakes as one error, or nil.
func joined(problems []*Problem) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}

// loadAll is Load with the mistakes as a list.
func loadAll(o Options) (*Config, []*Problem) {
	l := newLoader(o)
	l.load()
	return l.conf, l.problems
}

func newLoader(o Options) *loader {
	l := &loader{Options: o, conf: &Config{Hostname: o.Host, dir: o.Dir, objects: map[string]map[string][]line{}}, groups: map[string][]string{}}
	if o.instead == nil && o.kept == nil {
		l.conf.read = &kept{Files: map[string][]byte{}, Dirs: map[string][]string{}}
	}
	return l
}

// loader is one Load.
type loader struct {
	Options
	conf     *Config
	problems []*Problem
	groups   map[string][]string // members of host groups
	inGroup  []string            // the groups that are being resolved
}

func (l *loader) problem(file string, line int, format string, args ...any) {
	l.problems = append(l.problems, &Problem{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

// mistake is problem for an error, which may have words of Grid Engine.
func (l *loader) mistake(file string, line int, prefix string, err error) {
	l.problem(file, line, "%s%v", prefix, err)
	if w, ok := errors.AsType[*worded](err); ok {
		l.problems[len(l.problems)-1].words = w.words
	}
}

// cannot reports a file that could not be read.
func (l *loader) cannot(path string, err error) {
	var problem *Problem
	var pathErr *fs.PathError
	switch {
	case errors.As(err, &problem):
		l.problems = append(l.problems, problem)
	case errors.As(err, &pathErr):
		l.problem(path, 0, "cannot %s: %v", pathErr.Op, pathErr.Err)
	default:
		l.problem(path, 0, "%v", err)
	}
}

// These are the kinds of objects, by the names that Show and List take.
const (
	kindQueue     = "queue"
	kindPE        = "pe"
	kindCkpt      = "ckpt"
	kindComplex   = "complex"
	kindConf      = "conf"
	kindSched     = "sched"
	kindUserList  = "userlist"
	kindHostGroup = "hostgroup"
	kindProject   = "project"
	kindHost      = "host"
	kindManager   = "manager"
	kindOperator  = "operator"
)

// fileAliases is the only file that qconf does not know.
const fileAliases = "host_aliases"

// places are the directories or files of the kinds.
var places = map[string]string{
	kindQueue: "queues", kindPE: "pes", kindCkpt: "ckpts", kindUserList: "userlists", kindHostGroup: "hostgroups", kindHost: "hosts", kindProject: "projects",
	kindComplex: "complexes", kindConf: "sge_conf", kindSched: "sched_conf", kindManager: "managers", kindOperator: "operators",
}

// load reads objects before those that refer to them.
func (l *loader) load() {
	if l.kept == nil {
		if info, err := os.Stat(l.Dir); err == nil {
			if err := l.trust(l.Dir, info); err != nil {
				l.cannot(l.Dir, err)
			}
		}
		l.misnamed()
	}
	c := l.conf
	c.builtin = l.standIns()
	l.instead = with(l.instead, c.builtin)
	c.Complex = defaultComplex()
	if data, path, ok := l.file(kindComplex); ok {
		l.complexes(path, data)
	}
	for _, a := range c.Complex {
		text := a.text()
		l.keep(kindComplex, a.Name, []line{{written: text, inForce: text}})
	}
	c.Managers, c.Operators = l.users(kindManager), l.users(kindOperator)
	l.aliases()

	c.UserLists = map[string]*UserList{}
	readAll(l, kindUserList, userListParams, func(u *UserList) { c.UserLists[u.Name] = u })
	c.Projects = map[string]*Project{}
	readAll(l, kindProject, projectParams, func(p *Project) { c.Projects[p.Name] = p })
	readAll(l, kindHostGroup, hostGroupParams, func(g *hostGroup) { l.groups[g.name] = g.hosts })
	for _, name := range slices.Sorted(maps.Keys(l.groups)) {
		switch here, err := l.here(name); {
		case err != nil:
			l.problem(l.path(kindHostGroup, name), 0, "%v", err)
		case here:
			c.HostGroups = append(c.HostGroups, name)
		}
	}
	c.PEs = map[string]*PE{}
	readAll(l, kindPE, peParams, func(pe *PE) { c.PEs[pe.Name] = pe })
	c.Checkpoints = map[string]*Checkpoint{}
	readAll(l, kindCkpt, ckptParams, func(k *Checkpoint) { c.Checkpoints[k.Name] = k })
	l.hosts()
	readOne(l, kindConf, globalParams, &c.Global)
	readOne(l, kindSched, schedParams, &c.Scheduling)
	l.queues()
	l.knobs()
}

// misnamed warns of file names that are not read and look like ours.
func (l *loader) misnamed() {
	entries, _ := os.ReadDir(l.Dir) // an error is reported for the files in it
	known := append(slices.Collect(maps.Values(places)), fileAliases, fileKnobs)
	for _, e := range entries {
		if hint := suggest(known, e.Name(), ""); hint != "" && !slices.Contains(known, e.Name()) && isMeant(e.Name()) {
			l.conf.Warnings = append(l.conf.Warnings, Problem{File: filepath.Join(l.Dir, e.Name()), Text: "not read by anything" + hint})
		}
	}
}

func (l *loader) path(kind, name string) string { return filepath.Join(l.Dir, places[kind], name) }

func (l *loader) keep(kind, name string, lines []line) {
	if l.conf.objects[kind] == nil {
		l.conf.objects[kind] = map[string][]line{}
	}
	l.conf.objects[kind][name] = lines
}

// file reads the only file of a kind, if it exists.
func (l *loader) file(kind string) (data []byte, path string, ok bool) {
	path = l.path(kind, "")
	data, err := l.readFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.cannot(path, err)
	}
	return data, path, err == nil
}

// files returns the names of the configuration files in the directory of a kind.
func (l *loader) files(kind string) []string {
	dir := l.path(kind, "")
	if l.kept != nil {
		return l.withInstead(dir, l.kept.Dirs[dir])
	}
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return l.withInstead(dir, nil)
	}
	var entries []fs.DirEntry
	var info fs.FileInfo
	if err == nil {
		defer f.Close()
		entries, err = f.ReadDir(-1)
	}
	if err == nil {
		info, err = f.Stat()
	}
	if err == nil {
		err = l.trust(dir, info)
	}
	if err != nil {
		l.cannot(dir, err)
		return nil
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && isMeant(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if l.conf.read != nil {
		l.conf.read.Dirs[dir] = slices.Sorted(slices.Values(names))
	}
	return l.withInstead(dir, names)
}

// withInstead returns the names of the files in a directory, in order, including those
// of instead.
func (l *loader) withInstead(dir string, names []string) []string {
	for path, data := range l.instead {
		if filepath.Dir(path) != dir {
			continue
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == filepath.Base(path) })
		if data != nil {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names
}

// isMeant reports whether a file name is one of the configuration: not an editor's
// backup, not a hidden file, not a package manager's.
func isMeant(name string) bool {
	return !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "~") &&
		!strings.HasPrefix(name, "#") && !strings.Contains(name, ".dpkg-") &&
		!strings.HasSuffix(name, ".rpmsave") && !strings.HasSuffix(name, ".rpmnew")
}

// entries reads one file of a directory.
func (l *loader) entries(kind, name string) (entries []entry, path string, ok bool) {
	path = l.path(kind, name)
	data, err := l.readFile(path)
	if err != nil {
		l.cannot(path, err)
		return nil, path, false
	}
	entries, err = parse(path, data)
	if err != nil {
		l.cannot(path, err)
	}
	return entries, path, err == nil
}

// withName returns the entries of a file with the name, its first parameter, in front;
// if it is left out, it is the name of the file.
func (l *loader) withName(entries []entry, path, parameter, name string) []entry {
	for _, e := range entries {
		if e.name == parameter {
			if e.value != name && e.value != "" {
				l.problem(path, e.line, "%s %q is not the name of the file", parameter, e.value)
			}
			return entries
		}
	}
	return append([]entry{{name: parameter, value: name}}, entries...)
}

// readAll reads the directory of a kind.
func readAll[T any](l *loader, kind string, params []param[T], use func(*T)) {
	for _, name := range l.files(kind) {
		if entries, path, ok := l.entries(kind, name); ok {
			into := new(T)
			l.keep(kind, name, apply(l, path, l.withName(entries, path, params[0].name, name), params, into, nil))
			use(into)
		}
	}
}

// readOne reads the only file of a kind.
func readOne[T any](l *loader, kind string, params []param[T], into *T) {
	data, path, _ := l.file(kind)
	entries, err := parse(path, data)
	if err != nil {
		l.cannot(path, err)
		return
	}
	l.keep(kind, "", apply(l, path, entries, params, into, nil))
}

// users reads a file of users, one in each line.
func (l *loader) users(kind string) (users []string) {
	data, path, _ := l.file(kind)
	entries, err := parse(path, data)
	if err != nil {
		l.cannot(path, err)
	}
	for _, e := range entries {
		if err := checkName("name of a user", e.name); err != nil || e.value != "" {
			l.problem(path, e.line, "want the name of one user in a line")
			continue
		}
		users = append(users, e.name)
	}
	slices.Sort(users)
	users = slices.Compact(users)
	if len(users) > 0 {
		all := strings.Join(users, "\n")
		l.keep(kind, "", []line{{written: all, inForce: all}})
	}
	return users
}

// hosts reads the configuration of this host and of the host "global".
func (l *loader) hosts() {
	mine := ""
	l.conf.Host, l.conf.AnyHost = Values{}, Values{}
	for _, name := range l.files(kindHost) {
		entries, path, ok := l.entries(kindHost, name)
		if !ok {
			continue
		}
		entries = l.withName(entries, path, "hostname", name)
		var h *host
		switch {
		case name == "global" || sameHost(name, l.Host) && mine == "":
			h = &host{}
		case sameHost(name, l.Host):
			l.problem(path, 0, "this host has the file %s, too", mine)
		}
		into := h
		if h == nil && path == l.closely {
			into = &host{}
		}
		l.keep(kindHost, name, apply(l, path, entries, hostParams, into, nil))
		switch {
		case h == nil:
			continue
		case name == "global":
			l.conf.AnyHost = h.values
		default:
			mine = name
			l.conf.Host, l.conf.LoadScaling = h.values, h.scaling
		}
		if a := h.access; a.Allowed != nil || a.Denied != nil || a.Projects != nil || a.XProjects != nil {
			l.conf.Access = append(l.conf.Access, a)
		}
	}
	for _, name := range []string{"global", cmp.Or(mine, l.Host)} {
		if l.conf.objects[kindHost][name] == nil {
			l.keep(kindHost, name, apply(l, "", []entry{{name: "hostname", value: name}}, hostParams, &host{}, nil))
		}
	}
}

// These exist as long as nothing else is configured.
const (
	defaultQueue = "all.q"
	defaultPE    = "smp"
)

// standIns returns the files that are read as if they existed, in the order in which
// they have to be written to become real. Without a queue there is all.q, for all
// parallel environments; without any of these there is smp, which programs ask for that
// know no site. They are files like all others, so that a change of one begins with its
// text.
func (l *loader) standIns() (builtin []file) {
	there := newLoader(l.Options) // l reports mistakes of the directories once
	if len(there.files(kindQueue)) > 0 {
		return nil
	}
	pes := there.files(kindPE)
	if len(pes) == 0 {
		pes = []string{defaultPE}
		builtin = append(builtin, file{path: l.path(kindPE, defaultPE), is: []byte("pe_name " + defaultPE + "\n")})
	}
	text := "qname " + defaultQueue + "\npe_list " + strings.Join(pes, " ") + "\n"
	return append(builtin, file{path: l.path(kindQueue, defaultQueue), is: []byte(text)})
}

// with returns instead with more files in it.
func with(instead map[string][]byte, files []file) map[string][]byte {
	all := map[string][]byte{}
	maps.Copy(all, instead)
	for _, f := range files {
		all[f.path] = f.is
	}
	return all
}

// queues reads the queues.
func (l *loader) queues() {
	c := l.conf
	for _, name := range l.files(kindQueue) {
		if entries, path, ok := l.entries(kindQueue, name); ok {
			l.queue(name, path, l.withName(entries, path, "qname", name))
		}
	}
	if len(c.Queues) == 0 {
		c.Warnings = append(c.Warnings, Problem{File: l.path(kindQueue, ""), Text: fmt.Sprintf("no queue has this host, %s: nothing is run", l.Host)})
	}
	for i := range c.Queues {
		for _, s := range c.Queues[i].Subordinates {
			if s.Queue == c.Queues[i].Name {
				l.problem(l.path(kindQueue, s.Queue), 0, "subordinate_list: a queue cannot be its own subordinate")
			}
			if c.objects[kindQueue][s.Queue] == nil {
				c.Warnings = append(c.Warnings, Problem{
					File: l.path(kindQueue, c.Queues[i].Name),
					Text: fmt.Sprintf("subordinate_list: there is no queue %q", s.Queue),
				})
			}
		}
	}
	slices.SortFunc(c.Queues, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(a.SeqNo, b.SeqNo), cmp.Compare(a.Name, b.Name))
	})
}

// absent has the values for parameters that a queue leaves out and that differ between
// installations.
func (o *Options) absent() map[string]string {
	return map[string]string{
		"hostlist": o.Host, "slots": strconv.Itoa(runtime.NumCPU()), "tmpdir": o.Tmpdir, "shell_start_mode": o.shellStartMode(),
	}
}

func (o *Options) shellStartMode() string { return cmp.Or(o.ShellStartMode, PosixCompliant) }

// queue reads a queue, and leaves it out if it is not on this host.
func (l *loader) queue(name, path string, entries []entry) {
	into := &Queue{Slots: runtime.NumCPU(), Tmpdir: l.Tmpdir, ShellStartMode: l.shellStartMode()}
	for _, e := range entries {
		if e.name != "hostlist" {
			continue
		}
		here, err := l.hereAny(list(e.value))
		if err != nil {
			l.problem(path, e.line, "hostlist: %v", err)
		} else if !here {
			into = nil
		}
	}
	absent := l.absent()
	look := into
	if into == nil && path == l.closely {
		look = &Queue{}
	}
	l.keep(kindQueue, name, apply(l, path, entries, queueParams, look, absent))
	if into == nil {
		l.conf.Elsewhere = append(l.conf.Elsewhere, name)
		return
	}
	l.conf.Queues = append(l.conf.Queues, *into)
}
