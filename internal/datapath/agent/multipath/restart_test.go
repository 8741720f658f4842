package multipath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
)

// TestADaemonThatRestartsKnowsItsEndpoints has tokens be told and asked about before the manager has said anything.
func TestADaemonThatRestartsKnowsItsEndpoints(t *testing.T) {
	objects := newObjects(t)
	key := httpKey
	hosts := []netip.Addr{at(1), at(2), at(3)}
	if err := New(objects).write(map[model.EndpointKey]endpoint{key: {hosts: hosts}}); err != nil {
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
		b := backend(n)
		b.IdleTimeout = time.Minute
		rules[b.Key()] = b
	}
	d := New(objects)
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
	connect(t, d, 40000, 9, 9, sessionOpen)
	if _, err := d.SweepMultipath(); err != nil {
		t.Fatal(err)
	}
	if tunnel, _ := held(t, objects.MptcpTokens, 9); tunnel != at(9) {
		t.Errorf("the token that has no row is that of %s", tunnel)
	}
	if err := d.write(nil); err != nil {
		t.Fatal(err)
	}
	if live, err := d.readHomes(); err != nil || len(live) != 0 {
		t.Errorf("when it is gone, homes are left: %v, %v", live, err)
	}
}
