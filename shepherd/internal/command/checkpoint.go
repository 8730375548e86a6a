package command

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/spool"
)

// Class says who makes the checkpoints of a job.
type Class uint8

// The classes.
const (
	NoCheckpoint     Class = iota // nobody
	Kernel                        // Command makes one of the processes; Restart starts them from it
	ApplicationLevel              // Command makes one; the script finds it
	Transparent                   // a library in the job does when it gets Signal
	UserDefined                   // the job does, perhaps when it gets Signal
)

// A Checkpoint is how a job is checkpointed. What its class does not use is
// empty, whatever config has.
type Checkpoint struct {
	Class Class
	// Commands for a shell, empty for none. Variables are not replaced yet.
	Command, Migrate, Restart, Clean string
	Signal                           unix.Signal   // 0: none
	Interval                         time.Duration // between checkpoints; 0: only for migration
	Restarted                        int           // as RESTARTED in the job's environment
	Dir                              string
}

// CanRestart reports whether Restart is to run in the place of the job's
// script: there was an earlier run, and it left a checkpoint.
func (k Checkpoint) CanRestart() bool {
	return k.Class == Kernel && k.Restart != "" && k.Restarted == restartedFromCheckpoint
}

// ByCommand reports whether commands take the checkpoints, not signals.
func (k Checkpoint) ByCommand() bool { return k.Class == Kernel || k.Class == ApplicationLevel }

// restartedFromCheckpoint is the value of RESTARTED for a run that has a
// checkpoint to go on from; 1 is a run that has none.
const restartedFromCheckpoint = 2

// errIncomplete has Grid Engine's text.
var errIncomplete = errors.New("checkpointing with incomplete specification or unknown interface requested")

// ReadCheckpoint returns how the job is checkpointed: the zero value if it is
// not, or by an interface that is not known.
func ReadCheckpoint(c *spool.Config) (Checkpoint, error) {
	if v, _ := c.Lookup(spool.KeyCkptJob); v == "" {
		return Checkpoint{}, nil
	}
	wanted, err := c.Bool(spool.KeyCkptJob)
	if err != nil || !wanted {
		return Checkpoint{}, err
	}
	// All of them, used or not. An empty one counts as missing.
	for _, key := range [...]string{
		spool.KeyCkptInterface, spool.KeyCkptRestarted, spool.KeyCkptCommand, spool.KeyCkptMigrCommand,
		spool.KeyCkptRestCommand, spool.KeyCkptCleanCommand, spool.KeyCkptPID, spool.KeyCkptOSJobID,
		spool.KeyCkptDir, spool.KeyCkptSignal,
	} {
		if v, _ := c.Lookup(key); v == "" {
			return Checkpoint{}, errIncomplete
		}
	}
	get := func(key string) string {
		if v, _ := c.Lookup(key); !IsNone(v) {
			return v
		}
		return ""
	}
	k := Checkpoint{Class: class(get(spool.KeyCkptInterface)), Dir: get(spool.KeyCkptDir)}
	if k.Class == NoCheckpoint {
		return Checkpoint{}, nil
	}
	if k.Restarted, err = strconv.Atoi(get(spool.KeyCkptRestarted)); err != nil {
		return Checkpoint{}, errIncomplete
	}
	var sig unix.Signal
	if name := get(spool.KeyCkptSignal); name != "" { // a wrong one is refused also if it is not used
		var ok bool
		name = strings.ToUpper(name)
		if sig, ok = signal(name); !ok || strings.HasPrefix(name, "SIG") {
			return Checkpoint{}, errIncomplete
		}
	}
	switch k.Class {
	case Kernel, ApplicationLevel:
		k.Command = get(spool.KeyCkptCommand)
		k.Migrate = get(spool.KeyCkptMigrCommand)
		k.Clean = get(spool.KeyCkptCleanCommand)
		if k.Class == Kernel {
			k.Restart = get(spool.KeyCkptRestCommand)
		}
	case Transparent, UserDefined:
		if sig == 0 && k.Class == Transparent {
			return Checkpoint{}, errIncomplete
		}
		k.Signal = sig
	}
	if k.Interval, err = seconds(spool.KeyCkptInterval, c); err != nil {
		return Checkpoint{}, err
	}
	return k, nil
}

// class returns the class of an interface, in any case of letters.
func class(name string) Class {
	switch strings.ToLower(name) {
	case "hibernator", "cpr", "cray-ckpt":
		return Kernel
	case "application-level":
		return ApplicationLevel
	case "transparent":
		return Transparent
	case "userdefined":
		return UserDefined
	}
	return NoCheckpoint
}
