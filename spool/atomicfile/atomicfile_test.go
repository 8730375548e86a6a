package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/spool/atomicfile"
	"paddock/spool/spooltest"
)

func want(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != content || info.Mode() != mode {
		t.Errorf("%s has %q, mode %v; want %q, %v", filepath.Base(path), b, info.Mode(), content, mode)
	}
}

func wantNames(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the directory has %q; want %q", got, names)
	}
}

// writers are the ways to replace the content of a file.
var writers = map[string]func(path string, data []byte, perm fs.FileMode) error{
	"Write":        atomicfile.Write,
	"WriteDurable": atomicfile.WriteDurable,
	"WriteOwned": func(path string, data []byte, perm fs.FileMode) error {
		return atomicfile.WriteOwned(path, data, perm, atomicfile.Options{UID: os.Getuid(), GID: os.Getgid(), Durable: true})
	},
}

func TestWrite(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			for _, step := range []struct {
				content string
				mode    fs.FileMode
			}{{"one", 0o666}, {"", 0o444}, {"three", 0o600}} {
				if err := write(path, []byte(step.content), step.mode); err != nil {
					t.Fatal(err)
				}
				want(t, path, step.content, step.mode)
			}
			wantNames(t, dir, "file")

			t.Chdir(dir)
			if err := write("relative", []byte("x"), 0o600); err != nil {
				t.Error(err)
			}
			want(t, "relative", "x", 0o600)
			if err := errors.Join(os.Symlink("file", "link"), write("link", []byte("y"), 0o600)); err != nil {
				t.Error(err)
			}
			want(t, "link", "y", 0o600)
			want(t, "file", "three", 0o600)

			if err := os.Mkdir("directory", 0o700); err != nil {
				t.Fatal(err)
			}
			err := write("directory", nil, 0o600)
			if err == nil || !strings.HasPrefix(err.Error(), `cannot write "directory": `) {
				t.Errorf("write over a directory: %v", err)
			}
			if err := write("missing/file", nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("write into a missing directory: %v", err)
			}
			wantNames(t, dir, "directory", "file", "link", "relative")
		})
	}
}

// After any fault or crash there is the old content or the new, whole.
func TestWriteFaults(t *testing.T) {
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			setup := func(t *testing.T) string {
				path := filepath.Join(t.TempDir(), "file")
				if err := atomicfile.Write(path, []byte("old"), 0o644); err != nil {
					t.Fatal(err)
				}
				return path
			}
			check := func(t *testing.T, path string, done, clean bool) {
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case string(b) == "new":
					want(t, path, "new", 0o600)
				case done:
					t.Errorf("no error, and the file has %q", b)
				default:
					want(t, path, "old", 0o644)
				}
				entries, err := os.ReadDir(filepath.Dir(path))
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if e.Name() != "file" && (clean || !atomicfile.IsTemp(e.Name())) {
						t.Errorf("%s is left behind", e.Name())
					}
				}
			}
			spooltest.EachFault(t, unix.EIO, setup,
				func(_ *testing.T, path string) error { return write(path, []byte("new"), 0o600) },
				func(t *testing.T, path string, err error) {
					if err != nil && !errors.Is(err, unix.EIO) {
						t.Errorf("got error %v; want EIO", err)
					}
					check(t, path, err == nil, true)
				})
			spooltest.EachCrash(t, setup,
				func(t *testing.T, path string) {
					if err := write(path, []byte("new"), 0o600); err != nil {
						t.Error(err)
					}
				},
				func(t *testing.T, path string, crashed bool) { check(t, path, !crashed, !crashed) })
		})
	}
}

func TestWriteOwned(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "file")
	for _, tt := range []struct {
		o        atomicfile.Options
		uid, gid uint32
	}{
		{atomicfile.Options{UID: 54321, GID: 54322}, 54321, 54322},
		{atomicfile.Options{UID: -1, GID: 54322}, 0, 54322},
		{atomicfile.Options{UID: -1, GID: -1}, 0, uint32(os.Getgid())},
	} {
		if err := atomicfile.WriteOwned(path, []byte("x"), 0o4750, tt.o); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Uid != tt.uid || st.Gid != tt.gid || info.Mode().Perm() != 0o750 {
			t.Errorf("%+v: got %d:%d, mode %o", tt.o, st.Uid, st.Gid, info.Mode().Perm())
		}
	}
}

func TestCreateAndAppend(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	f, err := atomicfile.Create(path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("a\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := atomicfile.Create(path, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create of what exists: %v; want fs.ErrExist", err)
	}
	if err := atomicfile.WriteNew(path, nil, 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("WriteNew of what exists: %v; want fs.ErrExist", err)
	}
	if err := atomicfile.Append(path, []byte("b\n"), 0o600); err != nil {
		t.Error(err)
	}
	if _, err := f.WriteString("c\n"); err != nil { // behind what others wrote
		t.Error(err)
	}
	f.Close()
	want(t, path, "a\nb\nc\n", 0o644)
	if err := atomicfile.Append(filepath.Join(dir, "new"), []byte("x"), 0o640); err != nil {
		t.Error(err)
	}
	want(t, filepath.Join(dir, "new"), "x", 0o640)

	for name, make := range map[string]func(path string) error{
		"link":      func(p string) error { return os.Symlink(path, p) },
		"dangling":  func(p string) error { return os.Symlink("nowhere", p) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"pipe":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"socket":    func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) },
	} {
		p := filepath.Join(dir, name)
		if err := make(p); err != nil {
			t.Fatal(err)
		}
		if err := atomicfile.Append(p, []byte("evil"), 0o600); err == nil {
			t.Errorf("Append to a %s succeeded", name)
		}
		if _, err := atomicfile.Create(p, 0o600); err == nil {
			t.Errorf("Create of a %s succeeded", name)
		}
	}
	// A pipe that has a reader could be opened, and is refused all the same.
	r, err := os.OpenFile(filepath.Join(dir, "pipe"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := atomicfile.Append(filepath.Join(dir, "pipe"), nil, 0o600); !errors.Is(err, atomicfile.ErrNotRegular) {
		t.Errorf("Append to a pipe: %v; want ErrNotRegular", err)
	}
	want(t, path, "a\nb\nc\n", 0o644)
}

// A line that did not fit is not left there by halves.
func TestAppendIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := atomicfile.Append(path, []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// A file size limit of this process cuts the write after some bytes, as a
	// full disk would. The signal that comes with it is one that Go drops.
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		t.Fatal(err)
	}
	small := lim
	small.Cur = 8
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	err := atomicfile.Append(path, []byte("a longer line\n"), 0o600)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EFBIG) {
		t.Errorf("Append = %v; want EFBIG", err)
	}
	want(t, path, "one\n", 0o600)
}

func TestDirectories(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := atomicfile.Mkdir(a, 0o777); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(a); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("Mkdir: %v, %v; want mode 777", info.Mode(), err)
	}
	if err := atomicfile.Mkdir(a, 0o700); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Mkdir of what exists: %v; want fs.ErrExist", err)
	}
	if err := errors.Join(atomicfile.SyncDir(a), os.Mkdir(b, 0o700)); err != nil {
		t.Error(err)
	}
	// rename(2) alone would replace the empty directory.
	if err := atomicfile.RenameNew(a, b); !errors.Is(err, fs.ErrExist) {
		t.Errorf("RenameNew to what exists: %v; want fs.ErrExist", err)
	}
	if err := atomicfile.RenameNew(a, filepath.Join(dir, "c")); err != nil {
		t.Error(err)
	}
	if err := atomicfile.Rename(filepath.Join(dir, "missing"), b); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Rename of nothing: %v; want fs.ErrNotExist", err)
	}
	for _, name := range []string{"b", "c", "c"} {
		if err := atomicfile.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	wantNames(t, dir)
	if err := os.Symlink("/etc", a); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Chmod(a, -1, -1, 0o700); err == nil {
		t.Error("Chmod went through a link")
	}
	if err := atomicfile.SyncDir(a); err == nil {
		t.Error("SyncDir went through a link")
	}
	if err := atomicfile.RemoveAll(a); err != nil {
		t.Error(err)
	}
}

// A writer that finds the names of its process number taken goes on.
func TestTempNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	crashed := spooltest.Crashed(func() {
		spooltest.CrashAt(t, 2) // after its temporary file was created
		_ = atomicfile.Write(path, nil, 0o600)
	})
	entries, err := os.ReadDir(dir)
	if err != nil || !crashed || len(entries) != 1 || !atomicfile.IsTemp(entries[0].Name()) {
		t.Fatalf("crashed %t, left %v, %v; want one temporary file", crashed, entries, err)
	}
	for _, name := range []string{"file", ".file", "file.tmp-1-1", ""} {
		if atomicfile.IsTemp(name) {
			t.Errorf("IsTemp(%q)", name)
		}
	}
}
