package pilot

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/execd/internal/conf/knob"
)

// fake is an execd. What runs ends after a time when it is asked to, or not before it is killed.
type fake struct {
	mu      sync.Mutex
	running int
	starts  time.Duration // until it answers
	deaf    bool
	failing chan struct{} // as in Life
	takes   time.Duration // until what runs ends when it is asked to; 0: it is killed
	speeds  []string
	drained time.Time
	ended   []accounting.Record
	told    chan struct{} // as Accounted in Life
	changed chan struct{} // closed when slots have changed
	version int
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.version++
	close(f.changed)
	f.changed = make(chan struct{})
}

// end has runs end whose slots have changed before, if that is seen at all.
func (f *fake) end(list []accounting.Record) {
	f.mu.Lock()
	f.ended = append(f.ended, list...)
	f.mu.Unlock()
	f.told <- struct{}{}
}

// hooks has the hook that brings work fail from now on, or work again.
func (f *fake) hooks(fail bool) {
	f.mu.Lock()
	f.deaf = fail
	f.mu.Unlock()
	f.failing <- struct{}{}
}

func (f *fake) look() (running, version int, changed chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running, f.version, f.changed
}

// start returns when the execd has started.
func (f *fake) start(ctx context.Context) error {
	f.mu.Lock()
	starts := f.starts
	f.starts = 0
	f.mu.Unlock()
	select {
	case <-time.After(starts):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fake) call(ctx context.Context, verb string, request, reply any) error {
	if err := f.start(ctx); err != nil {
		return err
	}
	running, version, changed := f.look()
	switch q := request.(type) {
	case api.SlotsRequest:
		if q.Since == fmt.Sprint(version) {
			select {
			case <-changed:
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return ctx.Err()
			}
			running, version, _ = f.look()
		}
		r := reply.(*api.SlotsReply)
		r.Version = fmt.Sprint(version)
		r.Slots = make([]api.SlotStatus, 1+running)
		for i := range running {
			r.Slots[1+i].Job = "1.1"
		}
		f.mu.Lock()
		deaf := f.deaf
		f.mu.Unlock()
		if q.Ads && deaf {
			r.Slots[0].Ad = "A = 1\nFetchFailures = 3\n"
		}
	case api.DrainRequest:
		for q.Wait && running > 0 {
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
			running, _, changed = f.look()
		}
		if q.On {
			f.mu.Lock()
			if f.drained.IsZero() {
				f.drained = time.Now()
			}
			f.speeds = append(f.speeds, q.Speed)
			f.mu.Unlock()
		}
		end := func() { f.set(func() { f.running = 0 }) }
		if q.Speed == "fast" {
			time.AfterFunc(time.Millisecond, end)
		} else if q.Speed == "quick" && f.takes > 0 {
			time.AfterFunc(f.takes, end)
		}
		reply.(*api.DrainReply).Running = running
	case api.FetchRequest:
	default:
		return fmt.Errorf("unexpected %s", verb)
	}
	return nil
}

func TestIdle(t *testing.T) {
	if d := knob.Find(knob.NoClaimShutdown); d == nil || d.Default != fmt.Sprint(int(Idle.Seconds())) {
		t.Errorf("%+v is not %v", d, Idle)
	}
}

// TestLife plays the lives that pilots have.
func TestLife(t *testing.T) {
	const hour = time.Hour
	failed := func(n int, took int64) (list []accounting.Record) {
		for range n {
			list = append(list, accounting.Record{Failed: 21, StartTime: 100, EndTime: 100 + took})
		}
		return list
	}
	for name, tt := range map[string]struct {
		starts  time.Duration
		takes   time.Duration
		stays   bool // however long it is idle
		play    func(f *fake, signals chan<- os.Signal)
		until   time.Duration
		drained time.Duration
		over    time.Duration
		speeds  string
		status  int
		log     string
	}{
		"nothing comes":                  {drained: 5 * time.Minute, over: 5 * time.Minute, speeds: ",quick", log: "nothing has run for 5m0s"},
		"an execd that is slow to start": {starts: hour, drained: hour + 5*time.Minute, over: hour + 5*time.Minute, speeds: ",quick"},
		"idle after work": {
			play: func(f *fake, _ chan<- os.Signal) {
				f.set(func() { f.running = 2 })
				time.Sleep(hour)
				f.set(func() { f.running = 0 })
			},
			drained: hour + 5*time.Minute, over: hour + 5*time.Minute, speeds: ",quick",
		},
		"idle for as long as it may last": {stays: true, until: hour, drained: hour, over: hour, speeds: ",quick", log: "the time is over"},
		"the time is over": {
			takes: 3 * time.Second, until: hour, play: func(f *fake, _ chan<- os.Signal) { f.set(func() { f.running = 1 }) },
			drained: hour, over: hour + 3*time.Second, speeds: ",quick", log: "the time is over",
		},
		"TERM, and jobs that end": {
			takes: 9 * time.Second, play: func(f *fake, signals chan<- os.Signal) {
				f.set(func() { f.running = 4 })
				time.Sleep(time.Minute)
				signals <- syscall.SIGTERM
			},
			drained: time.Minute, over: time.Minute + 9*time.Second, speeds: ",quick", log: "signal TERMINATED",
		},
		"TERM, and jobs that do not": {
			play: func(f *fake, signals chan<- os.Signal) {
				f.set(func() { f.running = 4 })
				time.Sleep(time.Minute)
				signals <- syscall.SIGTERM
			},
			drained: time.Minute, over: time.Minute + killAfter + time.Millisecond, speeds: ",quick,fast",
		},
		"USR2, before Grid Engine kills": {
			takes: time.Second, play: func(f *fake, signals chan<- os.Signal) {
				f.set(func() { f.running = 1 })
				time.Sleep(time.Minute)
				signals <- syscall.SIGUSR2
			},
			drained: time.Minute, over: time.Minute + time.Second, speeds: ",quick", log: "signal USR2",
		},
		"USR1 while a job runs": {
			play: func(f *fake, signals chan<- os.Signal) {
				f.set(func() { f.running = 1 })
				time.Sleep(time.Minute)
				signals <- syscall.SIGUSR1
				time.Sleep(hour)
				f.set(func() { f.running = 0 })
			},
			drained: time.Minute, over: time.Minute + hour, speeds: ",quick", log: "signal USR1",
		},
		"a black hole": {
			play: func(f *fake, _ chan<- os.Signal) {
				f.set(func() { f.running = 1 })
				f.end(slices.Concat(failed(4, 1), failed(1, 11), failed(4, 1)))
				time.Sleep(time.Minute)
				f.set(func() { f.running = 0 })
				time.Sleep(time.Second)
				f.end(failed(1, 0))
			},
			drained: time.Minute + time.Second, over: time.Minute + time.Second, speeds: ",quick", status: ExitBlackHole, log: "5 units in a row have failed",
		},
		"work that is over before it is seen to run": {
			play: func(f *fake, _ chan<- os.Signal) {
				time.Sleep(4 * time.Minute)
				f.end(failed(1, 0))
			},
			drained: 9 * time.Minute, over: 9 * time.Minute, speeds: ",quick", log: "nothing has run for 5m0s",
		},
		"nobody answers": {
			play: func(f *fake, _ chan<- os.Signal) {
				time.Sleep(time.Minute)
				f.hooks(true)
				time.Sleep(50 * time.Second) // it fails again
				f.hooks(true)
			},
			drained: 2 * time.Minute, over: 2 * time.Minute, speeds: ",quick", status: ExitUnreachable, log: "nobody can be asked",
		},
		"nobody answers for a while": {
			play: func(f *fake, _ chan<- os.Signal) {
				f.hooks(true)
				time.Sleep(50 * time.Second)
				f.hooks(false)
				time.Sleep(time.Minute)
				f.hooks(true)
				f.set(func() { f.running = 1 })
				time.Sleep(hour)
				f.set(func() { f.running = 0 })
			},
			drained: hour + 110*time.Second + time.Minute, over: hour + 110*time.Second + time.Minute, speeds: ",quick", status: ExitUnreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{changed: make(chan struct{}), version: 1, starts: tt.starts, takes: tt.takes, failing: make(chan struct{}, 1), told: make(chan struct{}, 1)}
				began, signals := time.Now(), make(chan os.Signal, 1)
				var log strings.Builder
				l := &Life{
					Call: f.call, Idle: Idle, Signals: signals, Told: func(context.Context) {}, Failing: f.failing, Accounted: f.told,
					Log: func(text string) { fmt.Fprintln(&log, text) },
					Ended: func() []accounting.Record {
						f.mu.Lock()
						defer f.mu.Unlock()
						list := f.ended
						f.ended = nil
						return list
					},
				}
				if tt.stays {
					l.Idle = 0
				}
				if tt.until > 0 {
					l.Until = began.Add(tt.until)
				}
				if tt.play != nil {
					go tt.play(f, signals)
				}
				ctx, stop := context.WithCancel(t.Context())
				status := l.Run(ctx)
				took := time.Since(began)
				stop()
				if drained, speeds := f.drained.Sub(began), strings.Join(f.speeds, ","); status != tt.status || drained != tt.drained || took != tt.over || speeds != tt.speeds {
					t.Errorf("status %d, drained after %v by %q, over after %v; want %d, %v, %q, %v\n%s", status, drained, speeds, took, tt.status, tt.drained, tt.speeds, tt.over, log.String())
				}
				if !strings.Contains(log.String(), tt.log) {
					t.Errorf("the log has\n%s\nwithout %q", log.String(), tt.log)
				}
			})
		})
	}
}
