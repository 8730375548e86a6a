package hook

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

func TestFrames(t *testing.T) {
	b := appendCall([]byte(frameHello), 7, ReplyFetch, 5, []string{"accept"})
	b = append(b, "A = 1"...)
	b = appendCall(b, 8, FetchWork, 0, nil)
	b = appendCancel(b, 7)
	if want := "HELLO 1\nCALL 7 REPLY_FETCH 5 accept\nA = 1CALL 8 FETCH_WORK 0\nCANCEL 7\n"; string(b) != want {
		t.Errorf("execd writes %q; want %q", b, want)
	}
	r := bufio.NewReader(strings.NewReader("HELLO 1\nDONE 7 255 0\nDONE 18446744073709551615 0 3\nabcDONE 9 1 4\nlong"))
	if _, err := readHello(r); err != nil {
		t.Error(err)
	}
	for _, want := range []struct {
		answer
		body string
	}{{answer{7, 255, 0}, ""}, {answer{1<<64 - 1, 0, 3}, "abc"}, {answer{9, 1, 4}, ""}} {
		a, err := readAnswer(r)
		if err != nil || a != want.answer {
			t.Errorf("read %+v, %v; want %+v", a, err, want.answer)
		}
		if body, err := readBody(r, a.size, 3); err != nil || string(body) != want.body {
			t.Errorf("%+v: read %q, %v; want %q", a, body, err, want.body)
		}
	}
	if _, err := readAnswer(r); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last: %v", err)
	}
}

// TestFramesRefused has what a server must not write.
func TestFramesRefused(t *testing.T) {
	for _, text := range []string{
		"", "HELLO 2\n", "hello 1\n", "HELLO 1 \n", "HELLO 1\r\n", "HELLO 1", "DONE 1 0 0\n", strings.Repeat("x", 100000),
	} {
		if _, err := readHello(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%.20q is a hello", text)
		}
	}
	for _, text := range []string{
		"\n", "DONE\n", "DONE 1 0\n", "DONE 1 0 0 0\n", "DONE  1 0 0\n", "DONE 1 0 0 \n", "DONE 1 0 0\r\n", "done 1 0 0\n", "DONE 1 0 0",
		"DONE 01 0 0\n", "DONE +1 0 0\n", "DONE -1 0 0\n", "DONE 1 256 0\n", "DONE 1 -9 0\n", "DONE 1 0 1073741825\n", "DONE 18446744073709551616 0 0\n",
		"DONE 1 0 0x1\n", "HELLO 1\n", "CALL 1 FETCH_WORK 0\n", "DONE 1 0 " + strings.Repeat("0", 60) + "\n", strings.Repeat("\x00", 5000), "Cmd = \"x\"\n",
	} {
		if a, err := readAnswer(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%.20q is %+v", text, a)
		}
	}
	for _, most := range []int64{2, 20} {
		if _, err := readBody(bufio.NewReader(strings.NewReader("four")), 5, most); !errors.Is(err, errFrameCut) {
			t.Errorf("a body that is cut, of which %d bytes are kept: %v", most, err)
		}
	}
}

// FuzzAnswers reads what a server may write: what is read is what was written, nothing grows
// beyond what a call may print, and it ends.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("HELLO 1\nDONE 1 0 3\nabcDONE 2 1 0\n"), int64(3))
	f.Add([]byte("DONE 1 0 1073741824\nabc"), int64(2))
	f.Add([]byte("HELLO 1\nDONE 00 0 0\n"), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, most int64) {
		most = min(max(most, 0), 1<<20)
		r := bufio.NewReader(bytes.NewReader(text))
		var again []byte
		if _, err := readHello(r); err == nil {
			again = append(again, frameHello...)
		} else {
			r = bufio.NewReader(bytes.NewReader(text))
		}
		for {
			a, err := readAnswer(r)
			if err != nil {
				break
			}
			if a.status < 0 || a.status > maxStatus || a.size < 0 || a.size > maxFrameBody {
				t.Fatalf("%+v", a)
			}
			again = append(again, "DONE "+strconv.FormatUint(a.number, 10)+" "+strconv.Itoa(a.status)+" "+strconv.FormatInt(a.size, 10)+"\n"...)
			at := len(again)
			body, err := readBody(r, a.size, most)
			if int64(len(body)) > most {
				t.Fatalf("%d bytes are kept; want at most %d", len(body), most)
			}
			if err != nil {
				break
			}
			if a.size > most {
				body = text[at : at+int(a.size)]
			}
			again = append(again, body...)
		}
		if !bytes.HasPrefix(text, again[:min(len(again), len(text))]) {
			t.Errorf("%q was read as %q", text, again)
		}
	})
}
