package conf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"paddock/execd/internal/conf/knob"
)

// Live is the configuration in force, read again when a file changes. Its
// methods may be called from anywhere.
type Live struct {
	options Options
	current atomic.Pointer[Config]
	reading sync.Mutex // one Reload at a time; Current waits for none
	telling sync.Mutex // one Tell at a time; not taken with reading
	// knobs are those of the last reading, even if it failed: a mistake may be corrected
	// in the files that they came from.
	knobs atomic.Pointer[knob.Set]
	// mistakes are those of the last reading; nil: its result is in force.
	mistakes atomic.Pointer[[]*Problem]
}

// Open reads the configuration for the first time. The error is that of Load.
func Open(o Options) (*Live, error) {
	l := newLive(o)
	c, err := l.load()
	if err != nil {
		return nil, err
	}
	l.current.Store(c)
	return l, nil
}

func newLive(o Options) *Live {
	o.Dir = filepath.Clean(o.Dir) // as in the names of events
	return &Live{options: o}
}

// load is Load, and keeps where the knobs came from.
func (l *Live) load() (*Config, error) {
	c, problems := loadAll(l.options)
	l.knobs.Store(c.Knobs)
	l.mistakes.Store(&problems)
	return c, joined(problems)
}

// Mistakes returns what is wrong with the files as they were last read, a line each; an
// earlier configuration is then in force. nil: nothing is wrong.
func (l *Live) Mistakes() (lines []string) {
	for _, p := range *l.mistakes.Load() {
		lines = append(lines, p.Error())
	}
	return lines
}

// Current returns the configuration in force. It never changes: another replaces it.
func (l *Live) Current() *Config { return l.current.Load() }

// Tell calls do with the configuration in force, one call at a time, so that the last
// call has the newest.
func (l *Live) Tell(do func(*Config)) {
	l.telling.Lock()
	defer l.telling.Unlock()
	do(l.Current())
}

// Reload reads all files again. Either all of them take effect, and it returns what has
// changed, a line each; or one has a mistake, the error has all mistakes as that of
// Load, and everything stays as it was.
func (l *Live) Reload() (changed []string, err error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	c, err := l.load()
	if err != nil {
		return nil, err
	}
	changed = changes(l.Current(), c)
	l.current.Store(c)
	return changed, nil
}

// settled is how long no event must follow another before files are read: an editor
// that saves makes several.
const settled = 100 * time.Millisecond

// Watch reads the configuration again whenever a file changes, until ctx is done, and
// calls onChange with what has changed, or with why nothing did. It does not call it
// when nothing changed, nor with the same mistakes again; after mistakes it does when
// they are gone. Touched is called each time, for files that others read. It is no more
// than a hint: a change that it does not see, as on a network file system, waits for the
// next Reload.
func (l *Live) Watch(ctx context.Context, onChange func(changed []string, err error), touched func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch the configuration: %w", err)
	}
	defer w.Close()
	if err := l.watch(w); err != nil {
		return err
	}
	// A file may have changed since Open.
	due := time.NewTimer(settled)
	defer due.Stop()
	last := strings.Join(l.Mistakes(), "\n") // those that Open has reported
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.Events:
			if !ok {
				return nil
			}
			if l.concerns(event.Name) {
				due.Reset(settled)
			}
		case err, ok := <-w.Errors:
			if !ok {
				return nil
			}
			// Events were lost, and everything may have changed.
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				onChange(nil, fmt.Errorf("cannot watch the configuration: %w", err))
			}
			due.Reset(settled)
		case <-due.C:
			// Directories are watched before they are read, so that later changes make events.
			if err := l.watch(w); err != nil {
				onChange(nil, err)
			}
			before := l.knobs.Load()
			changed, err := l.Reload()
			if now := l.knobs.Load(); !slices.Equal(before.Files(), now.Files()) || !slices.Equal(before.Dirs(), now.Dirs()) {
				due.Reset(settled) // new directories are not watched yet
			}
			now := ""
			if err != nil {
				now = err.Error()
			}
			if len(changed) > 0 || now != last {
				onChange(changed, err)
			}
			last = now
			touched()
		}
	}
}

// concerns reports whether a path is a file or directory of the knobs, or below our
// directory or one of those.
func (l *Live) concerns(path string) bool {
	knobs := l.knobs.Load()
	return slices.Contains(filesOf(knobs), path) || slices.ContainsFunc(append([]string{l.options.Dir}, knobs.Dirs()...), func(dir string) bool {
		return path == dir || strings.HasPrefix(path, dir+string(filepath.Separator))
	})
}

// watch watches the directories that exist. If ours does not, it watches the one above.
func (l *Live) watch(w *fsnotify.Watcher) error {
	err := w.Add(l.options.Dir)
	if missing(err) {
		err = w.Add(filepath.Dir(l.options.Dir))
		if missing(err) {
			return nil
		}
	} else {
		_ = w.Remove(filepath.Dir(l.options.Dir)) // ours exists now
	}
	for _, kind := range named {
		if e := w.Add(filepath.Join(l.options.Dir, places[kind])); !missing(e) {
			err = errors.Join(err, e)
		}
	}
	for _, dir := range beyond(l.knobs.Load()) {
		e := w.Add(dir)
		if missing(e) {
			e = w.Add(filepath.Dir(dir)) // until it exists
		}
		if !missing(e) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot watch the configuration: %w", err)
	}
	return nil
}

// filesOf returns the files of the knobs, and those that knobs name and others read.
func filesOf(knobs *knob.Set) []string {
	files := slices.Clone(knobs.Files())
	for _, name := range []string{"TLS_CERT_FILE", "TLS_KEY_FILE", "TLS_CA_FILE"} {
		if path, _ := knobs.Lookup(name); filepath.IsAbs(path) {
			files = append(files, filepath.Clean(path))
		}
	}
	return files
}

// beyond returns the directories of the files of the knobs.
func beyond(knobs *knob.Set) []string {
	dirs := slices.Clone(knobs.Dirs())
	for _, file := range filesOf(knobs) {
		dirs = append(dirs, filepath.Dir(file))
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// changes compares two configurations: it returns a line for each parameter, and for
// each object that was added or removed.
func changes(old, now *Config) (changed []string) {
	for _, kind := range append(slices.Sorted(maps.Keys(places)), fileAliases, fileKnobs) {
		was, is := old.objects[kind], now.objects[kind]
		names := maps.Clone(was)
		if names == nil {
			names = map[string][]line{}
		}
		maps.Copy(names, is)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			what := strings.TrimSpace(kind + " " + name)
			before, hadIt := was[name]
			after, hasIt := is[name]
			switch {
			case !hadIt:
				changed = append(changed, what+": added"+values(after))
			case !hasIt:
				changed = append(changed, what+": removed"+values(before))
			default:
				changed = append(changed, differences(what, before, after)...)
			}
		}
	}
	return changed
}

// values returns the values of an object without parameters.
func values(lines []line) string {
	if len(lines) != 1 || lines[0].name != "" {
		return ""
	}
	return ": " + strings.ReplaceAll(lines[0].inForce, "\n", " ")
}

// differences compares the parameters of an object.
func differences(what string, before, after []line) (changed []string) {
	was := map[string]string{}
	for _, l := range before {
		was[l.name] = l.inForce
	}
	add := func(name, from, to string) {
		text := what + ": "
		if name != "" {
			text += name + " "
		}
		text += strings.ReplaceAll(from+" -> "+to, "\n", " ")
		if strings.HasPrefix(what, kindConf) && slices.Contains(atStart, name) {
			text += " (takes effect at the next start)"
		}
		changed = append(changed, text)
	}
	for _, l := range after {
		if from, ok := was[l.name]; !ok {
			add(l.name, "default", l.inForce)
		} else if from != l.inForce {
			add(l.name, from, l.inForce)
		}
		delete(was, l.name)
	}
	for _, l := range before {
		if from, ok := was[l.name]; ok {
			add(l.name, from, "default")
		}
	}
	return changed
}

// missing reports whether a file to be watched does not exist.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
