package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"paddock/classad"
)

var zone = time.FixedZone("CET", 3600)

// at is when all events of these tests happen.
var at = time.Date(2026, 3, 4, 5, 6, 7, 89e6, zone)

var resources = []Resource{
	{Name: "Cpus", Usage: 0.024, Request: 1, Allocated: 1},
	{Name: "Disk", Unit: "KB", Usage: 5000, Request: 5000, Allocated: 6940},
	{Name: "GPUs", Usage: -1, Request: -1, Allocated: 0},
}

// events are one of each kind, and what stands of them in a log of text and as
// attributes.
var events = []struct {
	body  Body
	text  string
	attrs string // in old syntax, without those that all have
}{
	{
		Submitted{Host: "10.0.0.1:6444"},
		"000 (003.001.000) 03/04 05:06:07 Job submitted from host: <10.0.0.1:6444>\n",
		"SubmitHost = \"<10.0.0.1:6444>\"\n",
	},
	{
		Executing{Host: "<10.0.0.1:6444?a=b>", Slot: "slot1@h"},
		"001 (003.001.000) 03/04 05:06:07 Job executing on host: <10.0.0.1:6444?a=b>\n\tSlotName: slot1@h\n",
		"ExecuteHost = \"<10.0.0.1:6444?a=b>\"\nSlotName = \"slot1@h\"\n",
	},
	{
		Evicted{
			Run: CPU{3 * time.Second, 1500 * time.Millisecond}, Sent: 12, Received: 34, Reason: "preempted", Code: 1011, Subcode: 2,
			Resources: resources[:1],
		},
		"004 (003.001.000) 03/04 05:06:07 Job was evicted.\n" +
			"\t(0) Job was not checkpointed.\n" +
			"\t\tUsr 0 00:00:03, Sys 0 00:00:02  -  Run Remote Usage\n" +
			"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n" +
			"\t12  -  Run Bytes Sent By Job\n" +
			"\t34  -  Run Bytes Received By Job\n" +
			"\tReason: preempted\n" +
			"\tCode 1011 Subcode 2\n" +
			"\tPartitionable Resources :    Usage  Request Allocated \n" +
			"\t   Cpus                 :     0.02        1         1 \n",
		"Checkpointed = false\nRunRemoteUsage = \"Usr 0 00:00:03, Sys 0 00:00:02\"\nRunLocalUsage = \"Usr 0 00:00:00, Sys 0 00:00:00\"\n" +
			"SentBytes = 12.0\nReceivedBytes = 34.0\nTerminatedAndRequeued = false\nTerminatedNormally = false\n" +
			"Reason = \"preempted\"\nReasonCode = 1011\nReasonSubCode = 2\nCpusUsage = 0.024\nRequestCpus = 1.0\nCpus = 1.0\n",
	},
	{
		Terminated{
			ReturnValue: 7, Run: CPU{25*time.Hour + time.Minute, time.Second}, Total: CPU{50 * time.Hour, time.Minute},
			Sent: 1, Received: 2, TotalSent: 3, TotalReceived: 4, Resources: resources,
		},
		"005 (003.001.000) 03/04 05:06:07 Job terminated.\n" +
			"\t(1) Normal termination (return value 7)\n" +
			"\t\tUsr 1 01:01:00, Sys 0 00:00:01  -  Run Remote Usage\n" +
			"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n" +
			"\t\tUsr 2 02:00:00, Sys 0 00:01:00  -  Total Remote Usage\n" +
			"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage\n" +
			"\t1  -  Run Bytes Sent By Job\n" +
			"\t2  -  Run Bytes Received By Job\n" +
			"\t3  -  Total Bytes Sent By Job\n" +
			"\t4  -  Total Bytes Received By Job\n" +
			"\tPartitionable Resources :    Usage  Request Allocated \n" +
			"\t   Cpus                 :     0.02        1         1 \n" +
			"\t   Disk (KB)            :     5000     5000      6940 \n" +
			"\t   GPUs                 :                           0 \n" +
			"\n\tJob terminated of its own accord at 2026-03-04T04:06:07Z with exit-code 7.\n",
		"TerminatedNormally = true\nReturnValue = 7\n" +
			"RunRemoteUsage = \"Usr 1 01:01:00, Sys 0 00:00:01\"\nRunLocalUsage = \"Usr 0 00:00:00, Sys 0 00:00:00\"\n" +
			"TotalRemoteUsage = \"Usr 2 02:00:00, Sys 0 00:01:00\"\nTotalLocalUsage = \"Usr 0 00:00:00, Sys 0 00:00:00\"\n" +
			"SentBytes = 1.0\nReceivedBytes = 2.0\nTotalSentBytes = 3.0\nTotalReceivedBytes = 4.0\n" +
			"CpusUsage = 0.024\nRequestCpus = 1.0\nCpus = 1.0\nDiskUsage = 5000.0\nRequestDisk = 5000.0\nDisk = 6940.0\nGPUs = 0.0\n",
	},
	{
		Terminated{Signal: 9, By: "alice", Reason: "too long"},
		"005 (003.001.000) 03/04 05:06:07 Job terminated.\n" +
			"\t(0) Abnormal termination (signal 9)\n" +
			"\t(0) No core file\n" +
			"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage\n" +
			"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage\n" +
			"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Remote Usage\n" +
			"\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Total Local Usage\n" +
			"\t0  -  Run Bytes Sent By Job\n" +
			"\t0  -  Run Bytes Received By Job\n" +
			"\t0  -  Total Bytes Sent By Job\n" +
			"\t0  -  Total Bytes Received By Job\n" +
			"\n\tJob terminated by alice at 2026-03-04T04:06:07Z with signal 9.\n\tReason: too long\n",
		"TerminatedNormally = false\nTerminatedBySignal = 9\n" +
			"RunRemoteUsage = \"Usr 0 00:00:00, Sys 0 00:00:00\"\nRunLocalUsage = \"Usr 0 00:00:00, Sys 0 00:00:00\"\n" +
			"TotalRemoteUsage = \"Usr 0 00:00:00, Sys 0 00:00:00\"\nTotalLocalUsage = \"Usr 0 00:00:00, Sys 0 00:00:00\"\n" +
			"SentBytes = 0.0\nReceivedBytes = 0.0\nTotalSentBytes = 0.0\nTotalReceivedBytes = 0.0\nTerminatedBy = \"alice\"\nReason = \"too long\"\n",
	},
	{
		ImageSize{Size: 5000, Memory: 5, RSS: 4100, PSS: -1},
		"006 (003.001.000) 03/04 05:06:07 Image size of job updated: 5000\n\t5  -  MemoryUsage of job (MB)\n\t4100  -  ResidentSetSize of job (KB)\n",
		"Size = 5000\nMemoryUsage = 5\nResidentSetSize = 4100\n",
	},
	{Generic{"anything"}, "008 (003.001.000) 03/04 05:06:07 anything\n", "Info = \"anything\"\n"},
	{Aborted{"via qdel"}, "009 (003.001.000) 03/04 05:06:07 Job was aborted.\n\tvia qdel\n", "Reason = \"via qdel\"\n"},
	{Aborted{}, "009 (003.001.000) 03/04 05:06:07 Job was aborted.\n\tReason unspecified\n", ""},
	{
		Suspended{3},
		"010 (003.001.000) 03/04 05:06:07 Job was suspended.\n\tNumber of processes actually suspended: 3\n", "NumberOfPIDs = 3\n",
	},
	{Resumed{}, "011 (003.001.000) 03/04 05:06:07 Job was unsuspended.\n", ""},
	{
		Held{"hook failed", 19, 4},
		"012 (003.001.000) 03/04 05:06:07 Job was held.\n\thook failed\n\tCode 19 Subcode 4\n",
		"HoldReason = \"hook failed\"\nHoldReasonCode = 19\nHoldReasonSubCode = 4\n",
	},
	{Released{"via qrls"}, "013 (003.001.000) 03/04 05:06:07 Job was released.\n\tvia qrls\n", "Reason = \"via qrls\"\n"},
	{
		Disconnected{"node", "it has not answered"},
		"022 (003.001.000) 03/04 05:06:07 Job disconnected, attempting to reconnect\n    it has not answered\n    Trying to reconnect to node <node>\n",
		"EventDescription = \"Job disconnected, attempting to reconnect\"\nDisconnectReason = \"it has not answered\"\nStartdName = \"node\"\nStartdAddr = \"<node>\"\n",
	},
	{
		Reconnected{"node"},
		"023 (003.001.000) 03/04 05:06:07 Job reconnected to node\n    startd address: <node>\n    starter address: <node>\n",
		"EventDescription = \"Job reconnected\"\nStartdName = \"node\"\nStartdAddr = \"<node>\"\nStarterAddr = \"<node>\"\n",
	},
	{
		ReconnectFailed{"node", "the lease is over"},
		"024 (003.001.000) 03/04 05:06:07 Job reconnection failed\n    the lease is over\n    Can not reconnect to node, rescheduling job\n",
		"EventDescription = \"Job reconnect impossible: rescheduling job\"\nReason = \"the lease is over\"\nStartdName = \"node\"\n",
	},
	{
		RemoteError{Host: "slot1@h", Text: "one\ntwo\n", Code: 1025},
		"021 (003.001.000) 03/04 05:06:07 Error from starter on slot1@h:\n\tone\n\ttwo\n\tCode 1025 Subcode 0\n",
		"Daemon = \"starter\"\nExecuteHost = \"slot1@h\"\nErrorMsg = \"one\\ntwo\"\nCriticalError = true\nHoldReasonCode = 1025\nHoldReasonSubCode = 0\n",
	},
	{
		RemoteError{Host: "h", Text: "slow", Warning: true},
		"021 (003.001.000) 03/04 05:06:07 Warning from starter on h:\n\tslow\n",
		"Daemon = \"starter\"\nExecuteHost = \"h\"\nErrorMsg = \"slow\"\nCriticalError = false\n",
	},
	{
		FileTransfer{Phase: TransferQueued},
		"040 (003.001.000) 03/04 05:06:07 Entered queue to transfer input files\n", "Type = 1\n",
	},
	{
		FileTransfer{Phase: TransferStarted, Waited: 3 * time.Second, Host: "h"},
		"040 (003.001.000) 03/04 05:06:07 Started transferring input files\n\tSeconds spent in queue: 3\n\tTransferring to host: <h>\n",
		"Type = 2\nQueueingDelay = 3\nHost = \"<h>\"\n",
	},
	{
		FileTransfer{Phase: TransferFinished},
		"040 (003.001.000) 03/04 05:06:07 Finished transferring input files\n", "Type = 3\n",
	},
	{
		FileTransfer{Output: true, Phase: TransferQueued},
		"040 (003.001.000) 03/04 05:06:07 Entered queue to transfer output files\n", "Type = 4\n",
	},
	{
		FileTransfer{Output: true, Phase: TransferStarted},
		"040 (003.001.000) 03/04 05:06:07 Started transferring output files\n", "Type = 5\n",
	},
	{
		FileTransfer{Output: true, Phase: TransferFinished},
		"040 (003.001.000) 03/04 05:06:07 Finished transferring output files\n", "Type = 6\n",
	},
}

func event(b Body) Event {
	return Event{ID: "h/3.1.2#1", Cluster: 3, Proc: 1, Time: at, Body: b}
}

func reader(text string) *Reader {
	r := NewReader(strings.NewReader(text))
	r.Now = time.Date(2026, 11, 1, 0, 0, 0, 0, zone)
	return r
}

func TestText(t *testing.T) {
	for _, e := range events {
		want := e.text + "\tEventId: h/3.1.2#1\n...\n"
		got := string(Append(nil, event(e.body), Text, Times{}))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", e.body, diff)
		}
		rec, err := reader(got).Next()
		if err != nil {
			t.Errorf("%T: %v", e.body, err)
			continue
		}
		head, _, _ := strings.Cut(e.text[len("000 (003.001.000) 03/04 05:06:07 "):], "\n")
		if rec.Number != e.body.number() || rec.Cluster != 3 || rec.Proc != 1 || rec.Subproc != 0 || rec.ID != "h/3.1.2#1" ||
			!rec.Time.Equal(at.Truncate(time.Second)) || rec.Headline != head {
			t.Errorf("%T is read as %+v", e.body, rec)
		}
		var lines strings.Builder
		for _, line := range rec.Lines {
			if line != "" && !strings.HasPrefix(line, "    ") { // these have blanks in its place
				line = "\t" + line
			}
			lines.WriteString(line + "\n")
		}
		if _, want, _ := strings.Cut(e.text, "\n"); lines.String() != want {
			t.Errorf("%T has the lines %q; want %q", e.body, lines.String(), want)
		}
	}
}

// Each record that is an ad says the same as the others.
func TestAds(t *testing.T) {
	for _, e := range events {
		common := fmt.Sprintf("MyType = %q\nEventTypeNumber = %d\nEventTime = \"2026-03-04T05:06:07\"\nCluster = 3\nProc = 1\nSubproc = 0\n",
			e.body.typeName(), e.body.number())
		want := common + e.attrs + "EventId = \"h/3.1.2#1\"\n"
		for name, form := range map[string]Form{"XML": XML, "JSON": JSON} {
			text := string(Append(nil, event(e.body), form, Times{}))
			rec, err := reader(text).Next()
			if err != nil {
				t.Errorf("%T: %s: %v\n%s", e.body, name, err, text)
				continue
			}
			wantAd, err := classad.ParseOld(strings.ReplaceAll(want, `one\ntwo`, "one two"))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(rec.Ad.String(), `one\ntwo`, "one two")
			if diff := cmp.Diff(wantAd.String(), got); diff != "" {
				t.Errorf("%T: %s (-want +got):\n%s", e.body, name, diff)
			}
			if rec.Number != e.body.number() || rec.Cluster != 3 || rec.Proc != 1 || rec.ID != "h/3.1.2#1" || !rec.Time.Equal(at.Truncate(time.Second)) {
				t.Errorf("%T: %s is read as %+v", e.body, name, rec)
			}
		}
	}
}

func TestForms(t *testing.T) {
	e := Event{Cluster: 3, Time: at, Body: Held{Reason: "a <b> & \"c\"\n", Code: 1}}
	wantXML := `<c>
    <a n="MyType"><s>JobHeldEvent</s></a>
    <a n="EventTypeNumber"><i>12</i></a>
    <a n="EventTime"><s>2026-03-04T04:06:07.089Z</s></a>
    <a n="Cluster"><i>3</i></a>
    <a n="Proc"><i>0</i></a>
    <a n="Subproc"><i>0</i></a>
    <a n="HoldReason"><s>a &lt;b&gt; &amp; &#34;c&#34;</s></a>
    <a n="HoldReasonCode"><i>1</i></a>
    <a n="HoldReasonSubCode"><i>0</i></a>
</c>
`
	if diff := cmp.Diff(wantXML, string(Append(nil, e, XML, Times{UTC: true, Millis: true}))); diff != "" {
		t.Errorf("XML (-want +got):\n%s", diff)
	}
	wantJSON := `{"MyType": "JobHeldEvent", "EventTypeNumber": 12, "EventTime": "2026-03-04T05:06:07", "Cluster": 3, "Proc": 0, "Subproc": 0, ` +
		`"HoldReason": "a \u003cb\u003e \u0026 \"c\"", "HoldReasonCode": 1, "HoldReasonSubCode": 0}` + "\n"
	if diff := cmp.Diff(wantJSON, string(Append(nil, e, JSON, Times{}))); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	for _, v := range []struct {
		value     any
		json, xml string
	}{
		{1, "1", "<i>1</i>"},
		{1.5, "1.5", "<r>1.500000000000000E+00</r>"},
		{2.0, "2.0", "<r>2.000000000000000E+00</r>"},
		{true, "true", `<b v="t"/>`},
		{"a", `"a"`, "<s>a</s>"},
	} {
		e := Event{Time: at, Body: property{value: v.value}}
		if got := string(Append(nil, e, JSON, Times{})); !strings.Contains(got, `"P": `+v.json+"}") {
			t.Errorf("%v is %s in JSON; want %s", v.value, got, v.json)
		}
		if got := string(Append(nil, e, XML, Times{})); !strings.Contains(got, `<a n="P">`+v.xml+"</a>") {
			t.Errorf("%v is %s in XML; want %s", v.value, got, v.xml)
		}
	}
}

// property is an event with one attribute.
type property struct {
	Resumed
	value any
}

func (p property) attrs() []attr { return []attr{{"P", p.value}} }

// All forms of times are written, and read again.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		times Times
		want  string
		back  time.Time
	}{
		{Times{}, "03/04 05:06:07", at.Truncate(time.Second)},
		{Times{ISO: true}, "2026-03-04 05:06:07", at.Truncate(time.Second)},
		{Times{Millis: true}, "03/04 05:06:07.089", at},
		{Times{ISO: true, Millis: true}, "2026-03-04 05:06:07.089", at},
		{Times{UTC: true}, "03/04 04:06:07Z", at.Truncate(time.Second)},
		{Times{ISO: true, UTC: true}, "2026-03-04 04:06:07Z", at.Truncate(time.Second)},
		{Times{Millis: true, UTC: true}, "03/04 04:06:07.089Z", at},
		{Times{ISO: true, Millis: true, UTC: true}, "2026-03-04 04:06:07.089Z", at},
	} {
		text := string(Append(nil, Event{Time: at, Body: Generic{"a b"}}, Text, c.times))
		if want := "008 (000.000.000) " + c.want + " a b\n...\n"; text != want {
			t.Errorf("%+v: %q; want %q", c.times, text, want)
		}
		rec, err := reader(text).Next()
		if err != nil || !rec.Time.Equal(c.back) || rec.Headline != "a b" {
			t.Errorf("%q is read as %+v, %v; want %v", text, rec, err, c.back)
		}
		for _, form := range []Form{XML, JSON} {
			ad := Append(nil, Event{Time: at, Body: Generic{"a b"}}, form, c.times)
			if rec, err := reader(string(ad)).Next(); err != nil || !rec.Time.Equal(c.back) {
				t.Errorf("%s is read as %+v, %v; want %v", ad, rec, err, c.back)
			}
		}
	}
}

// A time without a year is the last one of its kind, as far as clocks agree.
func TestYears(t *testing.T) {
	for _, c := range []struct{ now, text, want string }{
		{"2026-11-01", "11/01 12:00:00", "2026-11-01 12:00:00"},
		{"2026-11-01", "11/02 00:00:00", "2026-11-02 00:00:00"},
		{"2026-11-01", "11/02 00:00:01", "2025-11-02 00:00:01"},
		{"2026-12-31", "01/01 00:00:00", "2027-01-01 00:00:00"},
		{"2027-01-01", "12/31 23:59:59", "2026-12-31 23:59:59"},
		{"2026-11-01", "02/29 00:00:00", "2024-02-29 00:00:00"},
		{"1901-11-01", "02/29 00:00:00", "1896-02-29 00:00:00"},
		{"2026-11-01", "2020-02-29T00:00:00", "2020-02-29 00:00:00"},
	} {
		r := reader("008 (1.0.0) " + c.text + " x\n...\n")
		var err error
		if r.Now, err = time.ParseInLocation("2006-01-02", c.now, zone); err != nil {
			t.Fatal(err)
		}
		rec, err := r.Next()
		if err != nil || rec.Time.Format("2006-01-02 15:04:05") != c.want {
			t.Errorf("%s read at %s is %+v, %v; want %s", c.text, c.now, rec, err, c.want)
		}
	}
}

// Nothing that comes from outside ends a record, begins another, or grows
// without bound.
func TestHostileText(t *testing.T) {
	evil := "a\n...\n000 (001.000.000) 01/01 00:00:00 forged\r\n\x1b[2J\u2028</c>\xff\x00{"
	for _, b := range []Body{
		Submitted{evil},
		Executing{evil, evil},
		Evicted{Reason: evil},
		Terminated{Signal: 1, CoreFile: evil, By: evil, Reason: evil},
		Generic{evil},
		Aborted{evil},
		Held{Reason: evil},
		Released{evil},
		RemoteError{Host: evil, Text: evil},
		FileTransfer{Phase: TransferStarted, Host: evil},
	} {
		for _, form := range []Form{Text, XML, JSON} {
			text := Append(nil, Event{ID: evil, Cluster: 3, Time: at, Body: b}, form, Times{})
			if bytes.ContainsAny(text, "\x1b\x00\xff\r") {
				t.Errorf("%T, form %d has what it must not: %q", b, form, text)
			}
			r := reader(string(text))
			rec, err := r.Next()
			if err != nil || rec.Number != b.number() || rec.Cluster != 3 {
				t.Errorf("%T, form %d is read as %+v, %v: %q", b, form, rec, err, text)
			}
			if rec, err := r.Next(); !errors.Is(err, io.EOF) {
				t.Errorf("%T, form %d is followed by %+v, %v", b, form, rec, err)
			}
		}
	}
	long := strings.Repeat("ä", 1<<20) + strings.Repeat("\n", 1000) + strings.Repeat("x", 10000)
	for _, form := range []Form{Text, XML, JSON} {
		text := Append(nil, Event{Time: at, Body: RemoteError{Host: long, Text: strings.Repeat(long[:100]+"\n", 1000)}}, form, Times{})
		if len(text) > 64<<10 {
			t.Errorf("form %d has %d bytes", form, len(text))
		}
	}
	if got := oneLine(long); len(got) > maxText+3 || !strings.HasSuffix(got, "ä...") {
		t.Errorf("what is too long is cut to %d bytes, %q", len(got), got[len(got)-10:])
	}
}

// A log of another program, with what a crash and other editors leave in it.
func TestReader(t *testing.T) {
	text, err := os.ReadFile("testdata/log")
	if err != nil {
		t.Fatal(err)
	}
	r := reader(string(text))
	var got []string
	for {
		rec, err := r.Next()
		if err == nil {
			got = append(got, fmt.Sprintf("%d %d.%d %s %s %d lines", rec.Number, rec.Cluster, rec.Proc, rec.Time.Format("2006-01-02 15:04:05"), rec.Headline, len(rec.Lines)))
			continue
		}
		got = append(got, err.Error())
		if bad := (*SyntaxError)(nil); !errors.As(err, &bad) {
			break
		}
	}
	want := []string{
		"0 74043.0 2022-02-03 16:13:22 Job submitted from host: <130.0.0.1:9618?alias=ap> 0 lines",
		"1 74043.0 2022-02-03 16:13:22 Job executing on host: <130.0.0.2:9618> 0 lines",
		"1 74043.0 2022-02-03 16:13:22 Job executing on host: <130.0.0.2:9618> 0 lines",
		"line 9: not a record",
		"6 74043.0 2022-02-03 16:13:23 Image size of job updated: 5000 2 lines",
		"line 15: a record without an end",
		"5 74043.0 2022-02-03 16:13:23 Job terminated. 16 lines",
		"12 54627270.0 2014-02-19 18:06:34  0 lines",
		"12 54627271.0 2014-02-19 18:06:34  0 lines",
		"line 50: not the number of a job: (1.x.0)",
		"line 53: not a time: 13/41 00:00:00",
		"line 55: a record without an end",
		"line 58: an ad without EventTypeNumber",
		"line 59: an ad without EventTypeNumber",
		"13 1.0 2026-01-01 00:00:00 Job was released. 1 lines",
		"unexpected EOF",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if left := string(text[r.Offset():]); left != "005 (1.0.0) 01/01 00:00:00 Job term" {
		t.Errorf("it goes on at %q", left)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// A reader that goes on at Offset misses nothing and reads nothing twice, at
// whatever byte the log ended before.
func TestOffset(t *testing.T) {
	if testing.Short() {
		t.Skip("it has no concurrency")
	}
	var log []byte
	for i, e := range events {
		log = Append(log, event(e.body), Form(i%3), Times{ISO: i%2 == 0})
	}
	for cut := 0; cut < len(log); cut += 7 {
		r := reader(string(log[:cut]))
		n := 0
		var err error
		for err == nil {
			if _, err = r.Next(); err == nil {
				n++
			}
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		r = reader(string(log[r.Offset():]))
		for err = nil; err == nil; {
			if _, err = r.Next(); err == nil {
				n++
			}
		}
		if n != len(events) || !errors.Is(err, io.EOF) {
			t.Fatalf("cut at %d: %d records, %v; want %d", cut, n, err, len(events))
		}
	}
}

func TestReaderBounds(t *testing.T) {
	for name, log := range map[string]string{
		"text": "008 (1.0.0) 01/01 00:00:00 " + strings.Repeat("x", MaxRecord) + "\n\tmore\n...\n",
		"line": "\t" + strings.Repeat("x", 3*MaxRecord) + "\n",
		"json": "{\n" + strings.Repeat("\"a\": 1,\n", MaxRecord/8) + "}\n",
	} {
		r := reader(log + "011 (1.0.0) 01/01 00:00:00 next\n...\n")
		var bad *SyntaxError
		if _, err := r.Next(); !errors.As(err, &bad) {
			t.Errorf("%s: %v; want that it is too long", name, err)
		}
		if rec, err := r.Next(); err != nil || rec.Headline != "next" {
			t.Errorf("%s is followed by %+v, %v", name, rec, err)
		}
	}
}

// FuzzReader holds that every log comes to its end, that what is read of it
// begins where the one before ended, and that a record of text does not lead out
// of its record when it is written again.
func FuzzReader(f *testing.F) {
	for i, e := range events {
		f.Add(string(Append(nil, event(e.body), Form(i%3), Times{ISO: i%2 == 0, Millis: i%5 == 0, UTC: i%7 == 0})))
	}
	text, err := os.ReadFile("testdata/log")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, log string) {
		r := reader(log)
		last := int64(-1)
		for range len(log) + 2 {
			rec, err := r.Next()
			var bad *SyntaxError
			switch {
			case err == nil:
				if r.Offset() <= last {
					t.Fatalf("%q: a record ends at %d, the one before at %d", log, r.Offset(), last)
				}
				if rec.Time.IsZero() && rec.Ad == nil || rec.Number < 0 || rec.Number > 999 {
					t.Fatalf("%q is read as %+v", log, rec)
				}
				again := reader(string(Append(nil, Event{ID: rec.ID, Cluster: 1, Time: at, Body: Generic{rec.Headline}}, Text, Times{})))
				if _, err := again.Next(); err != nil {
					t.Fatalf("%q cannot be written as text: %v", rec.Headline, err)
				}
				if _, err := again.Next(); !errors.Is(err, io.EOF) {
					t.Fatalf("%q leads out of its record: %v", rec.Headline, err)
				}
			case errors.As(err, &bad):
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				if r.Offset() > int64(len(log)) {
					t.Fatalf("%q ends at %d", log, r.Offset())
				}
				return
			default:
				t.Fatalf("%q: %v", log, err)
			}
			last = r.Offset()
		}
		t.Fatalf("%q does not end", log)
	})
}

func TestParseOptions(t *testing.T) {
	for text, want := range map[string]struct {
		form  Form
		times Times
	}{
		"":                           {},
		"xml":                        {form: XML},
		"XML, JSON":                  {form: JSON},
		"iso_date,UTC\tSub_Second":   {times: Times{ISO: true, Millis: true, UTC: true}},
		"JSON UTC LEGACY SUB_SECOND": {times: Times{Millis: true}},
	} {
		form, times, err := ParseOptions(text)
		if err != nil || form != want.form || times != want.times {
			t.Errorf("ParseOptions(%q) = %v, %+v, %v; want %+v", text, form, times, err, want)
		}
	}
	if _, _, err := ParseOptions("UTC yaml"); err == nil || !strings.Contains(err.Error(), `"yaml"`) {
		t.Errorf("ParseOptions = %v; want what is wrong", err)
	}
}
