package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A file is what a package installs: a directory, a regular file or a link.
type file struct {
	path   string // where it is installed
	kind   kind
	owner  string
	group  string
	mode   fs.FileMode
	source string // the file that is packed, or what a link points to
}

type kind int

const (
	directory kind = iota
	regular
	config // a regular file that an administrator may have changed
	link
)

// kinds says what the types of the manifest are in a package. Those of type t need no
// change, since the directories are the ones for which they are written. What execd
// makes, type s, is in no package.
var kinds = map[string]kind{"d": directory, "f": regular, "t": regular, "c": config, "l": link}

// places are those of a package.
var places = strings.NewReplacer("@PREFIX@", "/usr", "@BINDIR@", "/usr/bin", "@SBINDIR@", "/usr/sbin", "@MANDIR@", "/usr/share/man")

// parseManifest reads what the text of packaging/manifest has of a package. Sources are
// below root, and programs in bin.
func parseManifest(text, name, root, bin string) ([]file, error) {
	var files []file
	number, in := 0, products[0].name
	for line := range strings.Lines(text) {
		number++
		f := strings.Fields(places.Replace(line))
		if len(f) == 2 && f[0] == "p" {
			if in = f[1]; !slices.ContainsFunc(products, func(p product) bool { return p.name == in }) {
				return nil, fmt.Errorf("packaging/manifest:%d: there is no package %s", number, in)
			}
			continue
		}
		if len(f) == 0 || strings.HasPrefix(f[0], "#") || f[0] == "s" {
			continue
		}
		kind, ok := kinds[f[0]]
		if !ok || kind == directory && len(f) != 5 || kind != directory && len(f) != 6 {
			return nil, fmt.Errorf("packaging/manifest:%d: no such type, or a wrong number of fields: %s", number, strings.TrimSpace(line))
		}
		mode, err := strconv.ParseUint(f[3], 8, 12)
		if err != nil {
			return nil, fmt.Errorf("packaging/manifest:%d: bad mode: %w", number, err)
		}
		e := file{path: f[4], kind: kind, owner: f[1], group: f[2], mode: fs.FileMode(mode)}
		switch {
		case kind == link:
			e.source = f[5]
		case kind != directory:
			if program, ok := strings.CutPrefix(f[5], "@BIN@/"); ok {
				e.source = filepath.Join(bin, program)
			} else {
				e.source = filepath.Join(root, f[5])
			}
		}
		if in == name {
			files = append(files, e)
		}
	}
	return files, nil
}

// tree returns all that a package has, sorted by path: what the manifest names, with manual
// pages compressed, the changelog, and the directories that nobody else has. What is
// made for it is written to the directory work.
func (b *build) tree(p *product, work string) ([]file, error) {
	text, err := os.ReadFile(filepath.Join(b.root, "packaging", "manifest"))
	if err != nil {
		return nil, err
	}
	files, err := parseManifest(string(text), p.name, b.root, b.bin)
	if err != nil {
		return nil, err
	}
	for i := range files {
		if f := &files[i]; f.kind == regular && strings.HasPrefix(f.path, "/usr/share/man/") {
			page, err := os.ReadFile(f.source)
			if err != nil {
				return nil, err
			}
			f.path += ".gz"
			if f.source, err = compressed(work, path.Base(f.path), page); err != nil {
				return nil, err
			}
		}
	}
	changelog, err := compressed(work, "changelog.gz", []byte(b.debianChangelog(p.name)))
	if err != nil {
		return nil, err
	}
	files = append(files, file{path: "/usr/share/doc/" + p.name + "/changelog.gz", kind: regular, owner: "root", group: "root", mode: 0o644, source: changelog})
	files = append(files, ownDirectories(files, p.name)...)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files, nil
}

// compressed writes data to a new file of the directory as gzip -9n does, and returns
// its path.
func compressed(dir, name string, data []byte) (string, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(data); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	name = filepath.Join(dir, name)
	return name, os.WriteFile(name, out.Bytes(), 0o644)
}

// ownDirectories returns the directories of ours above the files that are not among
// them: those called like the package, and all below. Others belong to the system.
func ownDirectories(files []file, name string) []file {
	seen := make(map[string]bool)
	for _, f := range files {
		seen[f.path] = f.kind == directory
	}
	var dirs []file
	for _, f := range files {
		for dir := path.Dir(f.path); strings.Contains(dir+"/", "/"+name+"/") && !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			dirs = append(dirs, file{path: dir, kind: directory, owner: "root", group: "root", mode: 0o755})
		}
	}
	return dirs
}
