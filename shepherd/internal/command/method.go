package command

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// A Method is what is done to suspend, resume or end a job. With neither a
// signal nor a command it is the usual signal.
type Method struct {
	Signal  unix.Signal
	Command string // for a shell; variables are not replaced yet
}

// ReadMethod returns the method under a key. Without the key it is the usual
// signal.
func ReadMethod(key string, c *spool.Config) (Method, error) {
	v, _ := c.Lookup(key)
	if IsNone(v) {
		return Method{}, nil
	}
	if v[0] == '/' {
		return Method{Command: v}, nil
	}
	sig, ok := number(v)
	// Grid Engine cuts off three bytes whatever they are.
	if name, named := strings.CutPrefix(v, "SIG"); named && !strings.HasPrefix(name, "SIG") {
		var n int
		n, ok = spool.SignalNumber(name)
		sig = unix.Signal(n)
	}
	if !ok {
		return Method{}, errors.New("cannot convert " + key + ` "` + v + `" into a valid signal number at this machine`)
	}
	return Method{Signal: sig}, nil
}

// number returns the signal that a number stands for.
func number(s string) (unix.Signal, bool) {
	n, err := strconv.ParseUint(s, 10, 8)
	return unix.Signal(n), err == nil && 1 <= n && n <= 64
}

// signal returns the signal that a name or a number stands for.
func signal(s string) (unix.Signal, bool) {
	if n, ok := spool.SignalNumber(s); ok {
		return unix.Signal(n), true
	}
	return number(s)
}

// A Notification is the warning ahead of a STOP or KILL.
type Notification struct {
	After         time.Duration // from the warning to what it warns of; 0: nobody is warned
	Kill, Suspend unix.Signal   // the warnings; 0: none, and no wait either
}

// Values of the keys that end in _type.
const (
	warnCustom  = "0"
	warnDefault = "1"
	warnNot     = "2"
)

// ReadNotification returns the warnings that the job asked for.
func ReadNotification(c *spool.Config) (Notification, error) {
	after, err := seconds(spool.KeyNotify, c)
	if err != nil || after == 0 {
		return Notification{}, err
	}
	n := Notification{After: after}
	n.Kill, err = warning(spool.KeyNotifyKillType, spool.KeyNotifyKill, unix.SIGUSR2, c)
	if err == nil {
		n.Suspend, err = warning(spool.KeyNotifySuspType, spool.KeyNotifySusp, unix.SIGUSR1, c)
	}
	if err != nil {
		return Notification{}, err
	}
	return n, nil
}

// warning returns one of the warnings. The key of the signal is looked at only
// if the type asks for it: Grid Engine leaves old values there.
func warning(typeKey, key string, usual unix.Signal, c *spool.Config) (unix.Signal, error) {
	switch v, _ := c.Lookup(typeKey); v {
	case "", warnDefault:
		return usual, nil
	case warnNot:
		return 0, nil
	case warnCustom:
	default:
		return 0, errors.New("cannot use " + typeKey + " " + short(v) + ": it is neither 0, 1 nor 2")
	}
	v, err := c.String(key)
	if err != nil {
		return 0, err
	}
	sig, ok := signal(v)
	if !ok {
		return 0, errors.New("cannot use " + key + " " + short(v) + ": there is no such signal")
	}
	return sig, nil
}

// seconds returns the value of a key that is a number of seconds. As in Grid
// Engine a negative one is 0.
func seconds(key string, c *spool.Config) (time.Duration, error) {
	n, err := c.Int(key)
	if err != nil {
		return 0, err
	}
	const limit = 1 << 32 // more than a century, and what Grid Engine means by INFINITY
	return time.Duration(min(max(n, 0), limit)) * time.Second, nil
}
