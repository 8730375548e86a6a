// Package deps holds the directions of imports and what every binary links.
// `make deps-update` writes the lists of packaging/deps anew. Nobody imports it.
package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

var update = flag.Bool("update", false, "write the lists of packaging/deps anew")

// binaries are the programs that are installed, with the build tags of the
// Makefile.
var binaries = map[string]string{
	"execd":    "urfave_cli_no_docs",
	"shepherd": "",

	"execd/transfer": "",

	"qsub": "urfave_cli_no_docs",

	"qsub/qweb": "urfave_cli_no_docs",

	"qrsh/session": "",

	"hooks/postgres": "",
}

// rule says which packages a package may not depend on.
type rule struct {
	of     string // the package, or, with a final /..., all below it
	not    string // what it may not link: a package, or all below one
	but    string // except these, in the same form, separated by blanks
	reason string
}

const (
	lean     = "its start is paid by every job and its memory by every running one"
	floor    = "spool is the floor: the standard library and x/sys, nothing else"
	pure     = "what a slot does is decided by events, the time and its policy alone"
	grip     = "it touches files of hostile users: no network, no keys, and no more than it needs"
	apart    = "commands do not know each other; what several need is in command, argument and output"
	whose    = "who jobs come from is entered by the daemon; queue, stage and slots ask a Source"
	database = "the database is known to paddock-pg alone"
	plain    = "the language is the standard library, and knows nothing of what is described in it"
)

// digests are what computes BLAKE3.
const digests = "github.com/zeebo/blake3/... github.com/klauspost/cpuid/..."

var rules = []rule{
	{"paddock/spool", "paddock/...", "paddock/spool/atomicfile", floor},
	{"paddock/spool/atomicfile", "paddock/...", "", floor},
	{"paddock/spool/...", "github.com/...", "", floor},
	{"paddock/spool", "net/...", "", lean},
	{"paddock/spool", "os/exec", "", lean},
	{"paddock/spool", "os/user", "", lean},
	{"paddock/spool", "encoding/json", "", lean},
	{"paddock/spool", "log/slog", "", lean},
	{"paddock/spool", "regexp", "", lean},
	{"paddock/spool", "text/...", "", lean},

	{"paddock/internal/...", "paddock/...", "paddock/internal/...", lean},
	{"paddock/internal/...", "github.com/...", "", lean},
	{"paddock/internal/...", "net/...", "", lean},
	{"paddock/internal/...", "os/exec", "", lean},

	{"paddock/shepherd/...", "paddock/execd/...", "", "the shepherd must outlive execd, and be usable without it"},
	{"paddock/shepherd/...", "net/...", "", lean + "; qrsh-session has the network"},
	{"paddock/shepherd/...", "crypto/...", "", lean},
	{"paddock/shepherd/...", "encoding/json", "", lean + "; the spool is key=value"},
	{"paddock/shepherd/...", "os/exec", "", "its Wait races with the one wait loop; use os.StartProcess"},
	{"paddock/shepherd/...", "os/user", "", "execd resolves users; the shepherd reads numbers"},
	{"paddock/shepherd/...", "log/slog", "", lean + "; trace lines are plain"},
	{"paddock/shepherd/...", "github.com/...", "", lean},

	{"paddock/execd/transfer", "paddock/execd/...", "paddock/execd/internal/sandbox/...", grip},
	{"paddock/execd/transfer", "paddock/execd/internal/sandbox", "", grip},
	{"paddock/execd/transfer", "paddock/execd/internal/sandbox/worker", "", grip},
	{"paddock/execd/transfer", "paddock/spool/...", "", grip},
	{"paddock/execd/transfer", "net/...", "", grip},
	{"paddock/execd/transfer", "crypto/tls", "", grip},
	{"paddock/execd/transfer", "crypto/x509", "", grip},
	{"paddock/execd/transfer", "os/user", "", grip},
	{"paddock/execd/transfer", "github.com/...", digests + " github.com/klauspost/compress/...", grip},
	{"paddock/execd/internal/sandbox/order", "paddock/...", "", "both ends link it"},
	{"paddock/execd/internal/sandbox/order", "github.com/...", "", "both ends link it"},
	{"paddock/execd/internal/sandbox/ring", "paddock/...", "", "both ends link it"},
	{"paddock/execd/internal/sandbox/ring", "github.com/...", "", "both ends link it"},
	{"paddock/execd/internal/sandbox/pack", "paddock/...", "", "both ends link it"},
	{"paddock/execd/internal/sandbox/pack", "github.com/...", digests, "both ends link it"},

	{"paddock/execd/api/...", "paddock/...", "paddock/execd/api/...", "clients link the api, and must not get the daemon with it"},
	{"paddock/qsub/...", "paddock/spool/...", "", "clients speak execd/api only"},
	{"paddock/qsub/...", "paddock/execd/internal/...", "", "clients speak execd/api only"},
	{"paddock/qsub/...", "github.com/fsnotify/...", "", "only execd watches directories"},

	{"paddock/qsub/internal/output", "paddock/...", "paddock/execd/api/...", "it is the floor of the commands"},
	{"paddock/qsub/internal/option", "paddock/...", "paddock/execd/api/...", "the option language knows nothing of what options are for"},
	{"paddock/qsub", "paddock/qsub/internal/qtest", "", "it is for tests"},

	{"paddock/execd/internal/conf/knob", "paddock/execd/...", "paddock/execd/internal/conf/...", "the language knows nothing of what its knobs are for"},

	{"paddock/execd/internal/timeline", "paddock/execd/internal/...", "", "it is told, and asks nobody"},

	{"paddock/classad", "paddock/...", "", plain},
	{"paddock/classad", "github.com/...", "", plain},
	{"paddock/classad", "golang.org/...", "", plain},

	{"paddock/execd/internal/slot", "paddock/...", "paddock/classad", pure},
	{"paddock/execd/internal/slot", "net/...", "", pure},
	{"paddock/execd/internal/slot", "github.com/...", "", pure},

	{"paddock/execd/internal/queue", "paddock/execd/internal/source/...", "paddock/execd/internal/source", whose},
	{"paddock/execd/internal/stage", "paddock/execd/internal/source/...", "paddock/execd/internal/source", whose},
	{"paddock/execd/internal/claim", "paddock/execd/internal/source/...", "", whose},
	{"paddock/execd/internal/source/fetch", "paddock/execd/internal/source/program", "", "sources do not know each other"},
	{"paddock/execd/internal/source/program", "paddock/execd/internal/source/fetch", "", "sources do not know each other"},

	{"paddock/execd/internal/admit", "paddock/execd/internal/server", "", "what may be a job does not depend on who brings the request"},
	{"paddock/execd/internal/shadow", "paddock/execd/internal/server", "", "it asks other hosts, and answers nobody"},
	{"paddock/execd/internal/shadow", "paddock/execd/internal/peer", "", "who is believed is decided below the clients that it is given"},
	{"paddock/execd/internal/stage", "paddock/execd/internal/shadow", "", "it hands on what is elsewhere, and knows nothing of hosts"},

	{"paddock/hooks/postgres/...", "paddock/...", "paddock/classad paddock/internal/hint", "it speaks to execd as any hook of a site does"},
	{"paddock/execd/...", "github.com/jackc/...", "", database},
	{"paddock/shepherd/...", "github.com/jackc/...", "", database},
	{"paddock/qsub/...", "github.com/jackc/...", "", database},
	{"paddock/qrsh/...", "github.com/jackc/...", "", database},
	{"paddock/hooks/postgres/internal/schema", "paddock/...", "", "it is SQL"},
	{"paddock/hooks/postgres/internal/provision", "paddock/...", "", "what is to be submitted is decided by what it is told"},
	{"paddock/hooks/postgres/internal/provision", "github.com/jackc/...", "", "what is to be submitted is decided by what it is told"},

	{"paddock/qrsh/wire", "paddock/...", "", "both ends link it"},
	{"paddock/qrsh/wire", "github.com/...", "", "both ends link it"},
	{"paddock/qrsh/client", "paddock/spool/...", "", "clients speak execd/api only"},
	{"paddock/qrsh/session", "paddock/execd/...", "", "it stands between the shepherd and a client, and knows nothing of execd"},
}

// importers says who alone may import a package directly, separated by blanks.
var importers = map[string]struct{ by, reason string }{
	"paddock/execd/internal/boot":           {"paddock/execd", "it is no part of the daemon"},
	"paddock/execd/internal/daemon":         {"paddock/execd", "the composition root imports, and is not imported"},
	"paddock/execd/internal/source/fetch":   {"paddock/execd/internal/daemon", whose},
	"paddock/execd/internal/source/program": {"paddock/execd/internal/daemon paddock/execd/internal/server", whose + "; server reads what programs ask"},

	"paddock/execd/internal/follow": {"paddock/execd/internal/daemon paddock/execd/internal/server paddock/execd/internal/source/program", "stage tells its Followers, whoever they are"},
	"paddock/execd/internal/peer":   {"paddock/execd paddock/execd/internal/daemon paddock/execd/internal/server", "keys of hosts are in few hands"},
	"paddock/execd/internal/server": {"paddock/execd/internal/daemon", "the hatch is opened by the daemon alone"},

	"paddock/execd/internal/shadow/match":  {"paddock/execd/internal/shadow", "what is said of other hosts is judged where they are asked"},
	"paddock/execd/internal/shadow/remote": {"paddock/execd/internal/shadow", "secrets of claims are in few hands"},
	"paddock/execd/internal/shadow/report": {"paddock/execd/internal/shadow", "what is said of other hosts is judged where they are asked"},

	"paddock/qsub/internal/account": {"paddock/qsub", apart},
	"paddock/qsub/internal/admin":   {"paddock/qsub", apart},
	"paddock/qsub/internal/submit":  {"paddock/qsub", apart},
	"paddock/qsub/internal/show":    {"paddock/qsub paddock/qsub/internal/submit", apart + "; -verify shows a job"},
	"paddock/qsub/internal/watch":   {"paddock/qsub paddock/qsub/internal/submit", apart + "; -sync waits for one"},

	"paddock/hooks/postgres/internal/serve":     {"paddock/hooks/postgres", "what stays is started by main"},
	"paddock/hooks/postgres/internal/people":    {"paddock/hooks/postgres", "commands are called by main"},
	"paddock/hooks/postgres/internal/provision": {"paddock/hooks/postgres/internal/people", "it is a command"},

	"github.com/containerd/cgroups/v3/cgroup1": {"paddock/execd/internal/cgroup", "the rest of execd knows a Tree"},
	"github.com/containerd/cgroups/v3/cgroup2": {"paddock/execd/internal/cgroup", "the rest of execd knows a Tree"},
}

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath   string
	Dir          string
	Name         string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	Standard     bool
	Module       *struct{ Path, Version string }
}

// list runs `go list` and returns the packages by import path.
func list(t *testing.T, args ...string) map[string]pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json"}, args...)...)
	cmd.Dir = harness.Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	packages := make(map[string]pkg)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// matches reports whether path is the package or, for a pattern that ends in
// /..., below it.
func matches(pattern, path string) bool {
	if pattern == "" {
		return false
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == tree || strings.HasPrefix(path, tree+"/")
	}
	return path == pattern
}

func TestImports(t *testing.T) {
	packages := list(t, "./...")
	for _, p := range packages {
		for _, r := range rules {
			if !matches(r.of, p.ImportPath) || strings.HasPrefix(p.ImportPath, "paddock/spool/spooltest") {
				continue
			}
			for _, d := range p.Deps {
				excepted := slices.ContainsFunc(strings.Fields(r.but), func(but string) bool { return matches(but, d) })
				if matches(r.not, d) && !excepted && !matches(r.of, d) {
					t.Errorf("%s links %s: %s", p.ImportPath, d, r.reason)
				}
			}
		}
		for _, d := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if only, ok := importers[d]; ok && !slices.Contains(strings.Fields(only.by), p.ImportPath) && p.ImportPath != d {
				t.Errorf("%s imports %s: %s", p.ImportPath, d, only.reason)
			}
		}
	}
	for _, r := range rules {
		tree, _ := strings.CutSuffix(r.of, "/...")
		if !slices.ContainsFunc(packagePaths(packages), func(path string) bool { return matches(tree+"/...", path) }) {
			t.Errorf("the rule about %s is about no package", r.of)
		}
	}
}

func packagePaths(packages map[string]pkg) []string {
	var paths []string
	for path := range packages {
		paths = append(paths, path)
	}
	return paths
}

// TestPackageComments holds every package to one comment that says what it is.
func TestPackageComments(t *testing.T) {
	for _, p := range list(t, "./...") {
		var commented []string
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				commented = append(commented, name)
			}
		}
		// A package of tests alone has its comment in a test file.
		if len(p.GoFiles) > 0 && len(commented) != 1 {
			t.Errorf("package %s has its comment in %q; want exactly one", p.ImportPath, commented)
		}
	}
}

// TestLinked compares what each binary links with its list, so that a change shows what
// it adds to a binary.
func TestLinked(t *testing.T) {
	for binary, tags := range binaries {
		t.Run(binary, func(t *testing.T) {
			var lines []string
			for path, p := range list(t, "-deps", "-tags="+tags, "./"+binary) {
				switch {
				case p.Standard && (strings.Contains(path, "internal/") || strings.HasPrefix(path, "vendor/") || strings.HasPrefix(path, "internal")):
					// How the standard library is made is not our choice.
				case p.Module != nil && p.Module.Version != "":
					lines = append(lines, path+" "+p.Module.Version)
				default:
					lines = append(lines, path)
				}
			}
			slices.Sort(lines)
			got := "# Packages that " + binary + " links, written by `make deps-update`.\n" + strings.Join(lines, "\n") + "\n"
			file := filepath.Join(harness.Root(), "packaging", "deps", strings.ReplaceAll(binary, "/", "-")+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s links something else than packaging/deps/%s says; if that is meant, run make deps-update and say why in the commit (-want +got):\n%s", binary, filepath.Base(file), diff)
			}
		})
	}
}
