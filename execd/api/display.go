package api

// PlainDisplay reports whether a text can be an X display, as host:number.screen:
// it becomes an argument of a program.
func PlainDisplay(s string) bool {
	if s == "" || len(s) > MaxPath || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
