package hook

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The frames between execd and a hook server, see hook_server(7). Execd sends
//
//	HELLO 1
//	CALL <number> <hook> <bytes>[ <argument>]
//	<bytes of standard input>
//	CANCEL <number>
//
// and a server answers
//
//	HELLO 1[ REPORTS]
//	DONE <number> <status> <bytes>
//	<bytes of standard output>
//
// A server is not trusted to keep to that.
const (
	frameHello  = "HELLO 1\n" // with the version of the protocol
	ableReports = "HELLO 1 REPORTS"
	frameCall   = "CALL"
	frameCancel = "CANCEL"
	frameDone   = "DONE"

	maxFrameLine = 64      // bytes of a line of a server, which are far fewer
	maxFrameBody = 1 << 30 // bytes of an answer, which is not kept beyond what its call may print
	maxStatus    = 255
)

// appendCall appends the head of the frame of a call, behind which comes its input.
func appendCall(b []byte, number uint64, name Name, input int, args []string) []byte {
	b = fmt.Appendf(b, "%s %d %s %d", frameCall, number, name, input)
	for _, arg := range args {
		b = append(append(b, ' '), arg...)
	}
	return append(b, '\n')
}

// appendCancel appends the frame that says that a call is no longer waited for.
func appendCancel(b []byte, number uint64) []byte {
	return fmt.Appendf(b, "%s %d\n", frameCancel, number)
}

// answer is the line of a frame DONE.
type answer struct {
	number uint64
	status int
	size   int64 // bytes of output that come behind it
}

// These are the ways in which a server breaks the protocol.
var (
	errFrameLine  = fmt.Errorf("a line has more than %d bytes", maxFrameLine)
	errFrameCut   = errors.New("its output ended within a frame")
	errFrameHello = errors.New("it does not begin with " + strings.TrimSpace(frameHello))
)

// readLine reads the line of a frame. io.EOF is the end of all.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case err == nil && len(line) <= maxFrameLine:
		return string(line[:len(line)-1]), nil
	case err == nil || len(line) > maxFrameLine:
		return "", errFrameLine
	case errors.Is(err, io.EOF) && len(line) > 0:
		return "", errFrameCut
	}
	return "", err
}

// readHello reads the first frame. together says that the server takes several reports in a call.
func readHello(r *bufio.Reader) (together bool, err error) {
	line, err := readLine(r)
	if together = line == ableReports; err == nil && !together && line+"\n" != frameHello {
		return false, errFrameHello
	}
	return together, err
}

// readAnswer reads the line of a frame DONE.
func readAnswer(r *bufio.Reader) (answer, error) {
	line, err := readLine(r)
	if err != nil {
		return answer{}, err
	}
	return parseAnswer(line)
}

func parseAnswer(line string) (answer, error) {
	words := strings.Split(line, " ")
	if words[0] != frameDone || len(words) != 4 {
		return answer{}, fmt.Errorf("a line is no frame %s with three numbers", frameDone)
	}
	var numbers [3]uint64
	for i, most := range [...]uint64{1<<64 - 1, maxStatus, maxFrameBody} {
		n, err := strconv.ParseUint(words[1+i], 10, 64)
		if err != nil || n > most || strconv.FormatUint(n, 10) != words[1+i] {
			return answer{}, fmt.Errorf("number %d of a frame %s is not one from 0 to %d", 1+i, frameDone, most)
		}
		numbers[i] = n
	}
	return answer{number: numbers[0], status: int(numbers[1]), size: int64(numbers[2])}, nil
}

// readBody reads the output behind the line of an answer. One that is longer than most is
// read and not kept.
func readBody(r *bufio.Reader, size, most int64) (body []byte, err error) {
	if size > most {
		_, err = io.CopyN(io.Discard, r, size)
	} else {
		// A server may announce much and send little.
		var b bytes.Buffer
		_, err = io.CopyN(&b, r, size)
		body = b.Bytes()
	}
	if errors.Is(err, io.EOF) {
		err = errFrameCut
	}
	return body, err
}
