package networks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/migrate"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/overlay"
	"github.com/weirlb/weir/internal/model/vnet"
)

// Tenants whose workloads have equal addresses reach one server past the muxes, and by datagrams with them; their connections outlive all muxes, and
// agents on both sides; what the tenants' own overlay carries loses nothing meanwhile; an idle connection ends.
func TestTenantsReachServersPastTheMuxes(t *testing.T) {
	const each = 50
	w := newWorld(t)
	pings := w.ping()
	must(t, netlab.Poll(t.Context(), bound, func() error {
		for _, vip := range []netip.Addr{overlay.VIP4, overlay.VIP6} {
			for _, tenant := range []string{"acme1", "bolt1", "acme2", "bolt2"} {
				c, err := w.dial(tenant, vip, 0)
				if err != nil {
					return err
				}
				// By a reset: after FINs its local address is nobody else's for two minutes.
				must(t, c.Conn.(*net.TCPConn).SetLinger(0), c.Close())
			}
		}
		return nil
	}))
	before := w.forwarded()
	connections := w.connectAll(each, 20000)
	w.all("both muxes work", connections, 5, 2000)
	if seen := int(w.forwarded() - before); seen < len(connections) || seen > len(connections)+len(connections)/10 {
		t.Errorf("of %d connections the muxes sent on %d packets", len(connections), seen)
	}
	w.knowsClients()
	w.lists(connections)
	w.moves(connections)

	for _, mux := range w.Of(netlab.Mux) {
		must(t, w.CutPower(mux.Name))
	}
	w.all("all muxes are dead", connections, 20, 2000)
	w.all("all muxes are dead, bulk", connections[:8], 1, 4<<20)
	w.restart("host1", connections)
	w.restart("chost1", connections)
	for _, mux := range w.Of(netlab.Mux) {
		must(t, w.Revive(mux.Name))
	}
	must(t, w.WaitReady(t.Context()), w.WaitRouted(t.Context(), bound, overlay.VXLAN, 2))
	more := w.connectAll(10, 30000)
	w.all("the muxes are back", append(connections, more...), 2, 2000)
	w.datagramsPass()
	w.detaches(w.forbids(append(connections, more...)))
	w.fullNAT()
	w.idles()
	pings(t)
	w.goes()
}

// moves takes a workload to the other host of clients and back, while its connections talk, and others listen without a
// word.
func (w *world) moves(connections []*connection) {
	w.Helper()
	const listeners = 10
	var listen []*connection
	for i := range uint16(listeners) {
		c, err := w.dial("acme1", overlay.VIP4, 25000+i)
		must(w.T, err)
		_, err = io.WriteString(c, pushes)
		must(w.T, err)
		listen = append(listen, c)
	}
	before, stop, talk := w.forwarded(), make(chan struct{}), sync.WaitGroup{}
	for _, c := range connections {
		talk.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
				}
				if err := c.talk(1, 500); err != nil {
					w.Errorf("while acme1 moves: %v", err)
					return
				}
			}
		})
	}
	for _, host := range []string{"chost2", "chost1"} {
		must(w.T, migrate.Tenant(w.Context(), w.Lab, "acme1", host))
		for _, c := range listen {
			must(w.T, c.SetReadDeadline(time.Now().Add(bound)))
			if _, err := io.ReadFull(c, make([]byte, 200)); err != nil {
				w.Errorf("%s after acme1 has moved to %s: %v", c.mark, host, err)
			}
		}
	}
	for _, c := range listen {
		must(w.T, c.Close())
	}
	close(stop)
	talk.Wait()
	w.all("acme1 has moved", connections, 5, 2000)
	moved := 2 * (len(connections)/4 + listeners)
	if seen := int(w.forwarded() - before); seen > listeners+2*moved {
		w.Errorf("of %d connections that moved the muxes saw %d packets", moved, seen-listeners)
	}
}

// forbids denies the workloads on one host to a VIP: their connections are reset, the others go on.
func (w *world) forbids(connections []*connection) (stay []*connection) {
	w.Helper()
	w.apply(func(text string) string {
		denied := fmt.Sprintf("port: 80\n      deny: [%s/32]\n", overlay.WorkloadAt(2).IPv4)
		return strings.Replace(text, "port: 80\n", denied, 1) // of the first VIP
	})
	for _, c := range connections {
		if forbidden := strings.Contains(c.mark, "2 "+overlay.VIP4.String()+" "); !forbidden {
			stay = append(stay, c)
			continue
		}
		w.isReset(c, "of a client that is denied")
	}
	w.all("some clients are denied", stay, 2, 2000)
	return stay
}

// isReset waits until a connection is reset.
func (w *world) isReset(c *connection, what string) {
	w.Helper()
	must(w.T, c.SetDeadline(time.Now().Add(bound)))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		w.Fatalf("%s %s: %v", c.mark, what, err)
	}
}

// detaches takes the VIPs from one of the networks: its connections are reset, the other's go on.
func (w *world) detaches(connections []*connection) {
	w.Helper()
	w.apply(func(text string) string {
		return regexp.MustCompile("(?m)^ *- {network: bolt-prod.*\n").ReplaceAllString(text, "")
	})
	var stay []*connection
	for _, c := range connections {
		if strings.HasPrefix(c.mark, "acme") {
			stay = append(stay, c)
			continue
		}
		w.isReset(c, "of a network that is detached")
	}
	w.all("the other network is detached", stay, 2, 2000)
}

// goes deletes the VIPs: nothing of networks runs any more on the hosts.
func (w *world) goes() {
	w.Helper()
	if out, err := w.Weir("delete", "vip", "orders", "orders6"); err != nil {
		w.Fatalf("%v: %s", err, out)
	}
	must(w.T, netlab.Poll(w.Context(), bound, func() error {
		if loaded := w.loaded(); len(loaded) > 0 {
			return fmt.Errorf("without a VIP, programs of networks run on %v", loaded)
		}
		return nil
	}))
}

// forwarded is how many packets the muxes have sent to hosts.
func (w *world) forwarded() (packets uint64) {
	w.Helper()
	for _, mux := range w.Of(netlab.Mux) {
		n, err := w.Forwarded(mux.Name)
		must(w.T, err)
		packets += n
	}
	return packets
}

// knowsClients asks the server's host who its clients are: each local address is one client's, of one network.
func (w *world) knowsClients() {
	w.Helper()
	networks := map[uint32]int{}
	for _, local := range w.clients() {
		if !vnet.DefaultLocalPrefixes[0].Contains(local.Addr()) && !vnet.DefaultLocalPrefixes[1].Contains(local.Addr()) {
			w.Errorf("the server knows a client as %s", local)
		}
		if local.Port() < 20000 || local.Port() >= 20010 {
			continue // a few will do
		}
		out, err := w.Lab.Run("host1", w.Find("weir-agent"), "whois", "--pin-path", w.PinPath("host1"), "-o", "json", local.String())
		must(w.T, err)
		var client struct {
			VNI    uint32
			Client netip.AddrPort
		}
		must(w.T, json.Unmarshal([]byte(out), &client))
		if client.Client.Port() != local.Port() || !overlay.Prefix4.Contains(client.Client.Addr()) && !overlay.Prefix6.Contains(client.Client.Addr()) {
			w.Errorf("%s is %+v", local, client)
		}
		networks[client.VNI]++
	}
	if networks[100] != networks[200] || networks[100] == 0 {
		w.Errorf("clients by network: %v", networks)
	}
}

// lists asks the manager, which asks the server's host, for connections of each VIP: exactly those are open.
func (w *world) lists(connections []*connection) {
	w.Helper()
	for vip, address := range map[string]netip.Addr{"orders": overlay.VIP4, "orders6": overlay.VIP6} {
		want := map[string]bool{}
		for _, c := range connections {
			if strings.Contains(c.mark, " "+address.String()+" ") {
				want[c.mark[:4]+"-prod "+c.LocalAddr().String()] = true
			}
		}
		out, err := w.Weir("connections", "--vip", vip, "--limit", "5000", "-o", "json")
		if err != nil {
			w.Fatalf("%v: %s", err, out)
		}
		var listed struct {
			Connections []struct{ Network, Client, State, Local string }
		}
		must(w.T, json.Unmarshal([]byte(out), &listed))
		for _, c := range listed.Connections {
			key := c.Network + " " + c.Client
			if c.State == "open" && (!want[key] || !w.served(c.Local)) {
				w.Errorf("%s has an open connection of %s, which the server knows as %s", vip, key, c.Local)
			}
			if c.State == "open" {
				delete(want, key)
			}
		}
		if len(want) > 0 {
			w.Errorf("of VIP %s %d connections are not listed, of %d that are", vip, len(want), len(listed.Connections))
		}
	}
}

// served says whether a server has had a client by that address.
func (w *world) served(local string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[netip.MustParseAddrPort(local)]
}

// idles has connections of a VIP idle for longer than they may, one of them with full NAT in a mux, beside one that is not.
func (w *world) idles() {
	w.Helper()
	w.apply(func(text string) string {
		return strings.ReplaceAll(natInMuxes(text), "port: 80\n", "port: 80\n      idleTimeout: 3s\n")
	})
	idle, err := w.dial("acme1", overlay.VIP4, 40000)
	must(w.T, err)
	natted, err := w.dial("bolt2", overlay.VIP4, 40000)
	must(w.T, err)
	busy, err := w.dial("bolt1", overlay.VIP4, 40000)
	must(w.T, err, idle.talk(1, 100), natted.talk(1, 100), busy.talk(1, 100))
	began := time.Now()
	ended := make(chan error, 1)
	go func() {
		_, err := idle.Read(make([]byte, 1))
		ended <- err
	}()
	for {
		must(w.T, busy.talk(1, 100))
		select {
		case err := <-ended:
			if took := time.Since(began); !errors.Is(err, unix.ECONNRESET) || took < 2*time.Second {
				w.Errorf("the idle connection ended after %s: %v", took, err)
			}
			w.isReset(natted, "that is idle, with full NAT in a mux")
			must(w.T, busy.talk(1, 100))
			return
		case <-time.After(200 * time.Millisecond):
		}
		if time.Since(began) > bound {
			w.Fatal("the idle connection does not end")
		}
	}
}

var lost = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// ping has a workload that stays ping another one by the tenant's own overlay, which has nothing to do with Weir, until it is called.
func (w *world) ping() (end func(*testing.T)) {
	w.Helper()
	done := make(chan string, 1)
	stop := make(chan struct{})
	go func() {
		var sent, received int
		for {
			out, err := w.Lab.Run("bolt1", "ping", "-q", "-i", "0.02", "-c", "50", "-W", "5", "192.168.0.6")
			var s, r int
			if found := lost.FindStringSubmatch(out); found != nil {
				_, _ = fmt.Sscan(found[1], &s)
				_, _ = fmt.Sscan(found[2], &r)
			}
			if sent, received = sent+s, received+r; s == 0 {
				done <- fmt.Sprintf("ping: %v: %s", err, out)
				return
			}
			select {
			case <-stop:
				done <- fmt.Sprintf("%d of %d", sent-received, sent)
				return
			default:
			}
		}
	}()
	return func(t *testing.T) {
		t.Helper()
		close(stop)
		if result := <-done; !strings.HasPrefix(result, "0 of ") {
			t.Errorf("packets of the tenant's own overlay were lost: %s", result)
		}
	}
}
