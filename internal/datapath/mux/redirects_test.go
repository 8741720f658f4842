package mux

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// noted are the connections that the program has noted since the last call. There are no more, as a test
// run is over when it returns.
func noted(t *testing.T, r *Redirects) (all []Redirect) {
	t.Helper()
	r.reader.SetDeadline(time.Now())
	for {
		c, err := r.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
}

// stayOnCPU has the test run on one CPU to its end.
func stayOnCPU(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.SchedSetaffinity(0, &all)
		runtime.UnlockOSThread()
	})
}

// TestRedirectsAreNoted sends clients' packets and holds which connections user space hears of.
func TestRedirectsAreNoted(t *testing.T) {
	stayOnCPU(t) // what the program remembers is its CPU's
	const server, client, outsider = "203.0.113.10:80", "203.0.113.40:1024", "198.51.100.7:1024"
	rules := &model.Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.40/32")}, UDPPackets: 3}
	with := func(e model.MuxEndpoint, f *model.Fastpath) model.MuxEndpoint {
		e.Fastpath = f
		return e
	}
	d := newFilled(t,
		with(newEndpoint(server, model.TCP, "10.1.0.9"), rules), with(newEndpoint(server, model.UDP, "10.1.0.9"), rules),
		newEndpoint("203.0.113.10:81", model.TCP, "10.1.0.9"),
		with(newEndpoint("203.0.113.10:53", model.UDP, "10.1.0.9"), &model.Fastpath{Sources: rules.Sources}),
		with(refusing("203.0.113.10:82", client), rules))
	if err := d.Update(endpoint.Update{SNAT: []model.MuxSNAT{ranges("203.0.113.40", "10.1.0.2", "10.1.0.2", 128)}}); err != nil {
		t.Fatal(err)
	}
	resolve(t, d)
	r, err := d.Redirects()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	action := uint32(xdpTX)
	check := func(name string, p pkt.Packet, want int) {
		t.Helper()
		if got, _ := run(t, d, p.Frame()); got != action {
			t.Fatalf("%s: action is %d", name, got)
		}
		all := noted(t, r)
		if len(all) != want {
			t.Fatalf("%s: noted %v, want %d", name, all, want)
		}
		wanted := Redirect{
			Connection: fastpath.Connection{Protocol: model.Protocol(p.Protocol), Client: netip.MustParseAddrPort(client), Server: netip.MustParseAddrPort(server)},
			Client:     netip.MustParseAddr("10.1.0.2"), Server: netip.MustParseAddr("10.1.0.9"),
		}
		if want > 0 && all[0] != wanted {
			t.Errorf("%s: noted %+v, not %+v", name, all[0], wanted)
		}
	}
	check("SYN", pkt.TCP(client, server, pkt.SYN), 0)
	check("end", pkt.TCP(client, server, pkt.ACK|pkt.FIN), 0)
	check("reset", pkt.TCP(client, server, pkt.RST), 0)
	check("of an outsider", pkt.TCP(outsider, server, pkt.ACK), 0)
	check("of a port of nobody", pkt.TCP("203.0.113.40:2048", server, pkt.ACK), 0)
	check("without a fastpath", pkt.TCP(client, "203.0.113.10:81", pkt.ACK), 0)
	check("acknowledgement", pkt.TCP(client, server, pkt.ACK), 1)
	check("UDP that stays", pkt.UDP(client, "203.0.113.10:53"), 0)
	check("UDP", pkt.UDP(client, server), 0)
	check("UDP", pkt.UDP(client, server), 0)
	check("UDP of three packets", pkt.UDP(client, server), 1)

	toldAgain(t, d, r, pkt.TCP(client, server, pkt.ACK).Frame())

	// A mux decides first: what a list forbids does not leave, nor what one forbids since.
	action = xdpDrop
	check("of who may not come", pkt.TCP(client, "203.0.113.10:82", pkt.ACK), 0)
	apply(t, d, with(refusing(server, client), rules))
	check("of who may not come any more", pkt.TCP(client, server, pkt.ACK), 0)
}

// refusing is an endpoint that a client may not reach.
func refusing(server, client string) model.MuxEndpoint {
	e := newEndpoint(server, model.TCP, "10.1.0.9")
	address := netip.MustParseAddrPort(client).Addr()
	e.Deny = []netip.Prefix{netip.PrefixFrom(address, address.BitLen())}
	return e
}

// toldAgain holds that user space hears of a connection as long as its packets come, but not of each.
func toldAgain(t *testing.T, d *Datapath, r *Redirects, frame []byte) {
	t.Helper()
	const many = 2000
	for range many {
		run(t, d, frame)
	}
	if n := len(noted(t, r)); n >= many {
		t.Errorf("each of %d packets is noted", many)
	}
	bound := time.Now().Add(20 * time.Second)
	for again := 0; again == 0; again = len(noted(t, r)) {
		run(t, d, frame)
		if time.Now().After(bound) {
			t.Fatal("it is told once and never again")
		}
	}
}
