package overlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/testkit/oracle"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
)

// twins are the programs and the oracle, with the same tables.
type twins struct {
	*Datapath
	t      *testing.T
	oracle *oracle.Overlay
	key    fbt.Key
	counts map[string]uint64
}

// Two networks whose clients and VIPs have the same addresses, in both families; one tenant has few sessions.
func newTwins(t *testing.T) *twins {
	t.Helper()
	d, err := Open(testConfig)
	if err != nil {
		t.Fatalf("%+v (these tests need root)", err)
	}
	t.Cleanup(func() { _ = d.Close() })
	addr, end := netip.MustParseAddr, netip.MustParseAddrPort
	w := &twins{Datapath: d, t: t, key: fbt.Key{Secret: [16]byte{1, 2, 3}, ID: 5}}
	w.oracle = &oracle.Overlay{
		MTU: 1500, Local4: testConfig.Local4, Local6: testConfig.Local6,
		Keys: []fbt.Key{w.key, {Secret: [16]byte{9}, ID: 6}},
		Attachments: map[uint32]oracle.OverlayAttachment{
			1: {VNI: 100, Tenant: 1, VIP: addr("10.99.0.1"), Service: addr("203.0.113.10"), Gateway: [6]byte{2, 9}},
			2: {VNI: 200, Tenant: 2, VIP: addr("10.99.0.1"), Service: addr("203.0.113.10"), Gateway: [6]byte{2, 8}},
			3: {VNI: 100, Tenant: 1, VIP: addr("fd12::99"), Service: addr("2001:db8::10"), Gateway: [6]byte{2, 9}},
			4: {VNI: 0xabcdef, Tenant: 2, VIP: addr("fd12::99"), Service: addr("2001:db8::10"), Gateway: [6]byte{2, 7}},
		},
		Rules: map[uint32]oracle.OverlayRule{
			1:  {Service: end("203.0.113.10:80"), Tunnel: addr("10.1.0.5"), Backend: end("10.1.0.5:8080")},
			2:  {Service: end("203.0.113.10:443"), Tunnel: addr("10.1.0.5"), Backend: end("10.1.0.6:443"), Behind: true},
			3:  {Service: end("203.0.113.10:0"), Tunnel: addr("fd01::5"), Backend: end("10.1.0.7:0")},
			4:  {Service: end("[2001:db8::10]:80"), Tunnel: addr("fd01::5"), Backend: end("[fd01::5]:8080")},
			5:  {Service: end("[2001:db8::10]:0"), Tunnel: addr("10.1.0.5"), Backend: end("[fd01::6]:0"), Behind: true},
			6:  {Service: end("203.0.113.10:22"), Tunnel: addr("10.1.0.5"), Backend: end("10.1.0.8:22"), Down: true},
			7:  {Service: end("203.0.113.10:23"), Tunnel: addr("10.1.0.5"), Backend: end("[fd01::9]:23")},
			8:  {UDP: true, Service: end("203.0.113.10:80"), Tunnel: addr("10.1.0.5"), Backend: end("10.1.0.5:5353")},
			9:  {UDP: true, Service: end("203.0.113.10:0"), Tunnel: addr("fd01::5"), Backend: end("10.1.0.6:0"), Behind: true},
			10: {UDP: true, Service: end("[2001:db8::10]:80"), Tunnel: addr("fd01::5"), Backend: end("[fd01::5]:8080")},
			11: {UDP: true, Service: end("[2001:db8::10]:443"), Tunnel: addr("10.1.0.5"), Backend: end("[fd01::6]:443"), Behind: true},
		},
		Tunnels: map[netip.Addr]oracle.OverlayTunnel{
			addr("10.0.0.1"): {Mux: true}, addr("fd00::1"): {Mux: true},
			addr("10.2.0.1"): {Agent: true, Host: 7}, addr("fd02::1"): {Agent: true, Host: 7},
			addr("10.2.0.2"): {Agent: true, Server: true, Host: 8}, addr("fd02::2"): {Agent: true, Server: true, Host: 8},
			addr("10.2.0.4"): {Agent: true, Server: true, Host: 10},
			addr("10.2.0.3"): {Host: 9},
		},
		Hosts: map[uint32][]netip.Addr{
			7: {addr("10.2.0.1"), addr("fd02::1")}, 8: {addr("10.2.0.2"), addr("fd02::2")}, 9: {addr("10.2.0.3")},
			10: {addr("10.2.0.4")},
		},
		Tenants:  hoststate.Tenants{0: {Own: 10}, 1: {Own: 30, Most: 60, HalfOpen: 5}, 2: {Own: 4, Most: 6, HalfOpen: 30}},
		Sessions: hoststate.Sessions{},
		PortVNI:  100, Mux: addr("10.0.0.9"), Mux6: addr("fd00::9"), Own: []netip.Addr{addr("10.1.0.5"), addr("fd01::5")},
		Clients: map[netip.Addr]oracle.OverlayClient{addr("192.168.0.9"): {MAC: clientMAC}, addr("fd12::9"): {MAC: clientMAC}},
		Flows:   hoststate.Flows{},
	}
	w.oracle.Place = w.place
	w.fill()
	w.counts = w.read()
	return w
}

// fill gives the programs the oracle's tables.
func (w *twins) fill() {
	w.t.Helper()
	attachments, rules := map[uint32]Attachment{}, map[uint32]Rule{}
	for n, a := range w.oracle.Attachments {
		attachments[n] = Attachment{VNI: a.VNI, VIP: a.VIP, Service: a.Service, Tenant: a.Tenant, GatewayMAC: a.Gateway}
	}
	for n, r := range w.oracle.Rules {
		rules[n] = Rule{Service: r.Service, IsUDP: r.UDP, Tunnel: r.Tunnel, Backend: r.Backend, IsDown: r.Down}
		if r.Behind {
			rules[n] = Rule{Service: r.Service, IsUDP: r.UDP, Tunnel: r.Tunnel, Backend: r.Backend, Ifindex: 1}
		}
	}
	var hosts []Host
	for a, tunnel := range w.oracle.Tunnels {
		h := Host{Roles: Bare}
		if tunnel.Mux {
			h.Roles = Mux
		} else if tunnel.Agent {
			h.Roles = Client
		}
		if tunnel.Server {
			h.Roles |= Server
		}
		h.Number = tunnel.Host
		h.V4, h.V6 = at(a.String(), true), at(a.String(), false)
		for _, other := range w.oracle.Hosts[tunnel.Host] {
			if other.Is4() {
				h.V4 = other
			} else {
				h.V6 = other
			}
		}
		hosts = append(hosts, h)
	}
	errs := []error{w.SetKeys(w.oracle.Keys), w.SetAttachments(attachments), w.SetRules(rules), w.SetHosts(hosts)}
	errs = append(errs, w.SetUnderlay(Underlay{Own4: w.oracle.Own[0], Own6: w.oracle.Own[1], Mux4: w.oracle.Mux, Mux6: w.oracle.Mux6}))
	port := Port{Ifindex: 1, VNI: w.oracle.PortVNI, MAC: clientMAC, Flows: 1 << 20}
	port.Addresses = slices.Collect(maps.Keys(w.oracle.Clients))
	errs = append(errs, w.SetPorts([]Port{port}))
	for n, q := range w.oracle.Tenants {
		errs = append(errs, w.SetTenant(n, uint32(q.Own), uint32(q.Most), uint32(q.HalfOpen)))
	}
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

// place finds the row that the programs have chosen, which the oracle has another session in no more.
func (w *twins) place(s hoststate.Session) uint32 {
	for is := range w.All() {
		if is.Client == s.Client && is.Port == s.Port && is.Attachment == s.Attachment && is.Events&UDP != 0 == s.UDP {
			if past := w.oracle.Sessions[is.Row]; past != nil {
				w.t.Errorf("row %d is of %s and of %s", is.Row, past.Client, s.Client)
			}
			return is.Row
		}
	}
	w.t.Errorf("no row for %s", s.Client)
	return 1 << 30
}

func (w *twins) read() map[string]uint64 {
	w.t.Helper()
	all, err := w.Verdicts()
	if err != nil {
		w.t.Fatal(err)
	}
	counts := map[string]uint64{}
	for name, c := range all {
		counts[name] = c.Packets
	}
	return counts
}

// check gives a frame to a program and to the oracle, which have to agree. It returns the verdict; empty: the kernel's
// test run does not take the frame.
func (w *twins) check(program string, frame []byte) string {
	w.t.Helper()
	for i := range w.quotas {
		atomic.StoreUint64(&w.quotas[i].ResetTAT, 0) // the oracle knows no time
	}
	p := map[string]*ebpf.Program{
		fromUnderlay: w.objects.FromUnderlay, toUnderlay: w.objects.ToUnderlay, "from_server": w.objects.FromServer,
		"from_client": w.objects.FromClient,
	}[program]
	options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	if _, err := p.Run(options); errors.Is(err, syscall.EINVAL) {
		return ""
	} else if err != nil {
		w.t.Fatal(err)
	}
	got := ""
	counts := w.read()
	for name, n := range counts {
		for range n - w.counts[name] {
			got += name
		}
	}
	w.counts = counts
	var want oracle.Outcome
	if program == "from_client" {
		w.readNonces() // of a flow that has just begun
	}
	switch program {
	case fromUnderlay:
		want = w.oracle.FromUnderlay(frame)
	case "from_client":
		want = w.oracle.FromClient(frame)
	default:
		want = w.oracle.FromServer(frame, program == toUnderlay)
	}
	if got != want.Verdict {
		w.t.Fatalf("%s: %s, the oracle says %s:\n%x", program, got, want.Verdict, frame)
	}
	w.compareFrames(got, frame, want.Frame, options.DataOut)
	w.compareSessions(frame)
	w.compareFlows(frame)
	w.readNonces()
	return got
}

func (w *twins) compareFrames(verdict string, in, want, got []byte) {
	w.t.Helper()
	switch {
	case strings.HasPrefix(verdict, "drop_"):
		return
	case strings.HasPrefix(verdict, "pass_"):
		want = in
	case verdict == "reply", verdict == "reply_by_mux", verdict == "reset_client", verdict == "send_direct", verdict == "send_mux":
		udp := 14 + 20
		if got[12] == 0x86 {
			udp = 14 + 40
		}
		if got[udp] < 0xc0 {
			w.t.Errorf("UDP source port %x is none of ours", got[udp:udp+2])
		}
		copy(got[udp:], []byte{0, 0})
	}
	if !equalButZeros(want, got) {
		w.t.Fatalf("%s of\n%x\nis\n%x\nthe oracle says\n%x", verdict, in, got, want)
	}
}

// equalButZeros compares frames; a checksum of ones' complement has two zeros.
func equalButZeros(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	a, b = bytes.Clone(a), bytes.Clone(b)
	for i := 0; i+1 < len(a); i += 2 {
		x, y := binary.BigEndian.Uint16(a[i:]), binary.BigEndian.Uint16(b[i:])
		if x != y && (x == 0 || x == 0xffff) && (y == 0 || y == 0xffff) {
			copy(a[i:], b[i:i+2])
		}
	}
	return bytes.Equal(a, b)
}

// compareSessions compares the whole table.
func (w *twins) compareSessions(frame []byte) {
	w.t.Helper()
	got := hoststate.Sessions{}
	for s := range w.All() {
		e := s.Events
		got[s.Row] = &hoststate.Session{
			Client: s.Client, Port: s.Port, Attachment: s.Attachment, Rule: s.Rule, Host: s.Host, MAC: s.ClientMAC,
			ClientNext: s.ClientNext, ServerNext: s.ServerNext,
			ClientACK: e&ClientACK != 0, ServerAnswer: e&ServerAnswer != 0, ClientFIN: e&ClientFIN != 0,
			ServerFIN: e&ServerFIN != 0, Reset: e&Reset != 0, Via: e&ViaMux != 0, UDP: e&UDP != 0,
		}
	}
	same := func(a, b *hoststate.Session) bool {
		known := *a
		known.Nonce = [6]byte{} // of which ClientNext has the most
		return known == *b
	}
	if maps.EqualFunc(w.oracle.Sessions, got, same) {
		return
	}
	if diff := cmp.Diff(w.oracle.Sessions, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		w.t.Fatalf("sessions (-oracle +programs) after\n%x\n%s", frame, diff)
	}
}

// compareFlows compares what is learnt. The oracle knows no time, so no host is waited for.
func (w *twins) compareFlows(frame []byte) {
	w.t.Helper()
	rows, err := abi.ReadTable[overlayBypassFlowKey, overlayBypassFlow](w.objects.BypassFlows)
	if err != nil {
		w.t.Fatal(err)
	}
	states := map[FlowState]string{FlowHalfOpen: "half-open", FlowByMux: "by-mux", FlowLost: "lost", FlowDirect: "direct"}
	got := hoststate.Flows{}
	for key, row := range rows {
		f := flowOf(key, row)
		if f.Events&UDP != 0 {
			got[flowKeyOf(f)] = &hoststate.Flow{State: states[f.State], Host: f.Host, Ticket: ticketOf(f)}
			continue
		}
		got[flowKeyOf(f)] = &hoststate.Flow{
			State: states[f.State], Host: f.Host, ClientNext: f.ClientNext, ServerNext: f.ServerNext,
			ClientFIN: f.Events&ClientFIN != 0, ServerFIN: f.Events&ServerFIN != 0, Reset: f.Events&Reset != 0,
		}
	}
	if maps.EqualFunc(w.oracle.Flows, got, func(a, b *hoststate.Flow) bool { return *a == *b }) {
		w.forgetWaiting(rows)
		return
	}
	if diff := cmp.Diff(w.oracle.Flows, got, cmpopts.EquateComparable(netip.AddrPort{}, netip.Addr{})); diff != "" {
		w.t.Fatalf("flows (-oracle +programs) after\n%x\n%s", frame, diff)
	}
}

// forgetWaiting has no host be waited for.
func (w *twins) forgetWaiting(rows map[overlayBypassFlowKey]overlayBypassFlow) {
	w.t.Helper()
	for key, row := range rows {
		if row.Waiting == 0 {
			continue
		}
		row.Waiting = 0
		if err := w.objects.BypassFlows.Put(key, row); err != nil {
			w.t.Fatal(err)
		}
	}
}

// sweep has the table swept as if more time had passed than any quarantine takes.
func (w *twins) sweep() {
	w.t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		w.t.Fatal(err)
	}
	w.Sweep(Now()+7200, nil)
	for row, s := range w.oracle.Sessions {
		if s.Reset || !s.ClientACK || s.ClientFIN && s.ServerFIN {
			delete(w.oracle.Sessions, row)
		}
	}
	w.compareSessions(nil)
	for tenant := range w.oracle.Tenants {
		rows, halfOpen := 0, 0
		for _, s := range w.oracle.Sessions {
			if w.oracle.Attachments[s.Attachment].Tenant == tenant {
				rows++
				if !s.ClientACK {
					halfOpen++
				}
			}
		}
		if got := w.Usage(tenant); tenant != 0 && (got.Rows != rows || got.HalfOpen != halfOpen) {
			w.t.Errorf("tenant %d: %+v, of %d rows %d half-open", tenant, got, rows, halfOpen)
		}
	}
}

// The programs do with random packets what the oracle says: verdict, every byte, and what is remembered.
func TestProgramsAgreeWithTheOracle(t *testing.T) {
	const packets = 12000
	seen := map[string]int{}
	for _, seed := range []uint64{1, 2} {
		w := newTwins(t)
		g := generator{rand.New(rand.NewPCG(seed, 0)), w}
		for n := range packets {
			program, frame := g.next()
			seen[w.check(program, frame)]++
			if n%700 == 699 {
				w.sweep()
			}
		}
		for key, f := range w.oracle.Flows {
			if key.UDP {
				seen["datagrams "+f.State]++
			}
		}
	}
	t.Logf("verdicts: %v", seen)
	for _, verdict := range []string{
		"pass_other", "pass_not_vxlan", "pass_not_ours", "pass_not_local", "deliver_native", "deliver_interface",
		"reply", "reset_client", "reset_server", "reset_server_native", "drop_inner_fragment", "drop_inner_other",
		"drop_inner_malformed", "drop_ecn", "drop_not_a_vtep", "drop_fbt_missing", "drop_fbt_key", "drop_fbt_forged",
		"drop_fbt_vni", "drop_fbt_host", "drop_syn_past_mux", "drop_other_host", "drop_no_session", "drop_no_rule",
		"drop_no_workload", "drop_quota", "drop_half_open", "drop_local_other", "drop_too_big", "drop_rewrite",
		"pass_not_a_vip", "send_direct", "send_mux", "deliver_client", "answer_arp", "answer_nd", "answer_too_big", "answer_too_big_native",
		"drop_spoofed", "drop_tagged", "drop_not_acked", "datagrams direct", "datagrams half-open",
	} {
		if seen[verdict] == 0 {
			t.Errorf("no packet met verdict %s", verdict)
		}
	}
}
