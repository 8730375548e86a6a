package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/job"
	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/user"
)

// The knobs of plugins.
const (
	knobPlugins = "FILETRANSFER_PLUGINS"
	knobStall   = "TRANSFER_PLUGIN_STALL"
)

// plugins are the programs of the site that take files from URLs and to them. Each says
// itself which it takes.
type plugins struct {
	cancel context.CancelFunc
	asked  chan struct{}  // closed when each has answered, or was given up
	list   []order.Plugin // to be read when asked is closed
}

// Configure has the configuration take effect: transfers that wait have the turns that it
// allows, and plugins are asked what they can.
func (m *Manager) Configure() {
	m.Throttle.Again()
	m.Worker.Pace.Again()
	ctx, cancel := context.WithCancel(context.Background())
	p := &plugins{cancel: cancel, asked: make(chan struct{})}
	if old := m.plugins.Swap(p); old != nil {
		old.cancel()
	}
	var paths []string
	broken := pluginProblems(m.Config().Knobs)
	for _, path := range m.Config().Knobs.Words(knobPlugins) {
		if checkPlugin(path) == nil && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	for i := range broken {
		m.Log.Error(fmt.Sprintf("execd: plugin: not used: %v", broken[i]))
	}
	go func() {
		defer close(p.asked)
		p.list = m.ask(ctx, paths)
	}()
}

// StopPlugins ends the plugins that are still asked.
func (m *Manager) StopPlugins() {
	if p := m.plugins.Load(); p != nil {
		p.cancel()
		<-p.asked
	}
}

// ask asks plugins what they can. Of two that take the same the first is used.
func (m *Manager) ask(ctx context.Context, paths []string) []order.Plugin {
	answers, errs := make([]order.Methods, len(paths)), make([]error, len(paths))
	var all sync.WaitGroup
	for i, path := range paths {
		all.Go(func() {
			as, err := m.Service(ctx)
			if err == nil {
				answers[i], err = m.Worker.Ask(ctx, as, path)
			}
			errs[i] = err
		})
	}
	all.Wait()
	var list []order.Plugin
	for i, path := range paths {
		switch {
		case ctx.Err() != nil:
			return nil
		case errs[i] != nil:
			m.Log.Error(fmt.Sprintf("execd: plugin: not used: %s: %v", path, errs[i]))
			continue
		}
		for _, scheme := range answers[i].Schemes {
			if !slices.ContainsFunc(list, func(p order.Plugin) bool { return p.Scheme == scheme }) {
				list = append(list, order.Plugin{Scheme: scheme, Path: path, Many: answers[i].Many})
			}
		}
		m.Log.Info(fmt.Sprintf("execd: plugin: %s takes %s", path, strings.Join(answers[i].Schemes, ", ")))
	}
	return list
}

// ofSite returns the plugins of the site, when they have said what they can.
func (m *Manager) ofSite(ctx context.Context) ([]order.Plugin, error) {
	for {
		p := m.plugins.Load()
		if p == nil {
			return nil, nil
		}
		select {
		case <-p.asked:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if m.plugins.Load() == p {
			return p.list, nil
		}
	}
}

// Methods returns the schemes of the URLs that plugins of the site take, as far as they
// have said so.
func (m *Manager) Methods() []string {
	p := m.plugins.Load()
	if p == nil {
		return nil
	}
	select {
	case <-p.asked:
		return schemes(p.list)
	default:
		return nil
	}
}

func schemes(list []order.Plugin) []string {
	var names []string
	for i := range list {
		names = append(names, list[i].Scheme)
	}
	slices.Sort(names)
	return names
}

// Accept refuses a request with a URL that no plugin takes, neither one of the site nor
// one of the job's own.
func (m *Manager) Accept(ctx context.Context, r *api.SubmitRequest) error {
	if r.Sandbox != api.SandboxYes {
		return nil
	}
	own, err := ad.Plugins(ad.Job(ad.JobInfo{Number: 1, Task: 1, Request: r, Iwd: "/"}))
	if err != nil {
		return api.Errorf(api.CodeRejected, "job rejected: %v", err)
	}
	for _, u := range r.URLs() {
		if slices.ContainsFunc(own, func(p ad.Plugin) bool { return slices.Contains(p.Schemes, u.Scheme) }) {
			continue
		}
		list, err := m.ofSite(ctx)
		if err != nil {
			return err
		}
		known := schemes(list)
		if !slices.Contains(known, u.Scheme) {
			return api.Errorf(api.CodeRejected, "job rejected: %s: %q cannot be reached: no plugin takes %s://, only %s://",
				u.Option, api.Short(u.Place), api.Short(u.Scheme), strings.Join(append([]string{"file"}, known...), "://, "))
		}
	}
	return nil
}

// addPlugins adds to orders what is needed for URLs. With bring the programs of the job's
// own are brought, before all else.
func (m *Manager) addPlugins(ctx context.Context, o *order.Orders, t *job.Task, r *api.SubmitRequest, owner *user.User, bring bool) error {
	if len(r.URLs()) == 0 {
		return nil
	}
	o.Env = []string{"HOME=" + owner.Home, "USER=" + owner.Name, "LOGNAME=" + owner.Name}
	o.Stall = m.Config().Knobs.Int(knobStall, order.PluginTime)
	own, err := ad.Plugins(ad.Job(ad.JobInfo{Number: t.Job.Number, Task: t.Number, Host: m.Host, Request: r, Iwd: o.Base}))
	if err != nil {
		return err
	}
	var programs []order.Named
	for _, p := range own {
		n := order.Named{From: p.Path}
		named := func(other order.Named) bool { return other.Place() == n.Place() }
		if bring && !slices.ContainsFunc(o.Bring, named) && !slices.ContainsFunc(programs, named) {
			programs = append(programs, n)
		}
		for _, scheme := range p.Schemes {
			o.Plugins = append(o.Plugins, order.Plugin{Scheme: scheme, Path: n.Place()})
		}
	}
	o.Bring = append(programs, o.Bring...)
	list, err := m.ofSite(ctx)
	o.Plugins = append(o.Plugins, list...)
	return err
}

// pluginProblems returns which plugins of hooks.conf must not be run, and why.
func pluginProblems(k *knob.Set) []knob.Problem {
	var list []knob.Problem
	where := k.Get(knobPlugins)
	for _, path := range k.Words(knobPlugins) {
		if err := checkPlugin(path); err != nil {
			list = append(list, knob.Problem{File: where.File, Line: where.Line, Text: fmt.Sprintf("%s: %s: %v", knobPlugins, strconv.Quote(path), err)})
		}
	}
	return list
}

// checkPlugin refuses a program that somebody else could replace: it runs with the rights
// of every user who names a URL.
func checkPlugin(path string) error {
	if !filepath.IsAbs(path) {
		return errors.New("it is no absolute path")
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return short(err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return short(err)
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 != 0o111 {
		return fmt.Errorf("it is no program that all may run (mode %04o)", info.Mode().Perm())
	}
	if err := api.Untrusted(info, os.Geteuid()); err != nil {
		return fmt.Errorf("it %w", err)
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(resolved)} {
		info, err := os.Stat(dir)
		if err != nil {
			return short(err)
		}
		if err := api.Untrusted(info, os.Geteuid()); err != nil {
			return fmt.Errorf("its directory %w", err)
		}
	}
	return nil
}

// short returns an error without the path, which is named beside it.
func short(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
