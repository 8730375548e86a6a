package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"paddock/test/harness"
)

// follower rebuilds a queue by its log, as HTCondor's job router does: it reads what was added,
// or begins anew when the first record has another number.
type follower struct {
	path    string
	number  string
	at      int64
	ads     map[string]map[string]string // by key and attribute
	rebuilt int                          // how often it began anew
}

// word reads as HTCondor does: up to a blank, which it takes, or the end of the line, which it
// leaves.
func word(in *bufio.Reader) (string, error) {
	var w strings.Builder
	for {
		c, err := in.ReadByte()
		switch {
		case err != nil:
			return "", err
		case c == '\n':
			return w.String(), in.UnreadByte()
		case c == ' ':
			return w.String(), nil
		}
		w.WriteByte(c)
	}
}

// look reads what there is of the log.
func (f *follower) look() error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	first, err := bufio.NewReader(file).ReadString('\n')
	if err != nil {
		return err
	}
	head := strings.Fields(first)
	if len(head) != 4 || head[0] != "107" || head[2] != "CreationTimestamp" {
		return fmt.Errorf("the first record is %q", first)
	}
	if head[1] != f.number {
		*f = follower{path: f.path, number: head[1], at: int64(len(first)), ads: map[string]map[string]string{}, rebuilt: f.rebuilt + 1}
	}
	rest, err := io.ReadAll(io.NewSectionReader(file, f.at, 1<<30))
	if err != nil {
		return err
	}
	whole := string(rest[:strings.LastIndexByte(string(rest), '\n')+1])
	if i := strings.LastIndex(whole, "105 \n"); i >= 0 && !strings.Contains(whole[i:], "106 \n") {
		whole = whole[:i] // a transaction that is not over
	}
	f.at += int64(len(whole))
	in := bufio.NewReader(strings.NewReader(whole))
	for {
		op, err := word(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var words []string
		n := map[string]int{"101": 3, "102": 1, "103": 2, "104": 2, "105": 0, "106": 0}[op]
		for range n {
			w, err := word(in)
			if err != nil || w == "" {
				return fmt.Errorf("record %s %q is cut off: %v", op, words, err)
			}
			words = append(words, w)
		}
		value, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if err := f.play(op, words, strings.TrimSuffix(value, "\n")); err != nil {
			return fmt.Errorf("%s %q %q: %w", op, words, value, err)
		}
	}
}

func (f *follower) play(op string, words []string, value string) error {
	var of map[string]string
	if len(words) > 0 {
		of = f.ads[words[0]]
	}
	switch {
	case op != "103" && value != "":
		return fmt.Errorf("there is more")
	case op == "105", op == "106":
	case op == "101" && of == nil && words[1] == "Job" && words[2] == "Machine":
		f.ads[words[0]] = map[string]string{}
	case of == nil:
		return fmt.Errorf("there is no such ad, or one already")
	case op == "102":
		delete(f.ads, words[0])
	case op == "103":
		of[words[1]] = value
	case op == "104":
		delete(of, words[1])
	default:
		return fmt.Errorf("unknown")
	}
	return nil
}

// queue is what the log says of the queue: a line for each job or task, by number.
func (f *follower) queue() (lines []string) {
	for key, of := range f.ads {
		if strings.HasSuffix(key, ".-1") {
			if _, array := of["TotalSubmitProcs"]; array {
				lines = append(lines, fmt.Sprintf("%s waits %s held %s", strings.TrimPrefix(key, "0"), of["PendingTaskIds"], of["HeldTaskIds"]))
			}
			continue
		}
		cluster, _, _ := strings.Cut(key, ".")
		job := f.ads["0"+cluster+".-1"]
		lines = append(lines, fmt.Sprintf("%s %s %s %s", key, job["JobBatchName"], job["Owner"], of["JobStatus"]))
	}
	slices.Sort(lines)
	return lines
}

// await waits until the log says so of the queue.
func (f *follower) await(t *testing.T, want ...string) {
	t.Helper()
	if err := harness.WaitFor(patience, "the log to tell of the queue", func() (bool, error) {
		if err := f.look(); err != nil && !os.IsNotExist(err) {
			return false, err
		}
		return slices.Equal(f.queue(), want), nil
	}); err != nil {
		t.Fatalf("%v: the log says %q, want %q\n%v", err, f.queue(), want, slices.Sorted(maps.Keys(f.ads)))
	}
}

// REQ-FLOW-39: a program that follows the log of the queue rebuilds it, without asking for it.
func TestQueueLog(t *testing.T) {
	parallel(t)
	dir := place(t, "log")
	f := &follower{path: t.TempDir() + "/job_queue.log"}
	write(t, dir+"/etc/hooks.conf", "JOB_QUEUE_LOG = "+f.path+"\n", 0o644)
	write(t, dir+"/etc/queues/all.q", "qname all.q\nslots 2\n", 0o644)
	d := deskIn(t, dir, "-dev")
	me := strconv.Quote(username(t))
	line := func(key, name string, status int) string { return fmt.Sprintf("%s %q %s %d", key, name, me, status) }
	submit := func(args ...string) {
		d.run("qsub", append([]string{"-terse", "-o", "/dev/null", "-j", "y", "-b", "y", "-shell", "n"}, args...)...)
	}
	f.await(t)
	submit("-N", "runs", "-ac", "x=1", "sleep", "1000")
	f.await(t, line("1.1", "runs", 2))
	if of := f.ads["01.-1"]; of["Cmd"] != `"sleep"` || of["Arguments"] != `"1000"` || of["Context_x"] != `"1"` || of["ProcId"] != "" {
		t.Errorf("%q", of)
	}
	submit("-N", "held", "-h", "-ac", "y=1", "true")
	f.await(t, line("1.1", "runs", 2), line("2.1", "held", 5))
	d.run("qalter", "-N", "other", "-dc", "y", "2")
	d.run("qmod", "-sj", "1")
	f.await(t, line("1.1", "runs", 7), line("2.1", "other", 5))
	if y, there := f.ads["02.-1"]["Context_y"]; there {
		t.Errorf("an attribute that is gone is still %s", y)
	}
	submit("-N", "many", "-t", "1-1000", "-hold_jid", "1", "true")
	f.await(t, line("1.1", "runs", 7), line("2.1", "other", 5), `3.-1 waits "1-1000:1" held `)
	d.run("qhold", "3.5-6")
	f.await(t, line("1.1", "runs", 7), line("2.1", "other", 5), `3.-1 waits "1-1000:1" held "5,6"`)
	if f.rebuilt != 1 {
		t.Errorf("it was begun anew %d times", f.rebuilt)
	}

	// Another execd writes it anew.
	d.Kill()
	d.begin()
	if err := harness.WaitFor(patience, "the log to be begun anew", func() (bool, error) { return f.number == "2", f.look() }); err != nil {
		t.Fatal(err)
	}
	f.await(t, line("1.1", "runs", 7), line("2.1", "other", 5), `3.-1 waits "1-1000:1" held "5,6"`)
	d.run("qdel", "2", "3")
	d.run("qmod", "-usj", "1")
	f.await(t, line("1.1", "runs", 2))
	d.run("qdel", "1")
	f.await(t)
	if info, err := os.Stat(f.path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}
