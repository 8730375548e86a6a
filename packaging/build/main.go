// Build makes the packages of a release from what `make build` has made and
// packaging/manifest names: of each product a deb, an rpm and a tar of the same tree, a
// list of what the programs link in the format SPDX, and the sums of them all. `make dist` runs it.
// It is a module of its own, so that nobody who builds Paddock needs what it links.
//
// The same commit makes the same bytes: times are SOURCE_DATE_EPOCH, owners come from
// the manifest, and nothing of the machine gets in.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A build is what all packages of one release have in common.
type build struct {
	root    string // the source tree
	bin     string // the programs
	version string // as the programs print it
	time    time.Time
	modules []module
	notes   []release
}

func main() {
	root := flag.String("root", "../..", "the source `directory`")
	bin := flag.String("bin", "", "the `directory` of the programs")
	out := flag.String("out", "", "the `directory` that the packages are written to")
	version := flag.String("version", "", "the `version` of the packages")
	notes := flag.Bool("notes", false, "only print what CHANGELOG.md says of the version")
	licences := flag.Bool("licences", false, "only write packaging/copyright and NOTICE anew")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case *licences:
		err = writeLicences(*root)
	case *version == "":
		err = fmt.Errorf("-version is missing")
	case *notes:
		err = printNotes(*root, *version)
	case *bin == "" || *out == "":
		err = fmt.Errorf("-bin or -out is missing")
	default:
		err = dist(*root, *bin, *out, *version)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "packaging/build:", err)
		os.Exit(1)
	}
}

// dist writes all that a release consists of.
func dist(root, bin, out, version string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("cannot read SOURCE_DATE_EPOCH: %w", err)
	}
	b := &build{root: root, bin: bin, version: version, time: time.Unix(seconds, 0).UTC()}
	if b.modules, err = linkedModules(root); err != nil {
		return err
	}
	if b.notes, err = readChangelog(filepath.Join(root, "CHANGELOG.md")); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "paddock-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var names []string
	var all []file
	for i := range products {
		p := &products[i]
		work := filepath.Join(work, p.name)
		if err := os.Mkdir(work, 0o755); err != nil {
			return err
		}
		files, err := b.tree(p, work)
		if err != nil {
			return err
		}
		for _, make := range []func(p *product, files []file, work, out string) (string, error){b.deb, b.rpm, b.tar} {
			name, err := make(p, files, work, out)
			if err != nil {
				return err
			}
			names = append(names, name)
		}
		all = append(all, files...)
	}
	name, err := b.spdx(all, out)
	if err != nil {
		return err
	}
	return writeSums(out, append(names, name))
}

// writeSums writes SHA256SUMS, which sha256sum -c reads.
func writeSums(dir string, names []string) error {
	slices.Sort(names)
	var sums strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
