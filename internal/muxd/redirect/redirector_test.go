package redirect

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// A mux whose source is not an address of the machine yet, as one of IPv6 is at first, serves the VIPs without Fastpath.
func TestSourcesMayComeLater(t *testing.T) {
	ns := netns.New(t, fmt.Sprintf("wredirect%d", os.Getpid()))
	for _, source := range []string{"10.9.9.9", "fd99::9"} {
		err := ns.Do(func() error {
			socket, err := listen(t.Context(), netip.MustParseAddr(source))
			if err != nil {
				return err
			}
			return socket.Close()
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestRedirects(t *testing.T) {
	r := New(slog.New(slog.DiscardHandler))
	now := time.UnixMilli(1_700_000_000_000)
	r.now = func() time.Time { return now }
	vip := netip.MustParseAddr("203.0.113.10")
	keys := []model.FastpathKey{{ID: 4, Secret: [32]byte{4}}, {ID: 5, Secret: [32]byte{5}}}
	rules := &model.Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.20/32")}}
	noted := func(change func(*mux.Redirect)) mux.Redirect {
		c := mux.Redirect{
			Connection: fastpath.Connection{
				Protocol: model.TCP, Client: netip.MustParseAddrPort("203.0.113.20:1024"), Server: netip.AddrPortFrom(vip, 80),
			},
			Client: netip.MustParseAddr("10.1.0.2"), Server: netip.MustParseAddr("10.1.0.9"),
		}
		change(&c)
		return c
	}
	same := func(*mux.Redirect) {}
	if told := r.redirects(noted(same)); told != nil {
		t.Errorf("knows nothing, and tells %v", told)
	}
	r.Update(wire.MuxUpdate{Snapshot: true, Keys: keys, Endpoints: []model.MuxEndpoint{
		{Key: model.EndpointKey{VIP: vip, Protocol: model.TCP, Port: 80}, Fastpath: rules},
		{Key: model.EndpointKey{VIP: vip, Protocol: model.TCP, Port: 81}},
		{Key: model.EndpointKey{VIP: vip, Protocol: model.UDP, Port: model.AllPorts}, Fastpath: rules},
	}})
	for _, port := range []uint16{80, 53} {
		c := noted(func(c *mux.Redirect) {
			if c.Connection.Server = netip.AddrPortFrom(vip, port); port == 53 {
				c.Connection.Protocol = model.UDP
			}
		})
		told := r.redirects(c)
		if len(told) != 2 {
			t.Fatalf("tells %v of %s", told, c.Connection)
		}
		for tunnel, datagram := range told {
			var g fastpath.Guard
			m, err := g.Open(datagram[4:], keys[:1], now)
			if err != nil || m.Own() != tunnel || m.Connection != c.Connection ||
				m.Client != c.Client || m.Server != c.Server || m.Kind != fastpath.Redirect {
				t.Errorf("%s is told %v, %v", tunnel, m, err)
			}
		}
	}
	for name, change := range map[string]func(*mux.Redirect){
		"of another VIP":     func(c *mux.Redirect) { c.Connection.Client = netip.MustParseAddrPort("203.0.113.21:1024") },
		"without a fastpath": func(c *mux.Redirect) { c.Connection.Server = netip.AddrPortFrom(vip, 81) },
		"of two families":    func(c *mux.Redirect) { c.Client = netip.MustParseAddr("fd01::2") },
		"of one host":        func(c *mux.Redirect) { c.Client = c.Server },
	} {
		if told := r.redirects(noted(change)); told != nil {
			t.Errorf("%s: tells %v", name, told)
		}
	}
	r.Update(wire.MuxUpdate{Keys: keys, Removed: []model.EndpointKey{{VIP: vip, Protocol: model.TCP, Port: 80}}})
	if told := r.redirects(noted(same)); told != nil {
		t.Errorf("the endpoint is gone, and it tells %v", told)
	}
}
