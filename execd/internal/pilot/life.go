package pilot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/internal/backoff"
)

// The exit statuses of a pilot.
const (
	ExitOver        = 0  // it was idle, or its time is over
	ExitUnreachable = 69 // nobody could be asked for work
	ExitBlackHole   = 75 // all work fails here
)

// Idle is for how long nothing may run, if STARTD_NOCLAIM_SHUTDOWN is not set.
const Idle = 5 * time.Minute

// What a pilot has patience for.
const (
	// rowOfFailures are so many units in a row that fail within quickly of their start.
	rowOfFailures = 5
	quickly       = 10 * time.Second
	// unreachable is for how long the hook that brings work may fail while nothing runs, and
	// lookLimit what a look whether it does may take.
	unreachable = time.Minute
	lookLimit   = 10 * time.Second
	// killAfter and leaveAfter are counted from when it begins to leave: what runs is killed,
	// and then it goes. Slurm kills all after 30 seconds.
	killAfter  = 14 * time.Second
	leaveAfter = 19 * time.Second
	// untold is what the hooks have to be told the last ends.
	untold = 4 * time.Second
)

// Life is when a pilot takes work, when it takes no more, and when it leaves.
type Life struct {
	// Call asks the execd, as api.Client.Call.
	Call func(ctx context.Context, verb string, request, reply any) error
	// Accounted has something when there may be more accounting records, and Ended returns those
	// since it was last called.
	Accounted <-chan struct{}
	Ended     func() []accounting.Record
	// Told returns when all ends of work have been told, or ctx is done.
	Told func(ctx context.Context)
	// Failing has something when the hook that brings work has failed, or works again.
	Failing <-chan struct{}

	Until   time.Time     // when it leaves at the latest; zero: at no time of its own
	Idle    time.Duration // for how long nothing may run; 0: for ever
	Signals <-chan os.Signal
	Log     func(text string)
}

// unknown is what runs before execd has answered.
const unknown = -1

// Run returns when the execd is to be stopped: with the exit status of the pilot.
func (l *Life) Run(ctx context.Context) int {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	busy := make(chan int)
	go l.watch(ctx, busy)
	idle, until, deaf := time.NewTimer(l.Idle), time.NewTimer(time.Until(l.Until)), time.NewTimer(unreachable)
	defer idle.Stop()
	defer until.Stop()
	defer deaf.Stop()
	deaf.Stop()
	if l.Until.IsZero() {
		until.Stop()
	}
	idle.Stop() // it counts once execd has answered: to start is not to be idle

	var gone <-chan struct{} // closed when nothing runs any more and nothing is started; nil: work is taken
	retire := func(why string) {
		if gone == nil {
			l.Log(why + ": no more work is taken")
			gone = l.drain(ctx)
		}
	}
	var failures int // in a row
	running, status := unknown, ExitOver
	isDeaf, counts := false, false // nobody can be asked for work; and the time of that counts
	for {
		if is := isDeaf && running <= 0 && gone == nil; is != counts {
			if counts = is; counts {
				deaf.Reset(unreachable)
			} else {
				deaf.Stop()
			}
		}
		select {
		case <-ctx.Done():
			return status
		case n := <-busy:
			switch {
			case n > 0:
				idle.Stop()
			case l.Idle > 0 && running != 0:
				idle.Reset(l.Idle)
			}
			running = n
		case <-l.Accounted:
			ended := l.Ended()
			if l.Idle > 0 && running == 0 && len(ended) > 0 { // what is over at once may never be seen to run
				idle.Reset(l.Idle)
			}
			if failures = inRow(failures, ended); failures >= rowOfFailures && gone == nil {
				status = ExitBlackHole
				retire(fmt.Sprintf("%d units in a row have failed", failures))
			}
		case <-l.Failing:
			isDeaf = l.deaf(ctx)
		case <-deaf.C:
			if isDeaf = l.deaf(ctx); isDeaf { // the slot that was may be gone
				l.Log("nobody can be asked for work")
				return l.leave(ctx, l.drain(ctx), ExitUnreachable)
			}
		case <-idle.C:
			retire(fmt.Sprintf("nothing has run for %v", l.Idle))
		case <-gone:
			return l.leave(ctx, gone, status)
		case <-until.C:
			retire("the time is over")
			return l.leave(ctx, gone, status)
		case s := <-l.Signals:
			retire("signal " + signalName(s))
			if s != syscall.SIGUSR1 { // USR2 is how Grid Engine tells that it is about to kill
				return l.leave(ctx, gone, status)
			}
		}
	}
}

// signalName returns the name of a signal without SIG.
func signalName(s os.Signal) string {
	switch s {
	case syscall.SIGUSR1:
		return "USR1"
	case syscall.SIGUSR2:
		return "USR2"
	}
	return strings.ToUpper(s.String())
}

// inRow counts units that have failed one after the other, before they ran or soon after.
func inRow(failures int, ended []accounting.Record) int {
	for i := range ended {
		r := &ended[i]
		if took := time.Duration(r.EndTime-r.StartTime) * time.Second; r.Failed != 0 && took <= quickly {
			failures++
		} else {
			failures = 0
		}
	}
	return failures
}

// repeat makes a call until execd has answered.
func (l *Life) repeat(ctx context.Context, verb string, request, reply any) {
	for pause := time.Duration(0); ctx.Err() == nil; {
		err := l.Call(ctx, verb, request, reply)
		if err == nil {
			return
		}
		if !errors.Is(err, api.ErrUnreachable) && ctx.Err() == nil { // else it starts, or stops
			l.Log(err.Error())
		}
		pause = backoff.Restart.Next(pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// watch tells how many slots are in use, whenever slots have changed.
func (l *Life) watch(ctx context.Context, busy chan<- int) {
	var request api.SlotsRequest
	for ctx.Err() == nil {
		var reply api.SlotsReply
		l.repeat(ctx, api.VerbSlots, request, &reply)
		request.Since = reply.Version
		n := 0
		for i := range reply.Slots {
			if s := &reply.Slots[i]; s.Job != "" || s.Claim != "" {
				n++
			}
		}
		select {
		case busy <- n:
		case <-ctx.Done():
		}
	}
}

// failing is an attribute of a slot whose hook has failed since it last worked.
var failing = regexp.MustCompile(`\nFetchFailures = [1-9]`)

// deaf reports whether some slot has nobody whom it can ask for work.
func (l *Life) deaf(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	var reply api.SlotsReply
	if l.Call(ctx, api.VerbSlots, api.SlotsRequest{Ads: true}, &reply) != nil {
		return false
	}
	for i := range reply.Slots {
		if failing.MatchString(reply.Slots[i].Ad) {
			return true
		}
	}
	return false
}

// drain has execd start nothing more. The channel is closed when nothing runs.
func (l *Life) drain(ctx context.Context) <-chan struct{} {
	gone := make(chan struct{})
	l.repeat(ctx, api.VerbDrain, api.DrainRequest{On: true}, &api.DrainReply{})
	go func() {
		for ctx.Err() == nil {
			var reply api.DrainReply
			l.repeat(ctx, api.VerbDrain, api.DrainRequest{Wait: true}, &reply)
			if reply.Running+reply.Transferring == 0 && ctx.Err() == nil {
				close(gone)
				return
			}
		}
	}()
	return gone
}

// leave ends what runs: it has the time to end by itself, and is killed then. It returns when
// nothing runs, and the ends are told, or there is no more time.
func (l *Life) leave(ctx context.Context, gone <-chan struct{}, status int) int {
	kill, over := time.NewTimer(killAfter), time.NewTimer(leaveAfter)
	defer kill.Stop()
	defer over.Stop()
	speed := func(speed string) {
		var reply api.DrainReply
		l.repeat(ctx, api.VerbDrain, api.DrainRequest{On: true, Speed: speed}, &reply)
		if reply.Running > 0 {
			l.Log(fmt.Sprintf("leaves: speed=%s running=%d", speed, reply.Running))
		}
	}
	speed("quick")
	for ran := true; ran; {
		select {
		case <-gone:
			ran = false
		case <-kill.C:
			speed("fast")
		case <-over.C:
			l.Log("leaves though not all has ended")
			ran = false
		case <-ctx.Done():
			return status
		}
	}
	limited, cancel := context.WithTimeout(ctx, untold)
	defer cancel()
	l.repeat(limited, api.VerbFetch, api.FetchRequest{}, &api.FetchReply{}) // tells what waits
	l.Told(limited)
	return status
}
