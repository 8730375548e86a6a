package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// ckpt returns the lines of a checkpoint job, with some of them replaced.
func ckpt(change ...string) []string {
	lines := []string{
		"ckpt_job=1", "ckpt_restarted=2", "ckpt_pid=1142", "ckpt_osjobid=65401", "ckpt_interface=hibernator",
		"ckpt_command=/ck $job_pid", "ckpt_migr_command=/mi $job_pid", "ckpt_rest_command=/re $job_pid",
		"ckpt_clean_command=/cl", "ckpt_dir=/ckpt", "ckpt_signal=USR1", "ckpt_interval=5",
	}
	for _, c := range change {
		key, _, _ := strings.Cut(c, "=")
		for i := range lines {
			if strings.HasPrefix(lines[i], key+"=") {
				lines[i] = c
			}
		}
	}
	return lines
}

func TestReadCheckpoint(t *testing.T) {
	kernel := Checkpoint{Kernel, "/ck $job_pid", "/mi $job_pid", "/re $job_pid", "/cl", 0, 5 * time.Second, 2, "/ckpt"}
	application := kernel
	application.Class, application.Restart = ApplicationLevel, ""
	without := func(key string) []string {
		return slices.DeleteFunc(ckpt(), func(l string) bool { return strings.HasPrefix(l, key+"=") })
	}
	const incomplete = "checkpointing with incomplete specification or unknown interface requested"
	type row struct {
		name  string
		lines []string
		want  Checkpoint
		err   string
	}
	rows := []row{
		{"no keys", nil, Checkpoint{}, ""},
		{"not asked for", []string{"ckpt_job=0"}, Checkpoint{}, ""},
		{"empty", []string{"ckpt_job="}, Checkpoint{}, ""},
		{"neither", []string{"ckpt_job=x"}, Checkpoint{}, `cannot parse config: ckpt_job is neither 0 nor 1: "x"`},
		{"hibernator", ckpt(), kernel, ""},
		{"cpr", ckpt("ckpt_interface=cpr"), kernel, ""},
		{"cray", ckpt("ckpt_interface=cray-ckpt"), kernel, ""},
		{"any case", ckpt("ckpt_interface=Hibernator"), kernel, ""},
		{"application", ckpt("ckpt_interface=APPLICATION-level"), application, ""},
		{"no commands", ckpt("ckpt_command=none", "ckpt_migr_command=NONE", "ckpt_rest_command=None", "ckpt_clean_command=none", "ckpt_signal=NONE", "ckpt_interval=0", "ckpt_restarted=0"), Checkpoint{Class: Kernel, Dir: "/ckpt"}, ""},
		{"transparent", ckpt("ckpt_interface=transparent"), Checkpoint{Class: Transparent, Signal: unix.SIGUSR1, Interval: 5 * time.Second, Restarted: 2, Dir: "/ckpt"}, ""},
		{"transparent without signal", ckpt("ckpt_interface=transparent", "ckpt_signal=none"), Checkpoint{}, incomplete},
		{"userdefined", ckpt("ckpt_interface=userdefined", "ckpt_signal=12"), Checkpoint{Class: UserDefined, Signal: unix.SIGUSR2, Interval: 5 * time.Second, Restarted: 2, Dir: "/ckpt"}, ""},
		{"userdefined without signal", ckpt("ckpt_interface=userdefined", "ckpt_signal=NONE"), Checkpoint{Class: UserDefined, Interval: 5 * time.Second, Restarted: 2, Dir: "/ckpt"}, ""},
		{"unknown", ckpt("ckpt_interface=criu"), Checkpoint{}, ""},
		{"none", ckpt("ckpt_interface=none"), Checkpoint{}, ""},
		{"bad signal", ckpt("ckpt_interface=userdefined", "ckpt_signal=x"), Checkpoint{}, incomplete},
		{"bad signal that is not used", ckpt("ckpt_signal=x"), Checkpoint{}, incomplete},
		{"bad restarted", ckpt("ckpt_restarted=x"), Checkpoint{}, incomplete},
		{"empty directory", ckpt("ckpt_dir="), Checkpoint{}, incomplete},
		{"bad interval", ckpt("ckpt_interval=x"), Checkpoint{}, `cannot parse config: ckpt_interval is no number: "x"`},
		{"no interval", without("ckpt_interval"), Checkpoint{}, `can't get configuration value for "ckpt_interval"`},
	}
	for _, line := range ckpt()[1:11] {
		key, _, _ := strings.Cut(line, "=")
		rows = append(rows, row{"without " + key, without(key), Checkpoint{}, incomplete})
	}
	for _, test := range rows {
		if got, err := ReadCheckpoint(config(t, test.lines...)); got != test.want || text(err) != test.err {
			t.Errorf("%s: %+v, %v; want %+v, %s", test.name, got, err, test.want, test.err)
		}
	}
}

func TestCanRestart(t *testing.T) {
	for _, test := range []struct {
		k    Checkpoint
		want bool
	}{
		{Checkpoint{}, false},
		{Checkpoint{Class: Kernel, Restart: "/re"}, false},
		{Checkpoint{Class: Kernel, Restart: "/re", Restarted: 1}, false},
		{Checkpoint{Class: Kernel, Restart: "/re", Restarted: 2}, true},
		{Checkpoint{Class: Kernel, Restarted: 2}, false},
		{Checkpoint{Class: ApplicationLevel, Restart: "/re", Restarted: 2}, false},
		{Checkpoint{Class: Transparent, Restarted: 2}, false},
	} {
		if got := test.k.CanRestart(); got != test.want {
			t.Errorf("%+v: %v; want %v", test.k, got, test.want)
		}
	}
}

// TestGolden reads what Grid Engine wrote.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("../../../spool/testdata/*/*/" + spool.FileConfig)
	if err != nil || len(files) == 0 {
		t.Fatalf("no config in testdata: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := spool.ParseConfig(b)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(file))
		for _, key := range []string{spool.KeyProlog, spool.KeyEpilog, spool.KeyPEStart, spool.KeyPEStop} {
			scope := ForProcedure
			if strings.HasPrefix(key, spool.KeyPE) {
				scope = ForPE
			}
			p, ok, err := ReadProcedure(key, scope, c)
			if err != nil {
				t.Errorf("%s: %s: %v", name, key, err)
			}
			if v, set := c.Lookup(key); ok != (set && !IsNone(v)) || ok && len(p.Argv) != len(strings.Fields(v)) {
				t.Errorf("%s: %s: %q is %q, %v", name, key, v, p, ok)
			}
		}
		for _, key := range []string{spool.KeySuspendMethod, spool.KeyResumeMethod, spool.KeyTerminateMethod} {
			if _, err := ReadMethod(key, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		n, err := ReadNotification(c)
		if want := name == "deleted-with-notify"; err != nil || (n.After != 0) != want {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
		k, err := ReadCheckpoint(c)
		if want := name == "checkpoint"; err != nil || (k.Class == UserDefined && k.Signal == unix.SIGUSR1) != want {
			t.Errorf("%s: %+v, %v", name, k, err)
		}
	}
}
