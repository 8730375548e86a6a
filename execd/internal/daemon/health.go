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
	"time"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/usage"
	"paddock/spool"
)

// problems returns what the administrator should look at: mistakes that keep the files
// of the configuration from being in force, and names in the configuration in force of
// files and processors that do not exist.
func (d *daemon) problems() []string {
	lines := []string{}
	for _, text := range d.config.Mistakes() {
		lines = append(lines, "configuration not in force: "+text)
	}
	return append(lines, d.health.lines(d.config.Current(), d.opts.Places.Tmp)...)
}

// lookPatience is how long a caller waits for a file system.
const lookPatience = time.Second

// A lookout looks for the files that the configuration names, in a goroutine of its
// own: a file system that hangs holds up that look, and no caller.
type lookout struct {
	stat func(string) (fs.FileInfo, error)

	mu   sync.Mutex
	look *look // the last look; nil: there was none
}

// A look is a check of all files that a configuration names.
type look struct {
	config *conf.Config
	path   atomic.Pointer[string] // the file being looked at
	late   chan struct{}          // closed when no caller waits for it any more
	done   chan struct{}          // closed when it has ended
	found  []string               // set before done: what is missing
}

// lines returns what is missing, as of now. If a path does not answer, it returns only
// that.
func (o *lookout) lines(c *conf.Config, tmp string) []string {
	l := o.begun(c, tmp)
	select {
	case <-l.done:
		return l.found
	case <-l.late:
		return []string{"no answer from " + *l.path.Load() + ": whether all that the configuration names is there is not known"}
	}
}

// begun returns the look under way, or begins one.
func (o *lookout) begun(c *conf.Config, tmp string) *look {
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
		for _, p := range missing(c, tmp, func(path string) (fs.FileInfo, error) {
			l.path.Store(&path)
			return o.stat(path)
		}) {
			l.found = append(l.found, p.Error())
		}
	}()
	return l
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
