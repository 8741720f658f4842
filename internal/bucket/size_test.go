package bucket

import "testing"

func TestSize(t *testing.T) {
	cases := []struct{ current, backends, want int }{
		{0, 0, 256},
		{0, 1, 256},
		{0, 2, 256},
		{0, 3, 512},
		{0, 10, 1024},
		{0, 655, 65536},
		{0, 8191, 65536},
		{512, 3, 512},
		{512, 6, 1024},
		{1024, 1, 1024}, // never shrinks
		{65536, 1, 65536},
	}
	for _, c := range cases {
		if got := Size(c.current, c.backends); got != c.want {
			t.Errorf("Size(%d, %d) = %d, want %d", c.current, c.backends, got, c.want)
		}
	}
}
