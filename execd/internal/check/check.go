// Package check looks for damage in a spool and its accounting file, and repairs it on
// demand: what cannot stay where it is is moved to corrupt/, and nothing is deleted.
// The daemon uses it for `execd -check`; it imports spool, job and the accounting
// format.
package check

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"paddock/execd/internal/job"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// Finding is one piece of damage.
type Finding struct {
	Path string
	Text string // what is wrong
	// Remedy is what a repair would do or has done. Empty: there is none, and the
	// administrator has to decide.
	Remedy string
	Err    error // of the repair

	// passing marks what may be the work of an execd that runs.
	passing bool
	fix     func() (did string, err error)
}

// Options say what is checked.
type Options struct {
	Spool      string // the directory
	Accounting string // the file
	Owner      int    // uid that everything must belong to, scripts excepted
	Scripts    bool   // scripts belong to the owners of the jobs (root mode)
	Running    bool   // an execd works on the spool: findings that may be its work are left out
	Repair     bool   // the caller holds the lock of the spool
}

// checker collects findings.
type checker struct {
	Options
	root     *spool.Root
	records  map[int]*job.Inspection // nil: the record cannot be read
	highest  int                     // of all job numbers seen
	findings []Finding
}

// Run checks a spool and returns its findings, in the order of the spool's table of
// places. The error says why it could not look; it matches spool.ErrFormat when another
// version wrote the spool.
func Run(o Options) ([]Finding, error) {
	c := &checker{Options: o, records: map[int]*job.Inspection{}}
	if err := c.places(); err != nil {
		return nil, err
	}
	if o.Repair {
		c.mend(c.findings) // directories that are missing are made before the rest is looked at
	} else if slices.ContainsFunc(c.findings, func(f Finding) bool { return f.Text == missing }) {
		return c.findings, nil // nothing else can be looked at
	}
	places := len(c.findings)
	root, err := spool.OpenRoot(o.Spool, false)
	if err != nil {
		return nil, err
	}
	c.root = root
	if err := root.CheckFormat(); errors.Is(err, spool.ErrFormat) || spool.Unread(err) {
		return nil, err
	} else if err != nil {
		c.aside(root.Path(spool.FileFormat), err.Error(), false)
	}
	for _, step := range []func() error{c.rootFiles, c.jobs, c.scripts, c.staging, c.active, c.finished, c.accounting, c.numbers} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if o.Running {
		c.findings = slices.DeleteFunc(c.findings, func(f Finding) bool { return f.passing })
	}
	if o.Repair {
		c.mend(c.findings[places:])
	}
	return c.findings, nil
}

// mend does what the findings propose.
func (c *checker) mend(findings []Finding) {
	for i := range findings {
		f := &findings[i]
		if f.fix == nil {
			continue
		}
		did, err := f.fix()
		if err != nil {
			f.Err = err
			continue
		}
		f.Remedy = did
	}
}

// aside reports something that a repair moves to corrupt/.
func (c *checker) aside(path, text string, passing bool) {
	c.findings = append(c.findings, Finding{
		Path: path, Text: text, Remedy: "would be moved to " + spool.DirCorrupt, passing: passing,
		fix: func() (string, error) {
			kept, err := c.root.SetAside(path)
			return "kept in " + kept, err
		},
	})
}

// left reports something that no repair touches.
func (c *checker) left(path, text string) {
	c.findings = append(c.findings, Finding{Path: path, Text: text})
}

// missing is the text about a directory of the spool that is not there.
const missing = "the directory is missing"

// places looks at the directories themselves.
func (c *checker) places() error {
	info, err := os.Stat(c.Spool)
	if err != nil {
		return fmt.Errorf("cannot check spool: %w", err)
	}
	mode := info.Mode().Perm() // the administrator may choose it, unless others may write
	if mode&0o022 != 0 {
		mode = 0o711
	}
	if err := c.rights(c.Spool, info, c.Owner, mode, false); err != nil {
		return err
	}
	for _, p := range spool.Places {
		path := filepath.Join(c.Spool, p.Name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			c.findings = append(c.findings, Finding{
				Path: path, Text: missing, Remedy: "would be made",
				fix: func() (string, error) { return "made", atomicfile.Mkdir(path, p.Mode) },
			})
		case err != nil:
			return fmt.Errorf("cannot check spool: %w", err)
		case info.IsDir(): // anything else is an error of OpenRoot's
			if err := c.rights(path, info, c.Owner, p.Mode, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// rights checks owner and mode of a file or directory.
func (c *checker) rights(path string, info fs.FileInfo, owner int, mode fs.FileMode, passing bool) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("cannot look at %s", path)
	}
	const settable = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	has := info.Mode() & settable
	// A directory inherits this bit from its parent.
	if info.IsDir() {
		has &^= fs.ModeSetgid
	}
	if int(st.Uid) == owner && has == mode {
		return nil
	}
	if !info.IsDir() && st.Nlink > 1 {
		// Who could write to the directory may have linked somebody else's
		// file here, which must not be given away.
		c.aside(path, fmt.Sprintf("has %d names, owner %d and mode %04o", st.Nlink, st.Uid, has.Perm()), passing)
		return nil
	}
	c.findings = append(c.findings, Finding{
		Path: path, Text: fmt.Sprintf("has owner %d and mode %v, should have %d and %v", st.Uid, has, owner, mode),
		Remedy: "would be changed", passing: passing,
		fix: func() (string, error) {
			return "changed", atomicfile.Chmod(path, owner, -1, mode)
		},
	})
	return nil
}

// list returns the names in a place, and reports those that begin with a dot: a write
// was cut short there. In staging, they are spare directories of execd.
func (c *checker) list(place string) ([]string, error) {
	names, err := readNames(c.root.Path(place))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		if name[0] == '.' && !strings.HasPrefix(name, ".spare-") {
			c.aside(c.root.Path(place, name), "was left half made or half removed", true)
		}
		return name[0] == '.'
	}), nil
}

func readNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot check spool: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// rootFiles looks at the files of the spool itself.
func (c *checker) rootFiles() error {
	names, err := readNames(c.root.Path())
	if err != nil {
		return err
	}
	for _, name := range names {
		path := c.root.Path(name)
		if atomicfile.IsTemp(name) {
			c.aside(path, "was left half written", true)
			continue
		}
		if !slices.ContainsFunc(spool.Files, func(f spool.File) bool { return f.Name == name }) {
			continue // a directory, or not ours
		}
		if err := c.regular(path, c.Owner, spool.ModeOf(name), false); err != nil {
			return err
		}
	}
	return nil
}

// regular reports anything but a regular file, and checks the rights of one.
func (c *checker) regular(path string, owner int, mode fs.FileMode, passing bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // gone since
	case err != nil:
		return fmt.Errorf("cannot check spool: %w", err)
	case !info.Mode().IsRegular():
		c.aside(path, "is not a regular file", passing)
		return nil
	}
	return c.rights(path, info, owner, mode, passing)
}

// jobs looks at the records.
func (c *checker) jobs() error {
	names, err := c.list(spool.DirJobs)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := c.root.Path(spool.DirJobs, name)
		n, ok := job.ParseNumber(name)
		if !ok {
			c.aside(path, "is not the name of a record", false)
			continue
		}
		c.highest = max(c.highest, n)
		c.records[n] = nil
		found := len(c.findings)
		if err := c.regular(path, c.Owner, 0o600, false); err != nil {
			return err
		}
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			delete(c.records, n) // gone since
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot check spool: %w", err)
		}
		in, err := job.Inspect(data, n)
		switch {
		case errors.Is(err, spool.ErrFormat):
			return fmt.Errorf("cannot read record of job %d: %w", n, err)
		case err != nil:
			c.findings = c.findings[:found] // moved in any case
			c.aside(path, fmt.Sprintf("cannot be read: %v", err), false)
			continue
		}
		c.records[n] = in
		switch {
		case in.Damage != nil:
			c.rescue(n, fmt.Sprintf("is damaged: %v", in.Damage), "the record of the job was damaged, it is not known which tasks have run", false)
		case in.Cut > 0:
			c.rescue(n, fmt.Sprintf("its last line is cut short, %d bytes of it are there", in.Cut), "", true)
		}
	}
	return nil
}

// rescue reports a record that a repair writes anew from what is good of it. With a
// reason, its waiting tasks then wait in error.
func (c *checker) rescue(number int, text, reason string, passing bool) {
	remedy := "would be written anew without what is bad, the old one moved to " + spool.DirCorrupt
	if reason != "" {
		remedy += ", and its waiting tasks put in error"
	}
	c.findings = append(c.findings, Finding{
		Path: c.root.Path(spool.DirJobs, strconv.Itoa(number)), Text: text, Remedy: remedy, passing: passing,
		fix: func() (string, error) {
			kept, err := job.Rescue(c.root, number, reason)
			return "written anew, the old one is kept in " + kept, err
		},
	})
}

// scripts looks at the scripts, and at records that lack theirs.
func (c *checker) scripts() error {
	names, err := c.list(spool.DirScripts)
	if err != nil {
		return err
	}
	there := map[int]bool{}
	for _, name := range names {
		path := c.root.Path(spool.DirScripts, name)
		n, ok := job.ParseNumber(name)
		if !ok {
			c.aside(path, "is not the name of a script", false)
			continue
		}
		c.highest = max(c.highest, n)
		in, known := c.records[n]
		if !known {
			c.aside(path, "is a script without a record", true)
			continue
		}
		there[n] = true
		owner, mode := c.Owner, job.ScriptMode
		if c.Scripts && in != nil {
			owner, mode = job.Lent(path, in.UID, in.Owner, in.Group, mode)
		}
		if c.Scripts && in == nil {
			continue // nobody knows whose it is
		}
		if err := c.regular(path, owner, mode, true); err != nil {
			return err
		}
	}
	for _, n := range c.numbersOfRecords() {
		// A running task has its script open, and its end needs none.
		if in := c.records[n]; in != nil && in.Damage == nil && in.HasScript && in.Pending > 0 && !there[n] {
			c.rescue(n, "the job has tasks to start and its script is missing", "the script of the job is missing", true)
		}
	}
	return nil
}

func (c *checker) numbersOfRecords() []int {
	list := make([]int, 0, len(c.records))
	for n := range c.records {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

// staging looks at runs that were being built.
func (c *checker) staging() error { return c.runs(spool.DirStaging) }

// finished looks at runs whose processes have ended.
func (c *checker) finished() error { return c.runs(spool.DirFinished) }

func (c *checker) runs(place string) error {
	names, err := c.list(place)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := c.root.Path(place, name)
		run, err := spool.ParseRunID(name)
		if err != nil {
			c.aside(path, "is not the name of a run", false)
			continue
		}
		if err := c.directory(path, run.ID(), run.Run); err != nil {
			return err
		}
	}
	return nil
}

// active looks at runs that are under way.
func (c *checker) active() error {
	names, err := c.list(spool.DirActive)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := c.root.Path(spool.DirActive, name)
		id, err := spool.ParseID(name)
		if err != nil {
			c.aside(path, "is not the name of a task", false)
			continue
		}
		if err := c.directory(path, id, -1); err != nil {
			return err
		}
	}
	return nil
}

// directory looks at the directory of a run; run is -1 where the name does not say
// which.
func (c *checker) directory(path string, id spool.ID, run int) error {
	c.highest = max(c.highest, id.Job)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // gone since
	case err != nil:
		return fmt.Errorf("cannot check spool: %w", err)
	case !info.IsDir():
		c.aside(path, "is not a directory", false)
		return nil
	}
	in, known := c.records[id.Job]
	if known && in == nil {
		return nil // the record is bad, and execd decides what becomes of the run
	}
	current, active := 0, false
	if in != nil {
		current, active = in.Active[id]
	}
	if !active || run >= 0 && run != current {
		d := spool.OpenDir(path)
		kept, err1 := d.Has(spool.FileKept)
		held, err2 := d.Held()
		switch {
		case err1 != nil || err2 != nil:
			return errors.Join(err1, err2)
		case held:
			// Execd may have started the run since the records were read.
			c.findings = append(c.findings, Finding{Path: path, Text: "a shepherd runs, and no record speaks of it", passing: true})
		case kept: // by KEEP_ACTIVE
		default:
			c.aside(path, "no record speaks of this run", true)
		}
		return nil
	}
	if filepath.Base(filepath.Dir(path)) == spool.DirStaging {
		return nil // its rights are still being set
	}
	if err := c.rights(path, info, c.Owner, 0o711, true); err != nil {
		return err
	}
	for _, f := range spool.Files {
		// A shepherd of the site's own may have written its files as the job's owner.
		if f.Writer != "execd" {
			continue
		}
		file, owner, mode := filepath.Join(path, f.Name), c.Owner, f.Mode
		if c.Scripts && (f.Name == spool.FileHookJobAd || f.Name == spool.FileHookSlotAd) {
			owner, mode = job.Lent(file, in.UID, in.Owner, in.Group, mode) // his hooks read them
		}
		if err := c.regular(file, owner, mode, true); err != nil {
			return err
		}
	}
	return nil
}

// numbers makes sure that no number is given out twice. The file may be behind the
// records, which execd reads too, but not behind what is left of jobs without a record.
func (c *checker) numbers() error {
	path := c.root.Path(spool.FileSeqNum)
	data, err := os.ReadFile(path)
	last := 0
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("cannot check spool: %w", err)
	default:
		if last, err = spool.ParseNumber(data); err != nil {
			last = 0
			c.aside(path, fmt.Sprintf("cannot be read: %v", err), false)
		}
	}
	known := last
	for n, in := range c.records {
		if in != nil { // runs without a record are moved away
			known = max(known, n)
		}
	}
	if highest := c.highest; highest > known {
		c.findings = append(c.findings, Finding{
			Path: path, Text: fmt.Sprintf("job %d has been, and the next number would be %d", highest, known+1),
			Remedy: fmt.Sprintf("would be set to %d", highest), passing: true,
			fix: func() (string, error) {
				if _, err := c.root.SetAside(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return "", err
				}
				return fmt.Sprintf("set to %d", highest),
					atomicfile.WriteDurable(path, spool.AppendNumber(nil, highest), spool.ModeOf(spool.FileSeqNum))
			},
		})
	}
	return nil
}
