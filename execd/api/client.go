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
	"strconv"
	"strings"
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
// its own: package net/http would double the start-up time of every command,
// and what a command does takes less than that.
type Client struct {
	socket string
}

// NewClient returns a client of the execd that listens on a Unix socket. It
// does not connect yet.
func NewClient(socket string) *Client { return &Client{socket} }

// Call sends one request and reads the reply into reply. The error is an
// *Error when execd answered with one, and matches ErrUnreachable when there
// was no answer.
func (c *Client) Call(ctx context.Context, verb string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("internal error: cannot encode %s request: %w", verb, err)
	}
	status, answer, err := c.post(ctx, verb, body)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("cannot reach execd at %s: %w", c.socket, &unreachable{err})
	case status != "200 OK":
		e := &Error{Code: CodeInternal}
		if json.Unmarshal(answer, e) != nil || e.Text == "" {
			e.Text = fmt.Sprintf("execd at %s answered %s", c.socket, status)
		}
		return e
	}
	if own, ok := reply.(json.Unmarshaler); ok {
		// Package json would look at all of it twice before it calls this.
		err = own.UnmarshalJSON(bytes.TrimSpace(answer))
	} else {
		err = json.Unmarshal(answer, reply)
	}
	if err != nil {
		return fmt.Errorf("cannot read the reply of execd at %s: %w", c.socket, &unreachable{err})
	}
	return nil
}

// post does one request of HTTP/1.0: there is no other on the connection, and
// the answer is not sent in chunks.
func (c *Client) post(ctx context.Context, verb string, body []byte) (status string, answer []byte, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close()
	// The end of the context interrupts reading and writing.
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })() //nolint:errcheck // there is nothing to do about it
	head := "POST /" + Version + "/" + verb + " HTTP/1.0\r\nHost: execd\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n"
	_, sent := (&net.Buffers{[]byte(head), body}).WriteTo(conn)
	// Execd may refuse what is too large before it has read all of it.
	status, answer, err = readAnswer(bufio.NewReader(conn))
	if err != nil && sent != nil {
		err = sent
	}
	return status, answer, err
}

// readAnswer reads an answer of HTTP/1.0.
func readAnswer(r *bufio.Reader) (status string, body []byte, err error) {
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
		body, err = io.ReadAll(r)
		return status, body, err
	}
	// Not made at once: a length is easily claimed.
	var b bytes.Buffer
	if _, err = io.CopyN(&b, r, length); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return status, b.Bytes(), err
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
		return op.Err.Error() // without the path, which is named already
	case errors.Is(u.cause, io.ErrUnexpectedEOF):
		return "the connection broke"
	}
	return u.cause.Error()
}

func (u *unreachable) Unwrap() []error {
	if op, ok := errors.AsType[*net.OpError](u.cause); ok && op.Op == "dial" {
		return []error{ErrUnreachable, ErrNotSent}
	}
	return []error{ErrUnreachable}
}
