package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrUnreachable is matched by the errors of a Client that could not talk to
// execd at all: nothing listens, or the connection broke before the reply.
var ErrUnreachable = errors.New("execd is not reachable")

// ErrNotSent is matched, besides ErrUnreachable, when nobody listened: execd
// has not seen the request. When only ErrUnreachable matches, it may have.
var ErrNotSent = errors.New("nothing was sent to execd")

// Client talks to one execd. It may be used from several goroutines.
//
// It speaks just as much HTTP as it takes to post a request on a connection of
// its own: package net/http would double the start-up time of every command.
type Client struct {
	where string // the path of the socket, or the name of a host
	path  string // of all verbs
	post  postFunc

	streams streamFunc // nil: it sends none
}

// postFunc posts a request to a path, and calls read with the status and the body of the
// answer.
type postFunc = func(ctx context.Context, path string, body []byte, read func(status string, r io.Reader) error) error

// streamFunc posts a request whose body is read to its end, or until the answer comes, and
// calls read as a postFunc does. It gives up when no byte moves for StageStall.
type streamFunc = func(ctx context.Context, path string, body io.Reader, read func(status string, r io.Reader) error) error

// NewClient returns a client of the execd that listens on a Unix socket. It
// does not connect yet.
func NewClient(socket string) *Client {
	return NewClientOver(socket, func(ctx context.Context, path string, body []byte, read func(string, io.Reader) error) error {
		return post(ctx, socket, path, body, read)
	}, nil)
}

// NewClientOver returns a client of the execd at a place, to which post sends requests, and
// streams those with streams; nil: there are none.
func NewClientOver(where string, post postFunc, streams streamFunc) *Client {
	return &Client{where, "/" + Version + "/", post, streams}
}

// On returns a client of the execd of another host, which this one asks on the caller's
// behalf: see paddock-pool(7). It has the verbs of claims, VerbSlots and VerbHello.
func (c *Client) On(host string) *Client {
	return &Client{c.where, c.path + OnHost + "/" + url.PathEscape(host) + "/", c.post, nil}
}

// OnHost stands in a path before the name of the host that is to be asked instead.
const OnHost = "on"

// Call sends one request and reads the reply into reply. The error is an *Error when
// execd answered with one, and matches ErrUnreachable when there was no answer.
func (c *Client) Call(ctx context.Context, verb string, request, reply any) error {
	return c.exchange(ctx, verb, request, func(r io.Reader) error {
		answer, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return unreadable(json.Unmarshal(answer, reply))
	})
}

// replyError returns the error in a reply of execd.
type replyError struct{ error }

func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return &replyError{err}
}

// exchange sends one request and calls read with the reply.
func (c *Client) exchange(ctx context.Context, verb string, request any, read func(io.Reader) error) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode %s request: %w", verb, err)
	}
	return c.explain(ctx, c.patiently(ctx, func() error { return c.post(ctx, c.path+verb, body, c.reply(read)) }))
}

// explain returns the error of a request in the form that callers know.
func (c *Client) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Code == CodeTryAgain {
			return fmt.Errorf("cannot reach execd at %s: %w", c.where, &unreachable{e})
		}
		return e
	}
	if bad, ok := errors.AsType[*replyError](err); ok {
		return fmt.Errorf("cannot read the reply of execd at %s: %w", c.where, &unreachable{bad.error})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("cannot reach execd at %s: %w", c.where, &unreachable{err})
}

// How long a client tries to connect while too many others do or execd is absent, and the
// longest pause between two tries.
const (
	patience  = 10 * time.Second
	mostPause = 100 * time.Millisecond
)

// returns reports whether the execd of the host, which does not listen, was there since
// the host started: while it is upgraded there is none for a moment.
func (c *Client) returns() bool {
	return c.where == RootPlaces().Socket && exists(filepath.Dir(c.where))
}

// unread reports whether execd has not read a request that failed. A Unix socket is reset
// when it is closed before all was read that was sent to it.
func unread(err error) bool {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Code == CodeTryAgain
	}
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, syscall.EAGAIN) ||
		ok && op.Net == "unix" && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
}

// patiently tries again as long as execd has not read the request, because more
// clients connect than the kernel keeps waiting or than the caller may have open,
// or because execd stops. The next execd may be there a moment later.
func (c *Client) patiently(ctx context.Context, try func() error) error {
	begin, stops := time.Now(), false
	for pause := time.Millisecond; ; pause = min(2*pause, mostPause) {
		err := try()
		absent := errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
		stops = stops || unread(err)
		again := unread(err) || absent && (stops || c.returns())
		if !again || time.Since(begin) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// reply returns what calls read with a reply, and returns the error of one that is none.
func (c *Client) reply(read func(io.Reader) error) func(status string, r io.Reader) error {
	return func(status string, r io.Reader) error {
		if status == "200 OK" {
			return read(r)
		}
		answer, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		e := &Error{Code: CodeInternal}
		if json.Unmarshal(answer, e) != nil || e.Text == "" {
			e.Text = fmt.Sprintf("execd at %s answered %s", c.where, status)
		}
		return e
	}
}

// post does one request of HTTP/1.0: the connection has no other, and the
// answer is not sent in chunks.
func post(ctx context.Context, socket, path string, body []byte, read func(status string, r io.Reader) error) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	// The end of the context interrupts reading and writing.
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })() //nolint:errcheck // the connection is closed then
	head := "POST " + path + " HTTP/1.0\r\nHost: execd\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n"
	_, sent := (&net.Buffers{[]byte(head), body}).WriteTo(conn)
	// Execd may refuse what is too large before it has read all of it.
	status, answer, err := readHead(bufio.NewReader(conn))
	switch {
	case err == nil:
		return read(status, answer)
	case sent != nil:
		return sent
	}
	return err
}

// readHead reads the head of an answer of HTTP/1.0, and returns its body.
func readHead(r *bufio.Reader) (status string, body io.Reader, err error) {
	line, err := readLine(r)
	if err != nil {
		return "", nil, err
	}
	protocol, status, ok := strings.Cut(line, " ")
	if !ok || !strings.HasPrefix(protocol, "HTTP/1.") {
		return "", nil, fmt.Errorf("the answer is no HTTP: %q", line)
	}
	length := int64(-1)
	for {
		if line, err = readLine(r); err != nil {
			return "", nil, err
		}
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		switch {
		case strings.EqualFold(name, "Content-Length"):
			if length, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil || length < 0 {
				return "", nil, fmt.Errorf("the answer has a bad length: %q", line)
			}
		case strings.EqualFold(name, "Transfer-Encoding"):
			return "", nil, fmt.Errorf("the answer has an encoding that nobody asked for: %q", line)
		}
	}
	if length < 0 {
		return status, r, nil
	}
	return status, &exactly{r, length}, nil
}

// exactly reads a number of bytes; fewer are an error.
type exactly struct {
	r io.Reader
	n int64
}

func (e *exactly) Read(b []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(b[:min(int64(len(b)), e.n)])
	if e.n -= int64(n); errors.Is(err, io.EOF) && e.n > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readLine reads a line of the head, which is short.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return string(bytes.TrimRight(line, "\r\n")), err
}

// unreachable keeps the cause's text, which names the system call's error, and
// matches ErrUnreachable.
type unreachable struct{ cause error }

func (u *unreachable) Error() string {
	switch op, ok := errors.AsType[*net.OpError](u.cause); {
	case ok:
		return op.Err.Error() // without the path, which the text has already
	case errors.Is(u.cause, io.ErrUnexpectedEOF):
		return "the connection broke"
	}
	return u.cause.Error()
}

func (u *unreachable) Unwrap() []error {
	if _, refused := errors.AsType[*Error](u.cause); refused { // before the request was read
		return []error{ErrUnreachable, ErrNotSent}
	}
	if op, ok := errors.AsType[*net.OpError](u.cause); ok && op.Op == "dial" {
		return []error{ErrUnreachable, ErrNotSent, op.Err}
	}
	return []error{ErrUnreachable}
}
