package claim

import (
	"testing"

	"paddock/execd/internal/conf"
	"paddock/execd/internal/schedule"
)

// BenchmarkPlain is what claims cost a job where nobody but the queue has slots: one
// allocation, for the list of its claims.
func BenchmarkPlain(b *testing.B) {
	t := NewTable([]conf.Queue{{Name: "a.q", Slots: 500}, {Name: "b.q", Slots: 500}}, "queue")
	grant := []schedule.QueueSlots{{Queue: "b.q", Slots: 1}}
	for range 499 {
		t.Activate("0.1", grant, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		t.Deactivate(t.Activate("1.1", grant, nil))
	}
}
