package typo

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"address", "host", "port", "shop-v4", "weight"}
	for in, want := range map[string]string{
		"wheight": "weight", "wieght": "weight", "Weight": "weight",
		"adress": "address",
		"Host":   "host", "hots": "host", "hostname": "",
		"shop-v5": "shop-v4",
		"shop":    "",
		"prot":    "port",
		"":        "",
		"cat":     "",
	} {
		if got := Nearest(in, known); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
