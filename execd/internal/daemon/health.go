package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/usage"
	"paddock/spool"
)

// problems returns what the administrator should look at, what keeps jobs from being
// started first.
func (d *daemon) problems() []api.Alert {
	alerts := []api.Alert{}
	tell := func(critical bool, format string, args ...any) {
		alerts = append(alerts, api.Alert{Critical: critical, Text: fmt.Sprintf(format, args...)})
	}
	config := d.config.Current()
	if why := d.queue.Paused(); why != "" {
		tell(true, "nothing is started: %s", why)
	}
	for i := range config.Queues {
		if since := d.states.InError(config.Queues[i].Name); since != "" {
			tell(true, "queue %s is in error since %s", config.Queues[i].Name, since)
		}
	}
	d.gauge.Look()
	if why := d.room(); why != "" {
		tell(false, "no job with a sandbox is started: %s", why)
	}
	for _, text := range d.config.Mistakes() {
		tell(false, "configuration not in force: %s", text)
	}
	for _, p := range d.hooks.Load().Problems() {
		if !p.Warning {
			tell(false, "broken hook: %v", p)
		}
	}
	for _, text := range slices.Concat(d.fetch.Failing(), d.peerProblems()) {
		tell(false, "%s", text)
	}
	alerts = append(alerts, d.health.alerts(config, d.opts.Places.Tmp, d.root.Path(), filepath.Dir(d.opts.Places.Accounting))...)
	rest := slices.DeleteFunc(slices.Clone(alerts), func(a api.Alert) bool { return a.Critical })
	return append(slices.DeleteFunc(alerts, func(a api.Alert) bool { return !a.Critical }), rest...)
}

// lookPatience is how long a caller waits for a file system.
const lookPatience = time.Second

// A lookout looks for the files that the configuration names, and for room on the disks of
// execd, in a goroutine of its own: a file system that hangs holds up that look, and no
// caller.
type lookout struct {
	stat   func(string) (fs.FileInfo, error)
	statfs func(string, *syscall.Statfs_t) error

	mu   sync.Mutex
	look *look // the last look; nil: there was none
}

// A look is a check of all files that a configuration names, and of the disks.
type look struct {
	config *conf.Config
	path   atomic.Pointer[string] // the file being looked at
	late   chan struct{}          // closed when no caller waits for it any more
	done   chan struct{}          // closed when it has ended
	found  []api.Alert            // set before done: what is missing, or full
}

// alerts returns what is missing, and which of the directories have little room, as of
// now. If a path does not answer, it returns only that.
func (o *lookout) alerts(c *conf.Config, tmp string, dirs ...string) []api.Alert {
	l := o.begun(c, tmp, dirs)
	select {
	case <-l.done:
		return l.found
	case <-l.late:
		return []api.Alert{{Text: "no answer from " + *l.path.Load() + ": whether all that the configuration names is there is not known"}}
	}
}

// begun returns the look under way, or begins one.
func (o *lookout) begun(c *conf.Config, tmp string, dirs []string) *look {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.look != nil && o.look.config == c {
		select {
		case <-o.look.done:
		default:
			return o.look
		}
	}
	l := &look{config: c, late: make(chan struct{}), done: make(chan struct{})}
	l.path.Store(new(usage.OnlineCPUs))
	o.look = l
	go func() {
		defer close(l.done)
		defer time.AfterFunc(lookPatience, func() { close(l.late) }).Stop()
		seen := map[syscall.Fsid]bool{}
		for _, dir := range dirs {
			l.path.Store(&dir)
			var fs syscall.Statfs_t
			if o.statfs(dir, &fs) != nil || fs.Fsid != (syscall.Fsid{}) && seen[fs.Fsid] {
				continue
			}
			seen[fs.Fsid] = true
			if a := short(dir, &fs); a.Text != "" {
				l.found = append(l.found, a)
			}
		}
		for _, p := range missing(c, tmp, func(path string) (fs.FileInfo, error) {
			l.path.Store(&path)
			return o.stat(path)
		}) {
			l.found = append(l.found, api.Alert{Text: p.Error()})
		}
	}()
	return l
}

// short says that a file system in which execd writes has little room; empty: it has
// enough.
func short(dir string, fs *syscall.Statfs_t) (a api.Alert) {
	free, all := int64(fs.Bavail)*fs.Bsize>>10, int64(fs.Blocks)*fs.Bsize>>10
	least := enough(all << 10)
	switch {
	case all > 0 && free <= least:
		a = api.Alert{Critical: free <= least/10, Text: fmt.Sprintf("%s of %s are free in %s", size(free), size(all), dir)}
	case fs.Files > 0 && fs.Ffree <= fs.Files/100:
		a = api.Alert{Critical: fs.Ffree <= fs.Files/1000, Text: fmt.Sprintf("%d of %d inodes are free in %s", fs.Ffree, fs.Files, dir)}
	}
	return a
}

// missing returns the programs, directories and processors that the configuration names
// and that do not exist. They may come later, so this is no mistake. tmp is a directory
// that execd makes.
func missing(c *conf.Config, tmp string, stat func(string) (fs.FileInfo, error)) (found []conf.Problem) {
	tell := func(queue, what, format string, args ...any) {
		found = append(found, c.Doubt(queue, what, fmt.Sprintf(format, args...)))
	}
	look := func(queue, what, path string, dir bool) {
		if !filepath.IsAbs(path) || strings.Contains(path, "$") {
			return // the path is known only when a job runs
		}
		info, err := stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			tell(queue, what, "cannot find %s", path)
		case err != nil:
			tell(queue, what, "%v", err)
		case dir && !info.IsDir():
			tell(queue, what, "%s is no directory", path)
		case !dir && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0):
			tell(queue, what, "%s is no program", path)
		}
	}
	command := func(queue, what, value string) {
		_, text, _ := conf.SplitProcedure(value)
		if words := strings.Fields(text); len(words) > 0 {
			look(queue, what, words[0], false)
		}
	}
	online, there, _ := usage.Processors(usage.OnlineCPUs) // nil: they are not known
	command("", "prolog", c.Global.Prolog)
	command("", "epilog", c.Global.Epilog)
	if c.Global.Mailer != conf.MailerAuto {
		look("", "mailer", c.Global.Mailer, false)
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		command(q.Name, "prolog", q.Prolog)
		command(q.Name, "epilog", q.Epilog)
		command(q.Name, "starter_method", q.StarterMethod)
		look(q.Name, "shell", q.Shell, false)
		if q.Tmpdir != tmp {
			look(q.Name, "tmpdir", q.Tmpdir, true)
		}
		wanted, _ := spool.ParseCPUs(q.Processors) // "" means all
		lacks := func(cpu int) bool { return !slices.Contains(there, cpu) }
		if at := slices.IndexFunc(wanted, lacks); at >= 0 && there != nil {
			tell(q.Name, "processors", "this host has no processor %d, only %s", wanted[at], online)
		}
	}
	return found
}
