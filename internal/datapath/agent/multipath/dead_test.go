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

// TestTokensOfDeadConnections has them be told no more, and end soon, while those of live ones are prolonged.
func TestTokensOfDeadConnections(t *testing.T) {
	table, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.LRUHash, KeySize: 24, ValueSize: 48, MaxEntries: 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	clock, err := now()
	if err != nil {
		t.Fatal(err)
	}
	endpointKey := model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}
	const live, liveOld, dead, deadOld, ended = 1, 2, 3, 4, 5
	for token, left := range map[multipath.Token]time.Duration{
		live: 14 * time.Minute, liveOld: 6 * time.Minute, dead: 14 * time.Minute, deadOld: 2 * time.Minute, ended: -time.Minute,
	} {
		if err := table.Put(toName(multipath.Name{Endpoint: endpointKey, Token: token}), bpf.AgentMultipathHolder{Until: uint64(clock + left)}); err != nil {
			t.Fatal(err)
		}
	}
	sessions := map[tokenOf]bool{}
	for _, token := range []multipath.Token{live, liveOld} {
		key := toName(multipath.Name{Endpoint: endpointKey, Token: token})
		sessions[tokenOf{key.Vip, key.Token}] = true
	}
	if left, err := sweepHolders(table, clock, sessions, func(bpf.AgentAddress) {}); err != nil || left != 4 {
		t.Errorf("%d are left, %v", left, err)
	}
	for token, want := range map[multipath.Token]time.Duration{live: 14 * time.Minute, liveOld: multipath.NameLife, dead: deadLife, deadOld: 2 * time.Minute} {
		var row bpf.AgentMultipathHolder
		if err := table.Lookup(toName(multipath.Name{Endpoint: endpointKey, Token: token}), &row); err != nil || time.Duration(row.Until)-clock != want {
			t.Errorf("token %d lives for %s, not %s: %v", token, time.Duration(row.Until)-clock, want, err)
		}
	}
	d := New(&bpf.AgentObjects{AgentMaps: bpf.AgentMaps{MptcpTokens: table}})
	d.endpoints[endpointKey] = endpoint{homes: &multipath.Homes{}}
	own, err := d.OwnTokens()
	if err != nil || len(own) != 2 {
		t.Fatalf("told are %v, %v", own, err)
	}
	for _, o := range own {
		if o.Name.Token != live && o.Name.Token != liveOld {
			t.Errorf("token %d is told", o.Name.Token)
		}
	}
}
