package starter

import (
	"errors"
	"strings"
)

// Kind is what a starter stage turns into.
type Kind uint8

// The kinds, the procedures in the order in which they run.
const (
	Job Kind = iota
	Prolog
	PEStart
	PEStop
	Epilog
	Method // suspend, resume and terminate methods and checkpoint commands: /bin/sh -c, as the owner, beside the job
	kinds
)

// An Order is what the shepherd tells a stage together with its leave.
type Order struct {
	Kind Kind
	// Name stands in the trace and in messages: job, prolog, suspend_method.
	Name string
	// State is the number for what fails before exec and has none of its own.
	State int
	// User is the user of `user@command`, empty for the job's owner. Only
	// procedures have one.
	User string
	// Command is the command with its variables expanded: for a procedure the
	// words to execute, for a method the text for /bin/sh -c. A job has one only
	// if it is to be restarted from a checkpoint; it takes the script's place.
	Command string
	// Env is added to the environment, each NAME=value.
	Env []string
}

// append appends the message that holds the order.
func (o *Order) append(b []byte) []byte {
	b = append(b, kindGo, byte(o.Kind), byte(o.State))
	for i, s := range append([]string{o.Name, o.User, o.Command}, o.Env...) {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, s...)
	}
	return b
}

// parseOrder parses a message of append.
func parseOrder(b []byte) (Order, error) {
	if len(b) < 3 || b[0] != kindGo || b[1] >= byte(kinds) {
		return Order{}, errors.New("internal error: bad order for the starter stage")
	}
	words := strings.Split(string(b[3:]), "\x00")
	if len(words) < 3 {
		return Order{}, errors.New("internal error: bad order for the starter stage")
	}
	return Order{
		Kind: Kind(b[1]), State: int(b[2]),
		Name: words[0], User: words[1], Command: words[2], Env: words[3:],
	}, nil
}

// maxOrder is the length of the longest order: a command of 10,000 bytes and a
// few words more.
const maxOrder = 16 << 10

// ordered is where an order is read to: not on the stack, which would grow for
// it and stay so.
var ordered [maxOrder]byte
