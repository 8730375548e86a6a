package starter

import (
	"errors"
	"slices"
	"strings"

	"paddock/spool"
)

// Kind is what a process turns into.
type Kind uint8

// The kinds, the procedures in the order in which they run.
const (
	Job Kind = iota
	Prolog
	PEStart
	PEStop
	Epilog
	Method     // suspend, resume and terminate methods and checkpoint commands: /bin/sh -c, as the owner, beside the job
	Token      // what sets an AFS token: /bin/sh -c, as the shepherd and in its directory, with the token as standard input
	Coshepherd // what renews it: a program and its arguments, as the shepherd and in its directory
	Session    // what carries the job's streams to a client: a program and its arguments, as the owner, with an environment that he has not made
	kinds
)

// procedure reports whether a process becomes one of the administrator's
// procedures around the job: the kinds that may run as another user.
func (k Kind) procedure() bool { return k >= Prolog && k <= Epilog }

// ofJob reports whether what the process becomes is a part of the job: it is
// killed and accounted with it, by its additional group.
func (k Kind) ofJob() bool { return k == Job || k == Method }

// An Order is what a process is to become.
type Order struct {
	Kind Kind
	// Detail is called with each step of the plan, before the first of them is done; nil
	// unless every step is to be traced.
	Detail func(step string)
	// Name stands in the trace and in messages: job, prolog, suspend_method.
	Name string
	// State is the number for what fails before exec and has none of its own.
	State int
	// User is the user of `user@command`, empty for the job's owner. Only
	// procedures have one.
	User string
	// Argv is the command with its variables expanded: for a procedure the words
	// to execute, the first of which is the path; for a method or token one word, the text
	// for /bin/sh -c. A job has such a word only if it is to be restarted from a
	// checkpoint; it takes the script's place.
	Argv []string
	// Env is added to the environment, each NAME=value.
	Env []string
	// Config is the job's, nil if it is to be read.
	Config *spool.Config
}

var errBadOrder = errors.New("internal error: bad order for the starter")

// check reports what no shepherd orders, and what cannot be done: a word with a NUL
// byte would end there, as half a command.
func (o *Order) check() error {
	bad := func(s string) bool { return strings.IndexByte(s, 0) >= 0 }
	if o.Kind >= kinds || bad(o.Name) || bad(o.User) || slices.ContainsFunc(o.Argv, bad) || slices.ContainsFunc(o.Env, bad) {
		return errBadOrder
	}
	return nil
}
