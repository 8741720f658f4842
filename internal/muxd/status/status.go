// Package status is what weir-mux status shows: what the pinned data plane of a mux does, whether a daemon runs or not.
package status

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"text/tabwriter"

	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
)

// Status is what a mux's data plane does, by its tables.
type Status struct {
	Generation model.Generation         `json:"generation"`
	Interface  string                   `json:"interface"`
	Mode       string                   `json:"mode"` // "native" or "generic"
	MTU        int                      `json:"mtu"`
	Sources    []string                 `json:"sources"` // addresses, or prefixes
	Sends      pool.Encapsulation       `json:"encapsulation"`
	VIPs       []VIP                    `json:"vips"`
	Endpoints  []Endpoint               `json:"endpoints"`
	SNAT       []SNAT                   `json:"snat"`
	Overlay    *Overlay                 `json:"overlay,omitempty"` // nil: there are no virtual networks
	Verdicts   map[string]model.Counter `json:"verdicts"`
}

// SNAT is where answers to workloads that leave as a VIP go.
type SNAT struct {
	VIP     netip.Addr    `json:"vip"`
	Counter model.Counter `json:"counter"` // of answers
	Tunnels []SNATTunnel  `json:"tunnels"`
}

// SNATTunnel is a tunnel's part of a VIP's ports.
type SNATTunnel struct {
	Tunnel  netip.Addr `json:"tunnel"`
	Ranges  int        `json:"ranges"`            // of 8 ports
	NextHop string     `json:"nextHop,omitempty"` // MAC address; empty: unresolved
}

// Overlay is what is forwarded of virtual networks.
type Overlay struct {
	Addresses []netip.Addr `json:"addresses"` // that their hosts send VXLAN to
	VIPs      []NetworkVIP `json:"vips"`
}

// NetworkVIP is a VIP in a virtual network.
type NetworkVIP struct {
	VNI     uint32        `json:"vni"`
	VIP     netip.Addr    `json:"vip"`     // its address there
	Service netip.Addr    `json:"service"` // its own address, by which endpoints know it
	Counter model.Counter `json:"counter"` // of clients' packets: with bypass, one of each connection
}

// VIP is how much of the flow table a VIP has.
type VIP struct {
	VIP       netip.Addr `json:"vip"`
	Trusted   uint64     `json:"trusted"`   // flows seen more than once
	Untrusted uint64     `json:"untrusted"` // flows seen once
	Limit     uint32     `json:"limit"`     // of trusted ones; of the others half as many
}

// Endpoint is one endpoint that is balanced.
type Endpoint struct {
	Endpoint string        `json:"endpoint"`
	Counter  model.Counter `json:"counter"`
	Buckets  int           `json:"buckets"`
	Moving   int           `json:"moving"` // of the buckets, those that name a previous backend too
	Cookies  model.Cookies `json:"cookies"`
	Digest   string        `json:"digest"` // of the tables: the same on all muxes that agree
	Backends []Backend     `json:"backends"`
}

// Backend is one backend of an endpoint.
type Backend struct {
	Slot    model.Slot `json:"slot"`
	Tunnel  netip.Addr `json:"tunnel"`
	Buckets int        `json:"buckets"`
	State   string     `json:"state"`             // "up", "drains", "down"
	NextHop string     `json:"nextHop,omitempty"` // MAC address; empty: unresolved
}

// Read reads the data plane that is pinned at pinPath.
func Read(pinPath string) (Status, error) {
	if err := daemon.CheckRoot(); err != nil {
		return Status{}, err
	}
	live, err := mux.Inspect(pinPath)
	if errors.Is(err, mux.ErrNotLoaded) {
		return Status{}, fmt.Errorf("%w: start weir-mux, or name another --pin-path", err)
	}
	if err != nil {
		return Status{}, err
	}
	return newStatus(live), nil
}

func newStatus(live *mux.Status) Status {
	s := Status{
		Generation: live.Generation, Interface: live.Interface, Mode: string(live.Mode), MTU: live.Settings.MTU,
		Sources: live.Settings.Sources(), Sends: live.Settings.Encapsulation, Verdicts: live.Verdicts,
	}
	for _, e := range live.Endpoints {
		if last := len(s.VIPs) - 1; last < 0 || s.VIPs[last].VIP != e.Key.VIP {
			s.VIPs = append(s.VIPs, VIP{
				VIP: e.Key.VIP, Trusted: e.Flows.Trusted, Untrusted: e.Flows.Untrusted, Limit: e.Settings.FlowLimit,
			})
		}
		row := Endpoint{
			Endpoint: e.Key.String(), Counter: e.Counter, Buckets: e.Buckets, Moving: e.Moving, Cookies: e.Settings.Cookies,
			Digest: e.Digest,
		}
		for _, b := range e.Backends {
			row.Backends = append(row.Backends, newBackend(b))
		}
		s.Endpoints = append(s.Endpoints, row)
	}
	for _, v := range live.SNAT {
		row := SNAT{VIP: v.VIP, Counter: v.Counter}
		for _, tunnel := range v.Tunnels {
			row.Tunnels = append(row.Tunnels, SNATTunnel{
				Tunnel: tunnel.Tunnel, Ranges: tunnel.Ranges, NextHop: macOf(tunnel.NextHop),
			})
		}
		s.SNAT = append(s.SNAT, row)
	}
	if len(live.Overlay.Addresses)+len(live.Overlay.Attachments) > 0 {
		s.Overlay = &Overlay{Addresses: live.Overlay.Addresses}
		for _, a := range live.Overlay.Attachments {
			s.Overlay.VIPs = append(s.Overlay.VIPs, NetworkVIP{VNI: a.VNI, VIP: a.VIP, Service: a.Service, Counter: a.Counter})
		}
	}
	return s
}

// macOf is empty for a hop that is not resolved.
func macOf(hop model.NextHop) string {
	if !hop.Resolved() {
		return ""
	}
	return net.HardwareAddr(hop.Destination[:]).String()
}

func newBackend(b mux.BackendStatus) Backend {
	row := Backend{Slot: b.Slot, Tunnel: b.Tunnel, Buckets: b.Buckets, State: "up"}
	switch {
	case b.Down:
		row.State = "down"
	case b.Buckets == 0:
		row.State = "drains"
	}
	row.NextHop = macOf(b.NextHop)
	return row
}

// state tells how connections of the endpoint find their backend.
func (e Endpoint) state() string {
	state := "cookies " + string(e.Cookies)
	if e.Moving > 0 {
		state += fmt.Sprintf(", %d move", e.Moving)
	}
	return state
}

// Table writes the status for people.
func (s Status) Table(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "generation\t%d\n", s.Generation)
	fmt.Fprintf(w, "interface\t%s, XDP %s, MTU %d\n", s.Interface, s.Mode, s.MTU)
	for _, source := range s.Sources {
		fmt.Fprintf(w, "source\t%s\n", source)
	}
	fmt.Fprintf(w, "encapsulation\t%s\n", s.Sends)
	fmt.Fprintln(w, "\nVIP\tFLOWS\tSEEN ONCE\tLIMIT")
	for _, v := range s.VIPs {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", v.VIP, v.Trusted+v.Untrusted, v.Untrusted, v.Limit)
	}
	fmt.Fprintln(w, "\nENDPOINT\tPACKETS\tBYTES\tSLOT\tTUNNEL\tBUCKETS\tSTATE\tNEXT HOP")
	for _, e := range s.Endpoints {
		fmt.Fprintf(w, "%s\t%d\t%d\t\t\t%d\t%s\t\n", e.Endpoint, e.Counter.Packets, e.Counter.Bytes, e.Buckets, e.state())
		for _, b := range e.Backends {
			hop := b.NextHop
			if hop == "" {
				hop = "unresolved"
			}
			fmt.Fprintf(w, "\t\t\t%d\t%s\t%d\t%s\t%s\n", b.Slot, b.Tunnel, b.Buckets, b.State, hop)
		}
	}
	s.snatTable(w)
	s.overlayTable(w)
	daemon.WriteVerdicts(w, s.Verdicts)
	return w.Flush()
}

// snatTable writes who has the ports of VIPs, where workloads leave as some.
func (s Status) snatTable(w io.Writer) {
	if len(s.SNAT) == 0 {
		return
	}
	fmt.Fprintln(w, "\nSOURCE NAT\tANSWERS\tBYTES\tTUNNEL\tRANGES\tNEXT HOP")
	for _, v := range s.SNAT {
		fmt.Fprintf(w, "%s\t%d\t%d\t\t\t\n", v.VIP, v.Counter.Packets, v.Counter.Bytes)
		for _, tunnel := range v.Tunnels {
			fmt.Fprintf(w, "\t\t\t%s\t%d\t%s\n", tunnel.Tunnel, tunnel.Ranges, cmp.Or(tunnel.NextHop, "unresolved"))
		}
	}
}

// overlayTable writes the VIPs of virtual networks, where there are some.
func (s Status) overlayTable(w io.Writer) {
	if s.Overlay == nil {
		return
	}
	fmt.Fprintln(w)
	for _, address := range s.Overlay.Addresses {
		fmt.Fprintf(w, "vxlan to\t%s\n", address)
	}
	fmt.Fprintln(w, "VNI\tADDRESS\tPACKETS\tBYTES\tVIP")
	for _, v := range s.Overlay.VIPs {
		fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%s\n", v.VNI, v.VIP, v.Counter.Packets, v.Counter.Bytes, v.Service)
	}
}
