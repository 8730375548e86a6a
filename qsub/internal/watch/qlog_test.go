package watch

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"paddock/qsub/internal/command"
)

// The last lines of a file are those that a plain reading of all of it gives.
func TestLastLines(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	texts := []string{"", "\n", "a", "a\n", "a\nb", "a\nb\n", "\n\n\n", strings.Repeat("x", 200_000) + "\nend"}
	for range 30 {
		var b strings.Builder
		for range rnd.IntN(2000) {
			b.WriteString(strings.Repeat("y", rnd.IntN(100)) + "\n")
		}
		texts = append(texts, b.String()+strings.Repeat("z", rnd.IntN(3)))
	}
	for _, text := range texts {
		for _, n := range []int{0, 1, 2, 10, 1000, 5000} {
			lines := strings.SplitAfter(text, "\n")
			if lines[len(lines)-1] == "" {
				lines = lines[:len(lines)-1]
			}
			want := len(strings.Join(lines[:max(len(lines)-n, 0)], ""))
			got, err := lastLines(strings.NewReader(text), int64(len(text)), n)
			if err != nil || got != int64(want) {
				t.Errorf("the last %d lines of %d bytes begin at %d, %v; want %d", n, len(text), got, err, want)
			}
		}
	}
}

// Lines behind a prefix are whole, in whatever pieces they are read.
func TestPrefix(t *testing.T) {
	text := "one\n\ntwo" + strings.Repeat("x", 2*maxLogLine) + "\nend"
	for _, piece := range []int{1, 2, 3, 1000, len(text)} {
		var out bytes.Buffer
		inv := &command.Invocation{Out: bufio.NewWriter(&out)}
		f := &logFile{logs: &jobLogs{inv: inv}, stream: "stdout", prefix: "3: "}
		for rest := text; rest != ""; {
			n := min(piece, len(rest))
			if err := f.write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		f.finish()
		if err := inv.Out.Flush(); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if !strings.HasPrefix(got, "3: one\n3: \n3: two") || !strings.HasSuffix(got, "\n3: end\n") || strings.Count(got, "\n") != strings.Count(got, "3: ") {
			t.Errorf("in pieces of %d: %.100q", piece, got)
		}
		if n := strings.Count(got, "x"); n != 2*maxLogLine {
			t.Errorf("in pieces of %d: %d of the long line; want %d", piece, n, 2*maxLogLine)
		}
	}
}

// event is an event of inotify as the kernel writes it.
func event(number int32, name string) []byte {
	b := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(b, uint32(number))
	padded := name
	if name != "" {
		padded += strings.Repeat("\x00", 16-len(name)%16)
	}
	binary.NativeEndian.PutUint32(b[12:], uint32(len(padded)))
	return append(b, padded...)
}

func TestMatters(t *testing.T) {
	w := &watch{names: map[string]bool{"3/out": true}}
	for _, tt := range []struct {
		events []byte
		want   bool
	}{
		{event(1, ""), true},
		{event(3, "out"), true},
		{event(4, "out"), false},
		{event(3, "other"), false},
		{append(event(3, "other"), event(3, "out")...), true},
		{nil, false},
		{event(3, "other")[:20], true}, // not what the kernel does: look
	} {
		if got := w.matters(tt.events); got != tt.want {
			t.Errorf("matters(%q) = %v; want %v", tt.events, got, tt.want)
		}
	}
}

func FuzzMatters(f *testing.F) {
	f.Add(event(3, "out"))
	f.Add(append(event(3, "other"), 1, 2, 3))
	f.Fuzz(func(_ *testing.T, b []byte) {
		(&watch{names: map[string]bool{"3/out": true}}).matters(b)
	})
}
