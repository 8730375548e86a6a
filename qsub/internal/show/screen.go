package show

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/qrsh/client"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/output"
)

// screen is the alternate screen of a terminal. While it is on, keys are read
// one by one and are not echoed.
type screen struct {
	to    *os.File
	keys  *os.File      // nil: no keys are read
	saved *unix.Termios // the modes of the terminal before
	on    bool
}

// enter switches to the alternate screen.
func (c *screen) enter() {
	if c.on {
		return
	}
	c.on = true
	if c.keys != nil {
		if old, err := unix.IoctlGetTermios(int(c.keys.Fd()), unix.TCGETS); err == nil {
			c.saved = old
			raw := *old
			// ^C and ^Z stay signals.
			raw.Lflag &^= unix.ICANON | unix.ECHO
			raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
			_ = unix.IoctlSetTermios(int(c.keys.Fd()), unix.TCSETS, &raw) // without it a key needs a newline
		}
	}
	fmt.Fprint(c.to, "\x1b[?1049h\x1b[?25l")
}

// leave restores the terminal. It may be called more than once.
func (c *screen) leave() {
	if !c.on {
		return
	}
	c.on = false
	fmt.Fprint(c.to, "\x1b[?25h\x1b[?1049l")
	if c.saved != nil {
		_ = unix.IoctlSetTermios(int(c.keys.Fd()), unix.TCSETS, c.saved) // there is nobody to tell
	}
}

// draw shows lines from the top, and one at the bottom.
func (c *screen) draw(lines []string, bottom string) {
	if !c.on {
		return
	}
	_, height := output.Size(c.to)
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i := range height - 1 {
		if i < len(lines) {
			b.WriteString(lines[i])
		}
		b.WriteString("\x1b[K\r\n")
	}
	b.WriteString(bottom)
	b.WriteString("\x1b[K")
	fmt.Fprint(c.to, b.String())
}

// key is what somebody has typed.
type key rune

// Keys that are not characters.
const (
	keyUp key = -1 - iota
	keyDown
	keyPageUp
	keyPageDown
	keyHome
	keyEscape
	keyEnter
	keyBackspace
)

// sequences are the escape sequences of these keys.
var sequences = map[string]key{
	"\x1b[A": keyUp, "\x1bOA": keyUp, "\x1b[B": keyDown, "\x1bOB": keyDown, "\x1b[5~": keyPageUp, "\x1b[6~": keyPageDown,
	"\x1b[H": keyHome, "\x1bOH": keyHome, "\x1b[1~": keyHome, "\r": keyEnter, "\n": keyEnter, "\x7f": keyBackspace, "\b": keyBackspace,
}

// parseKeys splits input into keys. Escape sequences that it does not know are
// left out.
func parseKeys(b []byte) []key {
	var keys []key
	for len(b) > 0 {
		n := sequenceLen(b)
		if k, ok := sequences[string(b[:n])]; ok {
			keys = append(keys, k)
		} else if n == 1 && b[0] == 0x1b {
			keys = append(keys, keyEscape)
		} else if r, size := utf8.DecodeRune(b[:n]); size == n && r >= ' ' && r != utf8.RuneError {
			keys = append(keys, key(r))
		}
		b = b[n:]
	}
	return keys
}

// sequenceLen returns how many of the bytes are one key.
func sequenceLen(b []byte) int {
	if b[0] != 0x1b || len(b) == 1 {
		_, n := utf8.DecodeRune(b)
		return n
	}
	switch b[1] {
	case 'O':
		return min(3, len(b))
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] >= '@' && b[i] <= '~' {
				return i + 1
			}
		}
		return len(b)
	}
	return 1
}

// readKeys sends keys until there are no more.
func readKeys(f *os.File, to chan<- []key) {
	buf := make([]byte, 256)
	for {
		n, err := f.Read(buf)
		if err != nil {
			return
		}
		to <- parseKeys(buf[:n])
	}
}

// topAnswer is the reply to one request of the screen.
type topAnswer struct {
	reply    *api.TopReply
	timeline *api.TimelineReply // nil: it is not shown
	err      error
	users    []string
}

// live shows the jobs on the terminal until a key or a signal ends it.
func (t *top) live(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &screen{to: t.inv.OutTerminal, keys: keyboard(t.inv.In)}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH)
	defer signal.Stop(signals)
	keys := make(chan []key)
	if c.keys != nil {
		go readKeys(c.keys, keys)
	}
	c.enter()
	defer c.leave() // even after a panic

	answers := make(chan topAnswer, 1)
	ui := &topScreen{top: t, screen: c}
	tick := time.NewTicker(t.view.delay)
	defer tick.Stop()
	asking := false
	ask := func() {
		if !asking {
			asking = true
			go t.ask(ctx, t.view.users, t.view.chart, t.gantt.cursor, answers)
		}
	}
	for looks := 1; ; {
		ui.draw()
		if t.view.iterations > 0 && looks >= t.view.iterations {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case sig := <-signals:
			switch sig {
			case syscall.SIGWINCH:
			case syscall.SIGTSTP:
				// The signal may stop another thread first, while this one goes
				// on for a moment; SIGCONT tells when the stop is over.
				c.leave()
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP) // a process may always signal itself
			case syscall.SIGCONT:
				c.enter()
			default:
				return &command.Failure{Exit: client.Signaled{Signal: sig.(syscall.Signal)}.Exit()}
			}
		case list := <-keys:
			for _, k := range list {
				again, end := ui.press(k)
				if end {
					return nil
				}
				if again {
					ask()
				}
			}
		case a := <-answers:
			asking = false
			if !slices.Equal(a.users, t.view.users) {
				ask() // the user has asked for other users meanwhile
				continue
			}
			looks++
			ui.take(a)
		case <-tick.C:
			ask()
		}
	}
}

// ask asks execd, for the chart too if it is shown, and sends the answer, after askTime at the latest.
func (t *top) ask(ctx context.Context, users []string, chart bool, since string, to chan<- topAnswer) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	defer func() {
		// A panic here would not restore the terminal.
		if wrong := recover(); wrong != nil {
			to <- topAnswer{err: fmt.Errorf("internal error: %v", wrong), users: users}
		}
	}()
	a := topAnswer{users: users}
	if a.reply, a.err = askTop(ctx, t.inv, users); a.err == nil && chart {
		a.timeline = &api.TimelineReply{}
		if err := t.inv.Client.Call(ctx, api.VerbTimeline, &api.TimelineRequest{Since: since}, a.timeline); err != nil {
			a.err = t.inv.CallFailed(err)
		}
	}
	to <- a
}

const askTime = 10 * time.Second

// keyboard returns the terminal that keys are read from; nil if there is none.
func keyboard(in any) *os.File {
	if f, ok := in.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return f
		}
	}
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return f
}

// topScreen is the screen of qtop.
type topScreen struct {
	*top
	screen *screen
	typing bool   // the user is typing names of users in the last line
	typed  string // so far
	wrong  string // the error of the last request
}

func (u *topScreen) take(a topAnswer) {
	if u.wrong = ""; a.err != nil {
		u.wrong = a.err.Error()
		if f, ok := errors.AsType[*command.Failure](a.err); ok {
			u.wrong = f.Text
		}
		return
	}
	u.top.take(a.reply, a.users, time.Now())
	if a.timeline != nil {
		u.gantt.take(a.timeline)
	}
}

const (
	topHelp   = "q quit  c m t j sort by cpu, memory, time, job  r reverse  u user  g slots"
	ganttHelp = "q quit  g jobs  + - finer, coarser  arrows"
)

// draw shows the last reply.
func (u *topScreen) draw() {
	columns, height := output.Size(u.screen.to)
	l := u.layout(columns)
	header, rows := l.header(), u.rows(l)
	if u.view.chart {
		chart := u.gantt.lines(columns, ganttWidths[u.view.width])
		header, rows = chart[0], append(chart[1:], "", ganttLegend)
	}
	room := max(height-5, 1)
	u.view.first = max(min(u.view.first, len(rows)-room), 0)
	lines := append(u.summary(), "")
	for _, row := range append([]string{header}, rows[u.view.first:min(u.view.first+room, len(rows))]...) {
		lines = append(lines, output.Cut(row, columns))
	}
	for i := range 3 {
		lines[i] = output.Cut(lines[i], columns)
	}
	if u.wrong != "" {
		lines[3] = output.Cut(api.Visible(u.wrong), columns)
	}
	if output.Coloured(u.screen.to) {
		lines[0] = output.Colour(output.Bold, lines[0])
		lines[4] = output.Colour(output.Invert, lines[4]+strings.Repeat(" ", max(columns-output.Width(lines[4]), 0)))
		for i := 5; i < len(lines) && !u.view.chart; i++ {
			lines[i] = colourState(lines[i], l.state())
		}
	}
	bottom := topHelp
	if u.view.chart {
		bottom = ganttHelp
	}
	if u.typing {
		bottom = "users, separated by commas; none for all: " + u.typed + "_"
	}
	u.screen.draw(lines, output.Cut(bottom, columns-1))
}

// colourState colours the state, which begins at a column of the row.
func colourState(row string, at int) string {
	before := output.Cut(row, at)
	state := strings.TrimRight(output.Cut(row[len(before):], 5), " ")
	code := output.StateColour(state)
	if code == "" {
		return row
	}
	return before + output.Colour(code, state) + row[len(before)+len(state):]
}

// press handles a key. It reports whether execd is to be asked at once, and
// whether the key ends qtop.
func (u *topScreen) press(k key) (again, end bool) {
	if u.typing {
		return u.spell(k), false
	}
	_, height := output.Size(u.screen.to)
	switch k {
	case 'q', 'Q':
		return false, true
	case 'c', 'm', 't', 'j':
		u.view.by, u.view.first = topKey(k), 0
	case 'r':
		u.view.reverse = !u.view.reverse
	case 'g':
		u.view.chart, u.view.first = !u.view.chart, 0
		return u.view.chart, false
	case '+', '-':
		u.view.width = min(max(u.view.width+map[key]int{'+': -1, '-': 1}[k], 0), len(ganttWidths)-1)
	case 'u':
		u.typing, u.typed = true, strings.Join(u.view.users, ",")
	case ' ':
		return true, false
	case keyUp:
		u.view.first--
	case keyDown:
		u.view.first++
	case keyPageUp:
		u.view.first -= max(height-6, 1)
	case keyPageDown:
		u.view.first += max(height-6, 1)
	case keyHome:
		u.view.first = 0
	}
	return false, false
}

// maxTyped bounds the names that are typed, in bytes.
const maxTyped = 200

// spell handles a key while names of users are typed. It reports whether they
// are complete.
func (u *topScreen) spell(k key) (done bool) {
	switch {
	case k == keyEnter:
		u.typing, u.view.users, u.view.first = false, argument.List(strings.TrimSpace(u.typed)), 0
		return true
	case k == keyEscape:
		u.typing = false
	case k == keyBackspace:
		r := []rune(u.typed)
		u.typed = string(r[:max(len(r)-1, 0)])
	case k > ' ' && len(u.typed) < maxTyped:
		u.typed += string(rune(k))
	}
	return false
}
