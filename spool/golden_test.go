package spool_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"paddock/spool"
)

// recode are the files of a golden directory and what reads and writes them.
var recode = map[string]func(t *testing.T, b []byte) ([]byte, error){
	spool.FileConfig: func(_ *testing.T, b []byte) ([]byte, error) {
		c, err := spool.ParseConfig(b)
		if err != nil {
			return nil, err
		}
		return c.Append(nil), nil
	},
	spool.FileEnvironment: func(_ *testing.T, b []byte) ([]byte, error) {
		env, err := spool.ParseEnvironment(b)
		return spool.AppendEnvironment(nil, env), err
	},
	spool.FileExitStatus: func(t *testing.T, b []byte) ([]byte, error) {
		n, lines, err := spool.ParseExitStatus(b)
		if lines != 1 {
			t.Errorf("ParseExitStatus(%q) counts %d lines; want 1", b, lines)
		}
		return spool.AppendExitStatus(nil, n), err
	},
	spool.FileUsage: func(t *testing.T, b []byte) ([]byte, error) {
		u, err := spool.ParseUsage(b)
		if err != nil {
			return nil, err
		}
		if u.WaitStatus.Signal() != u.Signal || u.Extra != nil {
			t.Errorf("ParseUsage: wait_status %d has signal %d; want %d", u.WaitStatus, u.WaitStatus.Signal(), u.Signal)
		}
		return u.Append(nil), nil
	},
	spool.FileError:      recodeTrace,
	spool.FileTrace:      recodeTrace,
	spool.FilePID:        recodeNumber,
	spool.FileJobPID:     recodeNumber,
	spool.FileAddGrpID:   recodeNumber,
	spool.FilePEHostfile: recodePEHosts,
}

func recodeTrace(_ *testing.T, b []byte) ([]byte, error) {
	var out []byte
	for line := range bytes.Lines(b) {
		l, err := spool.ParseTraceLine(line)
		if err != nil {
			return nil, err
		}
		out = spool.AppendTrace(out, l.Time, l.EUID, l.PID, l.Text)
	}
	return out, nil
}

func recodeNumber(_ *testing.T, b []byte) ([]byte, error) {
	n, err := spool.ParseNumber(b)
	return spool.AppendNumber(nil, n), err
}

func recodePEHosts(_ *testing.T, b []byte) ([]byte, error) {
	hosts, err := spool.ParsePEHosts(b)
	return spool.AppendPEHosts(nil, hosts), err
}

// goldenDirs returns the directories that Grid Engine left behind.
func goldenDirs(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/golden/*/" + spool.FileConfig)
	if err != nil || len(dirs) < 13 {
		t.Fatalf("got %d golden directories, error %v; want 13", len(dirs), err)
	}
	for i := range dirs {
		dirs[i] = filepath.Dir(dirs[i])
	}
	return dirs
}

func TestGolden(t *testing.T) {
	for _, dir := range goldenDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				switch e.Name() {
				case "accounting.txt", "qacct.txt": // not of the spool
					continue
				case spool.FileAboutToExit: // its existence is all
					continue
				}
				f := recode[e.Name()]
				if f == nil {
					t.Errorf("%s has no codec", e.Name())
					continue
				}
				want, err := spool.OpenDir(dir).Read(e.Name())
				if err != nil {
					t.Fatal(err)
				}
				got, err := f(t, want)
				if err != nil {
					t.Errorf("%s: %v", e.Name(), err)
				} else if !bytes.Equal(got, want) {
					t.Errorf("%s: written back as\n%s\nwant\n%s", e.Name(), got, want)
				}
			}
		})
	}
}

func TestGoldenOutcome(t *testing.T) {
	type result struct {
		failed int
		blame  spool.Blame
		reason string
		exit   int // -1: no usage
	}
	for dir, want := range map[string]result{
		"array-task2":          {0, spool.BlameNone, "", 2},
		"batch-exit3":          {0, spool.BlameNone, "", 3},
		"binary-noshell":       {0, spool.BlameNone, "", 0},
		"checkpoint":           {0, spool.BlameNone, "", 3},
		"cpu-limit":            {100, spool.BlameJob, "job 75.1 died through signal XCPU (24)", 152},
		"deleted-with-notify":  {100, spool.BlameJob, "job 73.1 died through signal USR2 (12)", 140},
		"environment-and-mail": {0, spool.BlameNone, "", 3},
		"exit100":              {30, spool.BlameJob, "exit_status of job start = 100", 100},
		"no-cwd":               {28, spool.BlameJob, "error: can't chdir to /nonexistent: No such file or directory", -1},
		"parallel-smp3":        {0, spool.BlameNone, "", 0},
		"prolog-failed":        {8, spool.BlameQueue, "exit_status of prolog = 1", -1},
		"qrsh-exit7":           {0, spool.BlameNone, "", 7},
		"qrsh-prolog-killed":   {8, spool.BlameQueue, "exit_status of prolog = 143", -1},
	} {
		o, err := spool.OpenDir("testdata/golden/" + dir).Outcome()
		if err != nil {
			t.Errorf("Outcome of %s: %v", dir, err)
			continue
		}
		got := result{o.Failed, o.Blame, o.Reason, -1}
		if o.Usage != nil {
			got.exit = o.Usage.ExitStatus
		}
		if got != want {
			t.Errorf("Outcome of %s = %+v; want %+v", dir, got, want)
		}
	}
}

// What Grid Engine is known to write and no golden directory has.
func TestSpecials(t *testing.T) {
	config := []byte("pe_task_id=1.gehost\nbinding=NULL\npe_task_id=1.gehost\nfs_stdin_path=\nname v\nargs= a\t=b \xff\n")
	c, err := spool.ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Append(nil); !bytes.Equal(got, config) {
		t.Errorf("config written back as %q; want %q", got, config)
	}
	for key, want := range map[string]string{"pe_task_id": "1.gehost", "fs_stdin_path": "", "name": "v", "args": " a\t=b \xff"} {
		if got, ok := c.Lookup(key); got != want || !ok {
			t.Errorf("Lookup(%q) = %q, %t; want %q, true", key, got, ok, want)
		}
	}
	// A change reaches both copies, or the next reader finds two values.
	if err := c.Set("pe_task_id", "2.gehost"); err != nil {
		t.Fatal(err)
	}
	if _, err := spool.ParseConfig(c.Append(nil)); err != nil {
		t.Errorf("ParseConfig after Set: %v", err)
	}

	environment := []byte("QRSH_COMMAND=/bin/sh\xff-c\xffecho task; exit 5\nEMPTY=\nF=() {  echo a\\n}\nB=c:\\\\n\n")
	env, err := spool.ParseEnvironment(environment)
	if err != nil {
		t.Fatal(err)
	}
	if got := spool.AppendEnvironment(nil, env); !bytes.Equal(got, environment) {
		t.Errorf("environment written back as %q; want %q", got, environment)
	}
	if env[2] != "F=() {  echo a\n}" || env[3] != `B=c:\n` {
		t.Errorf("got %q and %q; want a newline, and a backslash before n", env[2], env[3])
	}

	first, lines, err := spool.ParseExitStatus([]byte("10\n13\n"))
	if first != 10 || lines != 2 || err != nil {
		t.Errorf("ParseExitStatus = %d, %d, %v; want 10, 2, nil", first, lines, err)
	}
	hosts := []byte("gehost 2 all.q@gehost 0,0:0,1\nb 1 all.q@b <NULL>\n")
	if got, err := recodePEHosts(t, hosts); !bytes.Equal(got, hosts) || err != nil {
		t.Errorf("pe_hostfile written back as %q, %v; want %q", got, err, hosts)
	}
}

// A job argument with a newline changes nothing but itself.
func TestArgumentCannotAlterConfig(t *testing.T) {
	for _, arg := range []string{
		"x\nepilog=/bin/echo", "x\repilog=/bin/echo", "x\vy", "x\x1b[2J", "x\x7f",
		string(bytes.Repeat([]byte{'x'}, spool.MaxConfigLine)) + "epilog=/bin/echo",
	} {
		c := &spool.Config{}
		if err := c.Set(spool.KeyEpilog, "none"); err != nil {
			t.Fatal(err)
		}
		before := c.Append(nil)
		if err := c.Set(spool.KeyJobArg+"1", arg); err == nil {
			t.Errorf("Set(job_arg1, %.20q) succeeded", arg)
		}
		if got := c.Append(nil); !bytes.Equal(got, before) {
			t.Errorf("Set(job_arg1, %.20q) changed config to %q", arg, got)
		}

		args := []string{"plain", arg, ""}
		file, err := c.SetArguments(args)
		if err != nil {
			t.Fatalf("SetArguments(%.20q): %v", args, err)
		}
		c, err = spool.ParseConfig(c.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := c.Lookup(spool.KeyEpilog); got != "none" {
			t.Errorf("after SetArguments(%.20q) epilog = %q", args, got)
		}
		d := spool.OpenDir(t.TempDir())
		if err := d.Write(spool.FileArgs, file); err != nil {
			t.Fatal(err)
		}
		got, err := d.Arguments(c)
		if err != nil || len(got) != 3 || got[0] != args[0] || got[1] != args[1] || got[2] != args[2] {
			t.Errorf("Arguments() = %.20q, %v; want %.20q", got, err, args)
		}
	}
	for _, key := range []string{"", "a b", "a=b", "a\nepilog", "\xff"} {
		if err := new(spool.Config).Set(key, "v"); err == nil {
			t.Errorf("Set(%q) succeeded", key)
		}
	}
	if _, err := new(spool.Config).SetArguments([]string{"a\x00b"}); err == nil {
		t.Error("SetArguments took a NUL byte")
	}
}

// The same from a foreign execd, which writes arguments as they are.
func TestForeignArgumentCannotAlterConfig(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden/batch-exit3/config")
	if err != nil {
		t.Fatal(err)
	}
	inject := func(lines string) error {
		_, err := spool.ParseConfig(bytes.Replace(golden, []byte("job_arg1=one\n"), []byte("job_arg1=x\n"+lines+"\n"), 1))
		return err
	}
	var dup *spool.DuplicateError
	for _, lines := range []string{"epilog=/bin/echo", "epilog /bin/echo", "job_arg2=evil", "admin_user=root", "qsub_gid=0"} {
		if err := inject(lines); !errors.As(err, &dup) {
			t.Errorf("ParseConfig with %q inside: error %v; want a DuplicateError", lines, err)
		}
	}
	for _, lines := range []string{"paddock_uid=0", "separator", ""} {
		if err := inject(lines); !errors.Is(err, spool.ErrSyntax) {
			t.Errorf("ParseConfig with %q inside: error %v; want ErrSyntax", lines, err)
		}
	}
}
