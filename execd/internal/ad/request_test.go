package ad

import (
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

func parse(t testing.TB, text string) *classad.Ad {
	t.Helper()
	ad, err := classad.ParseOld(text)
	if err != nil {
		t.Fatalf("%v in\n%.1000s", err, text)
	}
	return ad
}

// complexes are a configuration with attributes of all kinds.
func complexes() *conf.Config {
	return &conf.Config{Complex: []conf.Attribute{
		{Name: "slots", Shortcut: "s", Kind: conf.KindInt, Consumable: conf.ConsumableYes, Requestable: conf.RequestableYes},
		{Name: "h_vmem", Shortcut: "h_vmem", Kind: conf.KindMemory, Requestable: conf.RequestableYes},
		{Name: "mem_free", Shortcut: "mf", Kind: conf.KindMemory, Requestable: conf.RequestableYes},
		{Name: "scratch_limit", Shortcut: "scr", Kind: conf.KindMemory, Requestable: conf.RequestableYes},
		{Name: "gpus", Shortcut: "g", Kind: conf.KindRSMap, Consumable: conf.ConsumableYes, Requestable: conf.RequestableYes},
		{Name: "licence", Shortcut: "l", Kind: conf.KindInt, Consumable: conf.ConsumableJob, Requestable: conf.RequestableYes},
		{Name: "speed", Shortcut: "sp", Kind: conf.KindDouble, Requestable: conf.RequestableYes},
		{Name: "h_rt", Shortcut: "h_rt", Kind: conf.KindTime, Requestable: conf.RequestableYes},
		{Name: "big", Shortcut: "b", Kind: conf.KindBool, Requestable: conf.RequestableYes},
		{Name: "arch", Shortcut: "a", Kind: conf.KindString, Requestable: conf.RequestableYes},
		{Name: "hidden", Shortcut: "hid", Kind: conf.KindInt, Requestable: conf.RequestableNo},
	}}
}

// plain is the request of an ad that says nothing but Cmd.
func plain(change func(*api.SubmitRequest)) *api.SubmitRequest {
	r := &api.SubmitRequest{
		Name: "prog", Command: "/bin/prog", Binary: true, NoShell: true, Rerun: api.RerunNo,
		Cwd: ".", Stdin: "/dev/null", Stdout: "/dev/null", Stderr: "/dev/null",
	}
	if change != nil {
		change(r)
	}
	return r
}

// REQ-HOOK-23: what an ad of work must say, may say, and says if it does not.
func TestRequest(t *testing.T) {
	options := RequestOptions{
		Now: time.Unix(1000, 0), Config: complexes(),
		Slot: classad.New(classad.Attr{Name: "Memory", Expr: classad.Int(4096).Expr()}),
	}
	parallel := options
	parallel.PE = "smp"
	const cmd = "Cmd = \"/bin/prog\"\n"
	for _, tt := range []struct {
		name, ad string
		options  RequestOptions
		want     func(*api.SubmitRequest)
	}{
		{"nothing but Cmd", cmd, options, nil},
		{"names differ by case", "cMD = \"/bin/prog\"\n", options, nil},
		{
			"relative", "Cmd = \"prog\"\nIwd = \"/data/x\"\nIn = \"a\"\nOut = \"b/c\"\nErr = \"/e\"\n", options,
			func(r *api.SubmitRequest) {
				r.Command, r.Cwd, r.Stdin, r.Stdout, r.Stderr = "/data/x/prog", "/data/x", "/data/x/a", "/data/x/b/c", "/e"
			},
		},
		{
			"relative to the scratch directory, wherever that will be", "Cmd = \"prog\"\nOut = \"~x\"\n", options,
			func(r *api.SubmitRequest) { r.Command, r.Stdout = "./prog", "./~x" },
		},
		{
			"Iwd is a dot", "Cmd = \"prog\"\nIwd = \".\"\nIn = \"h:i\"\nErr = \"../e\"\n", options,
			func(r *api.SubmitRequest) { r.Command, r.Stdin, r.Stderr = "./prog", ":./h:i", "./../e" },
		},
		{
			"Iwd is below", "Cmd = \"bin/prog\"\nIwd = \"./sub//$x/\"\nOut = \"o\"\n", options,
			func(r *api.SubmitRequest) { r.Command, r.Cwd, r.Stdout = "./bin/prog", "./sub/$$x", "./o" },
		},
		{
			"the scratch directory is there", "Cmd = \"prog\"\nOut = \"o\"\nErr = \"/e\"\n",
			RequestOptions{Scratch: "/tmp/1"},
			func(r *api.SubmitRequest) {
				r.Command, r.Cwd, r.Stdout, r.Stderr = "/tmp/1/prog", "/tmp/1", "/tmp/1/o", "/e"
			},
		},
		{
			"and Iwd below", "Cmd = \"prog\"\nOut = \"o\"\nIwd = \"a/b\"\n",
			RequestOptions{Scratch: "/tmp/1"},
			func(r *api.SubmitRequest) {
				r.Command, r.Cwd, r.Stdout = "/tmp/1/a/b/prog", "/tmp/1/a/b", "/tmp/1/a/b/o"
			},
		},
		{
			"nothing in a path is expanded", cmd + "Iwd = \"/a$HOME\"\nIn = \"$JOB_ID\"\nOut = \"/h:o\"\n", options,
			func(r *api.SubmitRequest) { r.Cwd, r.Stdin, r.Stdout = "/a$$HOME", "/a$$HOME/$$JOB_ID", ":/h:o" },
		},
		{
			"one file for both streams", cmd + "Out = \"o\"\nErr = \"o\"\n", options,
			func(r *api.SubmitRequest) { r.Stdout, r.Stderr, r.Merge = "./o", "./o", true },
		},
		{
			"old arguments have no quotes", cmd + "Args = \" a  'b c' \\\"d \"\n", options,
			func(r *api.SubmitRequest) { r.Args = []string{"a", "'b", "c'", "\"d"} },
		},
		{
			"new arguments have", cmd + "Arguments = \"a 'b c' '' 'it''s' x'y z'\"\nArgs = \"old\"\n", options,
			func(r *api.SubmitRequest) { r.Args = []string{"a", "b c", "", "it's", "xy z"} },
		},
		{
			"old environment", cmd + "Env = \"A=1;B=two words;;C='q';A=2\"\n", options,
			func(r *api.SubmitRequest) { r.Env = []string{"A=2", "B=two words", "C='q'"} },
		},
		{
			"new environment", cmd + "Environment = \"A=1 B='two words' 'C=it''s' D=x;y E=\"\nEnv = \"A=old\"\n", options,
			func(r *api.SubmitRequest) { r.Env = []string{"A=1", "B=two words", "C=it's", "D=x;y", "E="} },
		},
		{
			"java", "JobUniverse = 10\nCmd = \"lib/Main.class\"\nArgs = \"Main x\"\nJarFiles = \"a.jar, /opt/b.jar c.jar\"\n", options,
			func(r *api.SubmitRequest) {
				r.Name, r.Command = "Main.class", "/usr/bin/java"
				r.Args = []string{"-classpath", "lib:./a.jar:/opt/b.jar:./c.jar", "Main", "x"}
			},
		},
		{
			"a jar", "JobUniverse = 10\nCmd = \"/l/m.jar\"\nArguments = \"Main\"\n",
			options,
			func(r *api.SubmitRequest) {
				r.Name, r.Command, r.Args = "m.jar", DefaultJava, []string{"-classpath", "/l/m.jar", "Main"}
			},
		},
		{"vanilla", cmd + "JobUniverse = 5\n", options, nil},
		{
			"name and account", cmd + "JobBatchName = \"night\"\nAccountingGroup = \"physics\"\n", options,
			func(r *api.SubmitRequest) { r.Name, r.Account = "night", "physics" },
		},
		{
			"a file that is no name", "Cmd = \"/bin/7z\"\n", options,
			func(r *api.SubmitRequest) { r.Name, r.Command = "work", "/bin/7z" },
		},
		{
			"memory and disk limit the job", cmd + "RequestMemory = 2048\nRequestDisk = 100000\n", options,
			func(r *api.SubmitRequest) {
				r.Hard = []api.Resource{{Name: "h_vmem", Value: "2048M"}, {Name: "scratch_limit", Value: "100000K"}}
			},
		},
		{
			"an expression with the slot", cmd + "RequestMemory = TARGET.Memory / 2\n", options,
			func(r *api.SubmitRequest) { r.Hard = []api.Resource{{Name: "h_vmem", Value: "2048M"}} },
		},
		{"1 is what who does not ask has", cmd + "RequestCpus = 1\nRequestMemory = 1\nRequestDisk = 1\n", options, nil},
		{"nothing that could limit it", cmd + "RequestMemory = 2048\n", RequestOptions{}, nil},
		{"more slots than one need an environment", cmd + "RequestCpus = 3\n", options, nil},
		{
			"slots", cmd + "RequestCpus = 3\nRequestMemory = 10\nRequestGPUs = 6\nRequestLicence = 2\n", parallel,
			func(r *api.SubmitRequest) {
				r.PE, r.Slots = "smp", []api.Slots{{Min: 3, Max: 3, Step: 1}}
				r.Hard = []api.Resource{{Name: "h_vmem", Value: "4M"}, {Name: "gpus", Value: "2"}, {Name: "licence", Value: "2"}}
			},
		},
		{
			"resources", cmd + "Requesth_vmem = \"1G\"\nRequestMemory = 5\nRequestSpeed = 1.5\nRequestH_rt = 60\nRequestBig = true\nRequestArch = \"lx-amd64\"\nRequestHidden = 1\nRequestSlots = 9\n",
			options, func(r *api.SubmitRequest) {
				r.Hard = []api.Resource{
					{Name: "h_vmem", Value: "1G"},
					{Name: "speed", Value: "1.5"},
					{Name: "h_rt", Value: "60"},
					{Name: "big", Value: "TRUE"},
					{Name: "arch", Value: "lx-amd64"},
				}
			},
		},
	} {
		got, err := Request(parse(t, tt.ad), tt.options)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(plain(tt.want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// REQ-HOOK-23: what is missing or wrong is refused by its name.
func TestRequestRefuses(t *testing.T) {
	const cmd = "Cmd = \"/bin/prog\"\n"
	long := strings.Repeat("x", api.MaxPath)
	wide := "W = \"" + strings.Repeat("y", 32<<10) + "\"\n"
	for _, tt := range []struct{ ad, want string }{
		{"Owner = \"u\"\n", "Cmd: it must say what to run"},
		{"Cmd = \"\"\n", "Cmd: it must say what to run"},
		{"Cmd = 5\n", "Cmd: want a string, not the integer 5"},
		{"Cmd = 1/0\n", "Cmd: "},
		{"Cmd = Cmd\n", "Cmd: "},
		{"Cmd = \"/a\x01\"\n", "Cmd: the path contains a control character"},
		{"Cmd = \"/" + long + "\"\n", "Cmd: the path has 4096 bytes, at most 4095 are possible"},
		{cmd + "Iwd = \"a/../..\"\n", `Iwd: "a/../.." leads out of the scratch directory`},
		{cmd + "Iwd = \"../x\"\n", `Iwd: "../x" leads out of the scratch directory`},
		{cmd + "Iwd = \"x\ty\"\n", "Iwd: the path contains a control character"},
		{cmd + "Iwd = 1\n", "Iwd: want a string"},
		{cmd + "Iwd = \"/a\tb\"\n", "Iwd: the path contains a control character"},
		{cmd + "In = {\"a\"}\n", "In: want a string, not the list"},
		{cmd + "Out = \"a,b\"\n", "Out: a path with a comma is not possible there"},
		{cmd + "Err = \"a\x7f\"\n", "Err: the path contains a control character"},
		{cmd + "Err = \"" + strings.Repeat("$", api.MaxPath/2) + "\"\n", "Err: the path has"},
		{cmd + "Args = 3\n", "Args: want a string"},
		{cmd + "Arguments = \"a 'b\"\n", "Arguments: a quote without end"},
		{cmd + wide + "Arguments = strcat(W, W, W, W)\n", "Arguments: an argument has 131072 bytes, at most 131071 are possible"},
		{cmd + "Env = \"A=1;B\"\n", `Env: "B" is not NAME=value`},
		{cmd + "Env = \"=1\"\n", `Env: "=1" is not NAME=value`},
		{cmd + "Environment = \"A='1\"\n", "Environment: a quote without end"},
		{cmd + wide + "Environment = strcat(\"A=\", W, W, W, W)\n", "Environment: a variable has"},
		{cmd + "JobUniverse = 7\n", "JobUniverse: 7 (scheduler) is not supported, only 5 (vanilla) and 10 (java)"},
		{cmd + "JobUniverse = 99\n", "JobUniverse: 99 is not supported"},
		{cmd + "JobUniverse = \"java\"\n", "JobUniverse: want a whole number"},
		{cmd + "JobUniverse = 10\n", "Arguments: the first one must be the class to run"},
		{cmd + "JobUniverse = 10\nArgs = \"M\"\nJarFiles = \"\x01\"\n", "JarFiles: the path contains a control character"},
		{cmd + "JobBatchName = \"a/b\"\n", "JobBatchName: Slash"},
		{cmd + "AccountingGroup = \"a:b\"\n", "AccountingGroup: Colon"},
		{cmd + "RequestCpus = 5\n", "RequestCpus: 5 are more than the 4 of the slot"},
		{cmd + "RequestCpus = -1\n", "RequestCpus: -1 is not a number from 0 to 9999999"},
		{cmd + "RequestMemory = 9223372036854775807\n", "RequestMemory: 9223372036854775807 is not a number"},
		{cmd + "RequestMemory = 1.5\n", "RequestMemory: want a whole number, not the real 1.5"},
		{cmd + "RequestDisk = \"much\"\n", "RequestDisk: want a whole number"},
		{cmd + "RequestGpus = -1\n", "RequestGpus: "},
		{cmd + "RequestLicence = {1}\n", "Requestlicence: want a value of a resource"},
		{cmd + "RequestBig = \"perhaps\"\n", "Requestbig: "},
	} {
		r, err := Request(parse(t, tt.ad), RequestOptions{Cpus: 4, Config: complexes()})
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(tt.want)) || strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%.80q: %+v, error %v; want %q", tt.ad, r, err, tt.want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.80q: an error of %d bytes", tt.ad, len(err.Error()))
		}
	}
	r := newReader(parse(t, cmd), &RequestOptions{})
	r.bound("Args", "an argument", []string{"a", strings.Repeat("y", 98)}, 100)
	if r.err == nil || !strings.HasSuffix(r.err.Error(), "Args: together they have 101 bytes, at most 100 are possible") {
		t.Errorf("arguments that are too long together: %v", r.err)
	}
}

// REQ-HOOK-23: what is no part of a request.
func TestKillSig(t *testing.T) {
	for text, want := range map[string]syscall.Signal{
		"":                              syscall.SIGTERM,
		"KillSig = \"SIGINT\"\n":        syscall.SIGINT,
		"KillSig = 10\n":                syscall.SIGUSR1,
		"KillSig = \"KILL\"\n":          syscall.SIGKILL,
		"KillSig = \"SIGSTOP\"\n":       syscall.SIGTERM,
		"KillSig = 22\n":                syscall.SIGTERM,
		"KillSig = \"NONE\"\n":          syscall.SIGTERM,
		"Iwd = 3\nKillSig = \"USR2\"\n": syscall.SIGUSR2,
		"killSIG = Other\nother = 12\n": syscall.SIGUSR2,
	} {
		if got := KillSig(text); got != want {
			t.Errorf("%q: %v; want %v", text, got, want)
		}
	}
}

func TestExtras(t *testing.T) {
	options := RequestOptions{Scratch: "/tmp/1"}
	for _, tt := range []struct {
		ad   string
		want Extras
	}{
		{"", Extras{KillSig: syscall.SIGTERM}},
		{"KillSig = \"SIGINT\"\n", Extras{KillSig: syscall.SIGINT}},
		{"KillSig = \"usr1\"\n", Extras{KillSig: syscall.SIGUSR1}},
		{"KillSig = \"9\"\n", Extras{KillSig: syscall.SIGKILL}},
		{"KillSig = 3\n", Extras{KillSig: syscall.SIGQUIT}},
		{
			"PreCmd = \"pre\"\nPreArguments = \"a 'b c'\"\nPostCmd = \"/bin/post\"\nPostArgs = \"d 'e\"\nIwd = \"/w\"\n",
			Extras{
				KillSig: syscall.SIGTERM, Pre: &Command{"/w/pre", []string{"a", "b c"}}, Post: &Command{"/bin/post", []string{"d", "'e"}},
			},
		},
		{
			"StarterUserLog = \"log\"\nStarterUserLogUseXML = true\nOutputAd = \"/o/ad\"\nHookKeyword = \"KW\"\nJobLeaseDuration = 90\n",
			Extras{
				KillSig: syscall.SIGTERM, UserLog: "/tmp/1/log", UserLogXML: true, OutputAd: "/o/ad", HookKeyword: "KW", Lease: 90 * time.Second,
			},
		},
	} {
		got, err := ExtrasOf(parse(t, tt.ad), options)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", tt.ad, err, diff)
		}
	}
	for ad, want := range map[string]string{
		"KillSig = \"SIGNOSUCH\"\n":        `KillSig: "SIGNOSUCH" is not the name of a signal`,
		"KillSig = 65\n":                   "KillSig: 65 is not a signal: want 1 to 64",
		"KillSig = 0\n":                    "KillSig: 0 is not a signal",
		"KillSig = true\n":                 "KillSig: want the name or the number of a signal",
		"PreCmd = \"a\x02\"\n":             "PreCmd: the path contains a control character",
		"PostCmd = \"a\"\nPostArguments=1": "PostArguments: want a string",
		"StarterUserLogUseXML = 1\n":       "StarterUserLogUseXML: want true or false",
		"JobLeaseDuration = -1\n":          "JobLeaseDuration: -1 is not a number of seconds",
		"OutputAd = 1\n":                   "OutputAd: want a string",
	} {
		if _, err := ExtrasOf(parse(t, ad), options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v; want %q", ad, err, want)
		}
	}
}

// REQ-HOOK-64, REQ-HOOK-106: an ad of work is completed by the keyword of the slot
// and by ones; a partitionable slot must know how much is to be carved out of it.
func TestComplete(t *testing.T) {
	work := parse(t, "Cmd = \"/bin/a\"\nClaimId = \"secret\"\n")
	got, err := Complete(work, "KW", false)
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, `Cmd = "/bin/a"
RequestCpus = 1
RequestMemory = 1
RequestDisk = 1
MyType = "Job"
TargetType = "Machine"
JobUniverse = 5
ClusterId = 1
ProcId = 0
Requirements = true
Rank = 0.0
HookKeyword = "KW"
`)
	if !got.Equal(want) {
		t.Errorf("completed:\n%s\nwant:\n%s", got.SecretString(), want)
	}
	own := parse(t, "Cmd = \"/bin/a\"\nHookKeyword = \"OWN\"\nRequestCpus = 2\nRequestMemory = 3\nRequestDisk = 4\nRank = 7\nProcId = 8\n")
	for _, partitionable := range []bool{false, true} {
		got, err := Complete(own, "KW", partitionable)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"HookKeyword": `"OWN"`, "RequestCpus": "2", "RequestMemory": "3", "RequestDisk": "4", "Rank": "7", "ProcId": "8"} {
			if e, _ := got.Lookup(name); e.String() != want {
				t.Errorf("%s = %v; want %s, as it came", name, e, want)
			}
		}
	}
	for _, name := range []string{"RequestCpus", "RequestMemory", "RequestDisk"} {
		if _, err := Complete(own.Without(name), "KW", true); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s on a partitionable slot: %v; want an error that names it", name, err)
		}
	}
	var many strings.Builder
	for i := range 9995 {
		many.WriteString("A" + strings.Repeat("0", 1) + string(rune('a'+i%26)) + itoa(i) + " = 1\n")
	}
	if _, err := Complete(parse(t, many.String()), "KW", false); err == nil {
		t.Error("an ad that is too large when it is completed: no error")
	}
}

func itoa(i int) string { return classad.Int(int64(i)).String() }

// FuzzRequest: no ad of work panics, and a request that comes of one is one that
// could have come from a client.
func FuzzRequest(f *testing.F) {
	f.Add("Cmd = \"/bin/a\"\nArguments = \"a 'b\"\nEnv = \"A=1;B\"\nRequestMemory = TARGET.Memory\n")
	f.Add("Cmd = \"a\"\nIwd = \"/$\"\nOut = \"a:b\"\nErr=\"a:b\"\nJobUniverse = 10\nArgs=\"M\"\nJarFiles = \"x,y\"\nKillSig = \"hup\"\n")
	f.Add("Cmd = strcat(Cmd, \"\")\nRequestGPUs = 1e300\nRequestCpus = 2\nJobBatchName = \"n\"\n")
	options := RequestOptions{Config: complexes(), PE: "smp", Cpus: 64, Now: time.Unix(1, 0), Slot: Slot(SlotInfo{Memory: 7})}
	f.Fuzz(func(t *testing.T, text string) {
		work, err := classad.ParseOld(text)
		if err != nil {
			return
		}
		if full, err := Complete(work, "KW", false); err == nil {
			work = full
		}
		_, _ = ExtrasOf(work, options)
		r, err := Request(work, options)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n") || len(err.Error()) > 1000 && utf8.ValidString(text) {
				t.Errorf("error %q", err)
			}
			return
		}
		for _, path := range []string{r.Command, r.Cwd, r.Stdin, r.Stdout, r.Stderr} {
			if len(path) > api.MaxPath+1 || strings.ContainsAny(path, "\x00\n") || !strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(path, ":"), "."), "/") && path != "." {
				t.Errorf("path %q", path)
			}
		}
		for _, v := range append(append([]string{}, r.Args...), r.Env...) {
			if strings.ContainsRune(v, 0) {
				t.Errorf("a NUL in %q", v)
			}
		}
		if api.CheckName(r.Name) != nil || api.CheckAccount(r.Account) != nil {
			t.Errorf("name %q, account %q", r.Name, r.Account)
		}
		for _, h := range r.Hard {
			a := options.Config.Attribute(h.Name)
			if _, err := conf.ParseValue(a.Kind, h.Value); err != nil {
				t.Errorf("%s=%s: %v", h.Name, h.Value, err)
			}
		}
	})
}
