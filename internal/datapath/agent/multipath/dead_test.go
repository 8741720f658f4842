package multipath

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
)

var (
	vip     = netip.MustParseAddr("203.0.113.10")
	httpKey = model.EndpointKey{VIP: vip, Protocol: model.TCP, Port: 80}
)

func at(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 3, 0, n}) }

// newObjects has the tables of the programs that a Directory uses.
func newObjects(t *testing.T) *bpf.AgentObjects {
	t.Helper()
	spec, err := bpf.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	objects := &bpf.AgentObjects{}
	for name, to := range map[string]**ebpf.Map{
		"mptcp_homes": &objects.MptcpHomes, "mptcp_tokens": &objects.MptcpTokens, "mptcp_names": &objects.MptcpNames, "mptcp_joined": &objects.MptcpJoined,
		"mptcp_joining": &objects.MptcpJoining, "mptcp_usages": &objects.MptcpUsages, "mptcp_quotas": &objects.MptcpQuotas,
		"sessions": &objects.Sessions, "new_sessions": &objects.NewSessions,
	} {
		if strings.HasSuffix(name, "sessions") {
			spec.Maps[name].MaxEntries = 1024
		}
		if *to, err = ebpf.NewMap(spec.Maps[name]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*to).Close() })
	}
	return objects
}

// newDirectory has one endpoint, with backends of this host by the last bytes of their tunnels: each is that of the byte 100 above.
func newDirectory(t *testing.T, backends ...byte) *Directory {
	t.Helper()
	d := New(newObjects(t))
	e := endpoint{hosts: []netip.Addr{at(1), at(2)}}
	for _, n := range backends {
		e = e.with(backend(n))
	}
	wanted := map[model.EndpointKey]endpoint{httpKey: e}
	if err := d.write(wanted); err != nil {
		t.Fatal(err)
	}
	d.endpoints = wanted
	return d
}

func backend(n byte) model.HostBackend {
	return model.HostBackend{Endpoint: httpKey, Tunnel: at(n), Backend: netip.AddrPortFrom(at(n+100), 8080)}
}

// connect has a session of a client's port with a backend: with the token, and these events.
func connect(t *testing.T, d *Directory, port uint16, n byte, token multipath.Token, events bpf.AgentSessionEvent) {
	t.Helper()
	key := bpf.AgentSessionKey{Client: bpf.ToAddress(netip.MustParseAddr("198.51.100.7")), ClientPort: abi.Port(port), Dip: bpf.ToAddress(at(n + 100)), DipPort: abi.Port(8080), Protocol: uint8(model.TCP)}
	row := bpf.AgentSession{Vip: bpf.ToAddress(vip), VipPort: abi.Port(80), Token: toName(multipath.Name{Token: token}).Token, Events: events}
	if err := d.objects.Sessions.Put(key, row); err != nil {
		t.Fatal(err)
	}
}

const (
	sessionOpen = bpf.AgentSessionEventSESSION_CLIENT_SYN | bpf.AgentSessionEventSESSION_WORKLOAD_ANSWER | bpf.AgentSessionEventSESSION_CLIENT_ACK
	sessionOver = sessionOpen | bpf.AgentSessionEventSESSION_CLIENT_FIN | bpf.AgentSessionEventSESSION_WORKLOAD_FIN
)

// hold has a row of the token, of the tunnel, that counts for so long.
func hold(t *testing.T, d *Directory, table *ebpf.Map, token multipath.Token, tunnel netip.Addr, left time.Duration) {
	t.Helper()
	clock, err := now()
	if err != nil {
		t.Fatal(err)
	}
	row := bpf.AgentMultipathHolder{Tunnel: bpf.ToAddress(tunnel), Until: uint64(clock + left)}
	if err := table.Put(toName(multipath.Name{Endpoint: httpKey, Token: token}), row); err != nil {
		t.Fatal(err)
	}
}

// held is whose row the token has, and for how long.
func held(t *testing.T, table *ebpf.Map, token multipath.Token) (tunnel netip.Addr, left time.Duration) {
	t.Helper()
	clock, err := now()
	if err != nil {
		t.Fatal(err)
	}
	var row bpf.AgentMultipathHolder
	if err := table.Lookup(toName(multipath.Name{Endpoint: httpKey, Token: token}), &row); err != nil {
		return netip.Addr{}, 0
	}
	return bpf.FromAddress(row.Tunnel), time.Duration(row.Until) - clock
}

// TestTokensOfDeadConnections has them be told no more, and end soon, while those of live ones are prolonged.
func TestTokensOfDeadConnections(t *testing.T) {
	const live, liveOld, dead, deadOld, ended, over, unproven, fresh, moved = 1, 2, 3, 4, 5, 6, 7, 8, 9
	d := newDirectory(t, 11)
	for token, left := range map[multipath.Token]time.Duration{
		live: 14 * time.Minute, liveOld: 6 * time.Minute, dead: 14 * time.Minute, deadOld: 2 * time.Minute, ended: -time.Minute, over: 14 * time.Minute,
		unproven: 14 * time.Minute, fresh: multipath.NameLife,
	} {
		hold(t, d, d.objects.MptcpTokens, token, at(11), left)
	}
	hold(t, d, d.objects.MptcpTokens, moved, at(12), 14*time.Minute)
	for token, events := range map[multipath.Token]bpf.AgentSessionEvent{
		live: sessionOpen, liveOld: sessionOpen, over: sessionOver, unproven: sessionOpen &^ bpf.AgentSessionEventSESSION_CLIENT_ACK, moved: sessionOpen,
	} {
		connect(t, d, 40000+uint16(token), 11, token, events)
	}
	report, err := d.SweepMultipath()
	if err != nil || report.Tokens != 8 {
		t.Errorf("left are %+v, %v", report, err)
	}
	for token, want := range map[multipath.Token]time.Duration{
		live: 14 * time.Minute, liveOld: multipath.NameLife, dead: deadLife, deadOld: 2 * time.Minute, ended: 0, over: deadLife, unproven: deadLife,
		fresh: multipath.NameLife,
	} {
		if _, left := held(t, d.objects.MptcpTokens, token); left > want || want-left > time.Minute {
			t.Errorf("token %d lives for %s, not %s", token, left, want)
		}
	}
	// What a workload has that moved is not this host's to prolong; the session here shows that it is back.
	if tunnel, left := held(t, d.objects.MptcpTokens, moved); tunnel != at(11) || left < 14*time.Minute {
		t.Errorf("the token of the workload that moved is %s's for %s", tunnel, left)
	}
	own, err := d.OwnTokens()
	if err != nil {
		t.Fatal(err)
	}
	told := map[multipath.Token]bool{}
	for _, o := range own {
		told[o.Name.Token] = true
	}
	if len(own) != 4 || !told[live] || !told[liveOld] || !told[fresh] || !told[moved] {
		t.Errorf("told are %v", own)
	}
}

// TestAnEqualTokenIsTakenOver has the row of a connection that is over become that of the next one with an equal token, and no other.
func TestAnEqualTokenIsTakenOver(t *testing.T) {
	const over, live = 1, 2
	d := newDirectory(t, 11, 12)
	for _, token := range []multipath.Token{over, live} {
		hold(t, d, d.objects.MptcpTokens, token, at(11), 14*time.Minute)
		connect(t, d, 40000+uint16(token), 12, token, sessionOpen)
	}
	connect(t, d, 40003, 11, over, sessionOver)
	connect(t, d, 40004, 11, live, sessionOpen)
	for range 2 {
		if _, err := d.SweepMultipath(); err != nil {
			t.Fatal(err)
		}
		for token, want := range map[multipath.Token]netip.Addr{over: at(12), live: at(11)} {
			if tunnel, left := held(t, d.objects.MptcpTokens, token); tunnel != want || left < 13*time.Minute {
				t.Errorf("token %d is that of %s for %s, not of %s", token, tunnel, left, want)
			}
		}
	}
}

// TestOwnNamesHaveAQuota has the daemon note a token of its host's in the VIP's room alone, and what was refused be counted for ever.
func TestOwnNamesHaveAQuota(t *testing.T) {
	d := newDirectory(t, 11)
	if err := d.objects.MptcpQuotas.Put(bpf.ToAddress(vip), bpf.AgentMultipathQuota{Limit: [tables]uint64{0, 2, 0, 0}}); err != nil {
		t.Fatal(err)
	}
	note := func(token multipath.Token) bool {
		t.Helper()
		if err := d.NoteName(Own{Name: multipath.Name{Endpoint: httpKey, Token: token}, Tunnel: at(11), Client: netip.MustParseAddrPort("198.51.100.7:40000")}); err != nil {
			t.Fatal(err)
		}
		tunnel, _ := held(t, d.objects.MptcpNames, token)
		return tunnel == at(11)
	}
	for i, want := range []bool{true, true, false} {
		if got := note(multipath.Token(i + 1)); got != want {
			t.Errorf("token %d is noted: %t", i+1, got)
		}
	}
	if !note(1) {
		t.Error("what is noted is not refreshed")
	}
	usage := bpf.AgentMultipathUsage{Refused: [tables]uint64{1, 2, 3, 4}}
	if err := d.objects.MptcpUsages.Put(bpf.ToAddress(vip), usage); err != nil {
		t.Fatal(err)
	}
	report, err := d.SweepMultipath()
	if err != nil || report.Refused != 11 || report.Names != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	if !note(3) {
		t.Error("the sweep has made no room")
	}
	if err := d.write(nil); err != nil {
		t.Fatal(err)
	}
	if report, err := d.SweepMultipath(); err != nil || report.Refused != 11 {
		t.Errorf("when the VIP is gone: %+v, %v", report, err)
	}
}
