package policy

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/conf"
	"paddock/execd/internal/job"
	"paddock/execd/internal/user"
	"paddock/spool"
)

func parse(t *testing.T, text string) *classad.Ad {
	t.Helper()
	ad, err := classad.ParseOld(text)
	if err != nil {
		t.Fatal(err)
	}
	return ad
}

var now = time.Unix(1_000_000, 0)

// What a job says while it runs: the first rule that holds in HTCondor's order, with its
// reason and codes; and when to look again.
func TestRunning(t *testing.T) {
	since := Times{Started: now.Add(-100 * time.Second), Executing: now.Add(-50 * time.Second)}
	later := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	for _, tt := range []struct {
		ad   string
		want Verdict
		next time.Time
	}{
		{ad: "A = 1\n"},
		{ad: "PeriodicHold = A > 1\nA = 1\nPeriodicRemove = Unknown\n"},
		{ad: "PeriodicHold = A > 1\nA = 2\n", want: Verdict{Hold, PeriodicHold, "PeriodicHold is true: A > 1", 3, 0}},
		{ad: "PeriodicHold = true\nPeriodicHoldReason = strcat(\"a\", \"\\n\", \"b\")\nPeriodicHoldSubCode = 3 + 4\n", want: Verdict{Hold, PeriodicHold, `a\nb`, 3, 7}},
		{ad: "PeriodicHold = true\nPeriodicHoldReason = 7\nPeriodicHoldSubCode = \"x\"\n", want: Verdict{Hold, PeriodicHold, "PeriodicHold is true: true", 3, 0}},
		{ad: "PeriodicHold = true\nPeriodicHoldSubCode = 99999999999\n", want: Verdict{Hold, PeriodicHold, "PeriodicHold is true: true", 3, 0}},
		{ad: "periodichold = true\nPeriodicRemove = true\n", want: Verdict{Hold, PeriodicHold, "PeriodicHold is true: true", 3, 0}},
		{ad: "PeriodicRemove = 3\nPeriodicRemoveReason = \"slow\"\n", want: Verdict{Remove, PeriodicRemove, "slow", 0, 0}},
		{ad: "PeriodicRelease = true\nOnExitHold = true\nOnExitRemove = false\n"},
		{ad: "TimerRemove = 999999\nPeriodicHold = true\n", want: Verdict{Remove, TimerRemove, now.Add(-time.Second).Format(time.DateTime), 0, 0}},
		{ad: "TimerRemove = 1000000\n", next: later(1)},
		{ad: "TimerRemove = -5\n"},
		{ad: "AllowedJobDuration = 100\n", want: Verdict{Hold, AllowedJobDuration, "AllowedJobDuration: it has run for 1m40s", 46, 0}},
		{ad: "AllowedJobDuration = 130\nAllowedExecuteDuration = 60\n", next: later(10)},
		{ad: "AllowedExecuteDuration = 50\n", want: Verdict{Hold, AllowedExecuteDuration, "AllowedExecuteDuration: it has run for 50s", 47, 0}},
		{ad: "PeriodicHold = time() > 1000010\n", next: later(60)},
		{ad: "PeriodicRemove = CurrentTime - Since > 1000\nSince = 999990\nTimerRemove = 1000029\n", next: later(30)},
		{ad: "AllowedJobDuration = 10000000000\n"}, // three centuries
		{ad: "PeriodicRelease = time() > 0\n"},
		{ad: "PeriodicHold = true ?: " + strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300) + "\n", want: Verdict{Hold, PeriodicHold, api.Short("PeriodicHold is true: true ?: 1"), 3, 0}},
	} {
		got, next := running(parse(t, tt.ad), since, now, time.Minute)
		if got != tt.want || !next.Equal(tt.next) {
			t.Errorf("%s: %+v, next %v;\nwant %+v, %v", tt.ad, got, next, tt.want, tt.next)
		}
	}
}

// What a job says when it has come to its end.
func TestEnded(t *testing.T) {
	for ad, want := range map[string]Verdict{
		"ExitCode = 0\n": {},
		"ExitCode = 3\nOnExitHold = ExitCode > 0\nOnExitHoldSubCode = ExitCode\n":       {Hold, OnExitHold, "OnExitHold is true: ExitCode > 0", 3, 3},
		"ExitCode = 0\nOnExitHold = ExitCode > 0\n":                                     {},
		"OnExitHold = Nothing\n":                                                        {Hold, OnExitHold, "OnExitHold has no value: Nothing", 5, 0},
		"OnExitRemove = true\n":                                                         {},
		"OnExitRemove = false\nOnExitRemoveReason = \"not yet\"\n":                      {Again, OnExitRemove, "not yet", 0, 0},
		"OnExitRemove = ExitCode == 0\nExitCode = 1\n":                                  {Again, OnExitRemove, "OnExitRemove is false: ExitCode == 0", 0, 0},
		"OnExitHold = true\nOnExitRemove = false\n":                                     {Hold, OnExitHold, "OnExitHold is true: true", 3, 0},
		"PeriodicHold = true\nOnExitRemove = false\n":                                   {Hold, PeriodicHold, "PeriodicHold is true: true", 3, 0},
		"PeriodicRemove = true\nOnExitRemove = false\n":                                 {Remove, PeriodicRemove, "PeriodicRemove is true: true", 0, 0},
		"AllowedJobDuration = 1\nTimerRemove = 999999\nOnExitHold = true\n":             {Remove, TimerRemove, now.Add(-time.Second).Format(time.DateTime), 0, 0},
		"AllowedJobDuration = 1\nAllowedExecuteDuration = 1\nTimerRemove = 99999999999": {},
	} {
		if got := Ended(parse(t, ad), now); got != want {
			t.Errorf("%s: %+v, want %+v", ad, got, want)
		}
	}
	if v := Ended(parse(t, "OnExitRemove = 1 / 0\n"), now); v.Action != Hold || v.Code != CodeUndefined || !strings.HasPrefix(v.Reason, "OnExitRemove has no value: 1 / 0: ") {
		t.Errorf("%+v", v)
	}
}

// An expression may be as expensive as can be written: a look at it costs little, and it is
// not true.
func TestExpensive(t *testing.T) {
	for _, ad := range []string{
		"X0 = 1\nX1 = X0 + X0\nX2 = X1 + X1\nX3 = X2 + X2\nX4 = X3 + X3\nX5 = X4 + X4\nX6 = X5 + X5\nX7 = X6 + X6\nX8 = X7 + X7\nX9 = X8 + X8\n" +
			"Y1 = X9 + X9\nY2 = Y1 + Y1\nY3 = Y2 + Y2\nY4 = Y3 + Y3\nY5 = Y4 + Y4\nY6 = Y5 + Y5\nY7 = Y6 + Y6\nY8 = Y7 + Y7\nY9 = Y8 + Y8\nPeriodicHold = Y9 > 0\nPeriodicRemove = Y9 > 1\n",
		"PeriodicHold = PeriodicHold\n",
		"PeriodicRemove = random() >= 0\n",
	} {
		if v, _ := running(parse(t, ad), Times{}, now, time.Minute); v.Action != Stay {
			t.Errorf("%s: %+v", ad, v)
		}
	}
}

func config() *conf.Config { return &conf.Config{} }

// A watch looks when it is told to, and by a timer only at what the time decides.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // of these
		text, looks, begun := "", 0, Times{Started: time.Now()}
		var did []Verdict
		be := func(ad string) {
			mu.Lock()
			defer mu.Unlock()
			text, begun.Started = ad, time.Now()
		}
		looked := func() int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return looks
		}
		done := func() []Verdict {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return did
		}
		w := &Watch{
			Config: config,
			Ad: func() (*classad.Ad, Times) {
				mu.Lock()
				defer mu.Unlock()
				looks++
				return parse(t, text), begun
			},
			Act: func(v Verdict) {
				mu.Lock()
				defer mu.Unlock()
				did = append(did, v)
			},
		}
		be("PeriodicHold = Size > 5\nSize = 1\n")
		w.Look()
		time.Sleep(time.Hour)
		if looked() != 1 || done() != nil {
			t.Fatalf("%d looks at what does not change, %v", looked(), done())
		}
		be("PeriodicHold = CurrentTime > 0 && Size > 5\nSize = 1\n")
		w.Look()
		time.Sleep(time.Minute)
		synctest.Wait()
		w.Look() // it is news, and the timer begins anew
		time.Sleep(59 * time.Second)
		if n := looked(); n != 4 {
			t.Fatalf("%d looks, want one more for each minute and each update", n)
		}
		be("PeriodicHold = CurrentTime > 0 && Size > 5\nSize = 6\nPeriodicHoldReason = \"large\"\n")
		time.Sleep(2 * time.Second)
		if did := done(); len(did) != 1 || did[0].Reason != "large" || did[0].By() != "PeriodicHold (large)" {
			t.Fatalf("%+v", did)
		}
		time.Sleep(time.Hour)
		if did := done(); len(did) != 1 {
			t.Fatalf("it was done %d times", len(did))
		}
		// A limit is kept to the second.
		be("AllowedJobDuration = 1000\n")
		w.Look()
		time.Sleep(1000*time.Second - 1)
		if did := done(); len(did) != 1 {
			t.Fatal("too early")
		}
		time.Sleep(time.Nanosecond)
		if did := done(); len(did) != 2 || did[1].Code != 46 {
			t.Fatalf("%+v", did)
		}
		be("AllowedJobDuration = 1000\n")
		w.Look()
		w.Stop()
		w.Look()
		time.Sleep(time.Hour)
		if did := done(); len(did) != 2 {
			t.Fatalf("it goes on after the end: %+v", did)
		}
	})
}

// keeper has a Keeper of the jobs of a store, whose ads are their own attributes.
func keeper(t *testing.T) (*Keeper, *job.Store) {
	t.Helper()
	root, err := spool.OpenRoot(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	store, err := job.Open(root, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k := &Keeper{Store: store, Config: config, Log: slog.New(slog.DiscardHandler)}
	k.Ad = func(j *job.Job, _ *job.Waiting) *classad.Ad {
		return parse(t, strings.Join(j.Terms().Needs.Attributes(), "\n")+"\n")
	}
	k.Init()
	store.OnWait(k.Waits)
	return k, store
}

func submit(t *testing.T, s *job.Store, tasks api.Tasks, attributes ...string) *job.Job {
	t.Helper()
	j, _, err := s.Submit(&user.User{Name: "anna", UID: 1001}, 100, &api.SubmitRequest{Name: "j", Binary: true, Command: "true", Tasks: tasks, Attributes: attributes}, job.Limits{}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// REQ-FLOW-6: the queue looks at what waits, and leaves alone what runs, of the same job, too.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, store := keeper(t)
		go k.Run(t.Context())
		soon := submit(t, store, api.Tasks{}, "PeriodicRemove = 1 + 1 == 2")
		array := submit(t, store, api.Tasks{First: 1, Last: 3, Step: 1}, "PeriodicRemove = CurrentTime > 946684800 + 599")
		idle := submit(t, store, api.Tasks{}, "PeriodicHold = CurrentTime > 0", "A = 1")
		if synctest.Wait(); store.Get(soon.Number) != nil {
			t.Error("what waits is not deleted")
		}
		task := store.Take(array, job.Start{Queue: "all.q"}, time.Now())
		if err := store.Begin(task); err != nil {
			t.Fatal(err)
		}
		time.Sleep(590 * time.Second)
		if synctest.Wait(); len(store.WaitingParts(array)) != 1 {
			t.Error("its time had not come")
		}
		time.Sleep(time.Minute + 10*time.Second)
		if synctest.Wait(); len(store.WaitingParts(array)) != 0 || store.State(task) != job.Started || store.Want(task) != nil {
			t.Errorf("%+v wait, and what runs is %v, wanted %+v", store.WaitingParts(array), store.State(task), store.Want(task))
		}
		if len(k.later) != 0 || store.Get(idle.Number) == nil {
			t.Errorf("%d jobs are looked at again", len(k.later))
		}
	})
}

// What is held is released, and not in the same moment.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, store := keeper(t)
		go k.Run(t.Context())
		j := submit(t, store, api.Tasks{}, "PeriodicRelease = true")
		hold := func() {
			t.Helper()
			task := store.Take(j, job.Start{Queue: "all.q"}, time.Now())
			if task == nil {
				t.Fatal("it is not released")
			}
			end := &job.End{Fate: job.FateError, Reason: "large", Why: &job.Why{Code: 3, Subcode: 7}}
			if err := errors.Join(store.Begin(task), errors.Join(store.End([]job.Ending{{Task: task, End: end, Time: time.Now()}})...), store.Settle(task)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for starts := 1; starts < 4; starts++ {
			hold()
			w := store.WaitingParts(j)
			if len(w) != 1 || !w[0].Held || w[0].Reason != "large" || *w[0].Why != (job.Why{Code: 3, Subcode: 7}) || w[0].Starts != starts {
				t.Fatalf("%+v", w)
			}
			time.Sleep(62 * time.Second)
			synctest.Wait()
		}
		if w := store.WaitingParts(j); len(w) != 1 || w[0].Held || w[0].Starts != 3 {
			t.Errorf("%+v", w)
		}
	})
}
