package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

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
	if err := harness.WaitFor(2*harness.Patience, what, is); err != nil {
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

// TestPilots has pilots run in jobs of a real Slurm. REQ-HOOK-125.
func TestPilots(t *testing.T) {
	if _, err := exec.LookPath("slurmctld"); err != nil {
		t.Skip("it needs a Slurm, which make engine installs")
	}
	s := startSlurm(t)
	s.manual()
	testPilots(t, &batch{
		name: "slurm", user: s.user, as: func(line string) string { return s.as("sh", "-c", line) },
		submit: "sbatch --ntasks=1 --cpus-per-task=2 --mem=1G --open-mode=append --output=log --time=", long: "20", short: "1", terse: "--parsable",
		cancel: "scancel", list: "squeue --noheader --format=%i", waiting: "squeue --noheader --format=%i --states=PD",
		ended: "scontrol show job %s", well: regexp.MustCompile(`JobState=COMPLETED (?s:.*) ExitCode=0:0\b`),
	})
}
