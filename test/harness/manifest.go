package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A ManifestEntry is a line of packaging/manifest.
type ManifestEntry struct{ Package, Type, Owner, Group, Mode, Path, Source string }

// Manifest reads packaging/manifest with the places of `make install PREFIX=/usr BIN=bin`.
func Manifest(bin string) ([]ManifestEntry, error) {
	text, err := os.ReadFile(filepath.Join(Root(), "packaging", "manifest"))
	if err != nil {
		return nil, err
	}
	places := strings.NewReplacer("@PREFIX@", "/usr", "@BINDIR@", "/usr/bin", "@SBINDIR@", "/usr/sbin", "@MANDIR@", "/usr/share/man", "@BIN@", bin)
	var entries []ManifestEntry
	in := "paddock"
	for line := range strings.Lines(places.Replace(string(text))) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if len(f) == 2 && f[0] == "p" {
			in = f[1]
			continue
		}
		if len(f) < 5 || len(f) > 6 {
			return nil, fmt.Errorf("packaging/manifest: line of %d fields: %q", len(f), line)
		}
		entries = append(entries, ManifestEntry{in, f[0], f[1], f[2], f[3], f[4], strings.Join(f[5:], "")})
	}
	return entries, nil
}
