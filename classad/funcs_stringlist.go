package classad

import (
	"slices"
	"strings"
)

func stringListFunctions(m map[string]*function) {
	m["stringListSize"] = onList(func(_ *context, items []string) Value { return Int(int64(len(items))) })
	m["stringListSum"] = onNumbers(add)
	m["stringListAvg"] = onNumbers(average)
	m["stringListMin"] = onNumbers(mostOrNone(opLess))
	m["stringListMax"] = onNumbers(mostOrNone(opGreater))
	exact := func(s string) string { return s }
	m["stringListMember"] = onLists(exact, anyIn, false)
	m["stringListIMember"] = onLists(lowerString, anyIn, false)
	intersect := onLists(exact, anyIn, true)
	m["stringListsIntersect"] = &function{least: 2, most: 3, strict: func(c *context, args []Value) Value {
		if v, ok := allStrings(args); !ok {
			return v
		}
		return intersect.strict(c, args)
	}}
	m["stringListSubsetMatch"] = onLists(exact, allIn, true)
	m["stringListISubsetMatch"] = onLists(lowerString, allIn, true)
	m["stringListRegexpMember"] = &function{least: 2, most: 4, pattern: true, strict: stringListRegexpMember}
	m["stringList_regexpMember"] = m["stringListRegexpMember"]
}

// items cuts a string into its items, which are not empty.
func (c *context) items(list, delimiters string) []string {
	// At worst every other byte is an item, and each takes a string header.
	if !c.scan(len(list)*(1+len(delimiters)/8)) || !c.alloc(8*len(list)) {
		return nil
	}
	var items []string
	for len(list) > 0 {
		end := strings.IndexAny(list, delimiters)
		item := list
		if end < 0 {
			list = ""
		} else {
			item, list = list[:end], list[end+1:]
		}
		if item = strings.Trim(item, " \t\r\n\v\f"); item != "" {
			items = append(items, item)
		}
	}
	return items
}

const comma = ", "

// delimiters returns the optional argument that tells how a list is cut.
func delimiters(args []Value, i int) (string, Value) {
	if len(args) <= i {
		return comma, Value{}
	}
	if args[i].kind != StringKind {
		return "", needs("string", args[i])
	}
	return args[i].str, Value{}
}

// onList returns a function of a string list.
func onList(f func(c *context, items []string) Value) *function {
	return &function{least: 1, most: 2, strict: func(c *context, args []Value) Value {
		if args[0].kind != StringKind {
			return needs("string", args[0])
		}
		delims, wrong := delimiters(args, 1)
		if wrong.kind != UndefinedKind {
			return wrong
		}
		return f(c, c.items(args[0].str, delims))
	}}
}

// onNumbers returns a function of a string list of numbers.
func onNumbers(f func([]Value) Value) *function {
	return onList(func(c *context, items []string) Value {
		if !c.alloc(valueSize * len(items)) {
			return c.spent()
		}
		vals := make([]Value, len(items))
		for i, item := range items {
			if end, ok := numberEnd(item); !ok || end < len(item) {
				return Error("an item is no number")
			}
			r, _ := parseNumber(item)
			vals[i] = Real(r)
			if strings.Trim(item, "+-0123456789") == "" {
				vals[i] = Int(toInt(r))
			}
		}
		return f(vals)
	})
}

func mostOrNone(o op) func([]Value) Value {
	return func(vals []Value) Value {
		if len(vals) == 0 {
			return Value{}
		}
		return most(o, vals)
	}
}

func anyIn(_ string, items []string, in func(string) bool) bool {
	return slices.ContainsFunc(items, in)
}

// allIn is true of the empty list, but false of one of blanks and delimiters alone.
func allIn(list string, items []string, in func(string) bool) bool {
	return list == "" || len(items) > 0 && !slices.ContainsFunc(items, func(s string) bool { return !in(s) })
}

// onLists returns a function of two string lists, or of an item and a list: enough
// decides by which items of the first are in the second. An undefined list is empty.
func onLists(fold func(string) string, enough func(list string, items []string, in func(string) bool) bool, lists bool) *function {
	return &function{least: 2, most: 3, strict: func(c *context, args []Value) Value {
		if args[0].kind == UndefinedKind && args[1].kind == UndefinedKind {
			return Value{}
		}
		for _, a := range args[:2] {
			if a.kind != StringKind && a.kind != UndefinedKind {
				return needs("string", a)
			}
		}
		delims := comma + "\t\r\n"
		if len(args) == 3 && args[2].kind != UndefinedKind {
			var wrong Value
			if delims, wrong = delimiters(args, 2); wrong.kind != UndefinedKind {
				return wrong
			}
		}
		first := []string{args[0].str}
		if lists {
			first = c.items(args[0].str, delims)
		}
		second := c.items(args[1].str, delims)
		if !c.alloc(16 * len(second)) {
			return c.spent()
		}
		set := make(map[string]bool, len(second))
		for _, item := range second {
			set[fold(item)] = true
		}
		return Bool(enough(args[0].str, first, func(s string) bool { return set[fold(s)] }))
	}}
}

func stringListRegexpMember(c *context, args []Value) Value {
	if v, ok := allStrings(args); !ok {
		return v
	}
	delims, options := comma, ""
	if len(args) > 2 {
		delims = args[2].str
	}
	if len(args) > 3 {
		options = args[3].str
	}
	for _, item := range c.items(args[1].str, delims) {
		if v := c.matches(args[0].str, item, options); v.kind == ErrorKind || v.num != 0 {
			return v
		}
	}
	return Bool(false)
}
