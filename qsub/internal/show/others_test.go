package show

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/execd/api"
	"paddock/qsub/internal/qtest"
)

// The other hosts of a pool follow this one, each with how it is, its queues and what runs there,
// in 80 columns where Grid Engine has as many.
func TestOtherHosts(t *testing.T) {
	qtest.UTC(t)
	e := qtest.NewExecd(t)
	soon := time.Now().Add(24 * time.Hour)
	e.Replies(api.VerbHost, api.HostReply{
		Host: "login1", Arch: "lx-amd64", Queues: []api.QueueStatus{{Name: "all.q", Type: "BIP", Used: 1, Total: 4}},
		Others: []api.PeerStatus{
			{Name: "node1", State: api.PeerUp, Arch: "lx-arm64", Slots: 4, Free: 2, Queues: []api.QueueStatus{{Name: "all.q", Type: "BI", Used: 1, Reserved: 1, Total: 4}}, Until: soon},
			{Name: "node2", State: api.PeerDown, Since: noon, Error: "connection\nrefused", Queues: []api.QueueStatus{{Name: "gpu.q", Type: "B", Total: 2, States: "d"}}},
			{Name: "node3", State: api.PeerUp, Draining: true},
			{Name: "node4", State: api.PeerUnknown},
		},
	})
	e.Replies(api.VerbPeers, api.PeersReply{
		Self:  &api.Member{Name: "login1", Roles: "submit"},
		Peers: []api.PeerStatus{{Name: "node1", State: api.PeerUp}, {Name: "node2", Address: "node2:6445", State: api.PeerDown, Since: noon}},
	})
	e.Replies(api.VerbJobs, api.JobsReply{Jobs: []api.JobStatus{
		{Job: 1, Name: "a", Owner: "u", State: "r", Time: noon, Queue: "all.q@login1", Slots: 1, From: "login2 12.1"},
		{Job: 2, Name: "b", Owner: "u", State: "r", Time: noon, Queue: "all.q@node1", Slots: 1},
	}})
	host := func(name, arch string) string {
		return fmt.Sprintf("%-23s %-10s      -    -    -    -     -       -       -       -       -\n", name, arch)
	}
	conditions := map[string]string{
		"node1": "    up: 2 of 4 slots are free; its certificate is valid until " + soon.Format(time.DateOnly) + "\n",
		"node2": "    down since 11/20/2026 16:07:01: connection\\nrefused\n", "node3": "    it is being drained: takes no jobs\n", "node4": "    it has not answered yet\n",
	}
	const head = "HOSTNAME                ARCH         NCPU NSOC NCOR NTHR  LOAD  MEMTOT  MEMUSE  SWAPTO  SWAPUS\n" +
		"----------------------------------------------------------------------------------------------\n" +
		"global                  -               -    -    -    -     -       -       -       -       -\n"
	const rule = "---------------------------------------------------------------------------------\n"
	job := func(n int, name string) string {
		return fmt.Sprintf("%7d 0.00000 %-10s u            r     11/20/2026 16:07:01 ", n, name)
	}
	for args, want := range map[string]string{
		"qhost -h node1,NODE4": head + host("node1", "lx-arm64") + conditions["node1"] + host("node4", "") + conditions["node4"],
		"qhost -q": head + host("login1", "lx-amd64") + "   all.q                BIP   0/1/4         \n" +
			host("node1", "lx-arm64") + conditions["node1"] + "   all.q                BI    1/1/4         \n" +
			host("node2", "") + conditions["node2"] + "   gpu.q                B     0/0/2         du\n" +
			host("node3", "") + conditions["node3"] + host("node4", "") + conditions["node4"],
		"qstat -f -q *@node1,gpu.q": "queuename                      qtype resv/used/tot. load_avg arch          states\n" +
			rule + "all.q@node1                    BI    1/1/4          -NA-     lx-arm64      \n" + job(2, "b") + "    1        \n" +
			rule + "gpu.q@node2                    B     0/0/2          -NA-                   du\n\t" + strings.TrimSpace(conditions["node2"]) + "\n",
		"qstat -g c": "CLUSTER QUEUE                   CQLOAD   USED    RES  AVAIL  TOTAL aoACDS  cdsuE  \n" + rule[1:] +
			"all.q                             -NA-      2      1      6      8      0      0 \n" +
			"gpu.q                             -NA-      0      0      0      2      0      2 \n",
		"qhost -peers -h node2": "login1: submit, certificate until -\n" +
			"HOST  ADDRESS    STATE SINCE            SLOTS FREE UNTIL ERROR\n--------------------------------------------------------------\n" +
			"node2 node2:6445 down  2026-11-20 16:07     -    - -     -\n",
		"qselect -q *@node*": "all.q@node1\ngpu.q@node2\n",
		"qselect -qs u":      "gpu.q@node2\n",
	} {
		if diff := cmp.Diff(qtest.Result{Out: want}, call(t, "", strings.Fields(args)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	for args, lines := range map[string][]string{
		"qhost -j":                     {"   " + job(1, "a") + "all.q@logi MASTER         from login2 #12.1\n" + host("node1", "lx-arm64"), job(2, "b") + "all.q@node MASTER        \n" + host("node2", "")},
		"qstat":                        {" all.q@login1                       1         from login2 #12.1\n", " all.q@node1                        1        \n"},
		"qhost -xml":                   {"<host name='node2'>", "<hostvalue name='condition'>it has not answered yet</hostvalue>"},
		"qhost -q -xml":                {"<queuevalue qname='gpu.q' name='state_string'>du</queuevalue>"},
		"qstat -f -xml":                {"<name>all.q@node1</name>", "<arch>lx-arm64</arch>"},
		"qhost -h node2":               {host("node2", "") + conditions["node2"]},
		"qhost -peers -h login1 -json": {`"peers": []`},
		"qhost -json":                  {`"others": [`, `"name": "node4"`},
		"qstat -q all.q@n":             {},
	} {
		got := call(t, "", strings.Fields(args)...)
		for _, line := range lines {
			if !strings.Contains(got.Out, line) {
				t.Errorf("%s has not %q:\n%s", args, line, got.Out)
			}
		}
		if len(lines) == 0 && got.Exit == 0 {
			t.Errorf("%s: %+v; no queue has this name", args, got)
		}
	}
}
