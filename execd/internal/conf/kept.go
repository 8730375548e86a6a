package conf

import (
	"encoding/json"
	"fmt"
	"io/fs"
)

// kept is what a configuration was read from. It can be read again when the files have
// mistakes.
type kept struct {
	Files map[string][]byte   // by path
	Dirs  map[string][]string // the names of the configuration files in each directory
}

// file returns the contents that a file had.
func (k *kept) file(path string) ([]byte, error) {
	data, ok := k.Files[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return data, nil
}

// Kept returns what the configuration was read from, for OpenKept: the same bytes for
// the same files. nil: it is from OpenKept itself.
func (c *Config) Kept() []byte {
	if c.read == nil {
		return nil
	}
	data, _ := json.Marshal(c.read) // maps of texts have no error
	return data
}

// OpenKept is Open, but where the files have mistakes the configuration in force is
// read from data, which Config.Kept made; Live.Mistakes returns those of the files. The
// error is that of data, which may be wrong for this execd or on this host, too.
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
		l.current.Store(now) // the files were mended a moment ago
	}
	return l, nil
}
