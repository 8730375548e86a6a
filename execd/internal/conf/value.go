package conf

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"paddock/spool"
)

// maxUnits bounds the named units of a RSMAP.
const maxUnits = 10_000

// ParseValue parses the value of an attribute of a kind, as in complex_values or behind
// -l. Numbers may be INFINITY, except for BOOL and RSMAP. A RSMAP is a number with the
// names of its units behind it, 4(gpu0 gpu1 a b) or 4(0-3), or the number alone, which
// is what a job requests.
func ParseValue(k Kind, text string) (Value, error) {
	v := Value{Text: text}
	bad := func(want string) (Value, error) {
		return Value{}, fmt.Errorf("%q is not a %s: want %s", text, k, want)
	}
	if text == "" || !spool.PlainValue(text) {
		return bad("a text in one line")
	}
	if strings.EqualFold(text, "INFINITY") && k.Number() && k != KindBool && k != KindRSMap {
		v.Number = math.Inf(1)
		return v, nil
	}
	switch k {
	case KindInt:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return bad("a whole number")
		}
		v.Number = float64(n)
	case KindDouble:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || strings.ContainsAny(text, "xX_") {
			return bad("a number")
		}
		v.Number = n
	case KindMemory:
		n, ok := parseMemory(text)
		if !ok {
			want := "a number with k, K, m, M, g, G, t or T behind it, or INFINITY"
			// Other programs write 4GB and 4GiB.
			if plain := strings.TrimRight(text, "iBb"); plain != text {
				if _, ok := parseMemory(plain); ok {
					want = plain
				}
			}
			return bad(want)
		}
		v.Number = n
	case KindTime:
		n, err := spool.ParseLimit(text)
		if err != nil || strings.Trim(text, "0123456789:") != "" {
			return bad("seconds, h:m:s or INFINITY")
		}
		v.Number = float64(n)
	case KindBool:
		var b bool
		if err := setBool(&b, text); err != nil {
			return bad("TRUE or FALSE")
		}
		if b {
			v.Number = 1
		}
	case KindRSMap:
		return parseUnits(text)
	case KindString, KindCString, KindREString, KindHost:
	default:
		return Value{}, fmt.Errorf("%q is not a kind of attribute", k)
	}
	return v, nil
}

// parseMemory parses a number of bytes. The suffixes k, m, g and t are powers of 1000,
// K, M, G and T powers of 1024, as in queue_conf(5).
func parseMemory(text string) (float64, bool) {
	if text == "" {
		return 0, false
	}
	unit := 1.0
	if i := strings.IndexByte("kmgtKMGT", text[len(text)-1]); i >= 0 {
		unit = math.Pow([]float64{1000, 1024}[i/4], float64(i%4+1))
		text = text[:len(text)-1]
	}
	if strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n * unit, err == nil
}

// parseUnits parses the value of a RSMAP.
func parseUnits(text string) (Value, error) {
	v := Value{Text: text}
	number, rest, named := strings.Cut(text, "(")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > maxUnits {
		return Value{}, fmt.Errorf("%q is not a RSMAP: want a number, and the names of the units as in 2(gpu0 gpu1) or 4(0-3)", text)
	}
	v.Number = float64(n)
	if !named {
		return v, nil
	}
	list, end, closed := strings.Cut(rest, ")")
	if !closed || end != "" {
		return Value{}, fmt.Errorf("%q is not a RSMAP: the names of the units do not end with )", text)
	}
	for unit := range strings.FieldsSeq(list) {
		word, properties, has := strings.Cut(unit, "[")
		if strings.Trim(word, variableLetters+".-:/") != "" {
			return Value{}, fmt.Errorf("%q is not the name of a unit", word)
		}
		if has {
			nodes, err := parseDevices(properties)
			if err != nil {
				return Value{}, fmt.Errorf("unit %s: %w", word, err)
			}
			if v.Devices == nil {
				v.Devices = map[string][]Device{}
			}
			v.Devices[word] = nodes
			v.IDs = append(v.IDs, word)
			continue
		}
		low, high, isRange := strings.Cut(word, "-")
		first, err1 := strconv.Atoi(low)
		last, err2 := strconv.Atoi(high)
		if !isRange || err1 != nil || err2 != nil || last-first >= maxUnits {
			v.IDs = append(v.IDs, word)
			continue
		}
		for id := first; id <= last; id++ {
			v.IDs = append(v.IDs, strconv.Itoa(id))
		}
	}
	if len(v.IDs) != n {
		return Value{}, fmt.Errorf("%s has the names of %d units, not of %d", text, len(v.IDs), n)
	}
	if once := slices.Compact(slices.Sorted(slices.Values(v.IDs))); len(once) != n {
		return Value{}, fmt.Errorf("%s names a unit twice", text)
	}
	return v, nil
}

// parseDevices parses the text in brackets behind a unit:
// device=PATH[:MODE][;PATH[:MODE]...], where MODE is r, w or rw.
func parseDevices(text string) ([]Device, error) {
	text, end, closed := strings.Cut(text, "]")
	name, paths, _ := strings.Cut(text, "=")
	switch {
	case !closed || end != "":
		return nil, fmt.Errorf("%q does not end with ]", text+end)
	case name != "device" && name != "devices" || strings.ContainsAny(paths, "=,"):
		return nil, fmt.Errorf("%q is not device=PATH: units have no other properties", text)
	}
	var list []Device
	for word := range strings.SplitSeq(paths, ";") {
		path, mode, has := strings.Cut(word, ":")
		if !has {
			mode = "rw"
		}
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return nil, fmt.Errorf("%q is not the absolute path of a device", path)
		}
		if mode != "r" && mode != "w" && mode != "rw" {
			return nil, fmt.Errorf("%q is none of the modes r, w and rw", mode)
		}
		list = append(list, Device{path, strings.Contains(mode, "r"), strings.Contains(mode, "w")})
	}
	return list, nil
}

// listSeparators separate the elements of a list.
const listSeparators = ", \t"

// list splits a list. Text in parentheses stays together.
func list(v string) []string {
	depth := 0
	return strings.FieldsFunc(v, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return depth <= 0 && strings.ContainsRune(listSeparators, r)
	})
}

// setValues reads complex_values: name=value, ...
func setValues(s *scope, into *Values, v string) error {
	*into = Values{}
	if isNone(v) {
		return nil
	}
	for _, word := range list(v) {
		a, text, err := s.named(word)
		if err != nil {
			return err
		}
		if _, dup := (*into)[a.Name]; dup {
			return fmt.Errorf("%s is already set", a.Name)
		}
		value, err := ParseValue(a.Kind, text)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		if a.Kind == KindRSMap && value.Number > 0 && value.IDs == nil {
			return fmt.Errorf("%s: %s does not name the units, as in 2(gpu0 gpu1)", a.Name, text)
		}
		(*into)[a.Name] = value
	}
	return nil
}

// named returns the attribute and the value of an element name=value.
func (s *scope) named(word string) (*Attribute, string, error) {
	name, text, ok := strings.Cut(word, "=")
	if !ok {
		return nil, "", fmt.Errorf("%q is not name=value", word)
	}
	a := s.conf.Attribute(name)
	if a == nil {
		var names []string
		for _, a := range s.conf.Complex {
			names = append(names, a.Name, a.Shortcut)
		}
		return nil, "", inWords("Complex attribute %q does not exist%s", name, suggest(names, name, ""))
	}
	return a, text, nil
}

// setThresholds reads load_thresholds and suspend_thresholds.
func setThresholds(s *scope, into *[]Threshold, v string) error {
	*into = nil
	if isNone(v) {
		return nil
	}
	for _, word := range list(v) {
		a, text, err := s.named(word)
		if err != nil {
			return err
		}
		value, err := ParseValue(a.Kind, text)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		if a.Relop == "EXCL" {
			return fmt.Errorf("%s: what is exclusive has no threshold", a.Name)
		}
		*into = append(*into, Threshold{a, value})
	}
	return nil
}
