package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A release is a section of CHANGELOG.md.
type release struct {
	version string // Unreleased for what is to come
	date    time.Time
	text    string   // as it stands there
	items   []string // one line each
}

var heading = regexp.MustCompile(`^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$`)

// readChangelog reads the sections of a file that follows Keep a Changelog, newest
// first.
func readChangelog(name string) ([]release, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var releases []release
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "## ") {
			m := heading.FindStringSubmatch(line)
			if m == nil {
				return nil, fmt.Errorf("%s:%d: not ## [VERSION] - YYYY-MM-DD: %s", name, number, line)
			}
			r := release{version: m[1]}
			if m[2] != "" {
				if r.date, err = time.Parse(time.DateOnly, m[2]); err != nil {
					return nil, fmt.Errorf("%s:%d: %w", name, number, err)
				}
			}
			releases = append(releases, r)
			continue
		}
		if len(releases) == 0 {
			continue
		}
		r := &releases[len(releases)-1]
		r.text += line + "\n"
		switch item, ok := strings.CutPrefix(line, "- "); {
		case ok:
			r.items = append(r.items, item)
		case strings.HasPrefix(line, "  ") && len(r.items) > 0:
			r.items[len(r.items)-1] += " " + strings.TrimSpace(line)
		}
	}
	return releases, nil
}

// printNotes prints the section of a version, without its heading. It refuses changes
// that no section of a version has: packages would have them as changes of this one.
func printNotes(root, version string) error {
	releases, err := readChangelog(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	for _, r := range releases {
		if r.version == "Unreleased" && len(r.items) > 0 {
			return fmt.Errorf("CHANGELOG.md has changes in [Unreleased], which belong to the section of a version")
		}
		if r.version == version {
			if r.date.IsZero() {
				return fmt.Errorf("the section [%s] of CHANGELOG.md has no date", version)
			}
			_, err := fmt.Println(strings.TrimSpace(r.text))
			return err
		}
	}
	return fmt.Errorf("CHANGELOG.md has no section [%s]", version)
}

// changes returns the sections that a package of this version has, the first of which is
// its own: what is unreleased, if there is none of it. Dates are known of all of them.
func (b *build) changes() []release {
	var changes []release
	for i, r := range b.notes {
		if r.version == "Unreleased" {
			if len(r.items) == 0 && (i+1 == len(b.notes) || b.notes[i+1].version == b.version) {
				continue
			}
			if len(r.items) == 0 {
				r.items = []string{"As " + b.notes[i+1].version + "."}
			}
			r.version = b.version
		}
		if r.date.IsZero() {
			r.date = b.time
		}
		changes = append(changes, r)
	}
	return changes
}

// debianChangelog returns the changelog of a package in the format of deb-changelog(5).
func (b *build) debianChangelog(name string) string {
	var out strings.Builder
	for _, r := range b.changes() {
		fmt.Fprintf(&out, "%s (%s) unstable; urgency=medium\n\n", name, debianVersion(r.version))
		for _, item := range r.items {
			out.WriteString(wrap(item, "  * ", "    ", 80))
		}
		fmt.Fprintf(&out, "\n -- %s  %s\n\n", maintainer, r.date.Format(time.RFC1123Z))
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// wrap breaks text at blanks into lines of at most width columns.
func wrap(text, first, rest string, width int) string {
	var out strings.Builder
	line, indent := first, first
	for _, word := range strings.Fields(text) {
		if line != indent && len(line)+1+len(word) > width {
			out.WriteString(line + "\n")
			line, indent = rest, rest
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return out.String() + line + "\n"
}
