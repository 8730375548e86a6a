package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/test/harness"
)

// entry is a line of packaging/manifest, or what stands in its place on disk.
type entry = harness.ManifestEntry

// manifest reads packaging/manifest with the places of `make install PREFIX=/usr`.
func manifest(t *testing.T) []entry {
	t.Helper()
	entries, err := harness.Manifest(bin)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		entries[i].Package = "" // make install installs all of them
	}
	return entries
}

// TestManifest installs into an empty directory and compares what is there
// with the manifest: nothing more, nothing less, owners and modes included.
func TestManifest(t *testing.T) {
	parallel(t)
	dest := place(t, "install")
	// What make finds to be older than the tree it builds anew, with our umask: of the
	// binaries that the other tests run it must not. With the flags of test/built it finds
	// nothing.
	built := filepath.Join(place(t, "built"), "bin")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", bin, built).CombinedOutput(); err != nil {
		t.Fatalf("cannot copy the binaries: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", harness.Root(), "install", "TRIMPATH=", "MAILERS=/nonexistent/mailer", "BIN="+built, "DESTDIR="+dest, "PREFIX=/usr")
	// Install makes what it installs with the modes it names, whatever the
	// umask.
	cmd = exec.CommandContext(t.Context(), "sh", append([]string{"-c", `umask 077; exec "$@"`, "sh"}, cmd.Args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "MAKE") || strings.HasPrefix(kv, "MFLAGS") })
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	var want []entry
	named := make(map[string]bool)
	for _, e := range manifest(t) {
		if e.Type == "s" {
			continue
		}
		if strings.Contains("ftc", e.Type) {
			e.Type, e.Source = "f", "" // where it came from does not show
		}
		if os.Getuid() != 0 {
			e.Owner, e.Group = "", ""
		}
		want = append(want, e)
		named[e.Path] = true
	}
	var got []entry
	err := filepath.WalkDir(dest, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		e := onDisk(t, path)
		e.Path = strings.TrimPrefix(path, dest)
		// Directories above what the manifest names are the system's.
		if e.Type != "d" || named[e.Path] {
			got = append(got, e)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	byPath := func(a, b entry) int { return strings.Compare(a.Path, b.Path) }
	slices.SortFunc(want, byPath)
	slices.SortFunc(got, byPath)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("make install does not leave what packaging/manifest says (-manifest +installed):\n%s", diff)
	}

	runInstalled(t, filepath.Join(dest, "usr"))

	// What is written to be installed is installed.
	sources := make(map[string]bool)
	for _, e := range manifest(t) {
		sources[e.Source] = true
	}
	for _, dir := range []string{
		"man/man*/*", "packaging/config/sge_conf", "packaging/config/hooks.conf", "packaging/config/queues/*",
		"packaging/lib/*", "packaging/logrotate/*", "packaging/needrestart/*", "packaging/preset/*", "packaging/systemd/*",
		"packaging/sysusers/*", "packaging/tmpfiles/*", "packaging/completions/*", "hooks/postgres/internal/schema/*.sql",
	} {
		files, err := filepath.Glob(filepath.Join(harness.Root(), dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			source, err := filepath.Rel(harness.Root(), f)
			if err != nil {
				t.Fatal(err)
			}
			if !sources[source] {
				t.Errorf("packaging/manifest does not install %s", source)
			}
		}
	}
}

// runInstalled runs jobs by the programs below a prefix: one needs the shepherd and
// execd-transfer, the other qrsh-session too.
func runInstalled(t *testing.T, prefix string) {
	t.Helper()
	dir := place(t, "installed")
	d, err := harness.Start(harness.Options{Bin: filepath.Join(prefix, "sbin"), Dir: dir, Mode: "-dev", Env: plainEnv(dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	for _, args := range [][]string{
		{"qsub", "-sync", "y", "-sandbox", "y", "-stageout_to", dir, "-b", "y", "echo done >out"},
		{"qrsh", "true"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(prefix, "bin", args[0]), args[1:]...)
		cmd.Env, cmd.Dir = plainEnv(dir), dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "out")); string(text) != "done\n" {
		t.Errorf("the output that was brought out is %q (%v)", text, err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}

// onDisk describes a file as the manifest would.
func onDisk(t *testing.T, path string) entry {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	e := entry{Type: "f", Mode: fmt.Sprintf("%04o", st.Mode&0o7777)}
	switch {
	case info.IsDir():
		e.Type = "d"
	case info.Mode().Type() == fs.ModeSymlink:
		e.Type = "l"
		if e.Source, err = os.Readlink(path); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getuid() == 0 {
		if u, err := user.LookupId(fmt.Sprint(st.Uid)); err == nil {
			e.Owner = u.Username
		}
		if g, err := user.LookupGroupId(fmt.Sprint(st.Gid)); err == nil {
			e.Group = g.Name
		}
	}
	return e
}

// TestManifestSpool compares the directories that execd makes with the
// manifest.
func TestManifestSpool(t *testing.T) {
	parallel(t)
	if os.Getuid() != 0 {
		t.Skip("root mode needs root")
	}
	dir := filepath.Join(place(t, "places"), "pd")
	d, err := harness.Start(harness.Options{Bin: bin, Dir: dir, Mode: "-root", Env: plainEnv(dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	// Below one directory there is no level for the machine's name.
	spool := api.DevPlaces(dir).Spool
	named := map[string]bool{}
	for _, e := range manifest(t) {
		below, ok := strings.CutPrefix(e.Path, "/var/spool/paddock/HOST")
		if e.Type != "s" || !ok {
			continue
		}
		got := onDisk(t, spool+below)
		got.Path, e.Type = e.Path, "d"
		if got != e {
			t.Errorf("%s: got %v; want %v", spool+below, got, e)
		}
		named[spool+below] = true
	}
	entries, err := os.ReadDir(spool)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if path := filepath.Join(spool, e.Name()); e.IsDir() && !named[path] {
			t.Errorf("execd makes %s, which packaging/manifest does not name", path)
		}
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
}
