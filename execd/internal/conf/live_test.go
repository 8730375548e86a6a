package conf

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// patience bounds the wait for something that happens in a moment.
const patience = time.Minute

func open(t *testing.T, dir string) *Live {
	t.Helper()
	l, err := Open(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestReload(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "sge_conf", "min_uid 200\n")
	write(t, dir, "queues/all.q", "slots 2,[@big=4]\nhostlist gehost\n")
	write(t, dir, "queues/old.q", "slots 1\n")
	write(t, dir, "hostgroups/@big", "hostlist NONE\n")
	write(t, dir, "complexes", "lic l INT <= YES YES 0 0\n")
	write(t, dir, "managers", "alice\n")
	l := open(t, dir)
	before := l.Current()
	if changed, err := l.Reload(); err != nil || changed != nil {
		t.Errorf("Reload without a change: %q, %v", changed, err)
	}

	write(t, dir, "sge_conf", "min_uid 500\ngid_range 30000-30010\nexecd_spool_dir /local\n")
	write(t, dir, "hostgroups/@big", "hostlist gehost\n") // slots are 4 now
	if err := os.Remove(filepath.Join(dir, "queues/old.q")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "queues/new.q", "")
	write(t, dir, "complexes", "lic l INT <= YES YES 1 0\ngpu gpu RSMAP <= YES YES 0 0\n")
	write(t, dir, "managers", "alice\nbob\n")
	changed, err := l.Reload()
	want := []string{
		"complex gpu: added: gpu gpu RSMAP <= YES YES 0 0",
		"complex lic: lic l INT <= YES YES 0 0 -> lic l INT <= YES YES 1 0",
		"conf: execd_spool_dir default -> /local (takes effect at the next start)",
		"conf: min_uid 200 -> 500",
		"conf: gid_range 20000-24999 -> 30000-30010 (takes effect at the next start)",
		"hostgroup @big: hostlist NONE -> gehost",
		"manager: alice -> alice bob",
		"queue all.q: slots 2 -> 4",
		"queue new.q: added",
		"queue old.q: removed",
	}
	if diff := cmp.Diff(want, changed); err != nil || diff != "" {
		t.Errorf("Reload: %v (-want +got):\n%s", err, diff)
	}
	if before.Queues[0].Slots != 2 || l.Current().Queues[0].Slots != 4 {
		t.Errorf("slots: %d before, %d now; want 2 and 4", before.Queues[0].Slots, l.Current().Queues[0].Slots)
	}

	// Half of a file, and another with a mistake: all or nothing.
	write(t, dir, "queues/all.q", "slots")
	write(t, dir, "queues/new.q", "slots x\n")
	write(t, dir, "sge_conf", "min_uid 700\n")
	now := l.Current()
	changed, err = l.Reload()
	if err == nil || changed != nil || !strings.Contains(err.Error(), "all.q:1: slots has no value\n") || !strings.Contains(err.Error(), `new.q:1: slots: "x"`) {
		t.Errorf("Reload of mistakes: %q, %v", changed, err)
	}
	if l.Current() != now {
		t.Error("the configuration was changed by files with mistakes")
	}
	write(t, dir, "queues/all.q", "slots 4")
	write(t, dir, "queues/new.q", "")
	changed, err = l.Reload()
	if len(changed) != 3 || err != nil {
		t.Errorf("Reload after the mistakes: %q, %v", changed, err)
	}
}

// told is what Watch told.
type told struct {
	changed []string
	err     error
}

// Who is told last is told the newest configuration, also when it was changed while
// somebody was told of the one before.
func TestTell(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "sge_conf", "min_uid 200\n")
	l := open(t, dir)
	told := make(chan *Config, 2)
	begun, goOn := make(chan bool), make(chan bool)
	go l.Tell(func(c *Config) {
		close(begun)
		<-goOn
		told <- c
	})
	<-begun
	write(t, dir, "sge_conf", "min_uid 500\n")
	if _, err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	go l.Tell(func(c *Config) { told <- c })
	time.Sleep(10 * time.Millisecond) // the second is told first, if it may
	close(goOn)
	<-told
	if last := <-told; last != l.Current() {
		t.Errorf("min_uid is %d for who is told last; want 500", last.Global.MinUID)
	}
}

// watch starts Watch, and returns what waits for the next that it tells.
func watch(t *testing.T, l *Live) func() told {
	t.Helper()
	tells, done := make(chan told, 100), make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- l.Watch(ctx, func(changed []string, err error) { tells <- told{changed, err} }, func() {})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: %v", err)
		}
		for len(tells) > 0 {
			t.Errorf("more was told: %+v", <-tells)
		}
	})
	return func() told {
		select {
		case tell := <-tells:
			return tell
		case <-time.After(patience):
			t.Fatal("nothing was told")
		}
		return told{}
	}
}

func TestWatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etc")
	l := open(t, dir) // not there yet
	next := watch(t, l)
	expect := func(want ...string) {
		t.Helper()
		if got := next(); got.err != nil || !cmp.Equal(got.changed, want) {
			t.Errorf("told %q, %v; want %q", got.changed, got.err, want)
		}
	}
	// As editors save: beside it, then renamed.
	save := func(name, text string) {
		t.Helper()
		write(t, dir, name+"~", text)
		if err := os.Rename(filepath.Join(dir, name+"~"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	save("sge_conf", "min_uid 200\n")
	expect("conf: min_uid 100 -> 200")

	// A directory that was not there, and a file in it.
	if err := os.Mkdir(filepath.Join(dir, "pes"), 0o755); err != nil {
		t.Fatal(err)
	}
	save("pes/smp", "slots 4\n")
	expect("pe smp: slots 9999999 -> 4") // instead of the one of a host without configuration

	save("pes/smp", "slots 8\n")
	expect("pe smp: slots 4 -> 8")

	// A mistake is told once, and when it is gone.
	save("pes/smp", "slots many\n")
	if got := next(); got.err == nil || !strings.Contains(got.err.Error(), `smp:1: slots: "many" is not a number`) {
		t.Errorf("told %q, %v; want the mistake", got.changed, got.err)
	}
	if n := l.Current().PEs["smp"].Slots; n != 8 {
		t.Errorf("slots = %d; want 8, as before the mistake", n)
	}
	save("pes/smp", "slots 8\n")
	expect()

	// Written in place: what is told on the way there depends on how slowly.
	for _, text := range []string{"", "slots", "slots 1", "slots 16\n"} {
		write(t, dir, "pes/smp", text)
	}
	for got := next(); len(got.changed) != 1 || !strings.HasSuffix(got.changed[0], "-> 16"); {
		got = next()
	}
	if err := os.RemoveAll(filepath.Join(dir, "pes")); err != nil {
		t.Fatal(err)
	}
	expect("pe smp: slots 16 -> 9999999")
}

// TestTrust: nobody else may write what names programs that execd runs.
func TestTrust(t *testing.T) {
	for _, tt := range []struct {
		path string
		mode os.FileMode
	}{{"etc", 0o757}, {"etc/queues", 0o777}, {"etc/queues/all.q", 0o666}, {"etc/sge_conf", 0o646}} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "etc/queues/all.q", "slots 2\n")
		write(t, dir, "etc/sge_conf", "min_uid 200\n")
		o := Options{Dir: filepath.Join(dir, "etc"), Tmpdir: "/tmp", Host: "gehost"}
		if _, err := Load(o); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, tt.path), tt.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(o); err == nil || !strings.Contains(err.Error(), tt.path+": may be written by others (mode 0") {
			t.Errorf("%s with mode %o: %v; want it refused", tt.path, tt.mode, err)
		}
	}
	t.Run("owner", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give files away")
		}
		dir := t.TempDir()
		write(t, dir, "queues/all.q", "slots 2\n")
		if err := os.Chown(filepath.Join(dir, "queues/all.q"), 12345, 0); err != nil {
			t.Fatal(err)
		}
		_, err := Load(Options{Dir: dir, Tmpdir: "/tmp", Host: "gehost"})
		if err == nil || !strings.Contains(err.Error(), "all.q: belongs to user 12345: it decides") {
			t.Errorf("a file of another user: %v; want it refused", err)
		}
	})
}
