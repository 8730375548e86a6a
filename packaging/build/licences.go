package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A module is one that a program links.
type module struct {
	path    string
	version string
	licence string // its identifier in SPDX; of several an expression
	text    string // of the licence
	notice  string // of the file NOTICE, which Apache-2.0 has handed on
}

// programs are the packages of the programs that are packed.
var programs = []string{"./execd", "./shepherd", "./execd/transfer", "./qsub", "./qsub/qweb", "./qrsh/session", "./hooks/postgres"}

// standard is the name of the standard library as a module.
const standard = "std"

// linkedModules returns the modules that the programs link, and the standard library,
// sorted by path, with their licences.
func linkedModules(root string) ([]module, error) {
	type pkg struct {
		Standard bool
		Dir      string
		Module   *struct{ Path, Version, Dir string }
	}
	args := append([]string{"list", "-deps", "-json=Standard,Dir,Module", "-tags=urfave_cli_no_docs"}, programs...)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list packages: %w", err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find the standard library: %w", err)
	}
	dirs := map[module][]string{{path: standard}: {strings.TrimSpace(string(goroot))}}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot read what go list prints: %w", err)
		}
		if p.Module != nil && p.Module.Version != "" {
			m := module{path: p.Module.Path, version: p.Module.Version}
			if dirs[m] == nil {
				dirs[m] = []string{p.Module.Dir}
			}
			dirs[m] = append(dirs[m], p.Dir)
		}
	}
	var modules []module
	for m, all := range dirs {
		dir := all[0]
		for _, place := range all { // what a module has taken over may have a licence of its own
			for _, name := range []string{"LICENSE", "LICENSE.txt"} {
				text, err := os.ReadFile(filepath.Join(place, name))
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					return nil, fmt.Errorf("cannot read the licence of %s: %w", m.path, err)
				}
				if own := concerning(string(text), dir, all); !strings.Contains(m.text, own) {
					m.text = strings.TrimSpace(m.text + "\n\n" + own)
				}
			}
		}
		if m.licence = identify(m.text); m.licence == "" {
			return nil, fmt.Errorf("%s has a licence that is not known: see identify", m.path)
		}
		notice, err := os.ReadFile(filepath.Join(dir, "NOTICE"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		m.notice = string(notice)
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return modules, nil
}

// A licence may have sections, each of which begins with the files that it is about.
var (
	sections = regexp.MustCompile(`\n-{10,}\n`)
	about    = regexp.MustCompile(`(?m)^Files: (.+)/\*$`)
)

// concerning returns what a licence in a directory says of packages, which may be not all of it.
func concerning(text, dir string, packages []string) string {
	all := sections.Split(text, -1)
	kept := slices.DeleteFunc(slices.Clone(all), func(section string) bool {
		files := about.FindAllStringSubmatch(section, -1)
		return len(files) > 0 && !slices.ContainsFunc(files, func(f []string) bool {
			below := filepath.Join(dir, f[1])
			return slices.ContainsFunc(packages, func(p string) bool { return p == below || strings.HasPrefix(p, below+"/") })
		})
	})
	if len(kept) < len(all) {
		text = strings.Join(kept, "\n")
	}
	return strings.TrimSpace(text)
}

// identify tells licences by their text. Those that are not here have to be looked at by
// people before they are linked.
func identify(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	bsd := "BSD-2-Clause"
	if strings.Contains(text, "Neither the name of") {
		bsd = "BSD-3-Clause"
	}
	var found []string
	for _, l := range []struct{ name, words string }{
		{"Apache-2.0", "Apache License Version 2.0, January 2004"},
		{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
		{bsd, "Redistribution and use in source and binary forms"},
		{"CC0-1.0", "CC0 1.0 Universal"},
	} {
		if strings.Contains(text, l.words) {
			found = append(found, l.name)
		}
	}
	return strings.Join(found, " AND ")
}

// holder finds lines that name who has the copyright; [yyyy] is in the example that
// Apache-2.0 ends with.
var holder = regexp.MustCompile(`(?m)^\s*Copyright(?: \([cC]\)| ©)?,? ([^\s\[{].*)$`)

// holders returns who has the copyright of a module.
func (m module) holders() []string {
	var holders []string
	for _, match := range holder.FindAllStringSubmatch(m.text, -1) {
		holders = append(holders, strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(match[1]), "All rights reserved.")))
	}
	if len(holders) == 0 {
		holders = []string{"the authors of " + m.path}
	}
	return holders
}

// copyright returns the file copyright of a Debian package, in the format that its
// first line names.
func copyright(modules []module) string {
	var out strings.Builder
	out.WriteString(`Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Paddock
Comment: Written by ` + "`make licences-update`" + `. What is not below the name of a host is
 Paddock's own; the others are modules that its programs link, or have within
 them, and std is the standard library of Go.

Files: *
Copyright: 2026 the Paddock authors
License: Apache-2.0

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0,
 elsewhere in the file LICENSE below /usr/share/licenses.
`)
	for _, m := range modules {
		fmt.Fprintf(&out, "\nFiles: %s/*\nCopyright: %s\nLicense: %s\n", m.path, strings.Join(m.holders(), "\n "), strings.ReplaceAll(m.licence, "AND", "and"))
		if m.licence == "Apache-2.0" {
			continue
		}
		for line := range strings.Lines(strings.TrimSpace(m.text)) {
			if line = strings.TrimRight(line, " \n"); line == "" {
				line = "."
			}
			out.WriteString(" " + line + "\n")
		}
	}
	return out.String()
}

// notice returns the file NOTICE, which hands on those of the modules.
func notice(modules []module) string {
	var out strings.Builder
	out.WriteString("Paddock\nCopyright 2026 the Paddock authors\n\n" +
		"The programs link the modules that packaging/copyright lists. These have a notice of\ntheir own:\n")
	for _, m := range modules {
		if m.notice != "" {
			fmt.Fprintf(&out, "\n%s\n\n%s", m.path, strings.TrimSpace(m.notice)+"\n")
		}
	}
	out.WriteString("\nNo program has what the tests alone have: test/web/testdata/axe.min.js is axe-core,\n" +
		"Copyright Deque Systems, Inc., under the Mozilla Public License 2.0; its source is at\n" +
		"https://github.com/dequelabs/axe-core.\n")
	return out.String()
}

// licenceFiles returns the files that are checked in, by path below the source tree.
func licenceFiles(root string) (map[string]string, error) {
	modules, err := linkedModules(root)
	if err != nil {
		return nil, err
	}
	curves, err := embedded(root, &uPlot)
	if err != nil {
		return nil, err
	}
	modules = append(modules, curves)
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return map[string]string{"packaging/copyright": copyright(modules), "NOTICE": notice(modules)}, nil
}

// An asset is what a program has of others that is no module of Go, in a directory of the tree with
// its licence.
type asset struct {
	name, dir string
	files     []string       // of it, which the program has within itself
	program   string         // the package of that
	version   *regexp.Regexp // finds it in the first of the files
	purl      string         // without the version
}

var uPlot = asset{
	name: "github.com/leeoniya/uPlot", dir: "qsub/qweb/page/uplot", files: []string{"uplot.js", "uplot.css"}, program: "paddock/qsub/qweb",
	version: regexp.MustCompile(`uPlot \(v([0-9.]+)\)`), purl: "pkg:npm/uplot",
}

// embedded returns an asset as if it were a module.
func embedded(root string, a *asset) (module, error) {
	text, err := os.ReadFile(filepath.Join(root, a.dir, "LICENSE"))
	if err != nil {
		return module{}, fmt.Errorf("cannot read the licence of %s: %w", a.name, err)
	}
	m := module{path: a.name, licence: identify(string(text)), text: strings.TrimSpace(string(text))}
	if m.licence == "" {
		return m, fmt.Errorf("%s has a licence that is not known: see identify", a.name)
	}
	code, err := os.ReadFile(filepath.Join(root, a.dir, a.files[0]))
	if err != nil {
		return m, err
	}
	found := a.version.FindSubmatch(code)
	if found == nil {
		return m, fmt.Errorf("%s does not say which version it is", a.name)
	}
	m.version = string(found[1])
	return m, nil
}

func writeLicences(root string) error {
	files, err := licenceFiles(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
