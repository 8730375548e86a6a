package starter

import (
	"errors"
	"strconv"
	"strings"
)

// Kind is what a starter turns into.
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

// procedure reports whether a starter becomes one of the administrator's
// procedures around the job: the kinds that may run as another user.
func (k Kind) procedure() bool { return k >= Prolog && k <= Epilog }

// ofJob reports whether what the starter becomes is a part of the job: it is
// killed and accounted with it, by its additional group.
func (k Kind) ofJob() bool { return k == Job || k == Method }

// An Order is what the shepherd tells a starter together with its leave.
type Order struct {
	Kind   Kind
	Detail bool // trace every step
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
}

// check reports why an order cannot be sent: words are separated by NUL bytes,
// and one that held a NUL would be two, the second of them perhaps a variable.
func (o *Order) check(message []byte) error {
	for _, list := range [][]string{{o.Name, o.User}, o.Argv, o.Env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return errors.New("cannot start " + o.Name + ": " + strconv.Quote(s) + " contains a NUL byte")
			}
		}
	}
	if len(message) >= maxOrder {
		return errors.New("cannot start " + o.Name + ": the command with its variables is too long: " + strconv.Itoa(len(message)) + " bytes")
	}
	return nil
}

// message returns the message that holds the order.
func (o *Order) message() []byte {
	b := append([]byte(nil), kindGo, byte(o.Kind), byte(o.State))
	if o.Detail {
		b[1] |= detailBit
	}
	b = append(b, o.Name...)
	for _, s := range append([]string{o.User, strconv.Itoa(len(o.Argv))}, o.Argv...) {
		b = append(append(b, 0), s...)
	}
	for _, s := range o.Env {
		b = append(append(b, 0), s...)
	}
	return b
}

var errBadOrder = errors.New("internal error: bad order for the starter")

// parseOrder parses a message of that kind. One that fills the room for it may
// have lost its end, and half a command is another command.
// The state is returned with an error, too.
func parseOrder(b []byte) (Order, error) {
	if len(b) < orderHead || b[0] != kindGo {
		return Order{}, errBadOrder
	}
	bad := Order{State: int(b[2])}
	kind := Kind(b[1] &^ detailBit)
	if len(b) >= maxOrder || kind >= kinds {
		return bad, errBadOrder
	}
	words := strings.Split(string(b[orderHead:]), "\x00")
	if len(words) < 3 {
		return bad, errBadOrder
	}
	n, err := strconv.Atoi(words[2])
	if err != nil || n < 0 || n > len(words)-3 || strconv.Itoa(n) != words[2] {
		return bad, errBadOrder
	}
	return Order{
		Kind: kind, Detail: b[1]&detailBit != 0, State: int(b[2]),
		Name: words[0], User: words[1], Argv: words[3 : 3+n], Env: words[3+n:],
	}, nil
}

// detailBit stands in the byte of the kind.
const detailBit = 0x80

// orderHead is how much of a message stands before its words.
const orderHead = 3

// maxOrder is the length of the longest order: a command of 10,000 bytes, each
// of them a word of its own at worst, and a few words more.
const maxOrder = 32 << 10

// ordered is where an order is read to: not on the stack, which would grow for
// it and stay so.
var ordered [maxOrder]byte
