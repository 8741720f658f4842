package clos

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlb/weir/internal/fabric"
)

// Bounds: each switch is three processes or four, and a link has an octet for its number.
const (
	maxSwitches = 40
	maxLinks    = 250
)

// Fabric is what a text such as 2x2x2x2 says.
type Fabric struct {
	Switches []string // ToRs, then aggregation switches, then cores
	ToRs     []string
	Cores    []string
	Links    []Link
	border   string
}

// Link is a cable between two routers.
type Link struct {
	Lower, Upper string
	Number       int // from 1
}

var shape = regexp.MustCompile(`^[1-9][0-9]?x[1-9][0-9]?x[1-9][0-9]?x[1-9][0-9]?$`)

// Parse reads containers x ToRs of each x aggregation switches of each x cores. The border is the router above the cores.
func Parse(text, border string) (Fabric, error) {
	if !shape.MatchString(text) {
		return Fabric{}, fmt.Errorf("fabric must be like 2x2x2x2 (containers, ToRs and aggregation switches of each, cores), is %.20q", text)
	}
	numbers := make([]int, 0, 4)
	for n := range strings.SplitSeq(text, "x") {
		number, err := strconv.Atoi(n)
		if err != nil {
			return Fabric{}, fmt.Errorf("fabric %s: %w", text, err)
		}
		numbers = append(numbers, number)
	}
	spec, err := fabric.Clos{Containers: numbers[0], TorsPerContainer: numbers[1], AggsPerContainer: numbers[2], Cores: numbers[3]}.Spec()
	if err != nil {
		return Fabric{}, fmt.Errorf("fabric %s: %w", text, err)
	}
	f := Fabric{border: border}
	for _, tier := range []string{"tor", "agg", "core"} {
		for _, s := range spec.Switches {
			if strings.HasPrefix(s.Name, tier) {
				f.Switches = append(f.Switches, s.Name)
			}
		}
	}
	f.ToRs, f.Cores = f.Switches[:numbers[0]*numbers[1]], f.Switches[len(f.Switches)-numbers[3]:]
	for _, l := range spec.Links {
		f.Links = append(f.Links, Link{Lower: l.A, Upper: l.B})
	}
	for _, core := range f.Cores {
		f.Links = append(f.Links, Link{Lower: core, Upper: border})
	}
	for i := range f.Links {
		f.Links[i].Number = i + 1
	}
	if len(f.Switches) > maxSwitches || len(f.Links) > maxLinks {
		return Fabric{}, fmt.Errorf("fabric %s: %d switches and %d links: a lab has at most %d and %d", text, len(f.Switches), len(f.Links), maxSwitches, maxLinks)
	}
	return f, nil
}

// ToR is the one that machine i of a kind, from 1, is below: they are dealt one by one.
func (f Fabric) ToR(i int) string { return f.ToRs[(i-1)%len(f.ToRs)] }

// Number is that of a switch, from 1.
func (f Fabric) Number(name string) int { return slices.Index(f.Switches, name) + 1 }

// Neighbors are the routers that a router has links to.
func (f Fabric) Neighbors(name string) (all []string) {
	for _, l := range f.Links {
		if other, ok := l.other(name); ok {
			all = append(all, other)
		}
	}
	return all
}

func (l Link) other(name string) (other string, ok bool) {
	switch name {
	case l.Lower:
		return l.Upper, true
	case l.Upper:
		return l.Lower, true
	}
	return "", false
}

// Address is a router's on its link to another one, if they have one.
func (f Fabric) Address(router, other string) (v4 netip.Addr, ok bool) {
	for _, l := range f.Links {
		if end, ok := l.other(router); ok && end == other {
			v4, _ = l.addresses(router)
			return v4, true
		}
	}
	return v4, false
}

// addresses of an end; both are on a /24 and a /64 of the link's own.
func (l Link) addresses(end string) (v4, v6 netip.Addr) {
	side := 1
	if end == l.Upper {
		side = 2
	}
	return netip.AddrFrom4([4]byte{10, 9, byte(l.Number), byte(side)}), netip.MustParseAddr(fmt.Sprintf("fd00:9:%d::%d", l.Number, side))
}
