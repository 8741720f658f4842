package placement

import (
	"fmt"

	"github.com/weirlb/weir/internal/fabric"
)

// Resource is a kind of what VIPs use.
type Resource string

// Resources.
const (
	NoResource      Resource = "" // it is policy, or there is nothing to place
	LinkBandwidth   Resource = "link"
	SwitchTable     Resource = "table" // tunnel or ECMP entries, of which there are fewer
	GroupSize       Resource = "group" // entries of one VIP
	HostTable       Resource = "host-table"
	SwitchBudget    Resource = "switch-budget"
	ContainerBudget Resource = "container-budget"
	EqualShares     Resource = "equal-shares" // of the switches of a set
)

// misfit is why a VIP can't be somewhere: by policy, or for want of a resource.
type misfit struct {
	policy           string
	resource         Resource
	at               int32 // switch or link
	cost             float64
	need, used, size int64
}

func newMisfit[T int64 | fabric.Load](r Resource, at int32, need, used, size T) *misfit {
	return &misfit{"", r, at, (float64(used) + float64(need)) / max(float64(size), 1), int64(need), int64(used), int64(size)}
}

// describe says what a VIP needs and does not find, or, if it needs nothing more, what is used.
func (e *engine) describe(m *misfit) string {
	switch m.resource {
	case NoResource:
		return m.policy
	case HostTable:
		return fmt.Sprintf("host tables: every switch holds a route for each VIP, %d of %d are used", m.used, m.size)
	}
	rate := func(load int64) int64 { return int64(fabric.Load(load).Rate()) }
	if m.resource == LinkBandwidth {
		return amounts("link "+e.f.LinkName(m.at), "kbit/s", rate(m.need), rate(m.used), rate(m.size))
	}
	s := &e.f.Switches[m.at]
	switch m.resource {
	case SwitchTable:
		table := "tunnel"
		if s.ECMP() < s.Tunnels() {
			table = "ECMP"
		}
		return amounts(table+" table of "+s.Name, "entries", m.need, m.used, m.size)
	case GroupSize:
		return fmt.Sprintf("groups of %s have at most %d entries, %d are needed", s.Name, m.size, m.need)
	case SwitchBudget:
		return amounts("failure budget of "+s.Name, "kbit/s", rate(m.need), rate(m.used), rate(m.size))
	case ContainerBudget:
		return amounts("failure budget of the container of "+s.Name, "kbit/s", rate(m.need), rate(m.used), rate(m.size))
	default:
		return fmt.Sprintf("%s would receive %d kbit/s of %d: sources are too near to one of its switches", s.Name, rate(m.need), rate(m.size))
	}
}

func amounts(what, unit string, need, used, size int64) string {
	if need == 0 {
		return fmt.Sprintf("%s: %d of %d %s are used", what, used, size, unit)
	}
	return fmt.Sprintf("%s: needs %d %s more, %d of %d are used", what, need, unit, used, size)
}
