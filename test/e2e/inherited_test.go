package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/test/harness"
)

// dirty becomes execd with all that a careless start leaves: a session keyring with a
// key, and with a link to root's own, which has another; a descriptor, an inheritable
// capability, a mask, a signal that is ignored, a variable.
const dirty = `
my ($user, $mine, $roots, $text) = ("user", "paddock-session", "paddock-root", "secret");
sub must { my ($what, $got) = @_; die "$what: $!\n" if $got < 0; }
must("join", syscall(KEYCTL, 1, 0));
must("link", syscall(KEYCTL, 8, -4, -3));
must("key", syscall(ADDKEY, $user, $mine, $text, 6, -3));
must("root's key", syscall(ADDKEY, $user, $roots, $text, 6, -4));
my $head = pack("LL", 0x20080522, 0);
my $sets = "\0" x 24;
must("capget", syscall(CAPGET, $head, $sets));
my @sets = unpack("L6", $sets);
$sets[2] = 1 << 13;
$sets = pack("L6", @sets);
must("capset", syscall(CAPSET, $head, $sets));
$^F = 99;
open(KEPT, "<", "/etc/shadow") or die;
$SIG{USR2} = "IGNORE";
umask 077;
$ENV{DIRTY} = "secret";
exec @ARGV;
`

// reporter writes down in what condition it is started, under the name that it is
// given, and reads nothing.
const reporter = `#!/usr/bin/perl
my $name = shift;
my ($user, $mine, $roots) = ("user", "paddock-session", "paddock-root");
my $file = "PUB/report.$name";
open(OUT, ">", "$file.new") or exit 0;
my %is;
open(S, "<", "/proc/self/status");
while (<S>) { $is{$1} = $2 if /^(\w+):\s*(.*?)\s*$/ }
my @uid = split /\s+/, $is{Uid};
my @gid = split /\s+/, $is{Gid};
my %uid = map { $_ => 1 } @uid;
my %gid = map { $_ => 1 } @gid;
print OUT "uid ", join(" ", keys %uid), "\n", "gid ", join(" ", keys %gid), "\n", "groups $is{Groups}\n";
print OUT "caps $is{CapInh} $is{CapPrm} $is{CapEff} $is{CapAmb}\n";
# Perl ignores SIGFPE.
printf OUT "signals %x %x\n", hex($is{SigBlk}), hex($is{SigIgn}) & ~0x80;
my @open;
opendir(D, "/proc/self/fdinfo");
for my $fd (sort { $a <=> $b } grep { /^\d/ } readdir D) {
	open(I, "<", "/proc/self/fdinfo/$fd") or next;
	my ($flags) = map { /^flags:\s+(\d+)/ ? oct $1 : () } <I>;
	push @open, $fd unless $flags & 02000000;
}
print OUT "open @open\n";
printf OUT "umask %03o\n", umask;
open(T, "<", "/proc/self/stat");
my @stat = split / /, (<T> =~ /.*\) (.*)/)[0];
print OUT "leads ", ($stat[2] == $$ && $stat[3] == $$ ? 1 : 0), "\n";
print OUT "dirty ", join(" ", grep { /DIRTY|NOTIFY/ } keys %ENV), "\n";
open(C, "<", "/proc/self/cgroup");
print OUT "group ", (map { /^0::(.*)/ ? $1 : () } <C>), "\n";
print OUT "keys ", join(" ", map { syscall(KEYCTL, 10, -3, $user, $_, 0) > 0 ? 1 : 0 } $mine, $roots), "\n";
print OUT "ring ", syscall(KEYCTL, 0, -3, 0), "\n";
close OUT;
rename "$file.new", $file;
`

// TestInherited starts execd from a session of root's that has much to give away, and
// looks at each kind of process that it starts, itself or by a shepherd: with whose
// rights it is, and that nothing of that is left in it, nor anything of the others.
func TestInherited(t *testing.T) {
	if second == nil {
		t.Skip("needs root: processes of several users")
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("system calls have other numbers")
	}
	base := place(t, "inherited")
	f := makeFieldIn(t, base, true, "slots 4\npe_list tight\nprolog root@PUB/probe prolog\nepilog PUB/probe epilog\nshell_start_mode unix_behavior\n")
	numbers := strings.NewReplacer("KEYCTL", fmt.Sprint(unix.SYS_KEYCTL), "ADDKEY", fmt.Sprint(unix.SYS_ADD_KEY),
		"CAPGET", fmt.Sprint(unix.SYS_CAPGET), "CAPSET", fmt.Sprint(unix.SYS_CAPSET), "PUB", f.pub)
	program := func(path, text string) string {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := harness.WriteExecutable(path, numbers.Replace(text)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	probe := program(filepath.Join(f.pub, "probe"), reporter)
	hooks := filepath.Join(base, "hooks") // which nobody else may write to
	call := func(name, more string) string {
		return program(filepath.Join(hooks, name), "#!/bin/sh\n"+probe+" "+name+"\n"+more)
	}
	for name, text := range map[string]string{
		"sge_conf": "min_uid 0\nmin_gid 0\nmailer " + call("mailer", "") + "\nload_sensor " +
			call("sensor", "while read line && [ \"$line\" != quit ]; do echo begin; echo end; done") + "\n",
		"pes/tight":  "pe_name tight\nslots 9\ncontrol_slaves TRUE\nstart_proc_args " + probe + " pe_start\nstop_proc_args " + probe + " pe_stop\n",
		"hooks.conf": "STARTER_JOB_HOOK_KEYWORD = K\nSTARTD_JOB_HOOK_KEYWORD = K\nK_HOOK_PREPARE_JOB = " + call("prepare", "") + "\nK_HOOK_FETCH_WORK = " + call("fetch", "") + "\n",
	} {
		path := filepath.Join(f.dir, "etc", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	f.plan("")
	via, err := hookAccount[true]()
	if err != nil {
		t.Fatal(err)
	}
	f.via = append(via, "perl", program(filepath.Join(base, "dirty"), dirty))
	f.start()

	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", f.d.PID()))
	if err != nil || len(open) == 0 {
		t.Fatalf("open in execd: %q, %v", open, err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); to == "/etc/shadow" {
			t.Error("execd keeps open what it was started with")
		}
	}

	f.script("job", "PUB/probe job\nqrsh -inherit localhost PUB/probe task\necho >PUB/ready\nread x <PUB/gate\n")
	if err := unix.Mkfifo(filepath.Join(f.pub, "gate"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(f.pub, "gate"), 0o666); err != nil {
		t.Fatal(err)
	}
	job := f.submit("-m", "e", "-pe", "tight", "2", "-v", "PATH="+bin+":/usr/bin:/bin", filepath.Join(f.pub, "job"))
	f.until("the job and its task", func() bool { return f.has("ready") })
	for _, args := range [][]string{{"qrsh", "-into", fmt.Sprint(job), probe, "into"}, {"qrsh", probe, "qrsh"}} {
		if out, err := f.command(args...); err != nil {
			t.Fatalf("%q: %v\n%s\n%s", args, err, out, f.d.Log())
		}
	}
	if err := os.WriteFile(filepath.Join(f.pub, "gate"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.d.WaitJob(job); err != nil {
		t.Fatal(err)
	}

	const none = "0000000000000000 0000000000000000 0000000000000000 0000000000000000"
	v2 := hasCgroup2()
	rings := map[string]string{}
	for _, c := range []struct {
		name  string
		uid   int
		group string // the last words of its control group
	}{
		{"prolog", 0, "/procedures"},
		{"pe_start", second.UID, "/procedures"},
		{"job", second.UID, "/job"},
		{"task", second.UID, "/job"},
		{"into", second.UID, "/job"},
		{"qrsh", second.UID, "/job"},
		{"pe_stop", second.UID, "/procedures"},
		{"epilog", second.UID, "/procedures"},
		{"prepare", second.UID, "/procedures"},
		{"fetch", accountUID(), "/helpers"},
		{"sensor", accountUID(), "/helpers"},
		{"mailer", accountUID(), "/helpers"},
	} {
		f.until("the report of "+c.name, func() bool { return f.has("report." + c.name) })
		is := map[string]string{}
		for line := range strings.Lines(f.read("report." + c.name)) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			is[name] = value
		}
		want := map[string]string{
			"uid": fmt.Sprint(c.uid), "open": "0 1 2", "umask": "022", "signals": "0 0", "dirty": "", "keys": "0 0", "caps": none,
		}
		if c.uid == 0 {
			delete(want, "caps") // but those that it would pass on
			if inherit, _, _ := strings.Cut(is["caps"], " "); inherit != "0000000000000000" {
				t.Errorf("%s: inheritable capabilities are %s", c.name, inherit)
			}
		} else {
			if groups := strings.Fields(is["groups"]); slices.Contains(groups, "0") || is["gid"] == "0" {
				t.Errorf("%s: in root's group: gid %s, groups %q", c.name, is["gid"], groups)
			}
		}
		for name, value := range want {
			if is[name] != value {
				t.Errorf("%s: %s is %q; want %q", c.name, name, is[name], value)
			}
		}
		if v2 && !strings.HasSuffix(is["group"], c.group) {
			t.Errorf("%s: control group %q; want %s", c.name, is["group"], c.group)
		}
		if other := rings[is["ring"]]; other != "" || is["ring"] == "" || is["ring"] == "-1" {
			t.Errorf("%s: session keyring %q, as has %q", c.name, is["ring"], other)
		}
		rings[is["ring"]] = c.name
	}
}
