package spooltest

import (
	"os"
	"os/user"
	"strconv"
	"testing"
	"time"

	"paddock/spool"
)

// A Job is what Config makes a config of. The zero value is job 1.1.0: the
// binary /bin/true without arguments, in a directory of the test, its output
// in /dev/null, as the user who runs the test.
type Job struct {
	Run    spool.RunID
	Array  bool   // Run.Task is a task of an array
	Binary string // run without shell
	Script string // run by /bin/sh; instead of Binary
	Args   []string
	Cwd    string
	Stdout string
	Stderr string
	Prolog string
	Epilog string
}

// Config returns a complete config, with every key of Grid Engine's that its
// shepherd cannot do without, in its order.
func Config(t testing.TB, j Job) *spool.Config {
	t.Helper()
	owner, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if j.Run == (spool.RunID{}) {
		j.Run = spool.RunID{Job: 1, Task: 1}
	}
	or := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	if j.Cwd == "" {
		j.Cwd = t.TempDir()
	}
	file, binary := or(j.Binary, "/bin/true"), "1"
	if j.Script != "" {
		file, binary = j.Script, "0"
	}
	task := "0"
	if j.Array {
		task = strconv.Itoa(j.Run.Task)
	}
	c := &spool.Config{}
	set := func(key, value string) {
		if err := c.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []spool.Entry{
		{Key: spool.KeyFormat, Value: strconv.Itoa(spool.Format)},
		{Key: spool.KeyRun, Value: strconv.Itoa(j.Run.Run)},
		{Key: spool.KeyUID, Value: strconv.Itoa(os.Getuid())},
		{Key: spool.KeyGID, Value: strconv.Itoa(os.Getgid())},
		{Key: spool.KeyHome, Value: owner.HomeDir},
		{Key: spool.KeyAddGrpID, Value: "0"},
		{Key: spool.KeyFSStdinHost, Value: `""`},
		{Key: spool.KeyFSStdinPath},
		{Key: spool.KeyFSStdinTmpPath, Value: j.Cwd + "/"},
		{Key: spool.KeyFSStdinStaging, Value: "0"},
		{Key: spool.KeyFSStdoutHost, Value: `""`},
		{Key: spool.KeyFSStdoutPath},
		{Key: spool.KeyFSStdoutTmpPath, Value: j.Cwd + "/"},
		{Key: spool.KeyFSStdoutStaging, Value: "0"},
		{Key: spool.KeyFSStderrHost, Value: `""`},
		{Key: spool.KeyFSStderrPath},
		{Key: spool.KeyFSStderrTmpPath, Value: j.Cwd + "/"},
		{Key: spool.KeyFSStderrStaging, Value: "0"},
		{Key: spool.KeyStdoutPath, Value: or(j.Stdout, os.DevNull)},
		{Key: spool.KeyStderrPath, Value: or(j.Stderr, os.DevNull)},
		{Key: spool.KeyStdinPath, Value: os.DevNull},
		{Key: spool.KeyMergeStderr, Value: "0"},
		{Key: spool.KeyTmpdir, Value: j.Cwd},
		{Key: spool.KeyHandleAsBinary, Value: binary},
		{Key: spool.KeyNoShell, Value: binary},
		{Key: spool.KeyCkptJob, Value: "0"},
	} {
		set(e.Key, e.Value)
	}
	for _, key := range []string{spool.KeyHVmem, spool.KeySVmem, spool.KeyHCPU, spool.KeySCPU, spool.KeyHStack, spool.KeySStack, spool.KeyHData, spool.KeySData} {
		set(key, "INFINITY")
		set(key+spool.KeyConsumableJob, "0")
	}
	for _, key := range []string{spool.KeyHCore, spool.KeySCore, spool.KeyHRss, spool.KeySRss, spool.KeyHFsize, spool.KeySFsize} {
		set(key, "INFINITY")
	}
	for _, key := range []string{spool.KeySDescriptors, spool.KeyHDescriptors, spool.KeySMaxproc, spool.KeyHMaxproc, spool.KeySMemorylocked, spool.KeyHMemorylocked, spool.KeySLocks, spool.KeyHLocks} {
		set(key, "UNDEFINED")
	}
	for _, e := range []spool.Entry{
		{Key: spool.KeyPriority, Value: "0"},
		{Key: spool.KeyShellPath, Value: "/bin/sh"},
		{Key: spool.KeyScriptFile, Value: file},
		{Key: spool.KeyJobOwner, Value: owner.Username},
		{Key: spool.KeyMinGID, Value: "0"},
		{Key: spool.KeyMinUID, Value: "0"},
		{Key: spool.KeyCwd, Value: j.Cwd},
		{Key: spool.KeyProlog, Value: or(j.Prolog, "none")},
		{Key: spool.KeyEpilog, Value: or(j.Epilog, "none")},
		{Key: spool.KeyStarterMethod, Value: "NONE"},
		{Key: spool.KeySuspendMethod, Value: "NONE"},
		{Key: spool.KeyResumeMethod, Value: "NONE"},
		{Key: spool.KeyTerminateMethod, Value: "NONE"},
		{Key: spool.KeyScriptTimeout, Value: "120"},
		{Key: spool.KeyPE, Value: "none"},
		{Key: spool.KeyPESlots, Value: "1"},
		{Key: spool.KeyHostSlots, Value: "1"},
		{Key: spool.KeyShellStartMode, Value: "posix_compliant"},
		{Key: spool.KeyUseLoginShell, Value: "0"},
		{Key: spool.KeyMailList, Value: owner.Username},
		{Key: spool.KeyMailOptions, Value: "0"},
		{Key: spool.KeyForbidReschedule, Value: "0"},
		{Key: spool.KeyForbidApperror, Value: "0"},
		{Key: spool.KeyQueue, Value: "all.q"},
		{Key: spool.KeyHost, Value: "localhost"},
		{Key: spool.KeyProcessors, Value: "UNDEFINED"},
		{Key: spool.KeyBinding, Value: "NULL"},
		{Key: spool.KeyJobName, Value: "test"},
		{Key: spool.KeyJobID, Value: strconv.Itoa(j.Run.Job)},
		{Key: spool.KeyTaskID, Value: task},
		{Key: spool.KeyAccount, Value: "sge"},
		{Key: spool.KeySubmissionTime, Value: strconv.FormatInt(time.Now().Unix(), 10)},
		{Key: spool.KeyNotify, Value: "0"},
		{Key: spool.KeyAcctProject, Value: "none"},
	} {
		set(e.Key, e.Value)
	}
	file2, err := c.SetArguments(j.Args)
	if err != nil {
		t.Fatal(err)
	}
	if file2 != nil {
		t.Fatalf("arguments %q need the file args; set them with Config.SetArguments", j.Args)
	}
	for _, e := range []spool.Entry{
		{Key: spool.KeyQueueTmpdir, Value: os.TempDir()},
		{Key: spool.KeyUseAFS, Value: "0"},
		{Key: spool.KeyAdminUser, Value: "none"},
		{Key: spool.KeyNotifyKillType, Value: "1"},
		{Key: spool.KeyNotifyKill, Value: "default"},
		{Key: spool.KeyNotifySuspType, Value: "1"},
		{Key: spool.KeyNotifySusp, Value: "default"},
		{Key: spool.KeyQsubGID, Value: "no"},
		{Key: spool.KeyPTY, Value: "0"},
		{Key: spool.KeyWriteOSJobID, Value: "1"},
		{Key: spool.KeyInheritEnv, Value: "0"},
		{Key: spool.KeyEnableWindomacc, Value: "0"},
		{Key: spool.KeyEnableAddGrpKill, Value: "1"},
		{Key: spool.KeyCSP, Value: "0"},
		{Key: spool.KeyIgnoreFQDN, Value: "0"},
		{Key: spool.KeyDefaultDomain, Value: "none"},
	} {
		set(e.Key, e.Value)
	}
	return c
}

// Fill writes config, environment and pe_hostfile of a run into a directory,
// as execd does before it starts the shepherd.
func Fill(d spool.Dir, c *spool.Config, env []string) error {
	host, err := c.String(spool.KeyHost)
	if err != nil {
		return err
	}
	queue, err := c.String(spool.KeyQueue)
	if err != nil {
		return err
	}
	hosts := []spool.PEHost{{Host: host, Slots: 1, Instance: queue + "@" + host}}
	if err := d.WriteNew(spool.FilePEHostfile, spool.AppendPEHosts(nil, hosts)); err != nil {
		return err
	}
	if err := d.WriteNew(spool.FileEnvironment, spool.AppendEnvironment(nil, env)); err != nil {
		return err
	}
	return d.WriteNew(spool.FileConfig, c.Append(nil))
}

// Start writes what a shepherd has written when its job runs.
func Start(d spool.Dir, pid int) error {
	if err := d.Append(spool.FileTrace, spool.AppendTrace(nil, time.Now(), os.Geteuid(), pid, "starting up")); err != nil {
		return err
	}
	if err := d.WriteNew(spool.FilePID, spool.AppendNumber(nil, pid)); err != nil {
		return err
	}
	if err := d.WriteNew(spool.FileError, nil); err != nil {
		return err
	}
	return d.WriteNew(spool.FileExitStatus, nil)
}

// End writes what a shepherd writes last: usage unless it is nil, the reason
// unless it is empty, then its verdict.
func End(d spool.Dir, failed int, reason string, u *spool.Usage) error {
	if u != nil {
		if err := d.Write(spool.FileUsage, u.Append(nil)); err != nil {
			return err
		}
	}
	if reason != "" {
		if err := d.Append(spool.FileError, spool.AppendTrace(nil, time.Now(), os.Geteuid(), os.Getpid(), reason)); err != nil {
			return err
		}
	}
	return d.Append(spool.FileExitStatus, spool.AppendExitStatus(nil, failed))
}

// New builds the directory of a job that is ready to start, below a directory
// of the test.
func New(t testing.TB, j Job, env []string) spool.Dir {
	t.Helper()
	d := spool.OpenDir(t.TempDir())
	if err := Fill(d, Config(t, j), env); err != nil {
		t.Fatal(err)
	}
	return d
}
