package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"paddock/execd/api"
)

// A key opens a sandbox, and does not print.
func TestSandboxKey(t *testing.T) {
	k := api.NewSandboxKey()
	if err := k.Check(); err != nil || k == api.NewSandboxKey() {
		t.Errorf("%v", err)
	}
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%v %+v %#v %s", k, api.Carriage{Key: k}, api.StageOutRequest{Key: k}, k)} {
		if strings.Contains(text, string(k)) {
			t.Errorf("%s has the key", text)
		}
	}
	for _, bad := range []api.SandboxKey{"", "00", k + "0", k + "00", "x" + k[1:]} {
		if bad.Check() == nil {
			t.Errorf("%q is a key", string(bad))
		}
	}
}

// streams is a client whose streams are answered so.
func streams(status, answer string, got *bytes.Buffer) *api.Client {
	return api.NewClientOver("node", nil, func(_ context.Context, path string, body io.Reader, read func(string, io.Reader) error) error {
		if _, err := io.Copy(got, body); err != nil {
			return err
		}
		got.WriteString(" " + path)
		return read(status, iotest.OneByteReader(strings.NewReader(answer)))
	})
}

// Empty lines come before an answer while it is waited for.
func TestStreams(t *testing.T) {
	var got bytes.Buffer
	said := ""
	err := streams("200 OK", "\n\n\npaddock-pack 2\n\n\nrest\n", &got).StageOut(t.Context(), api.StageOutRequest{Sandbox: "s", Key: "k", Have: "h"}, func(r io.Reader) error {
		text, err := io.ReadAll(r)
		said = string(text)
		return err
	})
	if want := `{"sandbox":"s","key":"k","have":"h"}` + "\n /v1/stage-out"; err != nil || said != "paddock-pack 2\n\n\nrest\n" || got.String() != want {
		t.Errorf("%q, %v; asked %q", said, err, got.String())
	}
	mine := errors.New("mine")
	if err := streams("200 OK", "", &got).StageOut(t.Context(), api.StageOutRequest{}, func(io.Reader) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("the error of who reads: %v", err)
	}
	refusal, _ := json.Marshal(api.Refusef(api.RefusedState, "gone"))
	if err := streams("422 X", string(refusal), &got).StageOut(t.Context(), api.StageOutRequest{}, func(io.Reader) error { return mine }); api.RefusalOf(err) != api.RefusedState {
		t.Errorf("refused: %v", err)
	}

	got.Reset()
	reply, err := streams("200 OK", "\n\n"+`{"root":"r","bytes":7}`+"\n", &got).StageIn(t.Context(), api.StageInRequest{Sandbox: "s", Key: "k", Part: api.PartInput}, strings.NewReader("stream\n"))
	if want := `{"sandbox":"s","key":"k","part":"input"}` + "\nstream\n /v1/stage-in"; err != nil || reply.Root != "r" || reply.Bytes != 7 || got.String() != want {
		t.Errorf("%+v, %v; asked %q", reply, err, got.String())
	}
	late, _ := json.Marshal(api.StageInReply{Error: api.Refusef(api.RefusedTryAgain, "cut off")})
	if _, err := streams("200 OK", "\n"+string(late), &got).StageIn(t.Context(), api.StageInRequest{}, strings.NewReader("")); api.RefusalOf(err) != api.RefusedTryAgain {
		t.Errorf("refused behind the stream: %v", err)
	}
	if _, err := streams("200 OK", "\n\n", &got).StageIn(t.Context(), api.StageInRequest{}, strings.NewReader("")); !errors.Is(err, api.ErrUnreachable) {
		t.Errorf("no answer: %v", err)
	}
	if err := api.NewClient("/nowhere").StageOut(t.Context(), api.StageOutRequest{}, nil); err == nil || !strings.Contains(err.Error(), "for hosts alone") {
		t.Errorf("of a user: %v", err)
	}
}
