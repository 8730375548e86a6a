package submit

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// warnings are what a request is accepted with that its user hardly means, as far as
// only who submits can tell.
func (j *job) warnings() []string {
	var lines []string
	for _, a := range j.req.Args {
		// Of a second script the job would only hear the name.
		if !j.req.Binary && isScript(a) {
			lines = append(lines, a+" is an argument of "+j.req.Command+", not a second job: qsub takes one script")
			break
		}
	}
	for _, o := range []struct{ option, path string }{{"-o", j.req.Stdout}, {"-e", j.req.Stderr}} {
		if dir := j.missing(o.path); dir != "" {
			lines = append(lines, o.option+" "+o.path+": there is no directory "+dir+"; without it the job cannot start (state Eqw)")
		}
	}
	return lines
}

// isScript reports whether a word is the name of a file that begins as a script.
func isScript(name string) bool {
	// What is no regular file may wait for ever when it is opened.
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	begin := make([]byte, 2)
	_, err = io.ReadFull(f, begin)
	return err == nil && bytes.Equal(begin, []byte("#!"))
}

// missing returns the directory of an output path that is not there; "": it is, or
// only the job knows it.
func (j *job) missing(path string) string {
	if path == "" || strings.ContainsAny(path, "$~:,") {
		return ""
	}
	if !filepath.IsAbs(path) {
		if !filepath.IsAbs(j.req.Cwd) {
			return "" // it is below the home directory as execd knows it
		}
		path = j.req.Cwd + "/" + path
	}
	dir, _ := filepath.Split(path)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return filepath.Clean(dir)
}
