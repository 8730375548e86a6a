package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"paddock/execd/internal/conf"
)

// problems are what somebody should look at: mistakes that keep the files of the
// configuration from being in force, and what is in force and names what is not
// there.
func (d *daemon) problems() []string {
	lines := []string{}
	for _, text := range d.config.Mistakes() {
		lines = append(lines, "configuration not in force: "+text)
	}
	return append(lines, missing(d.config.Current(), d.opts.Places.Tmp)...)
}

// missing tells of programs and directories that the configuration names and that
// are not there. They may come: it is no mistake.
// tmp is a directory that execd makes.
func missing(c *conf.Config, tmp string) (lines []string) {
	look := func(where, what, path string, dir bool) {
		if !filepath.IsAbs(path) || strings.Contains(path, "$") {
			return // what it is, is known when a job runs
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			lines = append(lines, fmt.Sprintf("%s%s: cannot find %s", where, what, path))
		case err != nil:
			lines = append(lines, fmt.Sprintf("%s%s: %v", where, what, err))
		case dir && !info.IsDir():
			lines = append(lines, fmt.Sprintf("%s%s: %s is no directory", where, what, path))
		case !dir && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0):
			lines = append(lines, fmt.Sprintf("%s%s: %s is no program", where, what, path))
		}
	}
	command := func(where, what, value string) {
		_, text, _ := conf.SplitProcedure(value)
		if words := strings.Fields(text); len(words) > 0 {
			look(where, what, words[0], false)
		}
	}
	command("", "prolog", c.Global.Prolog)
	command("", "epilog", c.Global.Epilog)
	if c.Global.Mailer != conf.MailerAuto {
		look("", "mailer", c.Global.Mailer, false)
	}
	for i := range c.Queues {
		q := &c.Queues[i]
		where := "queue " + q.Name + ": "
		command(where, "prolog", q.Prolog)
		command(where, "epilog", q.Epilog)
		command(where, "starter_method", q.StarterMethod)
		look(where, "shell", q.Shell, false)
		if q.Tmpdir != tmp {
			look(where, "tmpdir", q.Tmpdir, true)
		}
	}
	return lines
}
