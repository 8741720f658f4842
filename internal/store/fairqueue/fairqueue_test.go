package fairqueue

import (
	"fmt"
	"strings"
	"testing"
)

// Each has a turn, one item after the other, in the order in which they came.
func TestTurns(t *testing.T) {
	var q Queue[string]
	add := func(who string, n int) {
		for i := range n {
			q.Add(who, fmt.Sprint(who, i))
		}
	}
	add("a", 4)
	add("b", 2)
	add("c", 1)
	q.Remove("a", "a1")
	told := q.Take(4)
	q.PutFirst("a", "a0")
	told = append(told, q.Take(10)...)
	if got, want := strings.Join(told, " "), "a0 b0 c0 a2 b1 a0 a3"; got != want || q.Len() != 0 || len(q.of) != 0 {
		t.Errorf("taken in the order %q, want %q; %d are left", got, want, q.Len())
	}
}
