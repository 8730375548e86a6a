package conf

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
)

// aliases reads Grid Engine's file host_aliases: each line has the names of one host,
// the first of which is the one that is used. Those of this host are kept.
func (l *loader) aliases() {
	path := filepath.Join(l.Dir, fileAliases)
	data, err := l.readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var entries []entry
	if err == nil {
		entries, err = parse(path, data)
	}
	if err != nil {
		l.cannot(path, err)
		return
	}
	for _, e := range entries {
		names := append([]string{e.name}, list(e.value)...)
		if slices.ContainsFunc(names, func(name string) bool { return sameHost(name, l.Host) }) {
			l.conf.Aliases = append(l.conf.Aliases, names...)
		}
	}
	if len(l.conf.Aliases) > 0 {
		all := strings.Join(l.conf.Aliases, " ")
		l.keep(fileAliases, "", []line{{written: all, inForce: all}})
	}
}

// IsHere reports whether a name means this host: its own, short or full, one of
// host_aliases, or one by which every host means itself.
func (c *Config) IsHere(name string) bool {
	if sameHost(name, c.Hostname) || strings.EqualFold(name, "localhost") || strings.EqualFold(name, "localhost.localdomain") {
		return true
	}
	if addr, err := netip.ParseAddr(name); err == nil && addr.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(c.Aliases, func(alias string) bool { return strings.EqualFold(alias, name) })
}
