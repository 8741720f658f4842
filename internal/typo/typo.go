package typo

import "strings"

// Nearest returns the candidate that s is most likely a misspelling of, or nothing.
func Nearest(s string, candidates []string) string {
	best, fewest := "", 3
	for _, c := range candidates {
		if len(s) > len(c)+fewest {
			continue
		}
		edits := distance(strings.ToLower(s), strings.ToLower(c))
		if edits < fewest && 2*edits < len(c) {
			best, fewest = c, edits
		}
	}
	return best
}

// distance counts the letters to insert, remove, change or swap with their neighbour to get from
// a to b (the optimal string alignment distance).
func distance(a, b string) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
		table[i][0] = i
	}
	for j := range table[0] {
		table[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := table[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			table[i][j] = min(table[i-1][j]+1, table[i][j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				table[i][j] = min(table[i][j], table[i-2][j-2]+1)
			}
		}
	}
	return table[len(a)][len(b)]
}
