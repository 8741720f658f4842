package agent_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

// TestThroughMux sends through the real mux instead of the relay:
//
//	network: 10.77.4.254, fd77:4::254  mux ──── eth0  10.77.4.2, fd77:4::2 :mux
func TestThroughMux(t *testing.T) {
	w := newWorld(t)
	w.offloads(true)
	w.plugMux()
	for name, way := range w.ways() {
		t.Run(name, func(t *testing.T) {
			w.transfer(t, way.server, way.dip, way.vip, transferSize)
		})
	}
	w.wantNoDrops()
}

func (w *world) plugMux() {
	w.t.Helper()
	ns := newNS(w.t, "mux")
	w.must(
		netns.Veth(ns, "eth0", w.network, "mux"),
		ns.AddAddress("eth0", prefixes("10.77.4.2/24", "fd77:4::2/64")...),
		w.network.AddAddress("mux", prefixes("10.77.4.254/24", "fd77:4::254/64")...),
		// What leads to XDP must carry whole checksums, and needs a program to take packets back.
		w.network.SetOffload("mux", netns.TxChecksum, false),
		w.network.PassXDP("mux"),
		w.network.Sysctl("net.ipv4.conf.mux.rp_filter", "0"),
		w.mux.Close(),
		w.datapath.SetMuxes(prefixes("10.77.4.2/32", "fd77:4::2/128")),
		routes(w.network, "10.77.4.2", "fd77:4::2",
			nativeVIP4+"/32", interfaceVIP4+"/32", nativeVIP6+"/128", interfaceVIP6+"/128"))
	var datapath *mux.Datapath
	w.must(ns.Do(func() (err error) {
		datapath, err = mux.Open(mux.Config{
			Interface: "eth0", PinPath: fmt.Sprintf("/sys/fs/bpf/weir-agent-mux-test-%d", os.Getpid()),
			Mode: mux.Native, MaxEndpoints: 16, MaxBuckets: 4096, MaxBackends: 64, MaxFlows: 1024,
		})
		return err
	}))
	w.t.Cleanup(func() { w.must(datapath.Unload()) })

	source, err := ns.MAC("eth0")
	w.must(err)
	destination, err := w.network.MAC("mux")
	w.must(err)
	hop := model.NextHop{Source: [6]byte(source), Destination: [6]byte(destination)}
	w.must(
		datapath.SetSettings(pool.Settings{
			HashKey: flowhash.Key{1}, MTU: 1500, MAC: hop.Source,
			Source4: netip.MustParseAddr("10.77.4.2"), Source6: netip.MustParseAddr("fd77:4::2"),
		}),
		datapath.Replace([]model.MuxEndpoint{
			endpoint(nativeVIP4, hostDIP4, hostDIP4), endpoint(nativeVIP6, hostDIP4, hostDIP6),
			endpoint(interfaceVIP4, workloadDIP6, workloadDIP4),
			endpoint(interfaceVIP6, workloadDIP6, workloadDIP6),
		}),
		datapath.SetNextHops(map[netip.Addr]model.NextHop{
			netip.MustParseAddr(hostDIP4): hop, netip.MustParseAddr(workloadDIP6): hop,
		}))
}

func endpoint(vip, tunnel, dip string) model.MuxEndpoint {
	b := backend(model.TCP, vip, tunnel, dip)
	return model.MuxEndpoint{
		Key: b.Endpoint, Tenant: "test", Buckets: []model.Slot{1, 1},
		Backends: []model.MuxBackend{{Slot: 1, Tunnel: b.Tunnel, Backend: b.Backend}},
	}
}
