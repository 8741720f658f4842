package plan

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// Impact is what a failure of switches does to the network and to the software muxes.
type Impact struct {
	Hottest     string       `json:"hottest"`          // link
	Utilisation float64      `json:"utilisation"`      // of its bandwidth, background included
	Software    traffic.Rate `json:"softwareKbitPerS"` // on software muxes
	Gone        traffic.Rate `json:"goneKbitPerS"`     // of clients and to backends behind the failed switches
}

// Network is traffic and its placement in a fabric, of which Fail takes switches away.
type Network struct {
	Fabric   *fabric.Fabric
	Demands  []traffic.Demand
	Placed   []placement.Placed
	MuxRacks []int32 // of the software muxes; all have the same share
}

// MuxRacks lays software muxes into racks at equal distances, at most one into each.
func MuxRacks(f *fabric.Fabric, muxes int64) []int32 {
	n := max(1, min(muxes, int64(len(f.Racks))))
	racks := make([]int32, n)
	for i := range n {
		racks[i] = int32(i * int64(len(f.Racks)) / n)
	}
	return racks
}

// Fail computes loads without the failed switches, as section 8.5 of Duet does: traffic takes other paths; what comes
// from racks behind them, or goes to backends there, is gone; the other switches of a VIP take over, and if it has
// none, the software muxes do. With no switch failed it is the load of every day.
func (n Network) Fail(failed ...int32) (Impact, error) {
	left, racks, err := n.Fabric.Without(failed, nil)
	if err != nil {
		return Impact{}, fmt.Errorf("fail %d switches: %w", len(failed), err)
	}
	_, impact, err := n.loads(left, racks)
	return impact, err
}

// loads are those of what is left. Flows with the same routes are added up first: there are far more VIPs than sets.
func (n Network) loads(left *fabric.Fabric, racks []int32) (*fabric.Loads, Impact, error) {
	where := make(map[string][]int32, len(n.Placed))
	for _, p := range n.Placed {
		where[p.VIP] = p.Switches
	}
	var impact Impact
	var software []*fabric.Flow
	var sets [][]*fabric.Flow
	var members [][]int32
	bySet := map[string]int{}
	for _, d := range n.Demands {
		rest := surviving(d, racks)
		impact.Gone += d.Rate() - rest.Rate()
		flow, err := left.NewFlow(rest)
		if err != nil {
			return nil, Impact{}, err
		}
		if flow.Total == 0 {
			continue
		}
		live := survivors(left, where[d.VIP])
		if len(live) == 0 {
			software = append(software, flow)
			impact.Software += rest.Rate()
			continue
		}
		key := fmt.Sprint(live)
		i, ok := bySet[key]
		if !ok {
			i = len(sets)
			bySet[key] = i
			sets, members = append(sets, nil), append(members, live)
		}
		sets[i] = append(sets[i], flow)
	}
	router, loads := fabric.NewRouter(left), left.NewLoads()
	for i, flows := range sets {
		routes := router.Routes(members[i])
		if routes.Even() {
			flows = []*fabric.Flow{left.Share(flows, 1)}
		}
		for _, flow := range flows {
			loads.Add(flow, routes)
		}
	}
	n.addSoftware(left, racks, software, router, loads)
	impact.Hottest, impact.Utilisation = hottest(left, loads)
	return loads, impact, nil
}

// surviving is what is left of a demand when racks are cut off.
func surviving(d traffic.Demand, racks []int32) traffic.Demand {
	rest := traffic.Demand{VIP: d.VIP}
	var all, live int64
	for _, g := range d.Backends {
		all += int64(g.Backends)
		if to := racks[g.Rack]; to >= 0 {
			live += int64(g.Backends)
			rest.Backends = append(rest.Backends, traffic.Group{Rack: to, Backends: g.Backends})
		}
	}
	if live == 0 {
		return rest
	}
	part := func(r traffic.Rate) traffic.Rate { return traffic.Rate(float64(r) * float64(live) / float64(all)) }
	rest.External = part(d.External)
	for _, s := range d.Sources {
		if to := racks[s.Rack]; to >= 0 {
			rest.Sources = append(rest.Sources, traffic.Share{Rack: to, Rate: part(s.Rate)})
		}
	}
	return rest
}

// survivors are the switches of a set that still announce a VIP. A switch whose racks have become its leaves does so
// only alone.
func survivors(left *fabric.Fabric, set []int32) []int32 {
	live := slices.DeleteFunc(slices.Clone(set), func(sw int32) bool { return left.Switches[sw].Down })
	if len(live) < 2 {
		return live
	}
	inner := slices.DeleteFunc(slices.Clone(live), func(sw int32) bool { return left.Switches[sw].Leaf >= 0 })
	if len(inner) == 0 {
		return live[:1]
	}
	return inner
}

func (n Network) addSoftware(
	left *fabric.Fabric, racks []int32, flows []*fabric.Flow, router *fabric.Router, loads *fabric.Loads,
) {
	var muxes []int32
	for _, rack := range n.MuxRacks {
		if to := racks[rack]; to >= 0 {
			muxes = append(muxes, left.RackSwitch(to))
		}
	}
	if len(muxes) == 0 || len(flows) == 0 {
		return
	}
	share := left.Share(flows, len(muxes))
	for _, sw := range muxes {
		loads.Add(share, router.Routes([]int32{sw}))
	}
}

// hottest is the link with the highest part of its bandwidth in use, the first by name among equals.
func hottest(f *fabric.Fabric, loads *fabric.Loads) (name string, utilisation float64) {
	for i, l := range f.Links {
		if l.Down {
			continue
		}
		link := int32(i)
		used := float64(loads.ByLink[link].Rate()+l.Background) / float64(l.Rate)
		if at := f.LinkName(link); used > utilisation || used == utilisation && used > 0 && at < name {
			name, utilisation = at, used
		}
	}
	return name, utilisation
}
