package submit

import (
	"fmt"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/qsub/internal/argument"
	"paddock/qsub/internal/command"
	"paddock/qsub/internal/option"
)

// addResources reads name[=value],... of -l. Execd checks names and values.
func (j *job) addResources(o *option.Setting) error {
	if j.soft {
		return argument.AddResources(&j.req.Soft, o)
	}
	return argument.AddResources(&j.req.Hard, o)
}

// parseSlots reads the range of -pe: n, n-m, n-, -m or -, separated by commas.
func parseSlots(o *option.Setting) ([]api.Slots, error) {
	var ranges []api.Slots
	for _, item := range argument.List(o.Values[1]) {
		first, last, isRange := strings.Cut(item, "-")
		r := api.Slots{Min: 1, Max: api.MaxSlots, Step: 1}
		for _, end := range []struct {
			text string
			to   *int
		}{{first, &r.Min}, {last, &r.Max}} {
			if end.text == "" {
				continue
			}
			n, err := argument.RangeNumber(o, end.text)
			switch {
			case err != nil:
				return nil, err
			case n > api.MaxSlots:
				return nil, command.Rejected(option.ExitFailed, fmt.Sprintf("job rejected: %s is more than the largest number of slots, %d", end.text, api.MaxSlots))
			case n == 0:
				return nil, command.Rejected(option.ExitFailed, "\"job\" rejected: pe range must be greater than zero")
			}
			*end.to = n
		}
		if !isRange {
			r.Max = r.Min
		}
		if r.Max < r.Min {
			r.Min, r.Max = r.Max, r.Min
		}
		ranges = append(ranges, r)
	}
	if len(ranges) == 0 {
		return nil, o.Errorf(option.ExitUsage, "-pe option must have range as 2nd argument")
	}
	slices.SortFunc(ranges, func(a, b api.Slots) int { return a.Min - b.Min })
	merged := ranges[:1]
	for _, r := range ranges[1:] {
		if top := &merged[len(merged)-1]; r.Min <= top.Max+1 {
			top.Max = max(top.Max, r.Max)
			continue
		}
		merged = append(merged, r)
	}
	return merged, nil
}

// checkBinding returns what is wrong with the syntax of -binding, or "". Execd
// checks whether the host has these cores.
func checkBinding(words []string) string {
	strategy, rest, has := strings.Cut(words[len(words)-1], ":")
	if strategy == "explicit" {
		if !has {
			return "'explicit:' not found in string!"
		}
		return checkPairs(rest)
	}
	fields := strings.Split(rest, ":")
	numbers := 1
	switch strategy {
	case "linear":
		if !has || rest == "slots" {
			return ""
		}
		if fields[0] == "slots" {
			fields[0] = "1"
		}
	case "striding":
		numbers = 2
	default:
		return "couldn't parse binding parameter (no strategy found)"
	}
	for i := range numbers {
		if i >= len(fields) || !argument.IsNumber(fields[i]) || strings.Trim(fields[i], "0") == "" {
			return fmt.Sprintf("couldn't parse amount (%s)", strategy)
		}
	}
	if len(fields) == numbers {
		return ""
	}
	socket, core, _ := strings.Cut(strings.Join(fields[numbers:], ":"), ",")
	switch {
	case !argument.IsNumber(socket):
		return fmt.Sprintf("couldn't parse socket number (%s)", strategy)
	case !argument.IsNumber(core):
		return fmt.Sprintf("couldn't parse core number (%s)", strategy)
	}
	return ""
}

// checkPairs is checkBinding for socket,core:socket,core:...
func checkPairs(text string) string {
	seen := make(map[string]bool)
	for i, pair := range strings.Split(text, ":") {
		socket, core, has := strings.Cut(pair, ",")
		switch {
		case text == "":
			return "No <socket,core> pair given!"
		case !argument.IsNumber(socket) && i == 0:
			return "First socket is not a number!"
		case !argument.IsNumber(socket):
			return "Socket is not a number!"
		case !has && i == 0:
			return "Missing first core number!"
		case !has:
			return "No core for a given socket!"
		case !argument.IsNumber(core) && i == 0:
			return "First core is not a number!"
		case !argument.IsNumber(core):
			return "Core is not a number!"
		case seen[pair]:
			return "<socket,core> pairs are not unique!"
		}
		seen[pair] = true
	}
	return ""
}
