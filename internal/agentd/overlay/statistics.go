package overlay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// counters are the numbers of counters by attachment and backend, and what is open of each.
type counters struct {
	*numbers[overlay.Backend]
	open map[uint32]uint64 // sessions at the last sweep
}

func newCounters() counters {
	return counters{newNumbers("backends of attachments", overlay.MaxBackends, overlay.Backend.Compare), nil}
}

// give has each attachment's backends here counted. Those beyond what there is room for are counted by attachment alone.
func (k counters) give(d *overlay.Datapath, attachments map[uint32]overlay.Attachment, rules map[uint32]overlay.Rule) error {
	of := map[netip.Addr][]uint32{}
	for number, r := range rules {
		of[r.Service.Addr()] = append(of[r.Service.Addr()], number)
	}
	var all []overlay.Backend
	kept := 0
	for number, a := range attachments {
		for _, rule := range of[a.Service] {
			b := overlay.Backend{Attachment: number, Rule: rule}
			if all = append(all, b); k.of[b] != 0 {
				kept++
			}
		}
	}
	slices.SortFunc(all, func(a, b overlay.Backend) int { // those that have some first
		return cmp.Or(-cmp.Compare(min(k.of[a], 1), min(k.of[b], 1)), a.Compare(b))
	})
	room := overlay.MaxBackends - len(k.quarantined) - (len(k.of) - kept)
	keys := map[overlay.Backend]bool{}
	for _, b := range all[:min(len(all), room)] {
		keys[b] = true
	}
	added, err := k.set(keys)
	if err != nil {
		return err
	}
	for _, b := range added {
		if err := d.ForgetBackend(k.of[b]); err != nil {
			return err
		}
	}
	return d.SetBackends(k.of)
}

// learn takes the numbers that an earlier process has given.
func (k counters) learn(d *overlay.Datapath) error {
	live, err := d.Backends()
	for b, number := range live {
		k.adopt(b, number)
	}
	return err
}

// Statistics are what hosts of servers count of an attachment.
type Statistics struct {
	vnet.AttachmentKey
	Network    string     // name
	Service    netip.Addr // the VIP's own address
	Traffic    overlay.Traffic
	Handshakes overlay.Handshakes
	Backends   []BackendStatistics
}

// BackendStatistics are those of a backend here for clients by an attachment.
type BackendStatistics struct {
	Address  netip.AddrPort // port 0: the client's
	Protocol model.Protocol
	Port     uint16 // of the endpoint; 0: all
	Tunnel   netip.Addr
	Open     uint64 // sessions at the last sweep
	overlay.BackendTraffic
}

// ReadStatistics reads those of all attachments with backends here, in order.
func ReadStatistics(c *Controller) ([]Statistics, error) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.datapath == nil {
		return nil, nil
	}
	return statisticsOf(c)
}

// statisticsOf is ReadStatistics of who has locked c.
func statisticsOf(c *Controller) ([]Statistics, error) {
	rules, of := c.datapath.Rules(), map[uint32][]overlay.Backend{}
	for b := range c.backends.of {
		of[b.Attachment] = append(of[b.Attachment], b)
	}
	var all []Statistics
	for key, number := range c.attachments.of {
		a, told := c.wanted.attachments[key]
		if len(of[number]) == 0 || !told {
			continue
		}
		s := Statistics{AttachmentKey: key, Network: c.wanted.networks[key.VNI].Name, Service: a.Service}
		var err error
		if s.Traffic, err = c.datapath.Traffic(number); err != nil {
			return nil, err
		}
		if s.Handshakes, err = c.datapath.Handshakes(number); err != nil {
			return nil, err
		}
		slices.SortFunc(of[number], overlay.Backend.Compare)
		for _, b := range of[number] {
			t, err := c.datapath.BackendTraffic(c.backends.of[b])
			if err != nil {
				return nil, fmt.Errorf("count %s in network %d: %w", key.VIP, key.VNI, err)
			}
			r := rules[b.Rule]
			s.Backends = append(s.Backends, BackendStatistics{r.Backend, protocolOf(r.IsUDP), r.Service.Port(), r.Tunnel, c.backends.open[c.backends.of[b]], t})
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Statistics) int { return a.Compare(b.AttachmentKey) })
	return all, nil
}
