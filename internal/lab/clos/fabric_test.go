package clos

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	f, err := Parse("2x2x2x2", "router")
	if err != nil {
		t.Fatal(err)
	}
	want := "tor-1-1 tor-1-2 tor-2-1 tor-2-2 agg-1-1 agg-1-2 agg-2-1 agg-2-2 core-1 core-2"
	if got := strings.Join(f.Switches, " "); got != want {
		t.Errorf("switches are %s, want %s", got, want)
	}
	if len(f.ToRs) != 4 || len(f.Cores) != 2 || len(f.Links) != 8+4+2 {
		t.Errorf("%d ToRs, %d cores, %d links", len(f.ToRs), len(f.Cores), len(f.Links))
	}
	if f.ToR(1) != "tor-1-1" || f.ToR(5) != "tor-1-1" || f.ToR(4) != "tor-2-2" {
		t.Errorf("machines 1, 4, 5 are below %s, %s, %s", f.ToR(1), f.ToR(4), f.ToR(5))
	}
	// What a route can't come back to: cores, and the aggregation switches of a container.
	same := map[uint32]string{}
	for _, name := range f.Switches {
		same[f.AS(name, 65000)] += name + " "
	}
	if len(same) != 1+2+4 || f.AS("router", 65000) != 65000 {
		t.Errorf("ASes are %v", same)
	}
}

func TestLinksHaveAddressesOfTheirOwn(t *testing.T) {
	f, err := Parse("3x2x2x4", "router")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range f.Links {
		for _, end := range []string{l.Lower, l.Upper} {
			v4, v6 := l.addresses(end)
			if seen[v4.String()] || seen[v6.String()] {
				t.Errorf("%s has %s and %s twice", end, v4, v6)
			}
			seen[v4.String()], seen[v6.String()] = true, true
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":            "must be like 2x2x2x2",
		"2x2x2":       "must be like 2x2x2x2",
		"2x2x2x2x2":   "must be like 2x2x2x2",
		"2x2x0x2":     "must be like 2x2x2x2",
		"-1x2x2x2":    "must be like 2x2x2x2",
		"2x2x2x3":     "do not divide",
		"10x10x10x10": "at most 40",
		"99x1x1x1":    "at most 40",
	} {
		if _, err := Parse(text, "router"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("fabric %q: %v, want one that says %q", text, err, want)
		}
	}
}
