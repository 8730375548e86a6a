package serve

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

func TestFrames(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("HELLO 1\nCALL 7 REPLY_FETCH 3 accept\nabcCALL 8 FETCH_WORK 0\nCANCEL 7\n"))
	if err := readHello(r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []call{{7, "REPLY_FETCH", "accept", []byte("abc")}, {8, "FETCH_WORK", "", nil}, {7, "", "", nil}} {
		got, err := readCall(r)
		if err != nil || got.number != want.number || got.hook != want.hook || got.word != want.word || !bytes.Equal(got.input, want.input) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	if got := string(appendDone(nil, 7, 1, []byte("xy"))); got != "DONE 7 1 2\nxy" {
		t.Errorf("%q", got)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("CALL 7 REPLY_FETCH 3 accept\nabcCANCEL 7\n"))
	f.Add([]byte("CALL 7 X 99999999999\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReader(bytes.NewReader(text))
		for {
			c, err := readCall(r)
			if err != nil {
				return
			}
			if len(c.input) > len(text) {
				t.Fatal("more was read than there was")
			}
		}
	})
}
