package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"runtime"
	"time"

	"paddock/execd/api"
	"paddock/execd/internal/fair"
	"paddock/execd/internal/job"
)

// These bound the memory of requests and replies, for all users together and for one,
// in bytes. Small ones are not counted, since connections are.
const (
	maxBodies      = 128 << 20
	maxUserBodies  = 32 << 20
	maxReplies     = 128 << 20
	maxUserReplies = 32 << 20
	smallBody      = 8 << 10
	smallReply     = 16 << 10
)

// maxValues bounds the values in a request. A job cannot have more arguments and
// variables: the kernel has 2 MB for both, and each takes a pointer and two bytes.
const maxValues = 1 << 18

// These bound the submissions under way. Those of one user share the syncs of a group
// commit, and are so few that others do not notice.
const (
	maxSubmits     = 128
	maxUserSubmits = 16
)

// answerers is how many users can have their full number of requests answered at the
// same time: half as many each as there are processors, at least 2. Submissions are not
// counted.
const answerers = 16

// These bound the time that a client may take to send a request, beside a second for
// each MB, and to read a piece of the reply.
const (
	bodyPatience  = 30 * time.Second
	writePatience = 2 * time.Minute
)

// admission bounds what the requests of a user cost others.
type admission struct {
	rate    fair.Meter
	submits fair.Gate // of submissions, and what else writes records
	answers fair.Gate // of whatever else takes time
	bodies  fair.Gate // of bytes of requests
	replies fair.Gate // of bytes of replies
}

func newAdmission() *admission {
	ofUser := max(runtime.GOMAXPROCS(0)/2, 2)
	return &admission{
		submits: fair.Gate{Total: maxSubmits, PerUser: maxUserSubmits},
		answers: fair.Gate{Total: answerers * ofUser, PerUser: ofUser},
		bodies:  fair.Gate{Total: maxBodies, PerUser: maxUserBodies},
		replies: fair.Gate{Total: maxReplies, PerUser: maxUserReplies},
	}
}

// incoming is a request that is being read or answered.
type incoming struct {
	uid   int
	body  io.Reader
	size  int64 // bytes of body; negative: not known
	limit int64 // of size

	admission *admission
	gate      *fair.Gate                 // where it waits for its turn; nil: nowhere
	deadline  func(read time.Time) error // of reading the body; nil: there is none
	serving   context.Context            // done when reading is given up; only with a deadline
	flush     func() error               // sends what was written of the reply
	dropBody  func()                     // nil: the body takes no room
	dropReply func()
	leaveTurn func()
}

// giveBack calls one of the functions that give something back, once.
func giveBack(f *func()) {
	if *f != nil {
		(*f)()
		*f = nil
	}
}

// done gives back all that the request has taken.
func (in *incoming) done() {
	giveBack(&in.leaveTurn)
	giveBack(&in.dropBody)
	giveBack(&in.dropReply)
}

// bodyCost is the memory that a request takes once it is read. A small one of short
// words takes many times its size; a large one is a script.
func bodyCost(size int64) int { return int(2*size + 6*min(size, 1<<20)) }

// decode reads and parses the request. A slow client delays no other.
func (in *incoming) decode(ctx context.Context, into any) error {
	size := in.size
	if size < 0 {
		size = in.limit
	}
	if size > in.limit {
		return api.Errorf(api.CodeRejected, "the request is larger than %d bytes", in.limit)
	}
	if size > smallBody {
		leave, err := in.admission.bodies.Enter(ctx, in.uid, bodyCost(size))
		if err != nil {
			return err
		}
		in.dropBody = leave
	}
	text, err := in.read(size)
	switch {
	case err != nil && in.serving != nil && in.serving.Err() != nil:
		return api.Errorf(api.CodeTryAgain, "execd is stopping")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return api.Errorf(api.CodeBadRequest, "the request did not arrive in time")
	case err != nil:
		return api.Errorf(api.CodeBadRequest, "cannot read request: %v", err)
	case int64(len(text)) > in.limit:
		return api.Errorf(api.CodeRejected, "the request is larger than %d bytes", in.limit)
	}
	if n := values(text); n > maxValues {
		return api.Errorf(api.CodeRejected, "the request has %d values, at most %d are possible", n, maxValues)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return api.Errorf(api.CodeBadRequest, "cannot read request: %v", err)
	}
	return nil
}

// read reads the body, of at most size bytes, before its deadline.
func (in *incoming) read(size int64) (text []byte, err error) {
	if in.deadline != nil {
		late := time.Now().Add(bodyPatience + time.Duration(size>>20)*time.Second)
		if err := in.deadline(late); err != nil {
			return nil, err
		}
		arrived := context.AfterFunc(in.serving, func() { _ = in.deadline(time.Unix(1, 0)) })
		defer func() {
			if !arrived() {
				text, err = nil, os.ErrDeadlineExceeded
			}
		}()
	}
	if in.size >= 0 {
		text = make([]byte, in.size)
		_, err = io.ReadFull(in.body, text)
	} else {
		text, err = io.ReadAll(io.LimitReader(in.body, in.limit+1))
	}
	if in.deadline != nil && err == nil {
		// From here on, reading only notices that the client has gone.
		err = in.deadline(time.Time{})
	}
	return text, err
}

// values counts the values of a JSON text, at least as many as a valid text has.
func values(text []byte) int {
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			quoted = !quoted
		case '\\':
			i++ // in a string: there are none elsewhere
		case ',':
			if !quoted {
				n++
			}
		}
	}
	return n
}

// takeTurn waits until it is the request's turn to be answered.
func (in *incoming) takeTurn(ctx context.Context) error {
	if in.gate == nil || in.leaveTurn != nil {
		return nil
	}
	leave, err := in.gate.Enter(ctx, in.uid, 1)
	if err == nil {
		in.leaveTurn = leave
	}
	return err
}

// holdReply waits until there is room for a reply. The room is taken until the reply is
// sent, however slowly the client reads.
func (in *incoming) holdReply(ctx context.Context, size int) error {
	if size <= smallReply || in.dropReply != nil { // there was room for it where it came from
		return nil
	}
	leave, err := in.admission.replies.Enter(ctx, in.uid, size)
	if err == nil {
		in.dropReply = leave
	}
	return err
}

// handler makes a method with its request type a handleFunc.
func handler[Req, Rep any](f func(*Server, context.Context, job.Caller, *Req) (Rep, error)) handleFunc {
	return func(s *Server, ctx context.Context, c job.Caller, in *incoming) (any, error) {
		var req Req
		if err := in.decode(ctx, &req); err != nil {
			return nil, err
		}
		if err := in.takeTurn(ctx); err != nil {
			return nil, err
		}
		return f(s, ctx, c, &req)
	}
}

// hurried refuses submissions that come faster than configured, before it reads
// anything of them.
func hurried(f handleFunc) handleFunc {
	return func(s *Server, ctx context.Context, c job.Caller, in *incoming) (any, error) {
		if err := s.mayHurry(c); err != nil {
			return nil, err
		}
		return f(s, ctx, c, in)
	}
}

// patientWriter sends a reply, and gives up when the client does not read on.
type patientWriter struct {
	w        io.Writer
	deadline func(write time.Time) error
}

func newPatientWriter(w http.ResponseWriter) *patientWriter {
	return &patientWriter{w, http.NewResponseController(w).SetWriteDeadline}
}

func (p *patientWriter) Write(b []byte) (int, error) {
	if err := p.deadline(time.Now().Add(writePatience)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

// mayHurry refuses submissions that come faster than configured.
func (s *Server) mayHurry(c job.Caller) error {
	if rate := s.Config().Global.SubmitRate; rate > 0 {
		if wait := s.admission.rate.Take(c.UID, rate, time.Now()); wait > 0 {
			return api.Errorf(api.CodeLimit, "job rejected: user %s submits more than %d jobs a second; try again in %.0f s",
				c.Name, rate, math.Ceil(wait.Seconds()))
		}
	}
	return nil
}
