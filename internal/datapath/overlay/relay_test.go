package overlay

import (
	"net/netip"
	"testing"
)

// Answers go by the muxes to a client on a host without an agent, whose own VXLAN device learns, and over IPv6 wants UDP's
// checksum; and to one on a host with an agent, which learns nothing, where the attachment is full NAT. No mux remembers
// anything: one that dies breaks no connection.
func TestAnswersGoByMuxes(t *testing.T) {
	const each = 6
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRealMuxes(t, "rel"+name[1:2]+name[len(name)-1:], fabricFamily(f))
			r.vxlan = "learning noudp6zerocsumrx"
			attachments := r.attachments()
			for number, a := range attachments {
				a.FullNAT, a.Relay = a.VNI == fabricTenants["bolt"], a.VNI == fabricTenants["acme"]
				attachments[number] = a
			}
			for _, m := range r.muxes {
				r.must(m.SetAttachments(attachments))
			}
			host, bare, bolt := r.connect("bhost", r.bare()), r.tenant("acme"), r.tenant("bolt")
			r.joinOverlay(host, r.bare(), "acme", bare)
			r.join(r.hosts["chost"], "bolt", bolt)
			r.listen(r.hosts["server"].ns, echo)
			var connections []*tenantConnection
			for i := range each {
				one, err := r.dialFrom(bare, fabricTenants["acme"], uint16(30000+i))
				other, failed := r.dialFrom(bolt, fabricTenants["bolt"], uint16(30000+i))
				r.must(err, failed)
				connections = append(connections, one, other)
			}
			r.all(connections, 8, 1000)
			r.relaysAll(2 * each)
			r.kill(1)
			r.ip(r.core, "ip route replace %s via %s", one(f.mux), muxAddresses[netip.MustParseAddr(f.mux).Is4()][0]) // as BGP does
			r.all(connections, 8, 1000)
			r.all(connections[:2], 2, 1<<20)
			r.relaysAll(0)
			r.noDrops()
		})
	}
}

// relaysAll holds that all packets pass the muxes, both ways, and so many at least.
func (r *realMuxes) relaysAll(least uint64) {
	r.Helper()
	forwarded, dropped := r.seen()
	relayed := uint64(0)
	for _, m := range r.muxes {
		verdicts, err := m.Verdicts()
		r.must(err)
		relayed += verdicts["relay_answer"].Packets
	}
	if relayed < least || forwarded < least || len(dropped) != 0 {
		r.Errorf("muxes forwarded %d packets, relayed %d, dropped %v", forwarded, relayed, dropped)
	}
	for host, straight := range map[string]string{"shost": "reply", "chost": "send_direct"} {
		verdicts, err := r.hosts[host].Verdicts()
		r.must(err)
		if n := verdicts[straight].Packets; n != 0 {
			r.Errorf("%s: %s of %d packets", host, straight, n)
		}
	}
	verdicts, err := r.hosts["shost"].Verdicts()
	r.must(err)
	if n := verdicts["reply_by_mux"].Packets; n < least {
		r.Errorf("the server's host answered by muxes %d times", n)
	}
}
