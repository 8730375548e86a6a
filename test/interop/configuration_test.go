package interop

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"paddock/test/harness"
)

var update = flag.Bool("update", false, "write what Grid Engine prints into the tests of package conf")

// printed is what a real Grid Engine printed, by which package conf is tested.
var printed = filepath.Join(harness.Root(), "execd", "internal", "conf", "testdata")

// oddQueue is what is odd in a queue; the rest is that of all.q.
const oddQueue = `qname odd.q
hostlist @odd,@oddnone
seq_no 10,[gehost=12],[@odd=11]
load_thresholds np_load_avg=1.75,mem_free=100M,mem_used=20G
suspend_thresholds NONE,[@odd=load_avg=20]
nsuspend 2
suspend_interval 90
priority -5
min_cpu_interval 0:10:0
processors 0-3,6
qtype interactive,[gehost=BATCH]
ckpt_list odd,odd2
pe_list odd odd2,[@oddsub=odd]
rerun true
slots 2,[@oddsub=4],[gehost=8]
tmpdir /scratch
prolog root@/opt/site/prolog $job_id $job_owner $host $queue and words to make a long line of it
suspend_method SIGTSTP
resume_method /opt/site/resume $job_pid
terminate_method 15
notify 0:1:30
owner_list root sgeadmin
user_lists oddusers oddothers
xuser_lists oddothers
subordinate_list low.q=2
complex_values odd_mem=8G,odd_license_with_a_very_long_name=3,odd_excl=TRUE,odd_str=x,[gehost=odd_mem=16G,odd_time=1:0:0]
initial_state disabled
s_rt 0:59:30
h_rt 3600
h_cpu infinity
h_core 0
h_vmem 4G,[@odd=2.5G]
`

const lowQueue = "qname low.q\nseq_no 5\n"

// oddComplex is added to the complex of the cluster.
const oddComplex = `odd_license_with_a_very_long_name olic INT <= FORCED YES 0 12.5
odd_mem omem MEMORY <= YES JOB 1.5G 0
odd_time otime TIME >= YES NO 0 0
odd_excl oexcl BOOL EXCL YES YES 0 1000
odd_str a_long_shortcut STRING == YES NO NONE 0
odd_cstr ocstr CSTRING != NO NO NONE 0
odd_re ore RESTRING == YES NO NONE 0
odd_dbl odbl DOUBLE <= y y 0.25 -3
odd_host ohost HOST == YES n NONE 0
`

// oddObjects are the others, in the order in which they refer to each other.
var oddObjects = []struct{ add, remove, show, name, file, text string }{
	{"-Ahgrp", "-dhgrp", "-shgrp", "@oddsub", "hostgroups/@oddsub", "group_name @oddsub\nhostlist gehost\n"},
	{"-Ahgrp", "-dhgrp", "-shgrp", "@oddnone", "hostgroups/@oddnone", "group_name @oddnone\nhostlist NONE\n"},
	{"-Ahgrp", "-dhgrp", "-shgrp", "@odd", "hostgroups/@odd", "group_name @odd\nhostlist @oddsub @oddnone\n"},
	{
		"-Au", "-dul", "-su", "oddusers", "userlists/oddusers", "name oddusers\ntype ACL\nfshare 0\noticket 0\n" +
			"entries alice,bob,@staff,carol,dave,ellen,frank,george,harry,isabel,jack,kate,leonard,mary,norman,@operators\n",
	},
	{"-Au", "-dul", "-su", "oddothers", "userlists/oddothers", "name oddothers\ntype ACL\nfshare 0\noticket 0\nentries mallory\n"},
	{"-Au", "-dul", "-su", "odddept", "userlists/odddept", "name odddept\ntype ACL DEPT\nfshare 0\noticket 0\nentries oscar\n"},
	{
		"-Ap", "-dp", "-sp", "odd", "pes/odd", "pe_name odd\nslots 99\nuser_lists oddusers\nxuser_lists oddothers\n" +
			"start_proc_args root@/opt/site/pe start $pe_hostfile $host $job_owner $pe $pe_slots and some more words\n" +
			"stop_proc_args /opt/site/pe stop $job_id\nallocation_rule $round_robin\ncontrol_slaves TRUE\njob_is_first_task FALSE\n" +
			"urgency_slots avg\naccounting_summary TRUE\nqsort_args NONE\n",
	},
	{
		"-Ap", "-dp", "-sp", "odd2", "pes/odd2", "pe_name odd2\nslots 0\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\n" +
			"stop_proc_args none\nallocation_rule 2\ncontrol_slaves false\njob_is_first_task true\nurgency_slots 7\naccounting_summary false\nqsort_args NONE\n",
	},
	{
		"-Ackpt", "-dckpt", "-sckpt", "odd", "ckpts/odd", "ckpt_name odd\ninterface application-level\n" +
			"ckpt_command /opt/site/ckpt $job_pid $ckpt_dir $job_owner $host $queue and many other words\nmigr_command /opt/site/migrate $job_pid\n" +
			"restart_command none\nclean_command NONE\nckpt_dir /scratch\nsignal usr1\nwhen xs\n",
	},
	{
		"-Ackpt", "-dckpt", "-sckpt", "odd2", "ckpts/odd2", "ckpt_name odd2\ninterface transparent\nckpt_command none\nmigr_command none\n" +
			"restart_command none\nclean_command none\nckpt_dir /tmp\nsignal USR2\nwhen m\n",
	},
	{"-Aq", "-dq", "-sq", "low.q", "queues/low.q", lowQueue},
	{"-Aq", "-dq", "-sq", "odd.q", "queues/odd.q", oddQueue},
}

// testConfiguration has Grid Engine print odd objects. They must be as package
// conf expects them, and package conf must read and print them, and the rest of
// the cluster's configuration, the same.
func testConfiguration(t *testing.T) {
	in, out := t.TempDir(), t.TempDir()
	file := func(dir, name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	clean := func(args ...string) {
		t.Cleanup(func() {
			if _, err := ge.Run(append([]string{"qconf"}, args...)...); err != nil {
				t.Error(err)
			}
		})
	}

	// A run that was killed left some of it.
	for _, o := range slices.Backward(oddObjects) {
		_, _ = ge.Run("qconf", o.remove, o.name)
	}
	var others strings.Builder
	for line := range strings.Lines(qconf(t, "-sc")) {
		if !strings.HasPrefix(line, "odd_") {
			others.WriteString(line)
		}
	}
	clean("-Mc", file(in, "standard", others.String()))
	qconf(t, "-Mc", file(in, "complexes", others.String()+oddComplex))
	standard := qconf(t, "-sq", "all.q")
	for _, o := range oddObjects {
		text := o.text
		if o.add == "-Aq" {
			text = merge(standard, text)
		}
		qconf(t, o.add, file(in, o.file, text))
		clean(o.remove, o.name)
	}
	for attribute, values := range map[string][2]string{
		"complex_values": {"odd_mem=64G,odd_license_with_a_very_long_name=7", "odd_mem,odd_license_with_a_very_long_name"},
		"load_scaling":   {"np_load_avg=2,mem_free=0.5", "np_load_avg,mem_free"},
		"user_lists":     {"oddusers", "oddusers"},
	} {
		qconf(t, "-aattr", "exechost", attribute, values[0], "gehost")
		clean("-dattr", "exechost", attribute, values[1], "gehost")
	}

	compared := map[string]string{"8.1.9/complexes": qconf(t, "-sc"), "instance": qconf(t, "-sq", "odd.q@gehost")}
	for _, o := range oddObjects {
		compared["8.1.9/"+o.file] = qconf(t, o.show, o.name)
	}
	for name, text := range compared {
		file(out, name, text)
		if *update {
			file(printed, name, text)
		}
		want, err := os.ReadFile(filepath.Join(printed, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(string(want), text); diff != "" {
			t.Errorf("%s (-testdata +Grid Engine):\n%s", name, diff)
		}
	}
	// What is not ours alone is only read and printed.
	for name, args := range map[string][]string{
		"sge_conf": {"-sconf"}, "sched_conf": {"-ssconf"}, "managers": {"-sm"}, "hosts/gehost": {"-se", "gehost"}, "hosts/global": {"-se", "global"},
	} {
		text := qconf(t, args...)
		file(out, "8.1.9/"+name, text)
		if *update {
			file(printed, "8.1.9/"+name, text)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-run", "^TestShow$", "./execd/internal/conf", "-args", "-real", filepath.Join(out, "8.1.9"))
	cmd.Dir = harness.Root()
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("package conf does not read or print the cluster's configuration: %v\n%s", err, text)
	}
}

// merge replaces the parameters of a queue.
func merge(queue, set string) string {
	values := map[string]string{}
	for line := range strings.Lines(set) {
		name, _, _ := strings.Cut(line, " ")
		values[name] = line
	}
	var b strings.Builder
	for line := range strings.Lines(queue) {
		name, _, _ := strings.Cut(line, " ")
		if values[name] != "" {
			line = values[name]
		}
		b.WriteString(line)
	}
	return b.String()
}
