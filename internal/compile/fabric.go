package compile

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/traffic"
)

// KeptFabric is the network of a data center as managers keep it: as its user wrote it, and as it is computed with.
type KeptFabric struct {
	Message *weirv1.Fabric // without what is output only; read only
	Network *fabric.Fabric // nil: this release can't read the message
}

// MaxFabricBytes bounds a fabric that managers keep: etcd takes requests of 1.5 MiB.
const MaxFabricBytes = 1 << 20

// NewFabric reads and checks a fabric that managers are to keep.
func NewFabric(m *weirv1.Fabric) (KeptFabric, error) {
	if m == nil {
		return KeptFabric{}, &model.FieldError{Field: "name", Reason: "is required"}
	}
	kept := proto.CloneOf(m)
	kept.ResourceVersion = 0
	if size := proto.Size(kept); size > MaxFabricBytes {
		return KeptFabric{}, &model.FieldError{
			Field: networkField(m), Reason: fmt.Sprintf("is of %d bytes, at most %d are kept: describe it by clos", size, MaxFabricBytes),
		}
	}
	network, err := Fabric(kept)
	return KeptFabric{kept, network}, err
}

// StoredFabric is to NewFabric what StoredVIP is to VIP.
func StoredFabric(m *weirv1.Fabric) (KeptFabric, error) {
	network, err := Fabric(m)
	if err != nil {
		network = nil
	}
	return KeptFabric{m, network}, nil
}

// Fabric reads and checks the network of a data center.
func Fabric(m *weirv1.Fabric) (*fabric.Fabric, error) {
	var f Fields
	if !model.ValidName(m.GetName()) {
		f.Refuse("name", "must be a DNS label (lower-case letters, digits and -, at most 63), is %.64q", m.GetName())
	}
	spec := fabricSpec(&f, m)
	if m.GetLinkShare() > 100 {
		f.Refuse("linkShare", "must be from 1 to 100 percent, is %d", m.GetLinkShare())
	}
	spec.LinkShare, spec.External = int(m.GetLinkShare()), m.GetExternal()
	if err := f.Err(); err != nil {
		return nil, err
	}
	built, err := fabric.New(spec)
	if err != nil {
		f.Refuse(networkField(m), "%v", err)
		return nil, f.Err()
	}
	return built, nil
}

// networkField is the field that describes the network.
func networkField(m *weirv1.Fabric) string {
	if m.GetClos() != nil {
		return "clos"
	}
	return "switches"
}

// fabricSpec reads the network itself: parameters or lists.
func fabricSpec(f *Fields, m *weirv1.Fabric) (spec fabric.Spec) {
	if c := m.GetClos(); c != nil {
		if len(m.GetSwitches())+len(m.GetLinks()) > 0 {
			f.Refuse("clos", "stands beside switches or links: give parameters or lists")
			return spec
		}
		spec = closSpec(f, c)
		addPrefixes(f, spec.Racks, m.GetRacks())
		return spec
	}
	for i, s := range m.GetSwitches() {
		f.enter("switches", i)
		spec.Switches = append(spec.Switches, fabric.SwitchSpec{Name: s.GetName(), Limits: tableLimits(f, s.GetLimits()), Down: s.GetDown()})
		f.leave()
	}
	for i, l := range m.GetLinks() {
		f.enter("links", i)
		spec.Links = append(spec.Links, fabric.LinkSpec{
			A: l.GetA(), B: l.GetB(), Rate: bandwidth(f, "mbitPerS", l.GetMbitPerS()), Down: l.GetDown(),
			Background:     bandwidth(f, "backgroundMbitPerS", l.GetBackgroundMbitPerS()),
			BackgroundBack: bandwidth(f, "backgroundBackMbitPerS", l.GetBackgroundBackMbitPerS()),
		})
		f.leave()
	}
	for i, r := range m.GetRacks() {
		f.enter("racks", i)
		spec.Racks = append(spec.Racks, fabric.RackSpec{
			Name: r.GetName(), Switch: r.GetSwitch(), Prefixes: f.listed("prefixes", r.GetPrefixes()),
		})
		f.leave()
	}
	return spec
}

// addPrefixes gives racks of parameters their prefixes.
func addPrefixes(f *Fields, racks []fabric.RackSpec, list []*weirv1.FabricRack) {
	at := make(map[string]int, len(racks))
	for i, r := range racks {
		at[r.Name] = i
	}
	for i, r := range list {
		f.enter("racks", i)
		if n, ok := at[r.GetName()]; !ok {
			f.Refuse("name", "must be a rack of clos, such as rack-1-1, and none twice, is %.64q", r.GetName())
		} else {
			racks[n].Prefixes = f.listed("prefixes", r.GetPrefixes())
			delete(at, r.GetName())
		}
		if r.GetSwitch() != "" {
			f.Refuse("switch", "must be left out beside clos, which has it")
		}
		f.leave()
	}
}

func closSpec(f *Fields, c *weirv1.Clos) fabric.Spec {
	f.enter("clos", -1)
	defer f.leave()
	for _, n := range []uint32{c.GetContainers(), c.GetTorsPerContainer(), c.GetAggsPerContainer(), c.GetCores()} {
		if n > math.MaxInt32 {
			f.Refuse("", "holds numbers of switches up to %d, has %d", math.MaxInt32, n)
			return fabric.Spec{}
		}
	}
	spec, err := fabric.Clos{
		Containers: int(c.GetContainers()), TorsPerContainer: int(c.GetTorsPerContainer()),
		AggsPerContainer: int(c.GetAggsPerContainer()), Cores: int(c.GetCores()),
		TorUplink: bandwidth(f, "torMbitPerS", c.GetTorMbitPerS()), AggUplink: bandwidth(f, "aggMbitPerS", c.GetAggMbitPerS()),
		Limits: tableLimits(f, c.GetLimits()),
	}.Spec()
	if err != nil {
		f.Refuse("", "%v", err)
	}
	return spec
}

// MaxMbitPerS bounds a bandwidth: 1 Pbit/s.
const MaxMbitPerS = 1_000_000_000

func bandwidth(f *Fields, field string, mbit uint64) traffic.Rate {
	if mbit > MaxMbitPerS {
		f.Refuse(field, "must be at most %d, is %d", MaxMbitPerS, mbit)
		return 0
	}
	return traffic.Rate(mbit) * 1000
}

// tableLimits reads sizes of tables; what is left out keeps the default.
func tableLimits(f *Fields, m *weirv1.TableLimits) *fabric.Limits {
	if m == nil {
		return nil
	}
	limits := fabric.DefaultLimits
	for _, table := range []struct {
		field string
		value *uint32
		to    *int32
	}{{"hosts", m.Hosts, &limits.Hosts}, {"ecmp", m.Ecmp, &limits.ECMP}, {"tunnels", m.Tunnels, &limits.Tunnels}} {
		switch {
		case table.value == nil:
		case *table.value > math.MaxInt32:
			f.Refuse("limits."+table.field, "must be at most %d, is %d", math.MaxInt32, *table.value)
		default:
			*table.to = int32(*table.value)
		}
	}
	if m.GetReserve() > 100 {
		f.Refuse("limits.reserve", "must be at most 100 percent, is %d", m.GetReserve())
		return &limits
	}
	limits.Reserve = int32(m.GetReserve())
	return &limits
}
