package submit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// warnings returns warnings about a request that is accepted but is hardly what
// the user means, as far as only the client can tell.
func (j *job) warnings() []string {
	var lines []string
	for _, a := range j.req.Args {
		// A second script would only be an argument of the first.
		if !j.req.Binary && isScript(a) {
			lines = append(lines, a+" is an argument of "+j.req.Command+", not a second job: qsub takes one script")
			break
		}
	}
	for _, o := range []struct{ option, path string }{{"-o", j.req.Stdout}, {"-e", j.req.Stderr}} {
		if dir := j.missing(o.path); dir != "" {
			lines = append(lines, o.option+" "+o.path+": there is no directory "+dir+"; without it the job cannot start (state Eqw)")
		}
		if o.path == "" && (o.option == "-o" || !j.req.Merge) && len(j.req.Name)+len(".o1234567") > maxFileName {
			lines = append(lines, fmt.Sprintf("-N: with a name of %d bytes the name of its output file is too long; without %s the job cannot start (state Eqw)", len(j.req.Name), o.option))
			break
		}
	}
	return lines
}

// maxFileName is how long the name of a file may be, NAME_MAX in limits.h.
const maxFileName = 255

// isScript reports whether a word is the name of a file that begins with #!.
func isScript(name string) bool {
	// Opening a pipe would block.
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

// missing returns the directory of an output path if it does not exist; "" if
// it does, or if the path has variables of the job.
func (j *job) missing(path string) string {
	if path == "" || strings.ContainsAny(path, "$~:,") {
		return ""
	}
	if !filepath.IsAbs(path) {
		below := j.req.Cwd
		if below == "" {
			below = os.Getenv("HOME")
		}
		if !filepath.IsAbs(below) {
			return "" // execd looks up what it is
		}
		path = below + "/" + path
	}
	dir, _ := filepath.Split(path)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return filepath.Clean(dir)
}
