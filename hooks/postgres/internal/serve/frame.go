package serve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The frames of hook_server(7), seen from the server. Execd is trusted, so that what it should not say is an error that
// ends all.
const (
	hello = "HELLO 1\n"
	// answer is that of this server: it takes several reports in a call.
	answer = "HELLO 1 REPORTS\n"
	// maxInput bounds what a call may bring: the ads of a job, with a script, and a slot.
	maxInput = 1 << 28
)

// call is a frame CALL, or, with no hook, CANCEL.
type call struct {
	number uint64
	hook   string
	words  []string
	input  []byte
}

// readHello reads the first frame of execd.
func readHello(r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err == nil && line != hello {
		return fmt.Errorf("execd speaks another protocol: %q", strings.TrimSpace(line))
	}
	return err
}

// readCall reads the next frame. io.EOF says that there are no more.
func readCall(r *bufio.Reader) (call, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		if errors.Is(err, io.EOF) && line != "" {
			err = io.ErrUnexpectedEOF
		}
		return call{}, err
	}
	words := strings.Fields(line)
	if len(words) < 2 {
		return call{}, fmt.Errorf("%q is no frame", line)
	}
	c := call{}
	if c.number, err = strconv.ParseUint(words[1], 10, 64); err != nil {
		return call{}, fmt.Errorf("%q has no number", line)
	}
	switch {
	case words[0] == "CANCEL" && len(words) == 2:
		return c, nil
	case words[0] != "CALL" || len(words) < 4:
		return call{}, fmt.Errorf("%q is no frame", line)
	}
	size, err := strconv.Atoi(words[3])
	if err != nil || size < 0 || size > maxInput {
		return call{}, fmt.Errorf("%q brings no input that can be read", line)
	}
	c.hook, c.words = words[2], words[4:]
	c.input = make([]byte, size)
	if _, err := io.ReadFull(r, c.input); err != nil {
		return call{}, err
	}
	return c, nil
}

// appendDone appends the answer to a call.
func appendDone(b []byte, number uint64, status int, output []byte) []byte {
	return append(fmt.Appendf(b, "DONE %d %d %d\n", number, status, len(output)), output...)
}
