package mux

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// goes says whether a SYN to the port of the test's VIP is forwarded, or passes as one for nobody.
func goes(t *testing.T, d *Datapath, port int) bool {
	t.Helper()
	action, _ := run(t, d, pkt.TCP("198.51.100.7:40000", fmt.Sprintf("203.0.113.10:%d", port), pkt.SYN).Frame())
	if action != xdpTX && action != xdpPass {
		t.Fatalf("port %d: action %d", port, action)
	}
	return action == xdpTX
}

// As many endpoints as there is room for, so that some collide in the index; then every other one goes.
func TestEndpointsThatCollideInTheIndex(t *testing.T) {
	ports := rand.New(rand.NewPCG(1, 2)).Perm(1 << 16)
	all := make([]model.MuxEndpoint, testSizes.Endpoints)
	for i := range all {
		all[i] = newEndpoint(fmt.Sprintf("203.0.113.10:%d", ports[i]), model.TCP, tunnel4)
		all[i].Buckets = all[i].Buckets[:1]
	}
	d := newFilled(t, all...)
	shared := 0
	for _, e := range all {
		if *d.endpoints.Rows.Index.Stored(bpf.ToKey(e.Key)) == uint32(bpf.MuxEndpointIndexEntryENDPOINT_INDEX_COLLISION) {
			shared++
		}
	}
	if shared < 2 {
		t.Fatalf("%d of %d endpoints collide in the index, want 2 or more", shared, len(all))
	}
	check := func(kept func(i int) bool) {
		t.Helper()
		for i := range all {
			if goes(t, d, ports[i]) != kept(i) {
				t.Errorf("port %d is forwarded: %v, want %v", ports[i], !kept(i), kept(i))
			}
		}
		for _, port := range ports[len(all) : len(all)+500] { // some of them collide with an endpoint
			if goes(t, d, port) {
				t.Errorf("port %d, of no endpoint, is forwarded", port)
			}
		}
	}
	check(func(int) bool { return true })

	var gone []model.EndpointKey
	for i := 0; i < len(all); i += 2 {
		gone = append(gone, all[i].Key)
	}
	if err := d.Apply(nil, gone); err != nil {
		t.Fatal(err)
	}
	check(func(i int) bool { return i%2 == 1 })
	if err := d.Apply(all, nil); err != nil { // by ids that were others'
		t.Fatal(err)
	}
	resolve(t, d)
	check(func(int) bool { return true })
	for at, holders := range d.endpoints.Rows.Index.Holders {
		if len(holders) == 0 {
			t.Errorf("word %d is kept for nobody", at)
		}
	}
}

// A process that ends in the middle of a change leaves tables that differ from endpoints; its successor
// sets them right.
func TestEndpointIndexIsSetRightByASuccessor(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	defer func() { _ = d.Close() }()
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(vip4, model.TCP, tunnel4)
	if err := d.Replace([]model.MuxEndpoint{e}); err != nil {
		t.Fatal(err)
	}
	resolve(t, d)
	port := int(e.Key.Port)
	if !goes(t, d, port) {
		t.Fatal("the endpoint is not found")
	}
	*d.endpoints.Rows.Index.Stored(bpf.ToKey(e.Key)) = uint32(bpf.MuxEndpointIndexEntryENDPOINT_INDEX_NONE)
	clear(d.endpoints.Rows.Index.Rows[d.endpoints.Live[e.Key].Row.Id][:])
	nobody := e.Key
	nobody.Port++
	*d.endpoints.Rows.Index.Stored(bpf.ToKey(nobody)) = 7
	if goes(t, d, port) {
		t.Fatal("without its word the endpoint is found")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = p.mustOpen(t)
	if !goes(t, d, port) {
		t.Error("a successor did not restore the endpoint's word")
	}
	if id := *d.endpoints.Rows.Index.Stored(bpf.ToKey(nobody)); id != uint32(bpf.MuxEndpointIndexEntryENDPOINT_INDEX_NONE) {
		t.Errorf("a successor left word %d of nobody", id)
	}
}
