package agent_test

import (
	"net/netip"
	"testing"
)

// Nobody reaches an address of the host that is refused as a workload, even if it is the uplink's, which the tables
// hold for the host's own sake; and who was refused is reached once he is none.
func TestARefusedAddressIsNotReached(t *testing.T) {
	w := newWorld(t)
	w0, err := w.host.Index("w0")
	w.must(err)
	others := map[netip.Addr]int{netip.MustParseAddr(workloadDIP4): w0}
	own := []netip.Addr{netip.MustParseAddr(hostDIP4), netip.MustParseAddr(hostDIP6)}
	dropped := func() uint64 { return w.verdicts()["drop_no_workload"].Packets }
	for _, way := range []struct{ vip, dip string }{{nativeVIP4, hostDIP4}, {nativeVIP6, hostDIP6}} {
		server := w.udp(w.host, netip.AddrPortFrom(netip.MustParseAddr(way.dip), dipPort), "")
		client := w.udp(w.client, netip.AddrPort{}, netip.AddrPortFrom(netip.MustParseAddr(way.vip), vipPort).String())
		w.must(w.host.Do(func() error { return w.datapath.SetWorkloads(others, own) }))
		before := dropped()
		_, err = client.Write([]byte("refused"))
		w.must(err)
		w.eventually(way.dip+" is refused", func() bool { return dropped() > before })
		w.must(w.setWorkloads())
		_, err = client.Write([]byte("permitted"))
		w.must(err)
		buffer := make([]byte, 100)
		n, err := server.Read(buffer)
		w.must(err)
		if got := string(buffer[:n]); got != "permitted" {
			t.Errorf("%s was sent %q", way.dip, got)
		}
	}
}
