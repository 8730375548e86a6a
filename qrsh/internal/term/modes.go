package term

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"paddock/qrsh/wire"
)

// The numbers of terminal modes in RFC 4254, section 8. Those of a serial line,
// such as its speed and parity, are left out.
var (
	keys = map[byte]int{
		1: unix.VINTR, 2: unix.VQUIT, 3: unix.VERASE, 4: unix.VKILL, 5: unix.VEOF, 6: unix.VEOL, 7: unix.VEOL2, 8: unix.VSTART,
		9: unix.VSTOP, 10: unix.VSUSP, 12: unix.VREPRINT, 13: unix.VWERASE, 14: unix.VLNEXT, 16: unix.VSWTC, 18: unix.VDISCARD,
	}
	inputs = map[byte]uint32{
		30: unix.IGNPAR, 31: unix.PARMRK, 32: unix.INPCK, 33: unix.ISTRIP, 34: unix.INLCR, 35: unix.IGNCR, 36: unix.ICRNL,
		37: unix.IUCLC, 38: unix.IXON, 39: unix.IXANY, 40: unix.IXOFF, 41: unix.IMAXBEL, 42: unix.IUTF8,
	}
	locals = map[byte]uint32{
		50: unix.ISIG, 51: unix.ICANON, 52: unix.XCASE, 53: unix.ECHO, 54: unix.ECHOE, 55: unix.ECHOK, 56: unix.ECHONL,
		57: unix.NOFLSH, 58: unix.TOSTOP, 59: unix.IEXTEN, 60: unix.ECHOCTL, 61: unix.ECHOKE,
	}
	outputs = map[byte]uint32{
		70: unix.OPOST, 71: unix.OLCUC, 72: unix.ONLCR, 73: unix.OCRNL, 74: unix.ONOCR, 75: unix.ONLRET,
	}
)

// noKey is sent for a control character that is disabled, which is 0 here.
const noKey = 255

// Encode returns modes in the form in which they are sent.
func Encode(mode *unix.Termios) wire.Modes {
	var b []byte
	for number := range byte(76) {
		if value, ok := get(mode, number); ok {
			b = binary.BigEndian.AppendUint32(append(b, number), value)
		}
	}
	return wire.Modes{Pairs: string(b)}
}

// get returns a mode by its number, and whether there is such a mode here.
func get(mode *unix.Termios, number byte) (value uint32, ok bool) {
	if at, ok := keys[number]; ok {
		if mode.Cc[at] == 0 {
			return noKey, true
		}
		return uint32(mode.Cc[at]), true
	}
	for _, flags := range flagsOf(mode) {
		if bit, ok := flags.bits[number]; ok {
			if *flags.of&bit != 0 {
				return 1, true
			}
			return 0, true
		}
	}
	return 0, false
}

// flags are the modes that are on or off.
type flags struct {
	of   *uint32
	bits map[byte]uint32
}

func flagsOf(mode *unix.Termios) [3]flags {
	return [...]flags{{&mode.Iflag, inputs}, {&mode.Lflag, locals}, {&mode.Oflag, outputs}}
}

// Decode sets modes from the form in which they are sent. Unknown modes are skipped.
func Decode(m wire.Modes, mode *unix.Termios) {
	for b := []byte(m.Pairs); len(b) >= wire.ModeSize; b = b[wire.ModeSize:] {
		number, value := b[0], binary.BigEndian.Uint32(b[1:])
		if at, ok := keys[number]; ok && value <= noKey {
			mode.Cc[at] = byte(value)
			if value == noKey {
				mode.Cc[at] = 0
			}
		}
		for _, flags := range flagsOf(mode) {
			switch bit := flags.bits[number]; value {
			case 0:
				*flags.of &^= bit
			default:
				*flags.of |= bit
			}
		}
	}
}
