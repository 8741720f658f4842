package networks

import (
	"net/netip"
	"os"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/overlay"
)

// fullNAT has the other network attached again, so that all packets of its connections pass muxes, both ways: hosts of clients
// learn nothing. Then the programs of one of these hosts go, which is a host without an agent from then on: what its clients
// sent straight to servers' hosts passes muxes as well. A mux that dies breaks no connection.
func (w *world) fullNAT() {
	w.Helper()
	w.apply(func(text string) string {
		text = regexp.MustCompile(`(?m)^ *- protocol: UDP\n(?: {6,}.*\n)+`).ReplaceAllString(text, "") // full NAT is of TCP
		return regexp.MustCompile(`(?m)^( *- {network: bolt-prod.*)}$`).ReplaceAllString(text, "$1, mode: full-nat}")
	})
	_, direct := w.counts("chost1")
	connections := w.dialAll([]string{"bolt1", "bolt2"}, 10, 35000)
	w.all("full NAT", connections, 5, 2000)
	if _, now := w.counts("chost1"); now > direct {
		w.Errorf("a host of clients has %d direct flows, and had %d before full NAT", now, direct)
	}
	if seen := w.relayed(); seen < uint64(5*len(connections)) {
		w.Errorf("muxes sent on %d answers to %d connections", seen, len(connections))
	}
	bypassed := w.dialAll([]string{"acme1"}, 10, 36000)
	w.all("bypass", bypassed, 2, 2000)
	connections = append(connections, bypassed...)
	p, err := w.Process("chost1", "weir-agent")
	must(w.T, err, p.Stop(unix.SIGKILL, bound), os.RemoveAll(w.PinPath("chost1")+"-networks"))
	before := w.relayed()
	w.all("a host of clients has no programs", connections, 5, 2000)
	if seen := w.relayed() - before; seen < uint64(5*len(connections)) {
		w.Errorf("muxes sent on %d answers to %d connections", seen, len(connections))
	}
	mux := w.Of(netlab.Mux)[0]
	must(w.T, w.CutPower(mux.Name))
	w.all("one mux is dead", connections, 5, 2000)
	must(w.T, w.Revive(mux.Name), w.WaitRouted(w.Context(), bound, overlay.VXLAN, 2))
	w.natsInMuxes(connections)
	_, err = w.Restart("chost1", "weir-agent")
	must(w.T, err, w.WaitReady(w.Context()), w.WaitRouted(w.Context(), bound, overlay.VXLAN, 2))
	w.all("all are back", connections, 5, 2000)
}

// relayed is how many answers the muxes have sent on.
func (w *world) relayed() (packets uint64) {
	w.Helper()
	for _, mux := range w.Of(netlab.Mux) {
		verdicts, err := w.Verdicts(mux.Name)
		must(w.T, err)
		packets += verdicts["relay_answer"]
	}
	return packets
}

// dialAll opens connections of workloads to both VIPs.
func (w *world) dialAll(tenants []string, each int, first uint16) (all []*connection) {
	w.Helper()
	for _, tenant := range tenants {
		for _, vip := range []netip.Addr{overlay.VIP4, overlay.VIP6} {
			for i := range each {
				c, err := w.dial(tenant, vip, first+uint16(i))
				must(w.T, err)
				all = append(all, c)
			}
		}
	}
	return all
}
