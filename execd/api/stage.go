package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Verbs by which files of an activation travel: S, the execd of the submit host, pushes what
// the job needs into its sandbox on E, the execute host, before it starts, and pulls what it
// leaves after its end. Only the execd that has made an activation with a Carriage may use
// them, for itself. S always connects, and each of them can be repeated for ever.
//
// A tree travels as one stream of the form of package pack, see pack(5), in the body of a
// request or an answer. When that is cut off S asks again, and says or is told what the
// receiver has, so that a block at most travels twice. Before a stream or an answer in JSON E
// may send empty lines, one in StageBeat at least, while it has nothing else to say: the
// request waits, or the disk works. Who sees no byte move for StageStall gives up. A StageHave,
// StageIn or StageOut ends one that is under way for the same sandbox.
//
// The life of the files, as S sees it:
//
//  1. activate with a Carriage. E makes the sandbox.
//  2. Until StageHave says PartNone: StageHave, then StageIn with the part that it names. The
//     job starts behind the last part.
//  3. The event ActivationOver: the claim may be activated again. If it has an Outcome with
//     Pull, output waits in the sandbox for as long as the lease of the claim lasts, or its own
//     lease if the claim is gone: see RenewAllRequest and ClaimOrder.Keep. At most as many as
//     MAX_OUTPUT_TRANSFERS_PER_CLAIM of E says wait so when a claim is activated, which is
//     refused with RefusedTryAgain otherwise; Claim.Await says when one more may be.
//  4. StageOut, again and again until all of it is durable on S; then StageDone. What S cannot
//     take it tells by StageStuck, after which the output does not count any more as one that
//     waits, and can be pulled nonetheless.
//  5. The event ActivationFinal, before the sandbox is removed. If E has given the output up, its
//     End has Failed 111 and a Reason, unless the run has failed before that. Without a Pull it
//     follows by itself.
const (
	VerbStageHave  = "stage-have"  // StageHaveRequest -> StageHaveReply
	VerbStageIn    = "stage-in"    // StageInRequest and a stream -> StageInReply
	VerbStageOut   = "stage-out"   // StageOutRequest -> a stream
	VerbStageDone  = "stage-done"  // StageDoneRequest -> {}
	VerbStageStuck = "stage-stuck" // StageStuckRequest -> {}
)

// SandboxKey opens a sandbox, beside its SandboxID: 32 random bytes in 64 hexadecimal digits,
// made by S and never made from the id. It does not print.
type SandboxKey string

// NewSandboxKey makes a key.
func NewSandboxKey() SandboxKey {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	return SandboxKey(hex.EncodeToString(random))
}

// String hides it.
func (SandboxKey) String() string { return "..." }

// GoString hides it.
func (SandboxKey) GoString() string { return `"..."` }

// Check refuses what is no key.
func (k SandboxKey) Check() error {
	if b, err := hex.DecodeString(string(k)); err != nil || len(b) != 32 {
		return errors.New("the key of a sandbox has 64 hexadecimal digits")
	}
	return nil
}

// Carriage has the files of an activation pushed and pulled: E and S need not share a file
// system. The activation has Home, and a Request with Sandbox "y". Of its paths E uses none:
// the working directory is the sandbox, and
//
//   - the job's script travels in the request as always;
//   - what StageIn names is pushed, each under its Staged.InSandbox, but for what is a URL of
//     another scheme than file: that E has brought by its plugins, behind PartInput;
//   - the file of Stdin (-i) is pushed under the name NameStdin, if the request has one;
//   - standard output and error are written beside the sandbox, and pulled under the names
//     NameStdout and, unless Merge is set, NameStderr, to be appended to the files of -o and -e
//     on S. They are there, though perhaps empty, whenever anything is pulled, which is also
//     when nothing but them is wanted of a job that has written to them;
//   - of StageOut and StageOutTo E uses the names alone: what is to be pulled has the names
//     that it has in the sandbox, directories included, and S brings each to its place, URLs
//     too. WhenOut holds as always.
type Carriage struct {
	Key SandboxKey `json:"key"`
	// Input says that a tree is pushed before the job starts, PartInput. What of it has not
	// changed when the job ends is not pulled.
	Input bool `json:"input,omitempty"`
	// Spool says that behind it another is pushed, PartSpool: what S has pulled, with
	// Outcome.Spool, when a run before this one had to leave its slot. It takes the place of
	// what has the same names, and is pulled again at the end.
	Spool bool `json:"spool,omitempty"`
}

// The names of standard streams at the top of a tree that travels. What the job calls so
// does not travel.
const (
	NameStdin  = ".paddock-stdin"
	NameStdout = ".paddock-stdout"
	NameStderr = ".paddock-stderr"
)

// StagePart is a tree that is pushed.
type StagePart string

// The parts, in the order in which they are pushed.
const (
	PartInput StagePart = "input"
	PartSpool StagePart = "spool"
	PartNone  StagePart = "" // nothing more is awaited
)

// Time without any byte, in seconds.
const (
	StageBeat  = 15 // after which E sends an empty line
	StageStall = 60 // after which both give up a stream
)

// StageHaveRequest asks which part an activation waits for. The answer is kept back until it
// waits for one and it is the turn of that, and E holds the turn for StageTurn seconds.
type StageHaveRequest struct {
	Sandbox SandboxID  `json:"sandbox"`
	Key     SandboxKey `json:"key"`
	// Bytes is how many are about to be pushed; 0: not known. With many a turn is waited for
	// here; otherwise StageIn is refused with RefusedTryAgain where that is needed.
	Bytes int64 `json:"bytes,omitempty"`
}

// StageTurn is for how many seconds E keeps the turn of a push that was answered for.
const StageTurn = 30

// StageHaveReply says which. RefusedTryAgain, after a minute: it is not its turn yet; ask
// again. RefusedUnknown: nothing is known of the activation, or the key is another.
type StageHaveReply struct {
	Part StagePart `json:"part,omitempty"`
	Have string    `json:"have,omitempty"` // what E has of it, as pack.ParseHave reads it
}

// StageInRequest is the first line of a body, in JSON. The stream follows, behind what Have
// says.
type StageInRequest struct {
	Sandbox SandboxID  `json:"sandbox"`
	Key     SandboxKey `json:"key"`
	Part    StagePart  `json:"part"`
}

// StageInReply comes when all of the part is in the sandbox. An error that StageHave does not
// mend ends the run: its event is ActivationGone.
type StageInReply struct {
	Root  string `json:"root,omitempty"` // as pack.Digest.String has it
	Bytes int64  `json:"bytes"`
	Files int    `json:"files"`
	Left  string `json:"left,omitempty"` // what was left out, in words
	// Error is why it is not; nil: it is. RefusedTryAgain: nobody waits for this part now, or
	// the stream was cut off or damaged: ask StageHave.
	Error *Error `json:"error,omitempty"`
}

// StageOutRequest asks for the output of an activation that is over. Refusals: RefusedUnknown
// as of StageHaveReply; RefusedTryAgain: the run is not over, its output is not on disk yet
// (within a minute E waits for that), or it is being sent to another request; RefusedState:
// nothing is to be pulled, or not any more.
type StageOutRequest struct {
	Sandbox SandboxID  `json:"sandbox"`
	Key     SandboxKey `json:"key"`
	Have    string     `json:"have,omitempty"` // of S, as pack.Have.String writes it
	Zstd    bool       `json:"zstd,omitempty"` // blocks are to be compressed
}

// StageDoneRequest says that all of the output is durable on S, by the root of the stream as
// pack.Digest.String has it, or that nobody wants it: E removes the sandbox. When the answer
// comes that is durable, or was done before: an activation that is not known any more is no
// error. RefusedState: the root is not what was sent.
type StageDoneRequest struct {
	Sandbox SandboxID  `json:"sandbox"`
	Key     SandboxKey `json:"key"`
	Root    string     `json:"root,omitempty"`
	Discard bool       `json:"discard,omitempty"` // instead of Root
	Reason  string     `json:"reason,omitempty"`  // of Discard, for the log and the End
}

// StageStuckRequest says that S cannot take the output before somebody has looked. A StageOut
// says that somebody has.
type StageStuckRequest struct {
	Sandbox SandboxID  `json:"sandbox"`
	Key     SandboxKey `json:"key"`
	Errno   int        `json:"errno,omitempty"`
	Reason  string     `json:"reason"`
}

// Outcome says in ActivationOver what a run has left.
type Outcome struct {
	Pull bool `json:"pull,omitempty"` // the output waits for StageOut
	// Held says that the claim keeps its slot until the output has gone (ASYNC_STAGEOUT of E):
	// it may be activated again when ActivationFinal has come, and not before.
	Held bool `json:"held,omitempty"`
	// Spool says that the job had to leave its slot and wants to go on with what it has
	// (WhenOut): what is pulled is all that is new or changed in the sandbox, whatever StageOut
	// names, and is to be pushed as PartSpool of the next run.
	Spool bool  `json:"spool,omitempty"`
	KiB   int64 `json:"kib,omitempty"` // about how much; 0: not known
}

// Carried is how the files of an activation with a Carriage stand, in RunStateReply.
type Carried struct {
	Phase CarriedPhase `json:"phase"`
	Part  StagePart    `json:"part,omitempty"` // of CarriedInput
	Transfer
	// Detached says that the claim is gone and the output is kept under a lease of its own,
	// of which so many seconds are left.
	Detached bool `json:"detached,omitempty"`
	Lease    int  `json:"lease,omitempty"`
}

// CarriedPhase says what is to be done next.
type CarriedPhase string

// The phases.
const (
	CarriedNone   CarriedPhase = ""       // nothing: the job runs, or nothing is to be pulled
	CarriedInput  CarriedPhase = "input"  // StageHave and StageIn
	CarriedOutput CarriedPhase = "output" // StageOut
	CarriedSent   CarriedPhase = "sent"   // StageDone; StageOut sends it again
	CarriedStuck  CarriedPhase = "stuck"  // StageOut, when somebody has looked
)

// SandboxOrder names a sandbox that is detached.
type SandboxOrder struct {
	Sandbox SandboxID  `json:"sandbox"`
	Key     SandboxKey `json:"key"`
}

// RenewedSandbox says for how many seconds a sandbox is kept now. RefusedUnknown: nothing is
// kept.
type RenewedSandbox struct {
	Lease int    `json:"lease,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// StageHave asks which part of its input an activation waits for.
func (c *Client) StageHave(ctx context.Context, r StageHaveRequest) (reply StageHaveReply, err error) {
	err = c.Call(ctx, VerbStageHave, &r, &reply)
	return reply, err
}

// StageIn pushes a part, whose stream is read to its end, unless it comes to another one
// before. Then it may still be read for a moment after the return.
func (c *Client) StageIn(ctx context.Context, r StageInRequest, stream io.Reader) (reply StageInReply, err error) {
	err = c.stream(ctx, VerbStageIn, &r, stream, func(body io.Reader) error {
		answer, err := io.ReadAll(io.LimitReader(body, maxStageReply))
		if err != nil {
			return err
		}
		return unreadable(json.Unmarshal(answer, &reply))
	})
	if err == nil && reply.Error != nil {
		err = reply.Error
	}
	return reply, err
}

// StageOut pulls output: read is called with its stream, if there is one, and may be called
// no more than once. It returns the error of read.
func (c *Client) StageOut(ctx context.Context, r StageOutRequest, read func(stream io.Reader) error) error {
	var of error
	err := c.stream(ctx, VerbStageOut, &r, nil, func(body io.Reader) error {
		of = read(&unbeaten{r: body})
		return of
	})
	if of != nil {
		return of
	}
	return err
}

// StageDone says that output is durable here, or not wanted.
func (c *Client) StageDone(ctx context.Context, r StageDoneRequest) error {
	return c.Call(ctx, VerbStageDone, &r, &struct{}{})
}

// StageStuck says that output cannot be taken.
func (c *Client) StageStuck(ctx context.Context, r StageStuckRequest) error {
	return c.Call(ctx, VerbStageStuck, &r, &struct{}{})
}

// maxStageReply bounds a StageInReply with the empty lines before it, in bytes.
const maxStageReply = 1 << 20

// stream sends a request, with a stream behind it unless that is nil, once: what was read of
// the stream cannot be sent again.
func (c *Client) stream(ctx context.Context, verb string, request any, rest io.Reader, read func(io.Reader) error) error {
	if c.streams == nil {
		return Errorf(CodeDenied, "denied: %q is for hosts alone", verb)
	}
	head, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode %s request: %w", verb, err)
	}
	body := io.Reader(bytes.NewReader(append(head, '\n')))
	if rest != nil {
		body = io.MultiReader(body, rest)
	}
	return c.explain(ctx, c.streams(ctx, c.path+verb, body, c.reply(read)))
}

// unbeaten reads a stream without the empty lines before it.
type unbeaten struct {
	r     io.Reader
	begun bool
}

func (u *unbeaten) Read(b []byte) (int, error) {
	for !u.begun {
		n, err := u.r.Read(b)
		rest := bytes.TrimLeft(b[:n], "\n")
		if u.begun = len(rest) > 0; u.begun || err != nil {
			return copy(b, rest), err
		}
	}
	return u.r.Read(b)
}
