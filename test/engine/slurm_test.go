package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/test/harness"
)

// slurm is a Slurm of the test's own on loopback, which runs the jobs of a user.
type slurm struct {
	t    *testing.T
	dir  string
	user *harness.User
}

// slurmConf is its configuration: eight processors, whatever the host has.
const slurmConf = `ClusterName=paddock
SlurmctldHost=@HOST@(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=@DIR@/munge.sock
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=@DIR@/state
SlurmdSpoolDir=@DIR@/spool
SlurmctldPidFile=@DIR@/slurmctld.pid
SlurmdPidFile=@DIR@/slurmd.pid
SlurmctldLogFile=@DIR@/slurmctld.log
SlurmdLogFile=@DIR@/slurmd.log
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MailProg=/bin/true
ReturnToService=2
NodeName=@HOST@ NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 State=UNKNOWN
PartitionName=all Nodes=@HOST@ Default=YES MaxTime=UNLIMITED State=UP
`

func startSlurm(t *testing.T) *slurm {
	t.Helper()
	s := &slurm{t: t, dir: filepath.Join(top, "slurm")}
	var err error
	if s.user, err = harness.AddUser("paddock-engine"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, s.user.Remove()) })
	name, err := os.Hostname()
	must(t, err)
	name, _, _ = strings.Cut(name, ".")
	for _, dir := range []string{"", "state", "spool"} {
		must(t, os.MkdirAll(filepath.Join(s.dir, dir), 0o755))
	}
	conf := strings.NewReplacer("@DIR@", s.dir, "@HOST@", name).Replace(slurmConf)
	must(t, os.WriteFile(filepath.Join(s.dir, "slurm.conf"), []byte(conf), 0o644))
	must(t, os.WriteFile(filepath.Join(s.dir, "munge.key"), []byte(strings.Repeat("paddock ", 16)), 0o400))
	t.Setenv("SLURM_CONF", filepath.Join(s.dir, "slurm.conf"))
	in := func(name string) string { return filepath.Join(s.dir, name) }
	daemons := [][]string{
		{"munged", "--force", "--key-file=" + in("munge.key"), "--socket=" + in("munge.sock"), "--pid-file=" + in("munged.pid"), "--log-file=" + in("munged.log"), "--seed-file=" + in("seed")},
		{"slurmctld"},
		{"slurmd"},
	}
	t.Cleanup(func() {
		for _, d := range slices.Backward(daemons) {
			s.end(d[0])
		}
	})
	for _, d := range daemons {
		if out, err := exec.Command(d[0], d[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", d[0], err, out)
		}
	}
	s.await("Slurm to be ready", func() (bool, error) {
		out, err := exec.Command("sinfo", "--noheader", "--format=%t").CombinedOutput()
		return err == nil && strings.TrimSpace(string(out)) == "idle", nil
	})
	return s
}

// end ends a daemon, and waits until it has.
func (s *slurm) end(daemon string) {
	data, err := os.ReadFile(filepath.Join(s.dir, daemon+".pid"))
	if err != nil {
		return // it was not started
	}
	var pid int
	if _, err := fmt.Sscan(string(data), &pid); err != nil {
		s.t.Error(err)
		return
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	s.await(daemon+" to end", func() (bool, error) { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), nil })
}

func (s *slurm) await(what string, is func() (bool, error)) {
	s.t.Helper()
	if err := harness.WaitFor(2*time.Minute, what, is); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.user.Home, "log"))
		s.t.Fatalf("%v\n%s", err, log)
	}
}

// as runs a command as the user, in his home.
func (s *slurm) as(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = s.user.Home
	cmd.Env = append(os.Environ(), "HOME="+s.user.Home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user.Credential()}
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *slurm) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.user.Home, name)
	must(s.t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "@DIR@", s.user.Home)), 0o755))
	must(s.t, os.Lchown(path, s.user.UID, s.user.GID))
}

func (s *slurm) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(s.user.Home, name))
	return string(data)
}

// give has a unit wait for a pilot.
func (s *slurm) give(name, command string, seconds int) {
	s.t.Helper()
	s.write(".new", fmt.Sprintf("Cmd = \"/bin/sh\"\nIwd = \"@DIR@\"\nArguments = \"-c '%s'\"\nGlobalJobId = \"%s\"\nRequestCpus = 1\nRequestMemory = 1\nRequestDisk = 1\nRequestSeconds = %d\n", command, name, seconds))
	must(s.t, os.Rename(filepath.Join(s.user.Home, ".new"), filepath.Join(s.user.Home, "todo", name)))
}

// pilot submits one of so many processors.
func (s *slurm) pilot(cpus int, options string) (number string) {
	s.t.Helper()
	return s.as("sbatch", "--parsable", "--ntasks=1", fmt.Sprintf("--cpus-per-task=%d", cpus), "--mem=1G", "--time=20", "--output=log", "--open-mode=append",
		"--wrap=exec "+filepath.Join(bin, "execd")+" -pilot -config . "+options)
}

// gone waits until no job is left.
func (s *slurm) gone() {
	s.t.Helper()
	s.await("the pilots to be gone", func() (bool, error) {
		out, err := exec.Command("squeue", "--noheader").CombinedOutput()
		return err == nil && len(strings.TrimSpace(string(out))) == 0, nil
	})
}

// manual types the session of pilot(7), with the examples of this tree, and ends the pilot when the unit of work is done.
func (s *slurm) manual() {
	s.t.Helper()
	page, err := os.ReadFile(filepath.Join(harness.Root(), "man/man7/pilot.7"))
	must(s.t, err)
	examples := filepath.Join(s.dir, "examples")
	must(s.t, os.CopyFS(examples, os.DirFS(filepath.Join(harness.Root(), "packaging/examples"))))
	script, input := "set -e\nPATH="+bin+":$PATH\n", ""
	for _, block := range strings.Split(string(page), "\n.Bd -literal -offset indent\n")[1:] {
		block, _, _ = strings.Cut(block, ".Ed\n")
		if !strings.HasPrefix(block, "$ ") {
			continue // a file
		}
		for line := range strings.Lines(block) {
			typed, ok := strings.CutPrefix(line, "$ ")
			switch {
			case ok && strings.HasPrefix(typed, "cat >"):
				script += input + strings.TrimSuffix(typed, "\n") + " <<'END'\n"
				input = "END\n"
			case ok:
				script += input + typed
				input = ""
			default:
				script += line
			}
		}
	}
	number := strings.TrimPrefix(s.as("bash", "-c", strings.ReplaceAll(script, "/usr/share/doc/paddock/examples", examples)), "Submitted batch job ")
	s.await("the unit of the manual to be done", func() (bool, error) {
		_, err := os.Stat(filepath.Join(s.user.Home, ".config/paddock/pilot/directory/queue/done/nap.result"))
		return err == nil, nil
	})
	s.as("scancel", "--batch", "--signal=USR1", number)
	s.gone()
}

// TestPilots has units of work done by pilots in jobs of a real Slurm: each once, by three of
// them; not one that is longer than the allocation; and by nobody any more when their job is
// cancelled, which who handed them out is told at once. REQ-HOOK-125.
func TestPilots(t *testing.T) {
	if _, err := exec.LookPath("slurmctld"); err != nil {
		t.Skip("it needs a Slurm, which make engine installs")
	}
	s := startSlurm(t)
	s.manual()
	s.as("mkdir", "todo", "given", "refused")
	s.write("fetch", "#!/bin/sh\ncd @DIR@\ncat >/dev/null\nfor f in todo/*; do\n\ttest -e \"$f\" && mv $f given/ 2>/dev/null || continue\n\texec cat given/${f#todo/}\ndone\n")
	s.write("reply", "#!/bin/sh\ncd @DIR@\nid=$(sed -n 's/^GlobalJobId = \"\\(.*\\)\"$/\\1/p')\ntest $1 = accept || mv given/$id refused/\n")
	s.write("report", "#!/bin/sh\ncd @DIR@\necho $1 $(sed -n 's/^GlobalJobId = \"\\(.*\\)\"$/\\1/p') >>told\n")
	s.write("hooks.conf", "STARTD_JOB_HOOK_KEYWORD = K\nK_HOOK_FETCH_WORK = @DIR@/fetch\nK_HOOK_REPLY_FETCH = @DIR@/reply\nK_HOOK_REPORT_WORK = @DIR@/report\nFetchWorkDelay = 1\n")

	n := part(500, 20)
	var want []string
	for i := range n {
		name := fmt.Sprintf("u%03d", i)
		s.give(name, "echo exit "+name+" >>ran", 60)
		want = append(want, "exit "+name)
	}
	s.give("long", "echo exit long >>ran", 3600)
	for range 3 {
		s.pilot(2, "-idle 5s -grace 30s")
	}
	s.gone()
	for _, name := range []string{"ran", "told"} {
		got := strings.Fields(strings.ReplaceAll(s.read(name), "exit ", "exit_"))
		slices.Sort(got)
		if diff := strings.ReplaceAll(strings.Join(want, " "), "exit ", "exit_"); strings.Join(got, " ") != diff {
			t.Errorf("%s has %d lines: %v; want each of %d units once", name, len(got), got, n)
		}
	}
	if _, err := os.Stat(filepath.Join(s.user.Home, "refused", "long")); err != nil {
		t.Errorf("the unit that does not fit: %v", err)
	}
	if log := s.read("log"); strings.Count(log, "scheduler=slurm job=") != 3 || strings.Count(log, " of 20m0s\n")+strings.Count(log, " of 19m") != 3 {
		t.Errorf("the pilots do not know the end of their jobs:\n%s", log)
	}

	for _, name := range []string{"a", "b", "c", "d"} {
		s.give(name, "echo exit "+name+" >>ran; sleep 1000 & exec sleep 1000", 600)
	}
	// Each has two processors, if the host has no more.
	numbers := []string{s.pilot(2, "-idle 1h"), s.pilot(2, "-idle 1h")}
	s.await("four units to run", func() (bool, error) { return strings.Count(s.read("ran"), "\n") == n+4, nil })
	s.as(append([]string{"scancel"}, numbers...)...)
	s.await("who handed them out to be told", func() (bool, error) { return strings.Count(s.read("told"), "evict ") == 4, nil })
	s.gone()
	s.await("no process of them to be left", func() (bool, error) {
		return exec.Command("pgrep", "-u", s.user.Name).Run() != nil, nil
	})
	for _, number := range numbers {
		if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "paddock."+number)); len(left) > 0 {
			t.Errorf("a pilot has left %v", left)
		}
	}
}
