package eventlog

import (
	"slices"
	"testing"
)

// Whoever has many events loses its own oldest, and nobody else's.
func TestTenantsShareTheRoomOfEvents(t *testing.T) {
	owners := []string{"", "blue", "blue", "green"} // the oldest
	for range 20 {
		owners = append(owners, "red")
	}
	got := excess(owners, 10)
	if want := []int{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}; !slices.Equal(got, want) {
		t.Errorf("dropped are %v, want the oldest of red, %v", got, want)
	}
	if got := excess(owners, 3); len(got) != len(owners)-3 {
		t.Errorf("%d are left, want 3", len(owners)-len(got))
	}
	if got := excess(owners, len(owners)); got != nil {
		t.Errorf("without need %v are dropped", got)
	}
}
