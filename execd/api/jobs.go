package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
)

// A JobsReply is sent as JSON with a line for each job: these are the lines
// around them. So neither side needs to hold more than a line.
const (
	jobsBegin = `{"jobs":[` + "\n"
	jobsEnd   = `]}` + "\n"
)

// sendAt is how many bytes are collected before they are sent.
const sendAt = 32 << 10

// WriteJobs writes a JobsReply.
func WriteJobs(w io.Writer, jobs iter.Seq[*JobStatus]) error {
	b, err := append(make([]byte, 0, sendAt+4<<10), jobsBegin...), error(nil)
	first := true
	for j := range jobs {
		if len(b) >= sendAt {
			if _, err := w.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
		if !first {
			b = append(b, ",\n"...)
		}
		first = false
		if b, err = appendJob(b, j); err != nil {
			return err
		}
	}
	if !first {
		b = append(b, '\n')
	}
	_, err = w.Write(append(b, jobsEnd...))
	return err
}

// Jobs sends a request and calls do for each job of the JobsReply, as it comes.
// The job is valid only until do returns. The errors are those of Call.
func (c *Client) Jobs(ctx context.Context, request *JobsRequest, do func(*JobStatus)) error {
	return c.exchange(ctx, VerbJobs, request, func(r io.Reader) error { return readJobs(r, do) })
}

// readJobs reads a JobsReply, in lines or not, and calls do for each job.
func readJobs(r io.Reader, do func(*JobStatus)) error {
	lines := bufio.NewReaderSize(r, 2*sendAt)
	head, err := lines.Peek(len(jobsBegin))
	if string(head) != jobsBegin {
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return readWhole(lines, do) // an older execd's
	}
	_, _ = lines.Discard(len(head)) // it was peeked
	var d jobReader
	for {
		line, err := wholeLine(lines)
		switch {
		case err != nil:
			return err
		case string(line) == jobsEnd:
			return nil
		}
		j, err := d.read(bytes.TrimSuffix(line[:len(line)-1], []byte(",")))
		if err != nil {
			return unreadable(err)
		}
		do(j)
	}
}

// wholeLine returns the next line, which is valid until the next read.
func wholeLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		var rest []byte
		line = bytes.Clone(line)
		rest, err = r.ReadBytes('\n')
		line = append(line, rest...)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return line, err
}

// readWhole is readJobs of a reply that is not in lines.
func readWhole(r io.Reader, do func(*JobStatus)) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var reply JobsReply
	if err := json.Unmarshal(text, &reply); err != nil {
		return unreadable(err)
	}
	for i := range reply.Jobs {
		do(&reply.Jobs[i])
	}
	return nil
}
