package multipath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
)

// TestADaemonThatRestartsKnowsItsEndpoints has tokens be told and asked about before the manager has said anything.
func TestADaemonThatRestartsKnowsItsEndpoints(t *testing.T) {
	spec, err := bpf.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	var objects bpf.AgentObjects
	for name, to := range map[string]**ebpf.Map{
		"mptcp_homes": &objects.MptcpHomes, "mptcp_tokens": &objects.MptcpTokens, "mptcp_names": &objects.MptcpNames, "mptcp_joined": &objects.MptcpJoined,
		"mptcp_joining": &objects.MptcpJoining, "mptcp_usages": &objects.MptcpUsages, "mptcp_quotas": &objects.MptcpQuotas,
	} {
		if *to, err = ebpf.NewMap(spec.Maps[name]); err != nil {
			t.Fatal(err)
		}
		defer (*to).Close()
	}
	at := func(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 3, 0, n}) }
	key := model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}
	hosts := []netip.Addr{at(1), at(2), at(3)}
	if err := New(&objects).write(map[model.EndpointKey]endpoint{key: {hosts: hosts}}); err != nil {
		t.Fatal(err)
	}
	clock, err := now()
	if err != nil {
		t.Fatal(err)
	}
	own, other := multipath.Name{Endpoint: key, Token: 7}, multipath.Name{Endpoint: key, Token: 8}
	if err := objects.MptcpTokens.Put(toName(own), bpf.AgentMultipathHolder{Until: uint64(clock + multipath.NameLife)}); err != nil {
		t.Fatal(err)
	}
	if err := objects.MptcpNames.Put(toName(other), bpf.AgentMultipathHolder{Until: uint64(clock + 5*time.Minute)}); err != nil {
		t.Fatal(err)
	}
	rules := map[model.HostBackendKey]model.HostBackend{}
	for _, n := range []byte{9, 4} {
		b := model.HostBackend{Endpoint: key, Tunnel: at(n), IdleTimeout: time.Minute}
		rules[b.Key()] = b
	}
	d := New(&objects)
	if err := d.Read(rules); err != nil {
		t.Fatal(err)
	}
	if all, err := d.OwnTokens(); err != nil || len(all) != 1 || all[0].Name != own || all[0].Homes != multipath.HomesOf(hosts)[own.Token.Cell()] {
		t.Errorf("told are %v, %v", all, err)
	}
	if all, err := d.StaleTokens(); err != nil || len(all) != 1 || all[0].Name != other || all[0].From != at(4) {
		t.Errorf("asked about are %v, %v", all, err)
	}
	if e := d.endpoints[key]; e.idle != time.Minute {
		t.Errorf("its flows are remembered for %s", e.idle)
	}
	if err := d.write(nil); err != nil {
		t.Fatal(err)
	}
	if live, err := d.readHomes(); err != nil || len(live) != 0 {
		t.Errorf("when it is gone, homes are left: %v, %v", live, err)
	}
}
