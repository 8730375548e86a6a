package starter

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool"
	"paddock/spool/spooltest"
)

// TestCommand holds the table of shell rules against what Grid Engine's
// shepherd was seen to execute.
func TestCommand(t *testing.T) {
	for _, c := range []struct {
		r    Request
		want string
	}{
		{
			Request{Script: "/s/120", Args: []string{"a", "b c"}, Shell: "/bin/sh", Mode: modePosix, LoginShell: true},
			`execvlp(/bin/sh, "-sh" "/s/120" "a" "b c")`,
		},
		{
			Request{Script: "sleep", Args: []string{"3"}, Shell: "/bin/sh", Mode: modePosix, Binary: true, LoginShell: true},
			`execvlp(/bin/sh, "-sh" "-c" "sleep 3 ")`,
		},
		{
			Request{Script: "sleep", Args: []string{"1"}, Shell: "/bin/bash", Mode: modePosix, Binary: true, LoginShell: true},
			`execvlp(/bin/bash, "-bash" "-c" "sleep 1 ")`,
		},
		{
			Request{Script: "echo", Args: []string{"", "x"}, Shell: "/bin/sh", Binary: true},
			`execvlp(/bin/sh, "sh" "-c" "echo "" x ")`,
		},
		{
			Request{Script: "/bin/true", Shell: "/bin/sh", Mode: modePosix, Binary: true, NoShell: true, LoginShell: true},
			`execvlp(/bin/true, "/bin/true")`,
		},
		{
			Request{Script: "/s/1", Args: []string{"x"}, Shell: "/bin/zsh", Mode: "unix_behavior", LoginShell: true},
			`execvlp(/s/1, "/s/1" "x")`,
		},
		{
			Request{Script: "/s/1", Args: []string{"x"}, Shell: "/bin/sh", Mode: modeStdin, LoginShell: true},
			`execvlp(/bin/sh, "-sh" "-s" "x")`,
		},
		{
			Request{Script: "/s/1", Args: []string{"0"}, Shell: "/bin/sh", Mode: modeStdin, Binary: true, NoShell: true},
			`execvlp(/bin/sh, "sh" "-s" "0")`,
		},
		{
			Request{Script: "/s/1", Shell: "/bin/sh", Mode: modeStdin, Starter: "/x/st.sh", LoginShell: true},
			`execvlp(/x/st.sh, "-st.sh" "-s")`,
		},
		{
			Request{Script: "/s/1", Args: []string{"x"}, Shell: "/bin/sh", Mode: modePosix, Starter: "/opt/site/starter.sh", LoginShell: true},
			`execvlp(/opt/site/starter.sh, "-starter.sh" "/s/1" "x")`,
		},
		{
			Request{Script: "sleep", Args: []string{"0"}, Shell: "/bin/sh", Mode: "unix_behavior", Binary: true, Starter: "/x/st.sh"},
			`execvlp(/x/st.sh, "st.sh" "sleep" "0")`,
		},
		{
			Request{Script: "sleep", Args: []string{"0"}, Shell: "/bin/sh", Mode: modePosix, Binary: true, NoShell: true, Starter: "/x/st.sh"},
			`execvlp(/x/st.sh, "st.sh" "sleep" "0")`,
		},
		{Request{Script: "/s/1", Shell: "/bin/sh", Mode: "raw_exec"}, `execvlp(/s/1, "/s/1")`},
	} {
		if got := c.r.Command().String(); got != c.want {
			t.Errorf("%+v: %s; want %s", c.r, got, c.want)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		file string
		env  []string
		want []string
	}{
		{"a/b", []string{"PATH=/x"}, []string{"a/b"}},
		{"/b", nil, []string{"/b"}},
		{"b", []string{"PATH=/x::/y"}, []string{"/x/b", "./b", "/y/b"}},
		{"b", nil, []string{"/usr/local/bin/b", "/bin/b", "/usr/bin/b"}},
	} {
		if got := candidates(c.file, newEnvironment(c.env)); !slices.Equal(got, c.want) {
			t.Errorf("candidates(%q, %q) = %q; want %q", c.file, c.env, got, c.want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	e := newEnvironment([]string{"A=1", "B=2", "=x", "word"}, []string{"B=3=4", "C="})
	e.set("A", "5")
	if want := []string{"A=5", "B=3=4", "C="}; !slices.Equal(e.list, want) {
		t.Errorf("environment %q; want %q", e.list, want)
	}
	if v, ok := e.lookup("B"); v != "3=4" || !ok {
		t.Errorf("lookup(B) = %q, %v", v, ok)
	}
	if _, ok := e.lookup("D"); ok {
		t.Error("lookup(D) finds something")
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name       string
		set        []string
		limit      string
		soft, hard spool.Limit
	}{
		{"plain", []string{"h_vmem=2G"}, "RLIMIT_VMEM/RLIMIT_AS", 2 << 30, 2 << 30},
		{"times slots", []string{"h_vmem=1G", "host_slots=2"}, "RLIMIT_VMEM/RLIMIT_AS", 2 << 30, 2 << 30},
		{"per job", []string{"h_vmem=1G", "h_vmem_is_consumable_job=1", "host_slots=2"}, "RLIMIT_VMEM/RLIMIT_AS", 1 << 30, 1 << 30},
		{"not times slots", []string{"h_fsize=1M", "host_slots=3"}, "RLIMIT_FSIZE", 1 << 20, 1 << 20},
		{"raised", []string{"h_cpu=1", "s_cpu=1"}, "RLIMIT_CPU", 2, 2},
		{"raised stack", []string{"h_stack=1", "s_stack=0"}, "RLIMIT_STACK", 1 << 20, 1 << 20},
		{"time", []string{"s_cpu=0:1:0"}, "RLIMIT_CPU", 60, spool.Infinity},
		{"soft over hard", []string{"s_vmem=3G", "h_vmem=1G"}, "RLIMIT_VMEM/RLIMIT_AS", 1 << 30, 1 << 30},
		{"nonsense", []string{"s_data=lots"}, "RLIMIT_DATA", 10 << 20, spool.Infinity},
		{"descriptors", []string{"s_descriptors=1000", "h_descriptors=2000", "host_slots=2"}, "RLIMIT_NOFILE", 2000, 4000},
		{"only hard", []string{"h_descriptors=500"}, "RLIMIT_NOFILE", 500, 500},
		{"only soft", []string{"s_maxproc=30"}, "RLIMIT_NPROC", 30, 30},
		{"too many descriptors", []string{"h_descriptors=100000"}, "RLIMIT_NOFILE", 65535, 100000},
		{"overflow", []string{"h_vmem=9000000000G", "host_slots=1000"}, "RLIMIT_VMEM/RLIMIT_AS", spool.Infinity, spool.Infinity},
		{"bad slots", []string{"h_vmem=1G", "host_slots=none"}, "RLIMIT_VMEM/RLIMIT_AS", 1 << 30, 1 << 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := spooltest.Config(t, spooltest.Job{})
			for _, kv := range c.set {
				k, v, _ := strings.Cut(kv, "=")
				if err := config.Set(k, v); err != nil {
					t.Fatal(err)
				}
			}
			limits, err := readLimits(config, nil)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(limits, func(l limit) bool { return l.name == c.limit })
			if i < 0 {
				t.Fatalf("no %s in %+v", c.limit, limits)
			}
			if limits[i].soft != c.soft || limits[i].hard != c.hard {
				t.Errorf("soft %d, hard %d; want %d, %d", limits[i].soft, limits[i].hard, c.soft, c.hard)
			}
		})
	}
	limits, err := readLimits(spooltest.Config(t, spooltest.Job{}), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range limits {
		names = append(names, l.name)
	}
	if want := []string{"RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_DATA", "RLIMIT_STACK", "RLIMIT_CORE", "RLIMIT_VMEM/RLIMIT_AS", "RLIMIT_RSS"}; !slices.Equal(names, want) {
		t.Errorf("without any limit %q are set; want %q", names, want)
	}
}

func TestParseIDs(t *testing.T) {
	ids, err := ParseIDs("1001", "1002", "27,1003")
	if err != nil || ids.UID != 1001 || ids.GID != 1002 || !slices.Equal(ids.Groups, []int{27, 1003, 1002}) {
		t.Errorf("ParseIDs = %+v, %v", ids, err)
	}
	for _, bad := range [][3]string{{"-1", "1", "1"}, {"1", "4294967295", "1"}, {"1", "1", ""}, {"1", "1", "1,,2"}, {"4294967296", "1", "1"}, {"+1", "1", "1"}, {" 1", "1", "1"}} {
		if ids, err := ParseIDs(bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("ParseIDs(%q) = %+v; want an error", bad, ids)
		}
	}
}

func TestRemoveContents(t *testing.T) {
	base := t.TempDir()
	top := filepath.Join(base, "tmp")
	outside := filepath.Join(base, "outside")
	for _, d := range []string{top, outside, filepath.Join(top, "ro", "sub"), filepath.Join(top, "empty")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(outside, "kept"), filepath.Join(top, "ro", "f"), filepath.Join(top, "ro", "sub", "g"), filepath.Join(top, " odd\nname")} {
		if err := os.WriteFile(f, nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{filepath.Join(top, "link"), filepath.Join(top, "ro", "link")} {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	// Deeper than any path may be long, and than there are descriptors.
	fd, err := unix.Open(top, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if err := unix.Mkdirat(fd, "deeper", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "deeper", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	for _, d := range []string{filepath.Join(top, "ro", "sub"), filepath.Join(top, "ro")} {
		if err := os.Chmod(d, 0o000); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveContents(top); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(top); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v; want the empty directory", left, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("followed a link: %v", err)
	}
	if err := RemoveContents(filepath.Join(base, "never")); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	link := filepath.Join(base, "l")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	if err := RemoveContents(link); err == nil {
		t.Error("followed the path itself, which is a link")
	}
}

// TestRemoveKeepsFewNames removes more files, and directories that are not empty, than
// are to be in memory at a time.
func TestRemoveKeepsFewNames(t *testing.T) {
	top := t.TempDir()
	const files = 600
	long := strings.Repeat("x", 200)
	for i := range files {
		name := filepath.Join(top, long+strconv.Itoa(i))
		if i%10 == 0 {
			if err := os.Mkdir(name, 0o755); err != nil {
				t.Fatal(err)
			}
			name = filepath.Join(name, "file")
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := walk{fd: fd}
	w.arrive(top, inode{})
	if !w.read() || len(w.here().names) > files/3 {
		t.Errorf("%d of %d names are read at once", len(w.here().names), files)
	}
	unix.Close(fd)
	if err := RemoveContents(top); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(top); err != nil || len(left) != 0 {
		t.Errorf("left: %d, %v; want the empty directory", len(left), err)
	}
}

// TestRemoveStaysOnFileSystem leaves a mounted file system alone.
func TestRemoveStaysOnFileSystem(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a file system")
	}
	top := t.TempDir()
	mnt := filepath.Join(top, "mnt")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mnt, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	defer func() {
		if err := unix.Unmount(mnt, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if err := os.WriteFile(filepath.Join(mnt, "kept"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err := RemoveContents(top)
	if err == nil || !strings.Contains(err.Error(), strconv.Quote(mnt)) {
		t.Errorf("RemoveContents = %v; want an error that names %s", err, mnt)
	}
	if _, err := os.Stat(filepath.Join(mnt, "kept")); err != nil {
		t.Errorf("left the file system: %v", err)
	}
}

// TestRemoveStaysOnMount leaves alone what another mount of the same file system shows.
func TestRemoveStaysOnMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a directory")
	}
	base := t.TempDir()
	outside, mnt := filepath.Join(base, "outside"), filepath.Join(base, "top", "mnt")
	for _, d := range []string{outside, mnt} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "kept"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(outside, mnt, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	defer func() {
		if err := unix.Unmount(mnt, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if err := RemoveContents(filepath.Join(base, "top")); err == nil {
		t.Error("no error for what is mounted there")
	}
	if _, err := os.Stat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("went into another mount: %v", err)
	}
}

// TestRemoveFromWhoHasItOpen removes a directory of root's while somebody who has one
// in it open goes on making files there.
func TestRemoveFromWhoHasItOpen(t *testing.T) {
	top := filepath.Join(newRig(t).base, "top")
	his := filepath.Join(top, "his")
	if err := os.MkdirAll(his, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(his, 54321, 54322); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "perl", "-e", `$| = 1; while (open(F, ">", $n++) and $n < 1e6) { print "many\n" if $n == 1000 }`)
	cmd.Dir = his
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54322}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveContents(top); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(top); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v; want the empty directory", left, err)
	}
}
