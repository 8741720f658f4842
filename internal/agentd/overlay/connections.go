package overlay

import (
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// Connection is a session of a virtual network's client with a backend here.
type Connection struct {
	Network     string // name
	Client, VIP netip.AddrPort
	Local       netip.AddrPort // by which the backend sees the client
	Backend     netip.AddrPort // not valid: it was removed
	Protocol    model.Protocol
	State       string // "half-open", "open", "closing" or "reset"
	Idle        time.Duration
}

// Connections are those with a VIP, known by its own address, from a row of the table on, by row: most at most. VNI 0: of
// all networks. The row to go on from is 0 when there are no more; what is found may be less than most, or nothing.
func Connections(c *Controller, service netip.Addr, vni, row uint32, most int) (found []Connection, next uint32) {
	if c == nil {
		return nil, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.datapath == nil {
		return nil, 0
	}
	attachments, rules := c.datapath.Attachments(), c.datapath.Rules()
	now, end := overlay.Now(), min(uint64(row)+vnet.ConnectionsScan, uint64(c.datapath.Rows()))
	for s := range c.datapath.From(row) {
		if uint64(s.Row) >= end {
			break
		}
		a, attached := attachments[s.Attachment]
		if !attached || a.Service != service || vni != 0 && a.VNI != vni {
			continue
		}
		if len(found) == most {
			return found, s.Row
		}
		of := rules[s.Rule].Backend
		if of.IsValid() && of.Port() == 0 {
			of = netip.AddrPortFrom(of.Addr(), s.Port)
		}
		found = append(found, Connection{
			Network: c.wanted.networks[a.VNI].Name, Client: s.Client, VIP: netip.AddrPortFrom(a.VIP, s.Port), Local: c.datapath.Local(s),
			Backend: of, Protocol: protocolOf(s.Events&overlay.UDP != 0), State: connectionState(s.Events), Idle: time.Duration(max(0, int32(now-s.Seen))) * overlay.Tick,
		})
	}
	if end < uint64(c.datapath.Rows()) {
		return found, uint32(end)
	}
	return found, 0
}

func connectionState(e overlay.Event) string {
	switch {
	case e&overlay.Reset != 0:
		return "reset"
	case e&(overlay.ClientFIN|overlay.ServerFIN) != 0:
		return "closing"
	case e&overlay.ClientACK == 0:
		return "half-open"
	}
	return "open"
}
