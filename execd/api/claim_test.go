package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"paddock/execd/api"
)

// A program that brings work of its own claims a slot, has job after job run there,
// and gives it back at the end.
func Example_claim() {
	ctx := context.Background()
	client := api.NewClient("/nonexistent/execd.sock") // api.ClientPlaces().Socket
	claim, err := client.Claim(ctx, api.ClaimRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer claim.Release(ctx) // the lease ends it too
	renew := time.NewTicker(time.Duration(claim.Reply.Renew) * time.Second)
	defer renew.Stop()
	for _, command := range []string{"/bin/hostname", "/bin/date"} {
		job, err := claim.Activate(ctx, api.ActivateRequest{Request: &api.SubmitRequest{
			Name: "work", Binary: true, NoShell: true, Command: command, Stdout: "/tmp/work.out", Merge: true,
		}})
		if err != nil {
			fmt.Println(api.RefusalOf(err), err)
			return
		}
		fmt.Println("job", job.Job, "runs in", claim.Reply.Name)
		for permit := (api.Permit{StillCleaning: true}); permit.StillCleaning; {
			select {
			case <-renew.C:
				_, err = claim.Renew(ctx)
			default:
				permit, err = claim.Deactivate(ctx, api.JobDone)
			}
			if err != nil {
				fmt.Println(err)
				return
			}
		}
	}
	// Output: cannot reach execd at /nonexistent/execd.sock: connect: no such file or directory
}

// CLAIM-ID: the id of a claim travels whole, and is not printed by accident.
func TestClaimIDKeepsItsSecret(t *testing.T) {
	const id = api.ClaimID("<node>#1#2#0123456789abcdef")
	for _, text := range []string{
		fmt.Sprint(id), fmt.Sprintf("%v %s %#v %q", id, id, id, id), fmt.Sprintf("%+v", api.ClaimReply{ID: id}),
		fmt.Sprint(api.ClaimID("0123456789abcdef")),
	} {
		if strings.Contains(text, "0123456789abcdef") {
			t.Errorf("%q has the secret", text)
		}
	}
	b, err := json.Marshal(api.ClaimOrder{ID: id})
	var back api.ClaimOrder
	if err == nil {
		err = json.Unmarshal(b, &back)
	}
	if err != nil || string(back.ID) != string(id) {
		t.Errorf("sent as %s, %v; want the whole id", b, err)
	}
}

func TestRefusals(t *testing.T) {
	for why, code := range map[api.Refusal]api.Code{
		api.RefusedBusy: api.CodeRejected, api.RefusedTryAgain: api.CodeBusy, api.RefusedUnknown: api.CodeNotFound,
	} {
		err := error(api.Refusef(why, "no"))
		b, _ := json.Marshal(err)
		var back api.Error
		if json.Unmarshal(b, &back) != nil || api.RefusalOf(&back) != why || back.Code != code {
			t.Errorf("%d comes over as %+v; want code %s", why, back, code)
		}
	}
	if got := api.RefusalOf(context.Canceled); got != 0 {
		t.Errorf("the end of a context is a refusal, %d", got)
	}
}

// A slot is read as a text and, as before there were any that are carved, as a number.
func TestSlotID(t *testing.T) {
	for text, want := range map[string]api.SlotID{`{"slot":3}`: "3", `{"slot":"3"}`: "3", `{"slot":"1_2"}`: "1_2", `{"slot":0}`: "", `{"slot":null}`: "", `{}`: ""} {
		var got api.Work
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Slot != want {
			t.Errorf("%s: %q, %v; want %q", text, got.Slot, err, want)
		}
	}
	for _, text := range []string{`{"slot":1.5}`, `{"slot":true}`, `{"slot":[1]}`} {
		if err := json.Unmarshal([]byte(text), new(api.Work)); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}

// The name of a host that is none does not become another request.
func TestClientOn(t *testing.T) {
	for host, want := range map[string]string{"node1": "/v1/on/node1/slots", "a b/c\r\nX: y": "/v1/on/a%20b%2Fc%0D%0AX:%20y/slots"} {
		got := ""
		c := api.NewClientOver("here", func(_ context.Context, path string, _ []byte, _ func(string, io.Reader) error) error {
			got = path
			return nil
		}, nil).On(host)
		if err := c.Call(t.Context(), api.VerbSlots, &api.SlotsRequest{}, &api.SlotsReply{}); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", host, got, err, want)
		}
	}
}
