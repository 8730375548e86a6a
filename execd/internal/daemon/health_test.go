package daemon

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/usage"
)

// configOf reads a configuration of these files.
func configOf(t *testing.T, files map[string]string) (c *conf.Config, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := conf.Load(conf.Options{Dir: dir, Tmpdir: "/tmp", Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	return c, dir
}

// What is not there is told with the line that names it, where one does.
func TestMissing(t *testing.T) {
	c, dir := configOf(t, map[string]string{
		"sge_conf":     "loglevel log_info\nepilog root@/gone/epilog\n",
		"queues/all.q": "slots 1\nprocessors 0,8000-8191\n\nshell /etc/passwd\n",
		"queues/b.q":   "processors 0\n",
	})
	here := func(path string) (fs.FileInfo, error) {
		if path == "/bin/sh" {
			return nil, fs.ErrNotExist // which b.q does not say
		}
		return os.Stat(path)
	}
	online, _, _ := usage.Processors(usage.OnlineCPUs)
	if online == "" {
		t.Skip("the kernel does not list its processors")
	}
	want := []string{
		dir + "/sge_conf:2: epilog: cannot find /gone/epilog",
		dir + "/queues/all.q:4: queue all.q: shell: /etc/passwd is no program",
		dir + "/queues/all.q:2: queue all.q: processors: this host has no processor 8000, only " + online,
		"queue b.q: shell: cannot find /bin/sh",
	}
	var got []string
	for _, p := range missing(c, "/tmp", here) {
		got = append(got, p.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("missing tells\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A file system that hangs holds who asks for a second, once, and no second look is
// begun at it; another configuration is looked at all the same.
func TestHangingFileSystem(t *testing.T) {
	hanging, _ := configOf(t, map[string]string{"queues/all.q": "prolog /net/prolog\n"})
	other, _ := configOf(t, map[string]string{"queues/all.q": "prolog /gone/prolog\n"})
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		var asked atomic.Int32
		o := &lookout{stat: func(path string) (fs.FileInfo, error) {
			if path == "/net/prolog" {
				asked.Add(1)
				<-answers
			}
			return os.Stat(path)
		}}
		begin := time.Now()
		tells := func(c *conf.Config, text string, after time.Duration) {
			t.Helper()
			got := o.alerts(c, "/tmp")
			if len(got) != 1 || !strings.Contains(got[0].Text, text) || time.Since(begin) != after {
				t.Errorf("after %v: %v; want %q after %v", time.Since(begin), got, text, after)
			}
		}
		tells(hanging, "no answer from /net/prolog: ", lookPatience)
		tells(hanging, "no answer from /net/prolog: ", lookPatience)
		tells(other, "cannot find /gone/prolog", lookPatience)
		if n := asked.Load(); n != 1 {
			t.Errorf("%d looks were begun", n)
		}
		tells(hanging, "no answer from /net/prolog: ", 2*lookPatience)
		close(answers)
		synctest.Wait()
		tells(hanging, "cannot find /net/prolog", 2*lookPatience)
	})
}

// A disk is told of when little of it is free, once for all directories on it, and is
// critical when next to nothing is. What does not answer is told of as a file is.
func TestDiskLow(t *testing.T) {
	const gb = 1 << 30 / 4096 // blocks
	disks := map[string]syscall.Statfs_t{
		"/roomy":   {Bsize: 4096, Blocks: 100 * gb, Bavail: 2 * gb, Files: 1000, Ffree: 500, Fsid: syscall.Fsid{X__val: [2]int32{1}}},
		"/low":     {Bsize: 4096, Blocks: 100 * gb, Bavail: gb / 2, Fsid: syscall.Fsid{X__val: [2]int32{2}}},
		"/low/too": {Bsize: 4096, Blocks: 100 * gb, Bavail: gb / 2, Fsid: syscall.Fsid{X__val: [2]int32{2}}},
		"/small":   {Bsize: 4096, Blocks: gb / 4, Bavail: gb / 50, Fsid: syscall.Fsid{X__val: [2]int32{3}}},
		"/full":    {Bsize: 4096, Blocks: 100 * gb, Bavail: 0, Fsid: syscall.Fsid{X__val: [2]int32{4}}},
		"/inodes":  {Bsize: 4096, Blocks: gb, Bavail: gb, Files: 10000, Ffree: 100, Fsid: syscall.Fsid{X__val: [2]int32{5}}},
		"/none":    {Bsize: 4096, Blocks: gb, Bavail: gb, Files: 10000, Ffree: 10, Fsid: syscall.Fsid{X__val: [2]int32{6}}},
		"/unknown": {Fsid: syscall.Fsid{X__val: [2]int32{7}}},
	}
	c, _ := configOf(t, nil)
	o := &lookout{stat: os.Stat, statfs: func(path string, fs *syscall.Statfs_t) error {
		disk, ok := disks[path]
		if !ok {
			return syscall.ENOENT
		}
		*fs = disk
		return nil
	}}
	got := o.alerts(c, "/tmp", "/roomy", "/low", "/low/too", "/small", "/full", "/inodes", "/none", "/unknown", "/gone")
	want := []api.Alert{
		{Text: "512 MB of 100 GB are free in /low"},
		{Text: "20.5 MB of 256 MB are free in /small"},
		{Critical: true, Text: "0 KB of 100 GB are free in /full"},
		{Text: "100 of 10000 inodes are free in /inodes"},
		{Critical: true, Text: "10 of 10000 inodes are free in /none"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
