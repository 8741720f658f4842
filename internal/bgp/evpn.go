package bgp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// MACRoute is a MAC/IP advertisement of EVPN (RFC 7432, route type 2, with VXLAN of RFC 8365): VTEPs of a virtual network
// send what is for the MAC to VTEP, and answer ARP and neighbor solicitations for the address themselves. All muxes
// announce the same VTEP, an anycast address, so the MAC does not move when one of them comes or goes.
type MACRoute struct {
	VNI     uint32 // 1 to MaxVNI
	MAC     [6]byte
	Address netip.Addr
	VTEP    netip.Addr
}

// MaxVNI is the largest number of a virtual network.
const MaxVNI = 1<<24 - 1

// String is "10.99.0.1 at 02:00:00:00:00:01 in VNI 100 by 10.0.9.1".
func (r MACRoute) String() string {
	return fmt.Sprintf("%s at %s in VNI %d by %s", r.Address, net.HardwareAddr(r.MAC[:]), r.VNI, r.VTEP)
}

func (r MACRoute) validate() error {
	switch {
	case r.VNI == 0 || r.VNI > MaxVNI:
		return fmt.Errorf("announce %s: the VNI must be 1 to %d", r, MaxVNI)
	case r.MAC[0]&1 != 0 || r.MAC == [6]byte{}:
		return fmt.Errorf("announce %s: the MAC must be that of one station", r)
	case !r.Address.IsValid() || !r.VTEP.IsValid():
		return fmt.Errorf("announce %s: address and VTEP must be addresses", r)
	}
	return nil
}

// AnnounceMACs makes routes the full set of MAC/IP advertisements, for peers that take EVPN. Those that can't be announced
// are left out and named in the error; the others are announced.
func (s *Speaker) AnnounceMACs(routes []MACRoute) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	valid := make([]MACRoute, 0, len(routes))
	for _, r := range routes {
		if err := r.validate(); err != nil {
			errs = append(errs, err)
		} else {
			valid = append(valid, r)
		}
	}
	errs = append(errs, s.leaveNetworks(valid))
	wanted := make(map[MACRoute]bool, len(valid))
	for _, r := range valid {
		if err := s.evis.assign(r.VNI); err != nil {
			errs = append(errs, fmt.Errorf("announce %s: %w", r, err))
			continue
		}
		wanted[r] = true
	}
	added, removed := notIn(wanted, s.macs), notIn(s.macs, wanted)
	errs = append(errs, s.changeMACs(added, removed))
	s.macs = wanted
	return errors.Join(errs...)
}

// leaveNetworks withdraws what is of networks without a wanted route, and frees their numbers.
func (s *Speaker) leaveNetworks(wanted []MACRoute) error {
	live := make(map[uint32]bool, len(wanted))
	for _, r := range wanted {
		live[r.VNI] = true
	}
	var gone []MACRoute
	for r := range s.macs {
		if !live[r.VNI] {
			gone = append(gone, r)
			delete(s.macs, r)
		}
	}
	err := s.changeMACs(nil, gone)
	for vni := range s.evis.of {
		if !live[vni] {
			s.evis.free(vni)
		}
	}
	return err
}

// changeMACs tells the server, if it runs. The old goes first only where the new has the same key, which replaces it.
func (s *Speaker) changeMACs(added, removed []MACRoute) error {
	if s.server == nil {
		return nil
	}
	if len(added) > 0 {
		if _, err := s.server.AddPath(apiutil.AddPathRequest{Paths: s.macPaths(added)}); err != nil {
			return fmt.Errorf("announce %d MAC addresses: %w", len(added), err)
		}
	}
	replaced := make(map[macKey]bool, len(added))
	for _, r := range added {
		replaced[r.key()] = true
	}
	var gone []MACRoute
	for _, r := range removed {
		if !replaced[r.key()] {
			gone = append(gone, r)
		}
	}
	if len(gone) > 0 {
		if err := s.server.DeletePath(apiutil.DeletePathRequest{Paths: s.macPaths(gone)}); err != nil {
			return fmt.Errorf("withdraw %d MAC addresses: %w", len(gone), err)
		}
	}
	return nil
}

// macKey is what BGP tells MACRoutes of one speaker apart by.
type macKey struct {
	vni     uint32
	mac     [6]byte
	address netip.Addr
}

func (r MACRoute) key() macKey { return macKey{r.VNI, r.MAC, r.Address} }

func notIn(set, other map[MACRoute]bool) (rest []MACRoute) {
	for r := range set {
		if !other[r] {
			rest = append(rest, r)
		}
	}
	return rest
}

func (s *Speaker) macPaths(routes []MACRoute) []*apiutil.Path {
	paths := make([]*apiutil.Path, 0, len(routes))
	for _, r := range routes {
		if path, err := s.macPath(r); err == nil { // AnnounceMACs checked what can fail
			paths = append(paths, path)
		}
	}
	return paths
}

// singleHomed is the Ethernet segment of what is not attached to several VTEPs, which an anycast VTEP looks like.
var singleHomed = bgp.EthernetSegmentIdentifier{Type: bgp.ESI_ARBITRARY, Value: make([]byte, 9)}

// macPath is a route with a route distinguisher of the speaker and the VNI, the route target that routers derive from the
// VNI, and a MAC that is bound: a workload that claims it does not get it.
func (s *Speaker) macPath(r MACRoute) (*apiutil.Path, error) {
	rd, err := bgp.NewRouteDistinguisherIPAddressAS(s.config.RouterID, s.evis.of[r.VNI])
	if err != nil {
		return nil, err
	}
	nlri, err := bgp.NewEVPNMacIPAdvertisementRoute(rd, singleHomed, 0, net.HardwareAddr(r.MAC[:]).String(), r.Address, []uint32{r.VNI})
	if err != nil {
		return nil, err
	}
	reach, err := bgp.NewPathAttributeMpReachNLRI(bgp.RF_EVPN, []bgp.PathNLRI{{NLRI: nlri}}, r.VTEP)
	if err != nil {
		return nil, err
	}
	extended := bgp.NewPathAttributeExtendedCommunities([]bgp.ExtendedCommunityInterface{
		bgp.NewTwoOctetAsSpecificExtended(bgp.EC_SUBTYPE_ROUTE_TARGET, uint16(s.config.AS), r.VNI, true),
		bgp.NewEncapExtended(bgp.TUNNEL_TYPE_VXLAN),
		bgp.NewMacMobilityExtended(0, true),
	})
	return &apiutil.Path{
		Family: bgp.RF_EVPN, Nlri: nlri,
		Attrs: []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(originIGP), reach, extended},
	}, nil
}

// evis are the numbers of virtual networks in route distinguishers, which have room for 16 bits (RFC 7432: EVI).
type evis struct {
	of   map[uint32]uint16 // by VNI
	used map[uint16]bool
	last uint16
}

func newEVIs() evis { return evis{of: map[uint32]uint16{}, used: map[uint16]bool{}} }

// maxEVIs is how many virtual networks a speaker announces.
const maxEVIs = 1<<16 - 1

func (e *evis) assign(vni uint32) error {
	if _, has := e.of[vni]; has {
		return nil
	}
	if len(e.of) >= maxEVIs {
		return fmt.Errorf("a mux announces at most %d virtual networks", maxEVIs)
	}
	for e.last++; e.last == 0 || e.used[e.last]; e.last++ {
	}
	e.of[vni], e.used[e.last] = e.last, true
	return nil
}

func (e *evis) free(vni uint32) {
	delete(e.used, e.of[vni])
	delete(e.of, vni)
}
