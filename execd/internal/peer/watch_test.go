package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
)

// A host whose answers stop is down within three minutes of the last one, and says so; its
// queues are known all the same.
func TestSilentHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		post := func(ctx context.Context, path string, _ []byte, read func(string, io.Reader) error) error {
			var reply any = api.HelloReply{Host: "node", Arch: "lx-amd64"}
			if strings.HasSuffix(path, api.VerbSlots) {
				if asked++; asked > 2 { // the long poll that nobody answers any more
					<-ctx.Done()
					return ctx.Err()
				}
				reply = api.SlotsReply{Queues: []api.SlotQueue{{Name: "all.q", Type: "BI"}, {Name: "a b"}}, Slots: []api.SlotStatus{
					{Slot: "1", Queue: "all.q", State: "Claimed", Activity: "Idle", Holder: "queue"},
					{Slot: "2", Queue: "all.q", State: "Claimed", Activity: "Busy", Holder: "queue", Job: "1.1"},
					{Slot: "3", Queue: "big.q", State: "Claimed", Activity: "Idle", Holder: "alice@login", Type: "Partitionable", Cpus: 4},
					{Slot: "4", Queue: "../q", State: "Drained", Activity: "Idle"},
				}}
			}
			text, err := json.Marshal(reply)
			if err != nil {
				return err
			}
			return read("200 OK", bytes.NewReader(text))
		}
		changes := make(chan string, 100)
		w := &Watch{
			Clients: NewClients(NewKeeper(func() Files { return Files{} })), Log: slog.New(slog.DiscardHandler), Changed: func(name string) { changes <- name },
		}
		w.enter([]Peer{{Name: "node", Address: "192.0.2.7:6445"}})
		done := make(chan struct{})
		go func() {
			w.follow(ctx, "node", api.NewClientOver("node", post, nil))
			close(done)
		}()
		for range 2 {
			<-changes
		}
		begun := time.Now()
		if s := w.Status()[0]; s.State != api.PeerUp || s.Slots != 7 || s.Free != 1 || s.Arch != "lx-amd64" {
			t.Errorf("an answer made %+v", s)
		}
		<-changes
		s := w.Status()[0]
		if after := time.Since(begun); s.State != api.PeerDown || after > 180*time.Second+pace || s.Error != "no answer for 3m0s" {
			t.Errorf("after %v: %+v", after, s)
		}
		if q := s.Queues; len(q) != 2 || q[0].Name != "all.q" || q[0].Type != "BI" || q[0].Used != 1 || q[0].Total != 2 || q[1].Name != "big.q" || q[1].Reserved != 4 || q[1].Total != 4 {
			t.Errorf("queues %+v", q)
		}
		cancel()
		<-done
	})
}
