package conf

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"paddock/execd/internal/conf/knob"
)

// fileKnobs is the file of the knobs, in a language of its own; it also names them in
// lists of changes.
const fileKnobs = "hooks.conf"

// knobs reads hooks.conf, and the files that it includes. They must be as trustworthy
// as all others, since they name programs that are run.
func (l *loader) knobs() {
	set, problems := knob.Load(knob.Source{
		File: filepath.Join(l.Dir, fileKnobs), Read: l.readKnobs, Names: l.fragments, Environ: l.Environ, Host: l.Host,
	})
	for _, p := range problems {
		problem := Problem{File: p.File, Line: p.Line, Text: p.Text}
		if p.Warning {
			l.conf.Warnings = append(l.conf.Warnings, problem)
		} else {
			l.problems = append(l.problems, &problem)
		}
	}
	l.conf.Knobs = set
	lines := []line{}
	for _, k := range set.All() {
		if !k.Default {
			lines = append(lines, line{name: k.Name, written: k.Raw, inForce: k.Value})
		}
	}
	l.keep(fileKnobs, "", lines)
	l.partitionable()
}

// partitionable notes which queues are one slot each, and warns of names that are no
// queues.
func (l *loader) partitionable() {
	const name = "PARTITIONABLE_QUEUES"
	k := l.conf.Knobs.Get(name)
	for _, queue := range l.conf.Knobs.Words(name) {
		if queue == "*" {
			for i := range l.conf.Queues {
				l.conf.Queues[i].Partitionable = true
			}
		} else if q := l.conf.Queue(queue); q != nil {
			q.Partitionable = true
		} else if !slices.Contains(l.conf.Elsewhere, queue) {
			l.conf.Warnings = append(l.conf.Warnings, Problem{File: k.File, Line: k.Line, Text: fmt.Sprintf("%s: there is no queue %q", name, queue)})
		}
	}
}

// readKnobs reads one of the files. The directory of one outside of ours must be
// trustworthy, too: a user who can write to it can replace the file.
func (l *loader) readKnobs(path string) ([]byte, error) {
	data, err := l.readFile(path)
	if err != nil {
		return nil, err
	}
	if dir := filepath.Dir(path); dir != filepath.Clean(l.Dir) && l.kept == nil {
		info, err := os.Stat(dir)
		if err != nil {
			return nil, err
		}
		if err := l.trust(dir, info); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// fragments returns the names of the files to be read in a directory of
// LOCAL_CONFIG_DIR.
func (l *loader) fragments(dir string) ([]string, error) {
	if l.kept != nil {
		return l.kept.Dirs[dir], nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if err := l.trust(dir, info); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && isMeant(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if l.conf.read != nil {
		l.conf.read.Dirs[dir] = names // sorted by os.ReadDir
	}
	return names, nil
}

// showKnobs prints the knobs whose names match a pattern, in any case of letters; an
// empty one matches all. The output could stand in hooks.conf.
func (c *Config) showKnobs(pattern string) (string, error) {
	var b strings.Builder
	for _, k := range c.Knobs.All() {
		if ok, err := path.Match(strings.ToUpper(pattern), strings.ToUpper(k.Name)); err != nil {
			return "", fmt.Errorf("%q is no pattern", pattern)
		} else if ok || pattern == "" {
			showKnob(&b, &k)
		}
	}
	if b.Len() == 0 && pattern != "" {
		return "", fmt.Errorf("no knob matches %q", pattern)
	}
	return b.String(), nil
}

func showKnob(b *strings.Builder, k *knob.Knob) {
	if strings.Contains(k.Value, "\n") {
		fmt.Fprintf(b, "%s @=%s\n%s\n@%[2]s\n", k.Name, endOf(k.Value), k.Value)
	} else {
		fmt.Fprintln(b, strings.TrimRight(k.Name+" = "+k.Value, " "))
	}
	if k.Raw != k.Value {
		fmt.Fprintf(b, " # written: %s\n", strings.ReplaceAll(k.Raw, "\n", "\n #          "))
	}
	fmt.Fprintf(b, " # from: %s\n", k.Where())
}

// endOf returns a word that ends a value of several lines, since no line of the value
// is that word.
func endOf(value string) string {
	lines := strings.Split(strings.ToLower(value), "\n")
	for word := "end"; ; word += "_" {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "@"+word }) {
			return word
		}
	}
}
