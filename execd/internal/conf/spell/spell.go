// Package spell finds the name that was probably meant by one that there is not.
// What reads configuration imports it.
package spell

import "strings"

// Nearest returns the name that differs from another in the fewest letters, and
// in fewer than limit; "" if none does. Case makes no difference.
func Nearest(names []string, name string, limit int) string {
	best := ""
	for _, n := range names {
		if len(n)-len(name) >= limit || len(name)-len(n) >= limit {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < limit {
			best, limit = n, d
		}
	}
	return best
}

// distance is the number of letters to change, add or drop (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
