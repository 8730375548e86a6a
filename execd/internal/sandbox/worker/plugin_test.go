package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/stage/exit"
	"paddock/test/harness"
)

// plugin makes a plugin of a script.
func (r *rig) plugin(scheme string, many bool, script string) order.Plugin {
	r.Helper()
	dir := r.TempDir()
	r.must(os.Chmod(filepath.Dir(dir), 0o755))
	r.must(os.Chmod(dir, 0o755))
	path := filepath.Join(dir, scheme)
	r.must(harness.WriteExecutable(path, "#!/bin/sh\n"+script))
	return order.Plugin{Scheme: scheme, Path: path, Many: many}
}

// store is where the plugins below have their files: URLs are STORE:///NAME.
func (r *rig) store() string {
	dir := filepath.Join(r.home, "store")
	r.mine(dir)
	return dir
}

// one takes one file, and several many, as HTCondor's plugins do.
const (
	one = `S=STORE
case $1 in
*://*) exec cp "$S/${1##*/}" "$2" ;;
*) exec cp "$1" "$S/${2##*/}" ;;
esac
`
	several = `S=STORE
test "$1$3" = -infile-outfile || exit 9
sed -n 's/.*Url = "\([^"]*\)".*LocalFileName = "\([^"]*\)".*/\1 \2/p' "$2" | while read url file; do
	if test "$5" = -upload; then cp "$file" "$S/${url##*/}"; else cp "$S/${url##*/}" "$file"; fi 2>"$4.err"
	ok=$(test -s "$4.err" && echo false || echo true)
	printf '[ TransferUrl = "%s"; TransferSuccess = %s; TransferError = "[no] \\"such]"; TransferRetryable = false ]\n' "$url" $ok
done >"$4"
! grep -q "Success = false" "$4"
`
)

// Plugins bring files and take them away.
func TestPlugins(t *testing.T) {
	for what, test := range map[string]struct {
		many   bool
		script string
	}{"one": {false, one}, "several": {true, several}} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			store := r.store()
			r.put(store, "a", "b")
			r.put(r.home, "plain")
			plugins := []order.Plugin{r.plugin("box", test.many, strings.ReplaceAll(test.script, "STORE", store))}
			o := bring(order.Named{From: "box:///a"}, order.Named{From: "BOX://x/b", To: "d/c"}, order.Named{From: "plain"})
			o.Plugins = plugins
			if got := r.ok(o); got.Files != 3 || got.Bytes == 0 {
				t.Errorf("%+v; want 3 files", got)
			}
			r.want(r.files(), "a", "d/c=b", "plain")
			r.put(r.files(), "new", "d/deep/new2", "link>new")
			o = send(order.Send{Select: order.All, To: "box://x/out/", Names: []order.Named{{From: "new", To: r.home + "/"}}})
			o.Plugins = plugins
			got := r.ok(o)
			r.want(store, "a", "b", "new2=d/deep/new2")
			if _, err := os.Stat(filepath.Join(r.home, "new")); err != nil || got.Skipped != 1 {
				t.Errorf("%+v, %v; want the file in the home, and the link skipped", got, err)
			}
		})
	}
}

// A plugin that fails, lies or writes what it likes has one clear reason.
func TestBadPlugins(t *testing.T) {
	const url = "box:///a"
	for what, test := range map[string]struct {
		many      bool
		script    string
		says      string
		permanent bool
	}{
		"fails":                     {false, "echo 'no such file' >&2; exit 4", "exit status 4: no such file", false},
		"fails silently":            {false, "exit 4", "it said nothing", false},
		"fails and leaves somebody": {false, "sleep 1000 & exit 4", "exit status 4", false},
		"lies":                      {false, "exit 0", "and there is none", false},
		"brings a link":             {false, `ln -s /etc/passwd "$2"`, "and there is none", false},
		"is killed":                 {false, "kill -9 $$", "signal: killed", false},
		"is missing":                {false, "", "no such file", false},
		"many: fails":               {true, strings.ReplaceAll(several, "STORE", "/nowhere"), `[no] "such]`, true},
		"many: says nothing":        {true, "exit 0", "does not say what became of it", false},
		"many: dies half way":       {true, `printf '[ TransferUrl = "` + url + `"; Transf' >"$4"; kill -9 $$`, "signal: killed", false},
		"many: garbage":             {true, `head -c 10000 /dev/urandom >"$4"`, "does not say what became of", false},
		"many: without end":         {true, `head -c 20000000 /dev/zero >"$4"`, "it writes too much", false},
		"many: of another":          {true, `echo '[ TransferUrl = "box:///b"; TransferSuccess = true ]' >"$4"`, "does not say what became of", false},
		"many: lies":                {true, `echo '[ TransferUrl = "` + url + `"; TransferSuccess = true ]' >"$4"`, "and there is none", false},
		"many: a link as its list":  {true, `ln -s /etc/passwd "$4"`, "does not say what became of", false},
		"many: a pipe as its list":  {true, `mkfifo "$4"`, "does not say what became of", false},
		"hangs":                     {false, "exec sleep 1000", "", false},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			o := bring(order.Named{From: url})
			o.Plugins = []order.Plugin{r.plugin("box", test.many, test.script)}
			if test.script == "" {
				o.Plugins[0].Path += "-none"
			}
			if what == "hangs" {
				r.hangs(o)
				return
			}
			_, err := r.copy(o)
			_, permanent := errors.AsType[*exit.Permanent](err)
			if err == nil || !strings.Contains(err.Error(), test.says) || permanent != test.permanent {
				t.Errorf("%v (%T); want %q", err, err, test.says)
			}
		})
	}
	r := newRig(t)
	if _, err := r.copy(bring(order.Named{From: url})); err == nil || !strings.Contains(err.Error(), "no plugin is known") {
		t.Errorf("%v; want that there is no plugin", err)
	}
}

// hangs has a plugin that hangs go with its worker.
func (r *rig) hangs(o *order.Orders) {
	r.Helper()
	o.ID, o.Base = r.id, r.home
	lock, err := take(r.Context(), filepath.Join(r.dir, order.FileLock))
	r.must(err)
	defer lock.Close()
	p, err := r.start(r.owner, r.dir, lock, o)
	r.must(err)
	children := fmt.Sprintf("/proc/%d/task/%d/children", p.cmd.Process.Pid, p.cmd.Process.Pid)
	var child string
	r.must(harness.WaitFor(harness.Patience, "the plugin", func() (bool, error) {
		text, err := os.ReadFile(children)
		child = strings.TrimSpace(string(text))
		return child != "", err
	}))
	p.end()
	r.must(harness.WaitFor(harness.Patience, "the end of the plugin", func() (bool, error) {
		_, err := os.Stat("/proc/" + child)
		return err != nil, nil
	}))
}
