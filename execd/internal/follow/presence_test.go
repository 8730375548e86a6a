package follow

import (
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
)

// REQ-FLOW-110: a host that follows has left when it has had no request for a while, and not
// between two; and so has one that was never there since execd was started.
func TestDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		away := &api.Activation{Host: "login", Home: &api.Home{Host: "login", Job: 1}}
		want := func(want bool) {
			t.Helper()
			if got := r.Disconnected(away); got != want {
				t.Errorf("disconnected: %v", got)
			}
		}
		want(false)
		time.Sleep(2 * gap)
		want(true)
		leave := r.Attend(Who{Host: "login"})
		want(false)
		time.Sleep(time.Hour)
		want(false)
		again := r.Attend(Who{Host: "login"})
		leave()
		time.Sleep(2 * gap)
		want(false)
		again()
		time.Sleep(gap)
		want(false)
		time.Sleep(time.Nanosecond)
		want(true)
		r.Attend(Who{Host: "other"})
		want(true)
		if r.Disconnected(&api.Activation{User: "anna"}) || r.Disconnected(nil) {
			t.Error("who follows as a user need not")
		}
	})
}
