package overload

import "testing"

func TestDropsThatAreLosses(t *testing.T) {
	var d Drops
	for _, c := range []struct {
		what            string
		dropped, passed uint64
		want            uint64
	}{
		{"what was before counts for nothing", 1000, 50, 0},
		{"nothing", 1000, 50, 0},
		{"lost ones", 1100, 50, 100},
		{"frames that nobody wants", 1300, 250, 100},
		{"both", 1600, 450, 200},
		{"passed, and handled", 1600, 480, 200},
		{"passed a moment ago, dropped now", 1630, 480, 200},
		{"a loss after that", 1640, 480, 210},
		{"passed long ago, and handled", 1640, 500, 210},
		{"a pause", 1640, 500, 210},
		{"a loss after the pause", 1660, 500, 230},
		{"another interface", 5, 500, 230},
		{"a loss of that", 15, 500, 240},
		{"another program", 20, 7, 240},
	} {
		if got := d.Lost(c.dropped, c.passed); got != c.want {
			t.Errorf("%s: %d are lost, want %d", c.what, got, c.want)
		}
	}
}
