package option

import (
	"fmt"
	"slices"
	"strings"
)

// A Place is where a word stands: a line of a file. The zero value is the
// command line.
type Place struct {
	File string
	Line int
}

// Word is a word of the option language, its quotes removed.
type Word struct {
	Text  string
	Place Place
}

// Words returns the words of a command line.
func Words(args []string) []Word {
	words := make([]Word, len(args))
	for i, a := range args {
		words[i].Text = a
	}
	return words
}

// Setting is one occurrence of an option with its arguments.
type Setting struct {
	*Option
	Values []string
	Place  Place
}

// Value returns the value of an option with one argument, "" for one of kind
// List without.
func (s *Setting) Value() string {
	if len(s.Values) == 0 {
		return ""
	}
	return s.Values[0]
}

// Yes returns the value of an option of kind YesNo.
func (s *Setting) Yes() bool { return strings.HasPrefix(strings.ToLower(s.Value()), "y") }

// Error is an error in the use of options. The text is Grid Engine's where it has one.
type Error struct {
	Exit  int // exit status of qsub; the other commands exit 1
	Place Place
	Text  string
	Hint  string // a second line, or ""
	// Before is a text that Grid Engine prints before the error, without the
	// name of the command.
	Before string
	// Alone says that the error is printed without the name of the command, and
	// with an empty line behind it.
	Alone bool
}

func (e *Error) Error() string {
	if e.Place != (Place{}) {
		return fmt.Sprintf("%s:%d: %s", e.Place.File, e.Place.Line, e.Text)
	}
	return e.Text
}

// Exit statuses, as Grid Engine's.
const (
	ExitFailed = 1  // what was asked for could not be done
	ExitUsage  = 2  // an option that is not there, or has no argument
	ExitWord   = 5  // a word where an option should be
	ExitValue  = 7  // an argument that is not valid
	ExitDenied = 10 // what the caller may not do
)

// Errorf returns an error of a setting's value.
func (s *Setting) Errorf(exit int, format string, args ...any) *Error {
	return &Error{Exit: exit, Place: s.Place, Text: fmt.Sprintf(format, args...)}
}

// Include returns the words of the file that an option -@ names.
type Include func(name string, from Place) ([]Word, error)

// maxInclude bounds files that include each other.
const maxInclude = 10

// Line parses a command line on which options come first. The first word that is not
// an option, and all words behind it, are rest: they belong to the job. The word "-"
// is not an option, nor are the words behind "--", which itself is dropped.
func Line(c Command, args []string, include Include) (settings []Setting, rest []string, err error) {
	settings, left, err := parse(c, Words(args), include, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range left {
		rest = append(rest, w.Text)
	}
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	return settings, rest, nil
}

// Mixed parses a command line on which options and operands may stand in any
// order, as qdel's "42 -t 1-3". An operand is a setting without option, with
// one value; all words behind "--" are operands.
func Mixed(c Command, args []string) ([]Setting, error) {
	all, behind, err := MixedArgs(c, args, nil)
	for _, text := range behind {
		all = append(all, Setting{Values: []string{text}})
	}
	return all, err
}

// MixedArgs is Mixed for a command that treats the words behind "--" apart;
// behind is nil if there is no "--".
func MixedArgs(c Command, args []string, include Include) (all []Setting, behind []string, err error) {
	for words := Words(args); len(words) > 0; {
		settings, rest, err := parse(c, words, include, 0)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, settings...)
		if len(rest) == 0 {
			break
		}
		if rest[0].Text == "--" {
			return all, args[len(args)-len(rest)+1:], nil
		}
		all = append(all, Setting{Values: []string{rest[0].Text}})
		words = rest[1:]
	}
	return all, nil, nil
}

// Lines parses the words of a script's option lines or of a defaults file: all
// of them are options.
func Lines(c Command, words []Word, include Include) ([]Setting, error) {
	return lines(c, words, include, 0)
}

func lines(c Command, words []Word, include Include, depth int) ([]Setting, error) {
	settings, left, err := parse(c, words, include, depth)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		return nil, &Error{Exit: ExitWord, Place: left[0].Place, Text: fmt.Sprintf("Unknown option %q", left[0].Text)}
	}
	return settings, nil
}

// parse reads options up to the first word that is not one.
func parse(c Command, words []Word, include Include, depth int) (settings []Setting, rest []Word, err error) {
	for len(words) > 0 {
		w := words[0]
		if len(w.Text) < 2 || w.Text[0] != '-' || w.Text == "--" {
			break
		}
		words = words[1:]
		s, left, err := setting(c, w, words)
		if err != nil {
			return nil, nil, err
		}
		words = left
		switch {
		case s.Commands&c == 0:
			continue // an option of another command in a file for all of them
		case s.Refused:
			why := " yet"
			if s.Why != "" {
				why = ": " + s.Why
			}
			return nil, nil, &Error{Exit: ExitUsage, Place: w.Place, Text: fmt.Sprintf("option %s is not supported%s", s.Name, why)}
		case s.Name == "-help" && w.Place != (Place{}):
			return nil, nil, &Error{Exit: ExitWord, Place: w.Place, Text: "-help not allowed in this context"}
		case s.Name == "-@":
			if depth == maxInclude {
				return nil, nil, s.Errorf(ExitValue, "option files include each other more than %d deep", maxInclude)
			}
			in, err := include(s.Value(), w.Place)
			if err != nil {
				return nil, nil, err
			}
			more, err := lines(c, in, include, depth+1)
			if err != nil {
				return nil, nil, err
			}
			settings = append(settings, more...)
			continue
		}
		settings = append(settings, s)
	}
	return settings, words, nil
}

// setting reads one option, whose arguments are the first of words.
func setting(c Command, w Word, words []Word) (s Setting, rest []Word, err error) {
	o, ok := Lookup(c, w.Text)
	if !ok && c == Qsub && w.Place != (Place{}) {
		o, ok = Lookup(Elsewhere, w.Text)
	}
	if known, other := Lookup(Qsub|Elsewhere, w.Text); !ok && other && c&(Qalter|Qresub) != 0 && w.Text != "-b" && w.Text != "-shell" {
		text := []string{"Unknown option", w.Text}
		for _, argument := range words[:min(len(known.Args), len(words))] {
			text = append(text, argument.Text)
		}
		return s, nil, &Error{Exit: ExitWord, Place: w.Place, Text: strings.Join(text, " "), Alone: true}
	}
	if !ok {
		e := &Error{Exit: ExitUsage, Place: w.Place, Text: fmt.Sprintf("invalid option argument \"%s\"", w.Text)}
		e.Hint = fmt.Sprintf("Type \"%s -help\" for the options.", c)
		if near := Suggest(c, w.Text); near != "" {
			e.Hint = fmt.Sprintf("Did you mean %s? %s", near, e.Hint)
		}
		return s, nil, e
	}
	s = Setting{Option: o, Place: w.Place}
	if o.Kind == List {
		if len(words) > 0 && !strings.HasPrefix(words[0].Text, "-") {
			s.Values, words = []string{words[0].Text}, words[1:]
		}
		return s, words, nil
	}
	for range o.Args {
		// An option ends with its line: a missing argument is not taken from
		// the next line.
		if len(words) == 0 || words[0].Place != w.Place {
			what := "argument"
			switch {
			case c == Qconf:
				return s, nil, &Error{Exit: ExitUsage, Place: w.Place, Text: fmt.Sprintf("no option argument provided to \"%s\"", o.Name)}
			case o.Kind == Vars:
				what = "variable list argument"
			case o.Name == "-@":
				what = "file argument"
			case len(s.Values) > 0:
				what = "range as 2nd argument" // of -pe
			}
			return s, nil, &Error{Exit: ExitUsage, Place: w.Place, Text: fmt.Sprintf("%s option must have %s", o.Name, what)}
		}
		s.Values, words = append(s.Values, words[0].Text), words[1:]
	}
	if slices.Contains(o.Before, s.Value()) && len(words) > 0 && words[0].Place == w.Place {
		s.Values, words = append(s.Values, words[0].Text), words[1:]
	}
	if o.Kind == YesNo && !o.Refused {
		switch strings.ToLower(s.Value()) {
		case "y", "yes", "n", "no":
		default:
			return s, nil, s.Errorf(ExitValue, "invalid option argument \"%s %s\"", o.Name, s.Value())
		}
	}
	return s, words, nil
}
