package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// pinned is a data plane that is attached to interfaces of a namespace of its own.
type pinned struct {
	*rig
	test   *testing.T
	ns     *netns.NS
	config Config
	server int // ifindex
}

func newPinned(t *testing.T, name string) *pinned {
	t.Helper()
	ns := netns.New(t, fmt.Sprintf("woverlay%d-%s", os.Getpid(), name))
	p := &pinned{test: t, ns: ns, config: testConfig}
	p.config.PinPath = fmt.Sprintf("/sys/fs/bpf/weir-overlay-%s-%d", name, os.Getpid())
	err := errors.Join(
		ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"), // what the kernel sends of itself would be counted
		netns.Veth(ns, "uplink", ns, "router"), netns.Veth(ns, "host", ns, "server"))
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	p.config.Uplink, failed = ns.Index("uplink")
	p.server, err = ns.Index("host")
	if err := errors.Join(failed, err); err != nil {
		t.Fatal(err)
	}
	p.in(func() { p.rig = newRigWith(t, families()["v4 over v6"], p.config) })
	p.must(p.SetTenant(1, 5000, 5000, 5000))
	p.in(func() { p.must(p.SetInterfaces([]int{p.server})) })
	t.Cleanup(func() {
		if err := p.Unload(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// in runs f in the namespace.
func (p *pinned) in(f func()) {
	if err := p.ns.Do(func() error { f(); return nil }); err != nil {
		p.test.Fatal(err)
	}
}

// restart closes the data plane and opens one with so many sets.
func (p *pinned) restart(sets uint32) {
	p.t.Helper()
	p.must(p.Close())
	p.config.Sets = sets
	p.in(func() {
		d, err := Open(p.config)
		if err != nil {
			p.t.Fatal(err)
		}
		p.Datapath = d
	})
}

// running is the program that a pinned link runs.
func (p *pinned) running(name string) (*ebpf.Program, error) {
	live, err := link.LoadPinnedLink(p.config.PinPath+"/live/"+name, nil)
	if err != nil {
		return nil, err
	}
	defer live.Close()
	info, err := live.Info()
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromID(info.Program)
}

// runs fails unless the links run this data plane's programs.
func (p *pinned) runs() {
	p.t.Helper()
	for name, want := range map[string]*ebpf.Program{
		"from_underlay": p.objects.FromUnderlay, "to_underlay": p.objects.ToUnderlay,
		fmt.Sprintf("from_server_%d", p.server): p.objects.FromServer,
	} {
		got, err := p.running(name)
		if err != nil {
			p.t.Fatal(err)
		}
		is, err := got.Info()
		wanted, other := want.Info()
		p.must(err, other, got.Close())
		a, _ := is.ID()
		if b, _ := wanted.ID(); a != b {
			p.t.Errorf("%s runs program %d, not %d", name, a, b)
		}
	}
}

// local are the addresses by which the server knows the clients of connections, by their ports.
func (p *pinned) local() map[uint16]uint32 {
	rows := make(map[uint16]uint32)
	for s := range p.All() {
		rows[s.Client.Port()] = s.Row
	}
	return rows
}

func (p *pinned) goesOn(rows map[uint16]uint32) {
	p.t.Helper()
	for port, row := range rows {
		ack := p.segment(pkt.ACK, 1001, 5001, func(s *pkt.Packet) { s.SourcePort = port })
		got := p.decode(p.run(p.objects.FromUnderlay, p.carry(ack, p.host), "deliver_native", next))
		want := netip.AddrFrom4([4]byte{100, 64, byte(row >> 8), byte(row)})
		if got.IP.Source != want {
			p.t.Errorf("connection of port %d comes from %s, not %s", port, got.IP.Source, want)
		}
	}
}

// A restart keeps sessions, their addresses, counts and settings; the programs are this process's.
func TestRestartKeepsSessions(t *testing.T) {
	p := newPinned(t, "restart")
	for n := range uint16(20) {
		p.open(n, n%2 == 0)
	}
	rows := p.local()
	for _, sets := range []uint32{64, 16} {
		p.restart(sets)
		p.runs()
		p.counts(0, 20, 10)
		p.goesOn(rows)
		if p.Rows() != 64*Ways {
			t.Errorf("the table has %d rows", p.Rows())
		}
	}
	p.config.Local4 = netip.MustParsePrefix("100.96.0.0/11")
	p.must(p.Close())
	p.in(func() {
		if _, err := Open(p.config); err == nil || !strings.Contains(err.Error(), "other local prefixes") {
			t.Errorf("sessions of another prefix were adopted: %v", err)
		}
	})
	p.config.Local4 = testConfig.Local4
	p.in(func() { p.Datapath, _ = Open(p.config) })
	p.in(func() { p.must(p.SetInterfaces(nil)) })
	if _, err := p.running(fmt.Sprintf("from_server_%d", p.server)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program still runs at the server's interface: %v", err)
	}
}

// The table grows while packets pass the programs that run just then: none of an established connection is lost, and
// those that begin meanwhile are there or were told to come again.
func TestTheTableGrowsUnderTraffic(t *testing.T) {
	p := newPinned(t, "grow")
	for n := range uint16(100) {
		p.open(n, true)
	}
	rows := p.local()
	stop, done := make(chan struct{}), make(chan map[uint16]uint32)
	go p.traffic(stop, done)
	p.restart(256)
	p.runs()
	close(stop)
	begun := <-done
	t.Logf("%d connections began meanwhile", len(begun))
	for port, row := range begun {
		rows[port] = row
	}
	p.goesOn(rows)
	if got := p.local(); len(got) != len(rows) {
		t.Errorf("%d sessions, not %d", len(got), len(rows))
	}
	p.counts(0, len(rows), len(begun))
	for n := range uint16(300) { // the rest has a place in the new sets
		p.open(20000+n, false)
	}
	p.restart(512)
	if p.Rows() != 256*Ways {
		t.Errorf("grew to %d rows while some are in places of the first growth", p.Rows())
	}
	for s := range p.All() {
		if s.Row < 64*Ways {
			p.Free(s)
		}
	}
	rows = p.local()
	p.Recount()
	p.restart(512)
	p.goesOn(rows)
	if p.Rows() != 512*Ways {
		t.Errorf("%d rows, not twice as many", p.Rows())
	}
}

// traffic gives packets to the programs that the links run, until stop: of established connections, and SYNs of new
// ones, whose rows it sends to done.
func (p *pinned) traffic(stop chan struct{}, done chan map[uint16]uint32) {
	begun := make(map[uint16]uint32)
	defer func() { done <- begun }()
	give := func(frame []byte) (uint32, []byte) {
		program, err := p.running("from_underlay")
		if errors.Is(err, os.ErrNotExist) { // the folders change places
			return drop, nil
		}
		if err != nil {
			p.t.Error(err)
			return drop, nil
		}
		defer program.Close()
		options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
		action, err := program.Run(options)
		if err != nil {
			p.t.Error(err)
		}
		return action, options.DataOut
	}
	for n := uint16(0); ; n = (n + 1) % 300 {
		select {
		case <-stop:
			return
		default:
		}
		ack := p.segment(pkt.ACK, 1001, 5001, func(s *pkt.Packet) { s.SourcePort += n % 100 })
		if action, out := give(p.carry(ack, p.host)); action != next && out != nil {
			p.t.Errorf("a packet of connection %d was not delivered", n%100)
		}
		port := 50000 + n
		if _, known := begun[port]; known {
			continue
		}
		syn := p.segment(pkt.SYN, 1000, 0, func(s *pkt.Packet) { s.SourcePort = port })
		if action, out := give(p.fromMux(syn, 7, p.key)); action == next {
			a := p.decode(out).IP.Source.As4()
			begun[port] = uint32(a[1]-64)<<16 | uint32(a[2])<<8 | uint32(a[3])
		}
	}
}

// Tables that the wrong process left are refused, with what to do.
func TestStrangePinsAreRefused(t *testing.T) {
	p := newPinned(t, "strange")
	p.must(p.Close())
	path := p.config.PinPath + "/live/hosts"
	p.must(os.Remove(path))
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	p.must(err, m.Pin(path), m.Close())
	p.in(func() {
		if _, err := Open(p.config); err == nil || !strings.Contains(err.Error(), "hosts") || !strings.Contains(err.Error(), remedy) {
			t.Errorf("adopted: %v", err)
		}
	})
	p.must(os.Remove(path)) // as an older version would have left it
	p.in(func() {
		d, err := Open(p.config)
		if err != nil {
			t.Fatal(err)
		}
		p.Datapath = d
	})
	names, err := p.folder.Names("")
	if err != nil || !slices.Contains(names, "hosts") {
		t.Errorf("pins %v, %v", names, err)
	}
}

// Who opens the data plane next knows what the one before was told; and who only looks sees the same, beside it.
func TestWhatIsToldOutlivesTheProcess(t *testing.T) {
	p := newPinned(t, "told")
	p.open(7, true)
	attachments, rules := p.Attachments(), p.Rules()
	p.restart(64)
	view, err := OpenView(p.config.PinPath)
	p.must(err)
	defer view.Close()
	for name, got := range map[string]map[uint32]Attachment{"restarted": p.Attachments(), "viewed": view.Attachments()} {
		if len(got) != 1 || got[1] != attachments[1] {
			t.Errorf("attachments, %s: %+v, were %+v", name, got, attachments)
		}
	}
	for name, got := range map[string]map[uint32]Rule{"restarted": p.Rules(), "viewed": view.Rules()} {
		if len(got) != 1 || got[1] != rules[1] {
			t.Errorf("rules, %s: %+v, were %+v", name, got, rules)
		}
	}
	if view.Local[true] != p.config.Local4 || view.Local[false] != p.config.Local6 || view.Size.Sets != 64 {
		t.Errorf("viewed with prefixes %v and size %+v", view.Local, view.Size)
	}
	sessions := view.Sessions()
	if len(sessions) != 1 {
		t.Fatalf("viewed sessions %+v", sessions)
	}
	peer, err := view.Whois(p.Local(sessions[0]))
	p.must(err)
	if peer.Client != sessions[0].Client || peer.VNI != testVNI {
		t.Errorf("viewed %+v", peer)
	}
	p.must(p.ForgetTraffic(1))
	if traffic, err := p.Traffic(1); err != nil || traffic != (Traffic{}) {
		t.Errorf("traffic %+v, %v", traffic, err)
	}
	if _, err := OpenView(p.config.PinPath + "-none"); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("a view of nothing: %v", err)
	}
}
