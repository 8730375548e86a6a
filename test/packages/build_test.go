package packages

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

// The versions that are packed: next is an upgrade of first.
const (
	first = "0.1.0-dev"
	next  = "0.1.1"
)

// A release is a directory with what `make dist` has made.
type release struct {
	dir, bin string
	made     // of package paddock
	postgres made
}

// made is a package in all formats.
type made struct{ name, deb, rpm, tar string }

func (r *release) packages() []made { return []made{r.made, r.postgres} }

// released are the packages that were made, once for all tests of this file.
var released = struct {
	sync.Mutex
	base string
	made map[string]release
}{made: make(map[string]release)}

func TestMain(m *testing.M) {
	code := m.Run()
	if released.base != "" {
		_ = os.RemoveAll(released.base)
	}
	os.Exit(code)
}

// packed returns the packages of a version, or skips the test.
func packed(t *testing.T, version string) release {
	t.Helper()
	if os.Getenv("PADDOCK_PACKAGES") != "1" {
		t.Skip("makes packages and installs them: needs PADDOCK_PACKAGES=1 (make packages-test)")
	}
	if os.Getuid() != 0 {
		t.Skip("installs packages in a directory: needs root")
	}
	released.Lock()
	defer released.Unlock()
	if r, ok := released.made[version]; ok {
		return r
	}
	if released.base == "" {
		base, err := os.MkdirTemp("", "paddock-packages-") //nolint:usetesting // the next test has them, too
		if err != nil {
			t.Fatal(err)
		}
		released.base = base
	}
	r := makeRelease(t, harness.Root(), filepath.Join(released.base, version), version)
	released.made[version] = r
	return r
}

// makeRelease runs make dist in a source tree.
func makeRelease(t *testing.T, root, dir, version string, env ...string) release {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "-s", "--no-print-directory", "-C", root, "dist", "VERSION="+version, "DIST="+dir)
	cmd.Env = append(madeByNobody(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make dist: %v\n%s", err, out)
	}
	only := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) != 1 {
			t.Fatalf("make dist left %q as %s", found, pattern)
		}
		return found[0]
	}
	of := func(name string) made {
		return made{name, only(name + "_[0-9]*_amd64.deb"), only(name + "-[0-9]*.x86_64.rpm"), only(name + "-[0-9]*-linux-amd64.tar.gz")}
	}
	return release{dir, filepath.Join(dir, "bin"), of("paddock"), of("paddock-postgres")}
}

// madeByNobody is the environment without what the make above us was told, which is not
// for that of a test.
func madeByNobody() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "MAKE") || strings.HasPrefix(kv, "MFLAGS") })
}

// tool runs a program and returns what it prints.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// read returns a file below the source tree, or one with an absolute path.
func read(t *testing.T, name string) string {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(harness.Root(), name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sum is the checksum of a text.
func sum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

// copied returns a copy of the tree, without git and with other modes of files.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	tool(t, "sh", "-c", `umask 077; cd "$1" && git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x --no-same-permissions -C "$2"`,
		"sh", harness.Root(), dir)
	return dir
}

// TestReproducible makes the packages of a copy of the tree elsewhere, without git and
// with other modes of files and time zone, and compares them byte for byte. What both compile
// alike they have from the same cache, whose keys have all that a compiler is told.
func TestReproducible(t *testing.T) {
	one := packed(t, first)
	elsewhere := copied(t)
	epoch := strings.TrimSpace(tool(t, "git", "-C", harness.Root(), "log", "-1", "--format=%ct"))
	two := makeRelease(t, elsewhere, filepath.Join(elsewhere, "out"), first, "TZ=Pacific/Auckland", "LANG=C", "SOURCE_DATE_EPOCH="+epoch)

	files := func(r release) map[string]string {
		sums := make(map[string]string)
		entries, err := os.ReadDir(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				sums[e.Name()] = sum(read(t, filepath.Join(r.dir, e.Name())))
			}
		}
		return sums
	}
	if diff := cmp.Diff(files(one), files(two)); diff != "" {
		t.Errorf("two builds differ:\n%s", diff)
	}
	if sums := tool(t, "sh", "-c", `cd "$1" && sha256sum -c SHA256SUMS`, "sh", one.dir); strings.Count(sums, ": OK\n") != 7 {
		t.Errorf("SHA256SUMS:\n%s", sums)
	}
}

// TestRelease makes a release of a copy of the tree, in which CHANGELOG.md has a section of
// its version, and which is not looked at by the tests that this one is a part of.
func TestRelease(t *testing.T) {
	packed(t, first) // skips
	root := copied(t)
	commit := func() {
		t.Helper()
		tool(t, "git", "-C", root, "init", "--quiet")
		tool(t, "git", "-C", root, "add", "--all")
		tool(t, "git", "-C", root, "-c", "user.name=x", "-c", "user.email=x", "commit", "--quiet", "--message=x")
	}
	commit()
	release := func(version string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", "-s", "-C", root, "release", "CHECKS=", "VERSION="+version)
		cmd.Env = madeByNobody()
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := release(next); err == nil || !strings.Contains(out, "CHANGELOG.md has ") {
		t.Errorf("a release of a version without a section: %v\n%s", err, out)
	}
	log := read(t, filepath.Join(root, "CHANGELOG.md"))
	const title = "## [Unreleased]\n"
	log = strings.Replace(log, title, title+"\n## ["+next+"] - 2026-11-27\n\n### Added\n\n- A section.\n", 1)
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := release(next); err == nil || !strings.Contains(out, "not committed") {
		t.Errorf("a release of a tree with changes: %v\n%s", err, out)
	}
	commit()
	if out, err := release(next); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	dist := filepath.Join(root, "dist")
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{
		"NOTES.md", "SHA256SUMS", "paddock-" + next + "-1.x86_64.rpm", "paddock-" + next + "-linux-amd64.tar.gz", "paddock-" + next + ".spdx.json",
		"paddock-postgres-" + next + "-1.x86_64.rpm", "paddock-postgres-" + next + "-linux-amd64.tar.gz", "paddock-postgres_" + next + "_amd64.deb",
		"paddock_" + next + "_amd64.deb",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("a release consists of (-want +got):\n%s", diff)
	}
	if notes := read(t, filepath.Join(dist, "NOTES.md")); !strings.HasPrefix(notes, "### Added\n\n- A section.\n") || strings.Contains(notes, "## [") {
		t.Errorf("the notes:\n%.500s", notes)
	}
	if sums := tool(t, "sh", "-c", `cd "$1" && sha256sum -c SHA256SUMS`, "sh", dist); strings.Count(sums, ": OK\n") != 7 {
		t.Errorf("SHA256SUMS:\n%s", sums)
	}
	unpacked := t.TempDir()
	tool(t, "dpkg-deb", "--extract", filepath.Join(dist, "paddock_"+next+"_amd64.deb"), unpacked)
	if got := tool(t, filepath.Join(unpacked, "usr/sbin/execd"), "-version"); got != "execd version "+next+"\n" {
		t.Errorf("its execd says %q", got)
	}
	if status := tool(t, "git", "-C", root, "status", "--porcelain"); status != "" {
		t.Errorf("a release changes the tree:\n%s", status)
	}
}

// An item is a file of a package, as tar would list it.
type item struct{ Owner, Mode, Target, Text string }

// changelog is made for packages, and in no manifest.
func (m made) changelog() string { return "/usr/share/doc/" + m.name + "/changelog.gz" }

// wanted is what the manifest says of a package, by path, and which files are an
// administrator's. Added has the sources of what one kind of package has.
func wanted(t *testing.T, r release, m made, added map[string]string) (items map[string]item, configs []string) {
	t.Helper()
	entries, err := harness.Manifest(r.bin)
	if err != nil {
		t.Fatal(err)
	}
	items = make(map[string]item)
	for p, source := range added {
		items[p] = item{"root:root", "f0644", "", read(t, source)}
	}
	for _, e := range entries {
		if e.Package != m.name {
			continue
		}
		owner := e.Owner + ":" + e.Group
		switch e.Type {
		case "s":
		case "d":
			items[e.Path] = item{owner, "d" + e.Mode, "", ""}
		case "l":
			items[e.Path] = item{owner, "l" + e.Mode, e.Source, ""}
		default:
			if strings.HasPrefix(e.Path, "/usr/share/man/") {
				e.Path += ".gz"
			}
			if e.Type == "c" {
				configs = append(configs, e.Path)
			}
			items[e.Path] = item{owner, "f" + e.Mode, "", read(t, e.Source)}
		}
	}
	// Directories of our own come with what is in them.
	for _, p := range slices.Collect(maps.Keys(items)) {
		for dir := path.Dir(p); strings.Contains(dir+"/", "/"+m.name+"/"); dir = path.Dir(dir) {
			if _, ok := items[dir]; !ok {
				items[dir] = item{"root:root", "d0755", "", ""}
			}
		}
	}
	slices.Sort(configs)
	return items, configs
}

// compare compares what a package has with what it is to have. What directories of the
// system it names does not matter.
func compare(t *testing.T, m made, what string, want, got map[string]item) {
	t.Helper()
	if i := got[m.changelog()]; i.Mode != "f0644" || i.Owner != "root:root" {
		t.Errorf("%s: the changelog is %v", what, i)
	}
	delete(got, m.changelog())
	for p, i := range got {
		if _, ok := want[p]; !ok && i.Mode == "d0755" && i.Owner == "root:root" && !strings.Contains(p+"/", "/"+m.name+"/") {
			delete(got, p)
		}
	}
	for _, items := range []map[string]item{want, got} {
		for p, i := range items {
			if len(i.Text) > 200 {
				i.Text = sum(i.Text)
				items[p] = i
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not what packaging/manifest says (-manifest +package):\n%s", what, diff)
	}
}

// inTar lists an archive, whose names begin with a directory. What is compressed is
// listed as it was before.
func inTar(t *testing.T, archive io.Reader, below string) map[string]item {
	t.Helper()
	kinds := map[byte]string{tar.TypeReg: "f", tar.TypeDir: "d", tar.TypeSymlink: "l"}
	items := make(map[string]item)
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return items
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(h.Name, ".gz") {
			text = unzipped(t, text)
		}
		name := path.Clean("/" + strings.TrimPrefix(h.Name, below))
		if _, ok := items[name]; ok {
			t.Errorf("%s is there twice", name)
		}
		items[name] = item{h.Uname + ":" + h.Gname, fmt.Sprintf("%s%04o", kinds[h.Typeflag], h.Mode), h.Linkname, string(text)}
	}
}

// unzipped undoes what is to be as by gzip -9n, without name and time.
func unzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if best := byte(2); r.Name != "" || !r.ModTime.IsZero() || data[8] != best {
		t.Errorf("compressed with name %q, time %v, level %d", r.Name, r.ModTime, data[8])
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestContents compares what is in the packages with the manifest.
func TestContents(t *testing.T) {
	r := packed(t, first)
	for _, m := range r.packages() {
		t.Run(m.name, func(t *testing.T) { testContents(t, r, m) })
	}
}

func testContents(t *testing.T, r release, m made) {
	t.Run("deb", func(t *testing.T) {
		want, configs := wanted(t, r, m, map[string]string{"/usr/share/lintian/overrides/" + m.name: "packaging/deb/" + m.name + ".lintian-overrides"})
		compare(t, m, "the deb", want, inTar(t, strings.NewReader(tool(t, "dpkg-deb", "--fsys-tarfile", m.deb)), ""))
		if got := conffiles(t, m.deb); !slices.Equal(configs, got) {
			t.Errorf("conffiles are %v; the manifest has %v", got, configs)
		}
		// What comes before a release is less than it.
		tool(t, "dpkg", "--compare-versions", strings.TrimSpace(tool(t, "dpkg-deb", "--field", m.deb, "Version")), "lt", strings.TrimSuffix(first, "-dev"))
	})
	t.Run("tar", func(t *testing.T) {
		want, _ := wanted(t, r, m, map[string]string{"/LICENSE": "LICENSE"})
		f, err := os.Open(m.tar)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		archive, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, m, "the tar", want, inTar(t, archive, strings.TrimSuffix(filepath.Base(m.tar), "-linux-amd64.tar.gz")))
	})
	t.Run("rpm", func(t *testing.T) {
		want, configs := wanted(t, r, m, map[string]string{"/usr/share/licenses/" + m.name + "/LICENSE": "LICENSE"})
		kinds := map[string]string{"10": "f", "4": "d", "12": "l"}
		got := make(map[string]item)
		var noreplace []string
		for line := range strings.Lines(tool(t, "rpm", "-qp", "--qf", `[%{FILEUSERNAME}:%{FILEGROUPNAME}|%{FILEMODES:octal}|%{FILELINKTOS}|%{FILEFLAGS:fflags}|%{FILEDIGESTS}|%{FILENAMES}\n]`, m.rpm)) {
			f := strings.Split(strings.TrimSpace(line), "|")
			mode := strings.TrimLeft(f[1], "0")
			got[f[5]] = item{f[0], kinds[mode[:len(mode)-4]] + mode[len(mode)-4:], f[2], f[4]}
			if f[3] == "cn" {
				noreplace = append(noreplace, f[5])
			}
		}
		for p, i := range want {
			switch {
			case strings.HasSuffix(p, ".gz"): // the deb has the same, and rpm the sum of what is compressed
				i.Text = got[p].Text
			case i.Mode[0] == 'f':
				i.Text = sum(i.Text)
			case i.Mode[0] == 'l': // has no mode in an rpm
				i.Mode = "l0000"
			}
			want[p] = i
		}
		compare(t, m, "the rpm", want, got)
		slices.Sort(noreplace)
		if diff := cmp.Diff(configs, noreplace); diff != "" {
			t.Errorf("%%config(noreplace) (-manifest +package):\n%s", diff)
		}
	})
}

// conffiles returns those of a deb. One that has none has no list of them.
func conffiles(t *testing.T, deb string) []string {
	t.Helper()
	if !strings.Contains(tool(t, "dpkg-deb", "--info", deb), " conffiles ") {
		return nil
	}
	return strings.Fields(tool(t, "dpkg-deb", "--info", deb, "conffiles"))
}

// TestLintian expects nothing beyond what packaging/deb/paddock.lintian-overrides and that
// of the other package have a reason for.
func TestLintian(t *testing.T) {
	r := packed(t, first)
	if out := tool(t, "lintian", "--allow-root", "--fail-on", "error,warning", r.deb, r.postgres.deb); out != "" {
		t.Errorf("lintian:\n%s", out)
	}
}

// TestRpmlint expects nothing beyond what packaging/rpm/rpmlint.toml has a reason for.
func TestRpmlint(t *testing.T) {
	r := packed(t, first)
	// Rpmlint has cpio unpack the package, whose paths are absolute: into the system.
	dir := t.TempDir()
	if err := harness.WriteExecutable(filepath.Join(dir, "cpio"), "#!/bin/sh\nPATH=${PATH#*:}\nexec cpio --no-absolute-filenames \"$@\"\n"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	out := tool(t, "rpmlint", "-c", filepath.Join(harness.Root(), "packaging", "rpm", "rpmlint.toml"), r.rpm, r.postgres.rpm)
	if !strings.Contains(out, "2 packages and 0 specfiles checked; 0 errors, 0 warnings") {
		t.Errorf("rpmlint:\n%s", out)
	}
}

// TestUnits has systemd look at the units of the package.
func TestUnits(t *testing.T) {
	r := packed(t, first)
	root := t.TempDir()
	tool(t, "dpkg-deb", "--extract", r.deb, root)
	units, err := filepath.Glob(filepath.Join(root, "usr/lib/systemd/system/*.service"))
	if err != nil || len(units) == 0 {
		t.Fatalf("the package has no units: %v", err)
	}
	for _, unit := range units {
		// Its programs are not where it has them.
		if err := os.WriteFile(unit, []byte(strings.ReplaceAll(read(t, unit), "=/usr/", "="+root+"/usr/")), 0o644); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(tool(t, "systemd-analyze", "verify", "--man=no", unit)) {
			if !strings.Contains(line, "DelegateSubgroup") { // of systemd 254
				t.Errorf("systemd-analyze verify %s: %s", filepath.Base(unit), line)
			}
		}
	}
}

// TestRPM installs, upgrades and removes the rpm in a directory with a shell. The
// programs that its scripts call say there that they were called.
func TestRPM(t *testing.T) {
	old, later := packed(t, first), packed(t, next)
	root := t.TempDir()
	for _, dir := range []string{"bin", "usr/bin", "usr/sbin", "run/systemd/system", "tmp", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	tool(t, "cp", "-L", busybox, filepath.Join(root, "bin/busybox"))
	for _, name := range []string{"sh", "cat", "readlink", "wc"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"systemctl", "systemd-sysusers", "systemd-tmpfiles"} {
		if err := harness.WriteExecutable(filepath.Join(root, "usr/bin", name), "#!/bin/sh\necho "+name+" \"$@\" >>/called\n"); err != nil {
			t.Fatal(err)
		}
	}
	tool(t, "mknod", "-m", "666", filepath.Join(root, "dev/null"), "c", "1", "3")
	// There are no packages that it could depend on.
	rpm := func(args ...string) (output, called string) {
		t.Helper()
		output = tool(t, "rpm", append([]string{"--force-debian", "--root", root, "--nodeps"}, args...)...)
		text, err := os.ReadFile(filepath.Join(root, "called"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(root, "called"))
		return output, string(text)
	}
	is := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
		}
	}
	const unit, web = "paddock-execd.service", "paddock-web.service"
	const prepared = "systemd-sysusers paddock.conf\nsystemd-tmpfiles --create paddock.conf\n"

	_, called := rpm("-i", old.postgres.rpm)
	is("installation of paddock-postgres", called, "")
	is("its version", tool(t, "chroot", root, "/usr/bin/paddock-pg", "-version"), tool(t, filepath.Join(old.bin, "paddock-pg"), "-version"))
	is("its conflicts", tool(t, "rpm", "-qp", "--conflicts", old.postgres.rpm), "paddock < 0.1.0~\n")

	_, called = rpm("-i", old.rpm)
	is("installation", called, prepared+"systemctl preset "+unit+"\nsystemctl daemon-reload\nsystemctl is-enabled --quiet "+unit+"\nsystemctl start "+unit+"\n")
	is("version", tool(t, "chroot", root, "/usr/sbin/execd", "-version"), tool(t, filepath.Join(old.bin, "execd"), "-version"))
	is("verification", tool(t, "rpm", "--root", root, "--verify", "--nodeps", "paddock"), "")

	// An administrator's file stays as he has changed it. What is wrong in it is said,
	// and execd is not restarted.
	conf := filepath.Join(root, "etc/paddock/queues/all.q")
	if err := os.WriteFile(conf, []byte("no such line\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	output, called := rpm("-U", later.rpm)
	is("upgrade with a mistake", called, prepared+"systemctl daemon-reload\nsystemctl is-active --quiet "+unit+"\nsystemctl try-restart "+web+"\nsystemctl daemon-reload\n")
	if !strings.Contains(output, "all.q:1:") || !strings.Contains(output, "the old one goes on running") {
		t.Errorf("an upgrade with a mistake in the configuration says\n%s", output)
	}
	is("all.q", read(t, conf), "no such line\n")
	is("version", tool(t, "chroot", root, "/usr/sbin/execd", "-version"), tool(t, filepath.Join(later.bin, "execd"), "-version"))

	if err := os.Remove(conf); err != nil {
		t.Fatal(err)
	}
	output, called = rpm("-U", "--force", later.rpm)
	is("upgrade", called, prepared+"systemctl daemon-reload\nsystemctl is-active --quiet "+unit+"\nsystemctl try-restart "+unit+"\nsystemctl try-restart "+web+"\nsystemctl daemon-reload\n")
	is("words of the upgrade", output, "")

	_, called = rpm("-e", "paddock-postgres")
	is("removal of paddock-postgres", called, "")
	output, called = rpm("-e", "paddock")
	is("removal", called, "systemctl disable --now "+web+" "+unit+"\nsystemctl daemon-reload\n")
	is("words of the removal", output, "")
	for _, path := range []string{
		"etc/paddock", "usr/lib/paddock", "usr/share/doc/paddock", "usr/share/licenses/paddock", "var/lib/paddock", "var/spool/paddock",
		"usr/sbin/execd", "usr/bin/qsub", "usr/bin/qstat", "usr/bin/paddock-pg", "usr/share/doc/paddock-postgres", "usr/share/licenses/paddock-postgres",
	} {
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			t.Errorf("removed, and there is still /%s", path)
		}
	}
}

// TestChroot installs the deb in a fresh Debian without systemd, has jobs of a user run,
// and upgrades, removes and purges the package meanwhile.
func TestChroot(t *testing.T) {
	old, later := packed(t, first), packed(t, next)
	root := filepath.Join(t.TempDir(), "root")
	tool(t, "mmdebstrap", "--quiet", "--variant=essential", "--include=systemd-standalone-sysusers", "bookworm", root)
	tool(t, "cp", old.deb, filepath.Join(root, "tmp/old.deb"))
	tool(t, "cp", later.deb, filepath.Join(root, "tmp/new.deb"))
	tool(t, "cp", old.postgres.deb, filepath.Join(root, "tmp/postgres.deb"))
	tool(t, "sh", "-e", "-c", whole, "sh", old.deb, old.postgres.deb, t.TempDir(), filepath.Join(root, "tmp/whole.deb"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// The processes are in a namespace of their own, which ends with the script.
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc="+filepath.Join(root, "proc"),
		"chroot", root, "/bin/sh", "-e", "-c", chrootScript)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, words := range []string{
		"not purged, since that takes away the directories of jobs that run: 1, see",
		"1 job goes on running without execd; an execd that is installed again finds it\n",
		"not purged, since that takes away the directories of jobs that run: 1\n",
	} {
		if !bytes.Contains(out, []byte(words)) {
			t.Errorf("dpkg does not say %q:\n%s", words, out)
		}
	}
	// Whoever purges keeps the logs, and the account, as files may be its.
	kept := regexp.MustCompile(`^/(etc/(\.pwd\.lock|shadow|group-|gshadow|passwd-)|var/lib/paddock(/accounting)?|var/spool/paddock(/[^/]+(/messages)?)?|var/log/dpkg\.log)$`)
	before := strings.Fields(read(t, filepath.Join(root, "tmp/before")))
	for path := range strings.FieldsSeq(read(t, filepath.Join(root, "tmp/after"))) {
		if !slices.Contains(before, path) && !kept.MatchString(path) {
			t.Errorf("purged, and there is still %s", path)
		}
	}
}

// whole makes a paddock that has paddock-pg itself, as it was once.
const whole = `
dpkg-deb --raw-extract "$1" "$3/it"
dpkg-deb --extract "$2" "$3/postgres"
cp "$3/postgres/usr/bin/paddock-pg" "$3/it/usr/bin"
sed -i 's/^Version: .*/Version: 0.0.9/' "$3/it/DEBIAN/control"
dpkg-deb --root-owner-group -Znone --build "$3/it" "$4"
`

const chrootScript = `
list() { find / -xdev \( -path /proc -o -path /tmp -o -path /dev \) -prune -o -print | sort; }
fails() { ! "$@" || { echo "succeeded: $*"; exit 1; }; }
status() { dpkg-query -W -f '${db:Status-Status}' paddock; }
list >/tmp/before
echo "user:x:1234:1234::/tmp:/bin/sh" >>/etc/passwd
echo "user:x:1234:" >>/etc/group
user() { setpriv --reuid user --regid user --clear-groups env HOME=/tmp "$@"; }
start() {
  execd &
  execd=$!
  until user qstat >/dev/null 2>&1; do kill -0 $execd; sleep 0.4; done
}
cd /tmp

dpkg -i whole.deb
dpkg -S /usr/bin/paddock-pg | grep '^paddock:'
fails dpkg -i postgres.deb
dpkg -i --auto-deconfigure postgres.deb old.deb
dpkg -S /usr/bin/paddock-pg | grep '^paddock-postgres:'
paddock-pg -version
[ "$(stat -c %a /var/spool/paddock)" = 711 ]
[ -L /etc/systemd/system/multi-user.target.wants/paddock-execd.service ]
id paddock
start
user qsub -sync y -b y echo first
user qsub -terse -b y sleep 86400
until [ -s /var/spool/paddock/*/active_jobs/2.1/job_pid ]; do kill -0 $execd; sleep 0.4; done
job=$(cat /var/spool/paddock/*/active_jobs/2.1/job_pid)

dpkg -i new.deb
kill -0 $job

fails dpkg --purge paddock
[ "$(status)" = installed ]
kill -0 $job
user qstat -s r | grep sleep

dpkg --remove paddock
kill -0 $job
wait $execd
fails dpkg --purge paddock
[ "$(status)" = config-files ]
kill -0 $job

# It is found again, and ended by who insists.
dpkg -i new.deb
ln -s /usr/lib/systemd/system/paddock-web.service /etc/systemd/system/multi-user.target.wants/
start
user qstat -s r | grep sleep
PADDOCK_FORCE=1 dpkg --purge paddock
fails kill -0 $job
wait $execd
dpkg --purge paddock-postgres
list >/tmp/after
`
