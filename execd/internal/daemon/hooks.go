package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/hook"
	"paddock/execd/internal/user"
)

// hookProblems returns what is wrong with hooks, and in root mode what keeps them from
// being run by their users.
func hookProblems(table *hook.Table, rootMode bool, users asuser.Users) []knob.Problem {
	list := table.Problems()
	if rootMode {
		list = slices.Concat(list, table.Rights(context.Background(), users))
	}
	return list
}

// checkHooks returns what is wrong with the hooks of a configuration, as one error, and
// adds what is merely odd to its warnings.
func checkHooks(c *conf.Config, rootMode bool) error {
	return refused(c, hookProblems(hook.NewTable(c.Knobs), rootMode, &user.Directory{}))
}

// refused returns those problems of knobs as one error that are mistakes, and adds the others
// to the warnings of a configuration.
func refused(c *conf.Config, list []knob.Problem) error {
	var errs []error
	for _, p := range list {
		problem := conf.Problem{File: p.File, Line: p.Line, Text: p.Text}
		if p.Warning {
			c.Warnings = append(c.Warnings, problem)
		} else {
			errs = append(errs, &problem)
		}
	}
	return errors.Join(errs...)
}

// reportHooks logs what is wrong with the hooks. A broken hook does not stop the
// others, or the jobs of the queue.
func (d *daemon) reportHooks() {
	for _, p := range hookProblems(d.hooks.Load(), d.opts.RootMode, d.users) {
		if p.Warning {
			d.log.Warn(fmt.Sprintf("execd: configuration: %v", p))
		} else {
			d.log.Error(fmt.Sprintf("execd: hook: broken: %v", p))
		}
	}
}

// hooksStop is how long execd waits at its end for hooks: they have 3 s from SIGTERM to
// SIGKILL, and their parents may be late on a busy host.
const hooksStop = 20 * time.Second

// stopHooks ends the hooks of jobs that still run, whether they are waited for or not.
// The next execd calls them again, since to it they have not run.
func (d *daemon) stopHooks() {
	for _, label := range d.calls.Stop(hooksStop) {
		d.log.Warn(fmt.Sprintf("%s: hook: has not ended yet: its parent kills it", label))
	}
}
