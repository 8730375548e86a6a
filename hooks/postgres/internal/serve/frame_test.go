package serve

import (
	"bufio"
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestFrames(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("HELLO 1\nCALL 7 REPLY_FETCH 3 accept\nabcCALL 8 FETCH_WORK 0\nCANCEL 7\nCALL 9 REPORT_WORK 1 exit evict\nx"))
	if err := readHello(r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []call{{7, "REPLY_FETCH", []string{"accept"}, []byte("abc")}, {8, "FETCH_WORK", nil, nil}, {7, "", nil, nil}, {9, "REPORT_WORK", []string{"exit", "evict"}, []byte("x")}} {
		got, err := readCall(r)
		if err != nil || got.number != want.number || got.hook != want.hook || !slices.Equal(got.words, want.words) || !bytes.Equal(got.input, want.input) {
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
