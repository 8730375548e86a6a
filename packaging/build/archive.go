package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const maintainer = "The Paddock maintainers <maintainers@users.noreply.a-seed-dac2ae65.example>"

// A product is what there is a package of in each format.
type product struct {
	name, description string
	deb, rpm          relations
	scripts           bool // it has those of packaging/deb and packaging/rpm
}

// relations are those of a package to others, in the words of its format.
type relations struct{ depends, recommends, suggests, conflicts, breaks, replaces []string }

// products is all of them. What is before the first p of the manifest is in the first.
var products = []product{
	{
		name: "paddock", scripts: true,
		description: `Batch system of one host: execution daemon and commands
Paddock runs the jobs of all users of a host in the order of a queue: an
execution daemon, execd, one parent process for each job, and Grid Engine's
commands, as qsub, qstat and qrsh. On top are HTCondor's slots, claims, job
hooks and sandboxes. It needs no other service and no configuration.
.
Jobs go on while execd is upgraded, stopped or started again.`,
		deb: relations{
			depends: []string{"systemd | systemd-sysusers"}, recommends: []string{"curl"}, suggests: []string{"paddock-postgres"},
			// They have the same commands and manual pages.
			conflicts: []string{"gridengine-client", "gridengine-common", "torque-client", "slurm-wlm-torque"},
		},
		rpm: relations{
			depends: []string{"/bin/sh", "systemd"}, recommends: []string{"curl"}, suggests: []string{"paddock-postgres"},
			conflicts: []string{"gridengine", "torque-client", "slurm-torque"},
		},
	},
	{
		name: "paddock-postgres",
		description: `Queue of many hosts in a PostgreSQL database
paddock-pg makes a PostgreSQL database the queue of any number of hosts:
people add jobs and look after them with it, execd of Paddock has it as the
hooks by which it gets work, and it has a cluster run as many execds as the
jobs that wait need.
.
It runs where execd does, and where jobs are submitted. The database may be on
another host.`,
		// What it has was in paddock before the first release.
		deb: relations{
			recommends: []string{"postgresql-client"}, suggests: []string{"paddock", "postgresql"},
			breaks: []string{"paddock (<< 0.1.0~)"}, replaces: []string{"paddock (<< 0.1.0~)"},
		},
		rpm: relations{recommends: []string{"postgresql"}, suggests: []string{"paddock"}, conflicts: []string{"paddock < 0.1.0~"}},
	},
}

// info returns what nfpm has to know of a package in every format.
func (b *build) info(p *product, r *relations, tree []file) *nfpm.Info {
	types := map[kind]string{directory: files.TypeDir, regular: files.TypeFile, config: files.TypeConfigNoReplace, link: files.TypeSymlink}
	var contents files.Contents
	for _, f := range tree {
		contents = append(contents, &files.Content{
			Source:      f.source,
			Destination: f.path,
			Type:        types[f.kind],
			FileInfo:    &files.ContentFileInfo{Owner: f.owner, Group: f.group, Mode: f.mode, MTime: b.time},
		})
	}
	return nfpm.WithDefaults(&nfpm.Info{
		Name:            p.name,
		Arch:            "amd64",
		Version:         b.version,
		Maintainer:      maintainer,
		Description:     p.description,
		MTime:           b.time,
		DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents, Depends: r.depends, Recommends: r.recommends, Suggests: r.suggests, Conflicts: r.conflicts, Replaces: r.replaces,
			Deb: nfpm.Deb{Breaks: r.breaks},
		},
	})
}

// scripts writes the scripts that a package runs where it is installed, with what they
// have in common, and returns their paths: nothing for one that has none.
func (b *build) scripts(p *product, work, format, post, pre, after string) (nfpm.Scripts, error) {
	if !p.scripts {
		return nfpm.Scripts{}, nil
	}
	common, err := os.ReadFile(filepath.Join(b.root, "packaging", "maintainer.sh"))
	if err != nil {
		return nfpm.Scripts{}, err
	}
	var paths []string
	for _, name := range []string{post, pre, after} {
		own, err := os.ReadFile(filepath.Join(b.root, "packaging", format, name))
		if err != nil {
			return nfpm.Scripts{}, err
		}
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, slices.Concat([]byte("#!/bin/sh\nset -e\n\n"), common, []byte("\n"), own), 0o755); err != nil {
			return nfpm.Scripts{}, err
		}
		paths = append(paths, path)
	}
	return nfpm.Scripts{PostInstall: paths[0], PreRemove: paths[1], PostRemove: paths[2]}, nil
}

// added returns a file that only one format has. The source is below the tree.
func (b *build) added(path, source string) file {
	return file{path: path, kind: regular, owner: "root", group: "root", mode: 0o644, source: filepath.Join(b.root, source)}
}

// debianVersion is a version as Debian has it: what comes before a release is less.
func debianVersion(version string) string { return strings.Replace(version, "-", "~", 1) }

// zipLevel is the level of gzip. 9 takes three times as long for files that are smaller by
// at most 3 of 100. gzipped is the same for nfpm.
const (
	zipLevel = 6
	gzipped  = "gzip:6"
)

func (b *build) deb(p *product, tree []file, work, out string) (string, error) {
	info := b.info(p, &p.deb, append(tree, b.added("/usr/share/lintian/overrides/"+p.name, "packaging/deb/"+p.name+".lintian-overrides")))
	info.Section = "admin"
	info.Deb.Compression = gzipped
	var err error
	if info.Scripts, err = b.scripts(p, work, "deb", "postinst", "prerm", "postrm"); err != nil {
		return "", err
	}
	return write(out, deb.Default.ConventionalFileName(info), func(w io.Writer) error { return deb.Default.Package(info, w) })
}

func (b *build) rpm(p *product, tree []file, work, out string) (string, error) {
	licence := "/usr/share/licenses/" + p.name + "/LICENSE"
	info := b.info(p, &p.rpm, append(tree, file{path: filepath.Dir(licence), kind: directory, owner: "root", group: "root", mode: 0o755}, b.added(licence, "LICENSE")))
	for _, c := range info.Contents {
		switch {
		case c.Destination == licence:
			c.Type = files.TypeRPMLicence
		case c.Type == files.TypeFile && (strings.HasPrefix(c.Destination, "/usr/share/doc/") || strings.HasPrefix(c.Destination, "/usr/share/man/")):
			c.Type = files.TypeRPMDoc
		}
	}
	info.License = "Apache-2.0"
	info.Release = "1"
	info.RPM.Compression = gzipped
	info.RPM.BuildHost = "localhost"
	var err error
	if info.Scripts, err = b.scripts(p, work, "rpm", "post", "preun", "postun"); err != nil {
		return "", err
	}
	if info.Changelog, err = b.rpmChangelog(work); err != nil {
		return "", err
	}
	return write(out, rpm.DefaultRPM.ConventionalFileName(info), func(w io.Writer) error { return rpm.DefaultRPM.Package(info, w) })
}

// rpmChangelog writes the changelog in the form that nfpm takes, which is YAML and so
// may be JSON.
func (b *build) rpmChangelog(work string) (string, error) {
	type change struct {
		Note string `json:"note"`
	}
	type entry struct {
		Version  string   `json:"semver"`
		Date     string   `json:"date"`
		Packager string   `json:"packager"`
		Changes  []change `json:"changes"`
	}
	var entries []entry
	for _, r := range b.changes() {
		e := entry{Version: debianVersion(r.version) + "-1", Date: r.date.Format("2006-01-02T15:04:05Z07:00"), Packager: maintainer}
		for _, item := range r.items {
			e.Changes = append(e.Changes, change{item})
		}
		entries = append(entries, e)
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return "", err
	}
	name := filepath.Join(work, "changelog.yaml")
	return name, os.WriteFile(name, text, 0o644)
}

// tar writes the tree below a directory that has the name of the archive.
func (b *build) tar(p *product, tree []file, _, out string) (string, error) {
	top := p.name + "-" + b.version
	return write(out, top+"-linux-amd64.tar.gz", func(w io.Writer) error {
		zipped, err := gzip.NewWriterLevel(w, zipLevel)
		if err != nil {
			return err
		}
		archive := tar.NewWriter(zipped)
		header := func(name string, kind byte, mode int64, f file, size int64) error {
			target := ""
			if f.kind == link {
				target = f.source
			}
			return archive.WriteHeader(&tar.Header{
				Name: name, Typeflag: kind, Mode: mode, Linkname: target, Size: size,
				Uname: f.owner, Gname: f.group, ModTime: b.time, Format: tar.FormatUSTAR,
			})
		}
		if err := header(top+"/", tar.TypeDir, 0o755, file{owner: "root", group: "root"}, 0); err != nil {
			return err
		}
		for _, f := range append([]file{b.added("/LICENSE", "LICENSE")}, tree...) {
			var err error
			switch f.kind {
			case directory:
				err = header(top+f.path+"/", tar.TypeDir, int64(f.mode), f, 0)
			case link:
				err = header(top+f.path, tar.TypeSymlink, int64(f.mode), f, 0)
			default:
				var data []byte
				if data, err = os.ReadFile(f.source); err != nil {
					break
				}
				if err = header(top+f.path, tar.TypeReg, int64(f.mode), f, int64(len(data))); err == nil {
					_, err = archive.Write(data)
				}
			}
			if err != nil {
				return fmt.Errorf("cannot pack %s: %w", f.path, err)
			}
		}
		if err := archive.Close(); err != nil {
			return err
		}
		return zipped.Close()
	})
}

// write makes a file of the directory, and returns its name.
func write(dir, name string, fill func(io.Writer) error) (string, error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := fill(f); err != nil {
		return "", fmt.Errorf("cannot make %s: %w", name, err)
	}
	return name, f.Close()
}
