package conf

import (
	"encoding/json"
	"fmt"
	"io/fs"
)

// kept is what was read for a configuration: it can be read again when the files
// themselves have mistakes.
type kept struct {
	Files map[string][]byte   // by path
	Dirs  map[string][]string // the names in each directory that are meant
}

// file returns a file as it was read.
func (k *kept) file(path string) ([]byte, error) {
	data, ok := k.Files[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return data, nil
}

// Kept returns what was read for the configuration, for OpenKept: the same bytes for
// the same files. nil: it comes from OpenKept itself.
func (c *Config) Kept() []byte {
	if c.read == nil {
		return nil
	}
	data, _ := json.Marshal(c.read) // maps of texts can be written
	return data
}

// OpenKept is Open, but where the files have mistakes the configuration in force is
// that of data, which Config.Kept made. Live.Mistakes tells those of the files. The
// error is of data: it has mistakes, too, for this execd or on this host.
func OpenKept(o Options, data []byte) (*Live, error) {
	o.kept = &kept{}
	if err := json.Unmarshal(data, o.kept); err != nil {
		return nil, fmt.Errorf("cannot read: %w", err)
	}
	c, err := Load(o)
	if err != nil {
		return nil, err
	}
	o.kept = nil
	l := newLive(o)
	l.current.Store(c)
	if now, err := l.load(); err == nil {
		l.current.Store(now) // mended a moment ago
	}
	return l, nil
}
