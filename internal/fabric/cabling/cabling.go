// Package cabling compares the links of a fabric that is declared with what switches report of their ports.
//
//	declared: core-1 ═══ agg-1-1 (2)         core-1 hears agg-1-1 on 2 ports
//	                                         agg-1-1 hears core-1 on 1 port: one link is missing
//
// Invariants: where both ends of a link hear LLDP, both must say that it is there, so that a switch which lies neither
// hides a link that is missing nor makes one up towards another switch. Of links where nobody hears, nothing is said. That
// a switch speaks LLDP which hears nobody is believed towards one that heard it, or by two that are declared beside it.
package cabling

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fabric"
)

// Port is a port as its switch reports it.
type Port struct {
	Name      string
	Up        bool
	Neighbour string // as LLDP says, or as it said last; empty: nobody
	Changes   uint64 // how often it went up or down
}

// PortOf is a port of a report.
func PortOf(p *weirv1.SwitchPort) Port {
	return Port{Name: p.GetName(), Up: p.GetUp(), Neighbour: p.GetNeighbour(), Changes: p.GetChanges()}
}

// Pair is two switches of a fabric, in the order of their names.
type Pair struct{ A, B string }

func (p Pair) String() string { return p.A + " to " + p.B }

// Compare orders pairs by name.
func (p Pair) Compare(other Pair) int {
	return cmp.Or(cmp.Compare(p.A, other.A), cmp.Compare(p.B, other.B))
}

// Difference is how the links of two switches are other than declared.
type Difference struct {
	Missing    int    // links, of which nothing is known
	Down       int    // links whose port is down
	Port       string // one of these ports, with its switch
	Unexpected int    // links that are not declared
	// Links that go up and down, as who compares over time says, and one of their ports, with its switch.
	Flapping     int
	FlappingPort string
}

// Plan is what a fabric declares.
type Plan struct {
	switches map[string]bool
	declared map[Pair]links
	Links    int // that are to be up
}

type links struct{ up, all int }

// New reads a fabric.
func New(f *fabric.Fabric) *Plan {
	p := &Plan{switches: make(map[string]bool, len(f.Switches)), declared: map[Pair]links{}}
	for _, s := range f.Switches {
		p.switches[s.Name] = true
	}
	for i := 0; i < len(f.Links); i += 2 {
		l := f.Links[i]
		pair := PairOf(f.Switches[l.From].Name, f.Switches[l.To].Name)
		d := p.declared[pair]
		d.all++
		if !l.Down {
			d.up++
			p.Links++
		}
		p.declared[pair] = d
	}
	return p
}

// PairOf is a pair of two switches.
func PairOf(a, b string) Pair { return Pair{min(a, b), max(a, b)} }

// Has says whether a switch is one of the fabric's.
func (p *Plan) Has(name string) bool { return p.switches[name] }

// Declares says whether the two have a link.
func (p *Plan) Declares(pair Pair) bool { return p.declared[pair].all > 0 }

// Name is the switch of the fabric that calls itself system by LLDP, by its whole name or by the first label of it.
func (p *Plan) Name(system string) (string, bool) {
	system = strings.ToLower(system)
	if p.switches[system] {
		return system, true
	}
	label, _, _ := strings.Cut(system, ".")
	return label, p.switches[label]
}

// end is what one switch says of its links to another one.
type end struct {
	up, down int
	port     string // that is down
}

// ends are what switches of the fabric say, each of another one, and which of them hear anybody.
func (p *Plan) ends(reported map[string][]Port) (ends map[[2]string]end, hears map[string]bool) {
	ends, hears = map[[2]string]end{}, map[string]bool{}
	for name, ports := range reported {
		if !p.switches[name] {
			continue
		}
		for _, port := range ports {
			if port.Neighbour == "" {
				continue
			}
			hears[name] = true
			peer, ours := p.Name(port.Neighbour)
			if !ours || peer == name {
				continue
			}
			e := ends[[2]string{name, peer}]
			if port.Up {
				e.up++
			} else {
				e.down++
				if e.port == "" || port.Name < e.port {
					e.port = port.Name
				}
			}
			ends[[2]string{name, peer}] = e
		}
	}
	return ends, hears
}

// Compare returns the pairs of switches of which something is known, each with its difference, and how many links
// that are declared are there.
func (p *Plan) Compare(reported map[string][]Port) (known map[Pair]Difference, there int) {
	ends, hears := p.ends(reported)
	by := map[string]int{} // how many that are declared beside a switch hear it
	for of := range ends {
		if p.Declares(PairOf(of[0], of[1])) {
			by[of[1]]++
		}
	}
	pairs := make(map[Pair]bool, len(p.declared))
	for pair := range p.declared {
		pairs[pair] = true
	}
	for of := range ends {
		pairs[PairOf(of[0], of[1])] = true
	}
	known = make(map[Pair]Difference, len(pairs))
	for pair := range pairs {
		a, b := ends[[2]string{pair.A, pair.B}], ends[[2]string{pair.B, pair.A}]
		up := 0
		switch {
		case hears[pair.A] && hears[pair.B]:
			up = min(a.up, b.up)
		case hears[pair.A] && (a != end{} || by[pair.B] >= 2):
			up = a.up
		case hears[pair.B] && (b != end{} || by[pair.A] >= 2):
			up = b.up
		default:
			continue // one of them does not speak LLDP
		}
		known[pair] = p.difference(pair, up, a, b)
		there += min(up, p.declared[pair].all)
	}
	return known, there
}

func (p *Plan) difference(pair Pair, up int, a, b end) Difference {
	d := p.declared[pair]
	diff := Difference{Unexpected: max(up-d.all, 0)}
	if lacking := d.up - up; lacking > 0 {
		diff.Down = min(lacking, max(a.down, b.down))
		diff.Missing = lacking - diff.Down
	}
	switch {
	case diff.Down > 0 && a.down > 0:
		diff.Port = a.port + " of " + pair.A
	case diff.Down > 0:
		diff.Port = b.port + " of " + pair.B
	}
	return diff
}

// maxNamed bounds the links that a text names.
const maxNamed = 8

// Text names the links of those pairs of which count says that there are some, by name, with a port if there is one, and says
// which pairs it names; empty: there are none.
func Text(differences map[Pair]Difference, count func(Difference) (n int, port string)) (text string, pairs []Pair) {
	var some []Pair
	total := 0
	for pair, d := range differences {
		if n, _ := count(d); n > 0 {
			some = append(some, pair)
			total += n
		}
	}
	slices.SortFunc(some, Pair.Compare)
	named := make([]string, 0, maxNamed+1)
	pairs = some[:min(len(some), maxNamed)]
	for _, pair := range pairs {
		n, port := count(differences[pair])
		text := pair.String()
		switch {
		case n > 1 && port != "":
			text += fmt.Sprintf(" (%d links, as %s)", n, port)
		case n > 1:
			text += fmt.Sprintf(" (%d links)", n)
		case port != "":
			text += fmt.Sprintf(" (%s)", port)
		}
		named = append(named, text)
		total -= n
	}
	if total > 0 {
		named = append(named, fmt.Sprintf("and %d others", total))
	}
	return strings.Join(named, ", "), pairs
}
