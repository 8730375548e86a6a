package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// HookAnswer answers a call of a hook: its exit status, and what it prints.
type HookAnswer func(hook, word string, input []byte) (status int, output []byte)

// ServeHooks is a hook server, see hook_server(7), which answers one call after the other, until
// its input ends.
func ServeHooks(from io.Reader, to io.Writer, answer HookAnswer) error {
	in := bufio.NewReader(from)
	if _, err := io.WriteString(to, "HELLO 1\n"); err != nil {
		return err
	}
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return nil
		}
		if err != nil {
			return err
		}
		frame, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if frame != "CALL" {
			continue
		}
		var number uint64
		var hook, word string
		var size int
		if n, err := fmt.Sscan(rest, &number, &hook, &size, &word); n < 3 {
			return fmt.Errorf("frame %q: %w", line, err)
		}
		input := make([]byte, size)
		if _, err := io.ReadFull(in, input); err != nil {
			return err
		}
		status, output := answer(hook, word, input)
		if _, err := to.Write(append(fmt.Appendf(nil, "DONE %d %d %d\n", number, status, len(output)), output...)); err != nil {
			return err
		}
	}
}
