package spool

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Usage is what the job took and how it ended.
type Usage struct {
	WaitStatus WaitStatus
	ExitStatus int   // the job's, or 128 and the signal
	Signal     int   // the system's number, or 0
	Start, End int64 // seconds since the epoch
	Wallclock  int64 // seconds
	UTime      time.Duration
	STime      time.Duration
	MaxRSS     int64 // KB
	IXRSS      int64
	IDRSS      int64
	ISRSS      int64
	MinFlt     int64
	MajFlt     int64
	NSwap      int64
	InBlock    int64
	OuBlock    int64
	MsgSnd     int64
	MsgRcv     int64
	NSignals   int64
	NVCSw      int64
	NIVCSw     int64
	Extra      []Entry // keys that are not Grid Engine's, in their order
}

// NewUsage returns the usage of a process that wait4 returned.
func NewUsage(ws syscall.WaitStatus, start, end time.Time, ru *syscall.Rusage) *Usage {
	u := &Usage{
		WaitStatus: MakeWaitStatus(ws),
		Start:      start.Unix(),
		End:        end.Unix(),
		UTime:      time.Duration(ru.Utime.Nano()),
		STime:      time.Duration(ru.Stime.Nano()),
		MaxRSS:     ru.Maxrss,
		IXRSS:      ru.Ixrss,
		IDRSS:      ru.Idrss,
		ISRSS:      ru.Isrss,
		MinFlt:     ru.Minflt,
		MajFlt:     ru.Majflt,
		NSwap:      ru.Nswap,
		InBlock:    ru.Inblock,
		OuBlock:    ru.Oublock,
		MsgSnd:     ru.Msgsnd,
		MsgRcv:     ru.Msgrcv,
		NSignals:   ru.Nsignals,
		NVCSw:      ru.Nvcsw,
		NIVCSw:     ru.Nivcsw,
	}
	// The clock may be set while the job runs: then its two times differ by more
	// than has passed.
	u.Wallclock = max(0, u.End-u.Start)
	if ran := max(0, int64(end.Sub(start)/time.Second)); u.Wallclock < ran || u.Wallclock > ran+1 {
		u.Wallclock = ran
	}
	if u.End < u.Start { // the clock was set back: the end by the clock of the start
		u.End = u.Start + u.Wallclock
	}
	switch {
	case ws.Exited():
		u.ExitStatus = ws.ExitStatus()
	case ws.Signaled():
		u.Signal = int(ws.Signal())
		u.ExitStatus = 128 + u.Signal
	}
	return u
}

// keyAsked is the key of ours for the signal by which the job was asked to end
// while it still ran; 0: it was not asked.
const keyAsked = "asked_to_end"

// Ask notes by which signal the job was asked to end.
func (u *Usage) Ask(sig int) {
	u.Extra = append(u.Extra, Entry{Key: keyAsked, Value: strconv.Itoa(sig)})
}

// Asked returns the signal by which the job was asked to end while it still ran; 0:
// it has ended by itself. known is false for a foreign shepherd, which does not tell.
func (u *Usage) Asked() (sig int, known bool) {
	for _, e := range u.Extra {
		if e.Key == keyAsked {
			n, ok := decimal(e.Value, maxID)
			return int(n), ok
		}
	}
	return 0, false
}

// hostStops is of ours, too: the host was about to stop when the job ended, and had sent
// all processes SIGTERM.
var hostStops = Entry{Key: "host_stops", Value: "1"}

// FallWithHost notes that the host was about to stop when the job ended.
func (u *Usage) FallWithHost() { u.Extra = append(u.Extra, hostStops) }

// FellWithHost reports whether the host was about to stop when the job ended.
func (u *Usage) FellWithHost() bool { return slices.Contains(u.Extra, hostStops) }

// usageKeys are Grid Engine's keys on Linux in its order.
var usageKeys = [...]string{
	"wait_status", "exit_status", "signal", "start_time", "end_time", "ru_wallclock",
	"ru_utime", "ru_stime",
	"ru_maxrss", "ru_ixrss", "ru_idrss", "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap",
	"ru_inblock", "ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw",
}

// Positions in usageKeys of the values that are no plain int64.
const (
	usageWaitStatus = 0
	usageExitStatus = 1
	usageSignal     = 2
	usageStart      = 3
	usageUTime      = 6
	usageSTime      = 7
	usageMaxRSS     = 8
)

// number returns the place of the value of usageKeys[i] if it is an int64.
func (u *Usage) number(i int) *int64 {
	switch {
	case i >= usageMaxRSS:
		return [...]*int64{
			&u.MaxRSS, &u.IXRSS, &u.IDRSS, &u.ISRSS, &u.MinFlt, &u.MajFlt, &u.NSwap,
			&u.InBlock, &u.OuBlock, &u.MsgSnd, &u.MsgRcv, &u.NSignals, &u.NVCSw, &u.NIVCSw,
		}[i-usageMaxRSS]
	case usageStart <= i && i < usageUTime:
		return [...]*int64{&u.Start, &u.End, &u.Wallclock}[i-usageStart]
	}
	return nil
}

// ParseUsage parses usage. All of Grid Engine's keys must be there, once, and
// the last line whole: its writer may have died in the middle.
func ParseUsage(b []byte) (*Usage, error) {
	u := &Usage{}
	var seen [len(usageKeys)]bool
	for n := 1; len(b) > 0; n++ {
		line, rest, ok := cutLine(b)
		if !ok {
			return nil, syntax(FileUsage, n, "no newline at the end")
		}
		b = rest
		k, v, ok := bytes.Cut(line, []byte{'='})
		key, value := string(k), string(v)
		if !ok || !validKey(key) {
			return nil, syntax(FileUsage, n, "want key=value, got "+short(line))
		}
		i := usageIndex(key)
		if i < 0 {
			if controlIn(value) >= 0 {
				return nil, syntax(FileUsage, n, "bad value of "+key+": "+short(v))
			}
			u.Extra = append(u.Extra, Entry{Key: key, Value: value})
			continue
		}
		if seen[i] {
			return nil, syntax(FileUsage, n, key+" is there twice")
		}
		seen[i] = true
		if !u.set(i, value) {
			return nil, syntax(FileUsage, n, "bad value of "+key+": "+short(v))
		}
	}
	for i, ok := range seen {
		if !ok {
			return nil, syntax(FileUsage, 0, "no "+usageKeys[i])
		}
	}
	return u, nil
}

func usageIndex(key string) int {
	for i := range usageKeys {
		if usageKeys[i] == key {
			return i
		}
	}
	return -1
}

func (u *Usage) set(i int, value string) bool {
	var n uint64
	var ok bool
	switch i {
	case usageWaitStatus:
		n, ok = decimal(value, 1<<32-1)
		u.WaitStatus = WaitStatus(n)
	case usageExitStatus:
		n, ok = decimal(value, maxID)
		u.ExitStatus = int(n)
	case usageSignal:
		n, ok = decimal(value, maxID)
		u.Signal = int(n)
	case usageUTime:
		u.UTime, ok = parseSeconds(value)
	case usageSTime:
		u.STime, ok = parseSeconds(value)
	default:
		n, ok = decimal(value, maxInt)
		*u.number(i) = int64(n)
	}
	return ok
}

// parseSeconds parses seconds with six decimals.
func parseSeconds(s string) (time.Duration, bool) {
	whole, frac, _ := strings.Cut(s, ".")
	n, ok := decimal(whole, maxInt/uint64(time.Second)-1)
	if !ok || len(frac) != 6 {
		return 0, false
	}
	f, ok := digits(frac)
	return time.Duration(n)*time.Second + time.Duration(f)*time.Microsecond, ok
}

func appendSeconds(b []byte, d time.Duration) []byte {
	d = max(0, d)
	b = strconv.AppendInt(b, int64(d/time.Second), 10)
	b = append(b, '.')
	micro := int64(d % time.Second / time.Microsecond)
	for unit := int64(100000); unit > 0; unit /= 10 {
		b = append(b, byte('0'+micro/unit%10))
	}
	return b
}

// Append appends the content of usage. An extra entry that could not be one
// line is left out.
func (u *Usage) Append(b []byte) []byte {
	for i, key := range usageKeys {
		b = append(b, key...)
		b = append(b, '=')
		switch i {
		case usageWaitStatus:
			b = strconv.AppendUint(b, uint64(u.WaitStatus), 10)
		case usageExitStatus:
			b = strconv.AppendInt(b, int64(u.ExitStatus), 10)
		case usageSignal:
			b = strconv.AppendInt(b, int64(u.Signal), 10)
		case usageUTime:
			b = appendSeconds(b, u.UTime)
		case usageSTime:
			b = appendSeconds(b, u.STime)
		default:
			b = strconv.AppendInt(b, *u.number(i), 10)
		}
		b = append(b, '\n')
	}
	for _, e := range u.Extra {
		if !validKey(e.Key) || usageIndex(e.Key) >= 0 || controlIn(e.Value) >= 0 {
			continue
		}
		b = append(b, e.Key...)
		b = append(b, '=')
		b = append(b, e.Value...)
		b = append(b, '\n')
	}
	return b
}
