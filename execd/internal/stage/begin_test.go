package stage

import (
	"errors"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/user"
)

// A job whose queue or parallel environment is taken out of the configuration between
// its turn and its start waits for it, and is not in error.
func TestGoneBeforeTheStart(t *testing.T) {
	for _, test := range []struct {
		name   string
		config conf.Config
	}{
		{"queue", conf.Config{}},
		{"parallel environment", conf.Config{Queues: []conf.Queue{{Name: "all.q"}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newScene(t, nil).r
			j, _, err := r.Store.Submit(&user.User{Name: "alice"}, 100, &api.SubmitRequest{Name: "j", Binary: true, Command: "true"}, job.Limits{}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			grant := &schedule.Grant{PE: "mpi", Queues: []schedule.QueueSlots{{Queue: "all.q", Slots: 1}}}
			l := r.newLife(r.Store.Take(j, job.Start{Queue: "all.q", Grant: grant}, time.Now()))
			r.add(l)
			r.Config = func() *conf.Config { return &test.config }
			if err := r.begin(l); !errors.Is(err, errOver) {
				t.Errorf("begin: %v; want errOver", err)
			}
			if n, _, _ := r.Store.Ready(j, time.Now()); n != 1 {
				t.Errorf("%d tasks of the job can be started; want 1", n)
			}
		})
	}
}
