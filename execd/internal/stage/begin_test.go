package stage

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/schedule"
	"paddock/execd/internal/source"
	"paddock/execd/internal/stage/notice"
	"paddock/execd/internal/user"
	"paddock/spool/spooltest"
)

// taken returns the life of another job, which was taken and has not begun.
func (s *scene) taken(grant *schedule.Grant) *life {
	s.t.Helper()
	j, _, err := s.r.Store.Submit(&user.User{Name: "alice"}, 100, &api.SubmitRequest{Name: "j", Binary: true, Command: "true"}, job.Limits{}, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	l := s.r.newLife(s.r.Store.Take(j, job.Start{Queue: "all.q", Grant: grant}, time.Now()))
	s.r.add(l)
	return l
}

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
			s := newScene(t, nil)
			r, l := s.r, s.taken(&schedule.Grant{PE: "mpi", Queues: []schedule.QueueSlots{{Queue: "all.q", Slots: 1}}})
			r.Config = func() *conf.Config { return &test.config }
			if err := r.begin(l); !errors.Is(err, errOver) {
				t.Errorf("begin: %v; want errOver", err)
			}
			if n, _, _ := r.Store.Ready(l.task.Job, time.Now()); n != 1 {
				t.Errorf("%d tasks of the job can be started; want 1", n)
			}
		})
	}
}

// Where the host is to blame the task waits for its next turn, and nobody, as qdel does,
// for its start.
func TestHostToBlame(t *testing.T) {
	s := newScene(t, nil)
	l := s.taken(nil)
	if err := s.r.refuse(l, unix.EMFILE, false); !errors.Is(err, errOver) {
		t.Errorf("refuse: %v; want errOver", err)
	}
	if n, _, _ := s.r.Store.Ready(l.task.Job, time.Now()); n != 1 {
		t.Errorf("%d tasks of the job can be started; want 1", n)
	}
	if !isClosed(l.task.Begun()) {
		t.Error("its start is waited for")
	}
}

// The disk is full at each write of what becomes of a job that cannot begin. When there is
// room again it is told once that the job waits in error, or, where it has no queue, that
// it is over.
func TestJobToBlameFaults(t *testing.T) {
	for _, from := range []string{"", "fetch"} {
		told := 0
		spooltest.EachFault(t, unix.ENOSPC,
			func(t *testing.T) *scene {
				s := newScene(t, nil)
				s.l = s.taken(nil)
				told = 0
				s.l.task.Job.Origin, s.r.Sources = &job.Origin{Source: from}, source.Sources{"fetch": abandoned{told: &told}}
				return s
			},
			func(t *testing.T, s *scene) error {
				s.t = t
				if err := s.r.refuse(s.l, errors.New("no such user"), true); !errors.Is(err, errOver) {
					return err
				}
				return nil
			},
			func(t *testing.T, s *scene, got error) {
				s.t = t
				for n := 0; n < 5 && got != nil; n++ {
					if got = s.r.enter(s.l); errors.Is(got, errOver) {
						got = nil
					}
				}
				event := notice.Held
				if from != "" {
					event = notice.Postponed
				}
				_, over, stuck := s.r.Store.Changed(s.l.task.Job, api.Tasks{})
				if got != nil || over != (from != "") || (told == 1) != over || (stuck.Reason == "no such user") == over {
					t.Errorf("%v: job over: %v, its source told %d times, in error for %q", got, over, told, stuck.Reason)
				}
				s.wantTrace("event " + string(event))
			})
	}
}
