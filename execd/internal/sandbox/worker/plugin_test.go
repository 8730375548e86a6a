package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
		"does nothing":              {false, "exec sleep 1000", "the plugin ended: it did nothing for 1s", false},
		"many: does nothing":        {true, "exec sleep 1000", "the plugin ended: it did nothing for 1s", false},
		"leaves a child that does":  {false, "sleep 1000", "it did nothing for 1s", false},
		"hangs":                     {false, "exec sleep 1000", "", false},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			o := bring(order.Named{From: url})
			o.Plugins = []order.Plugin{r.plugin("box", test.many, test.script)}
			if strings.Contains(test.says, "did nothing") {
				o.Stall = 1
			}
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

// A plugin of the user's own is brought like other files, asked what it can, and used.
func TestOwnPlugin(t *testing.T) {
	for what, test := range map[string]struct{ says, script, want string }{
		"one":      {"SupportedMethods = \"box\"", one, ""},
		"several":  {"[ PluginType = \"FileTransfer\"; SupportedMethods = \"box\"; MultipleFileSupport = true ]", several, ""},
		"fails":    {"x\nEOF\nexit 3", one, `plugin "mine" cannot be used: asked what it can, it ended: exit status 3`},
		"is empty": {"", one, `plugin "mine" cannot be used: asked what it can, it says nothing`},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRig(t)
			store := r.store()
			r.put(store, "a")
			r.must(harness.WriteExecutable(filepath.Join(r.home, "mine"),
				"#!/bin/sh\ntest \"$1\" = -classad && { cat <<'EOF'\n"+test.says+"\nEOF\nexit; }\ntest \"$X\" = y || exit 8\n"+strings.ReplaceAll(test.script, "STORE", store)))
			r.own(filepath.Join(r.home, "mine"))
			o := bring(order.Named{From: "mine"}, order.Named{From: "box:///a"})
			o.Plugins, o.Env = []order.Plugin{{Scheme: "box", Path: "mine"}}, []string{"X=y"}
			if test.want == "" {
				r.ok(o)
				if got, err := os.ReadFile(filepath.Join(r.files(), "a")); string(got) != "a" {
					t.Errorf("%q, %v; want the file", got, err)
				}
				return
			}
			_, err := r.copy(o)
			if _, permanent := errors.AsType[*exit.Permanent](err); !permanent || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v; want %q for good", err, test.want)
			}
		})
	}
}

// What a plugin says of itself is read by a process of the user as whom it is asked.
func TestAsk(t *testing.T) {
	r := newRig(t)
	for what, test := range map[string]struct {
		script  string
		schemes []string
		many    bool
		err     string
	}{
		"one":          {"echo 'PluginVersion = \"0.1\"\nPluginType = \"FileTransfer\"\nSupportedMethods = \"http,HTTPS, s3\"'", []string{"http", "https", "s3"}, false, ""},
		"several":      {"echo '[ SupportedMethods = \"a\"; MultipleFileSupport = true ]'; sleep 1000 &", []string{"a"}, true, ""},
		"nothing":      {"exit 0", nil, false, "it says nothing"},
		"no methods":   {"echo 'PluginVersion = \"1\"'", nil, false, "it takes 0 schemes"},
		"garbage":      {"head -c 100000 /dev/urandom", nil, false, "it says no ad"},
		"no scheme":    {"echo 'SupportedMethods = \"a b_c\"'", nil, false, `it takes "b_c", which is no scheme`},
		"another kind": {"echo 'PluginType = \"Wine\"\nSupportedMethods = \"a\"'", nil, false, `but for "Wine"`},
		"fails":        {"echo no curl >&2; exit 7", nil, false, "exit status 7: no curl"},
		"is no script": {"", nil, false, "no such file"},
	} {
		p := r.plugin("p", false, test.script)
		if test.script == "" {
			p.Path += "-none"
		}
		got, err := r.Ask(t.Context(), r.owner, p.Path)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v; want %q", what, err, test.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Schemes, test.schemes) || got.Many != test.many {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	pipe := filepath.Join(r.home, "pipe")
	r.put(r.home, "pipe|")
	started := make(chan string, 1)
	go func() { // it has begun
		text, _ := os.ReadFile(pipe)
		started <- strings.TrimSpace(string(text))
		cancel()
	}()
	if _, err := r.Ask(ctx, r.owner, r.plugin("p", false, "sleep 1000 & echo $! >"+pipe+"; wait").Path); err == nil {
		t.Error("a plugin that hangs is waited for")
	}
	child := <-started
	r.must(harness.WaitFor(harness.Patience, "the end of what the plugin has started", func() (bool, error) {
		_, err := os.Stat("/proc/" + child)
		return err != nil, nil
	}))
}

// hangs has a plugin that hangs go with its worker.
func (r *rig) hangs(o *order.Orders) {
	r.Helper()
	o.ID, o.Base = r.id, r.home
	lock, err := take(r.Context(), filepath.Join(r.dir, order.FileLock), false)
	r.must(err)
	defer lock.Close()
	p, err := r.start(r.owner, r.dir, lock, nil, o, nil)
	r.must(err)
	var child string
	r.must(harness.WaitFor(harness.Patience, "the plugin", func() (bool, error) {
		// Any thread may have started it, and each has its own children.
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
		for _, children := range threads {
			text, _ := os.ReadFile(children) // none of a thread that has ended
			child += strings.TrimSpace(string(text))
		}
		return child != "", err
	}))
	p.end()
	r.must(harness.WaitFor(harness.Patience, "the end of the plugin", func() (bool, error) {
		_, err := os.Stat("/proc/" + child)
		return err != nil, nil
	}))
}
