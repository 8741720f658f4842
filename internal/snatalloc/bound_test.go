package snatalloc

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/testkit/teststore"
	"github.com/weirlb/weir/internal/tokenbucket"
)

// slowMuxes answer when the test has them do so.
type slowMuxes struct {
	Hub

	asked  chan struct{} // a request waits for them
	answer chan struct{} // closed: they answer
}

func (m slowMuxes) Await(ctx context.Context, _ model.Generation) error {
	m.asked <- struct{}{}
	select {
	case <-m.answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// busyHosts ask for ports of the VIPs of two tenants, each for workloads that have not asked yet.
type busyHosts struct {
	t     *testing.T
	ports *Allocator
	muxes slowMuxes
	ended chan error // a request that was not refused at once
	next  int        // workload
}

// The VIPs are of the tenants red and blue. Each has so many workloads on each of the hosts.
const (
	red, blue   = "203.0.113.20", "203.0.113.21"
	busyHostsOf = 5
	workloadsOf = 80
)

func workloadOf(vip string, host, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, netip.MustParseAddr(vip).As4()[3], byte(host), byte(i)})
}

func newBusyHosts(t *testing.T) *busyHosts {
	t.Helper()
	s := teststore.Open(t)
	var vips []model.VIP
	for address, tenant := range map[string]string{red: "red", blue: "blue"} {
		snat := model.SNAT{}.WithDefaults()
		vip := model.VIP{Name: tenant, Tenant: tenant, Address: netip.MustParseAddr(address), SNAT: &snat}
		for host := range busyHostsOf {
			for i := range workloadsOf {
				vip.SNAT.Workloads = append(vip.SNAT.Workloads, model.SNATWorkload{
					Address: workloadOf(address, host, i), Host: fmt.Sprint("host", host),
				})
			}
		}
		vips = append(vips, vip)
	}
	if _, err := s.Update(t.Context(), func(*store.State) (store.Change, error) { return store.Change{VIPs: vips}, nil }); err != nil {
		t.Fatal(err)
	}
	const most = 1000
	b := &busyHosts{
		t: t, muxes: slowMuxes{asked: make(chan struct{}, most), answer: make(chan struct{})}, ended: make(chan error, most),
	}
	b.ports = New(Config{Store: s, Hub: b.muxes, Rates: new(tokenbucket.Buckets), Now: time.Now}, NewMetrics())
	return b
}

// allocate asks for ports of the next workload.
func (b *busyHosts) allocate(vip string, host, workload int) error {
	_, err := b.ports.AllocatePorts(b.t.Context(), &weirv1.AllocatePortsRequest{
		Name: fmt.Sprint("host", host), Vip: vip, Address: workloadOf(vip, host, workload).String(), Ports: 1,
	})
	return err
}

// ask has so many workloads ask, and holds that so many of them are told that others are under way, and the others wait
// for the muxes.
func (b *busyHosts) ask(what, vip string, host, n, wantBusy int) {
	b.t.Helper()
	for range n {
		workload := b.next
		b.next = (b.next + 1) % workloadsOf
		go func() { b.ended <- b.allocate(vip, host, workload) }()
	}
	busy := 0
	for range n {
		select {
		case <-b.muxes.asked:
		case err := <-b.ended:
			if reason, after, _ := rpc.PortsRefused(err); reason != rpc.PortsRate || after < busyRetry || after > 2*busyRetry {
				b.t.Fatalf("%s: %v, to be made again in %s", what, err, after)
			}
			busy++
		}
	}
	if busy != wantBusy {
		b.t.Fatalf("%s: %d of %d requests were refused, want %d", what, busy, n, wantBusy)
	}
}

// A manager has so many port requests under way, and no more until one ends. A host, and a tenant, leave some to others.
func TestPortRequestsUnderWayAreBounded(t *testing.T) {
	b := newBusyHosts(t)
	b.ask("one host", red, 0, maxOpenHost+8, 8)
	b.ask("a second one", red, 1, maxOpenHost+8, 8)
	b.ask("a third one", red, 2, maxOpenHost, 0)
	b.ask("a tenant has its share", red, 3, 8, 8)
	b.ask("of another tenant", blue, 3, maxOpenHost+8, 8)
	b.ask("all places are taken", blue, 4, 8, 8)
	close(b.muxes.answer)
	for range maxOpen {
		if err := <-b.ended; err != nil {
			t.Errorf("one that had a place: %v", err)
		}
	}
	for _, vip := range []string{red, blue} {
		if err := b.allocate(vip, 4, 0); err != nil {
			t.Errorf("when the others have ended: %v", err)
		}
	}
}

// A host makes so many requests a second, also of what there is not. Others have their own.
func TestPortRequestsOfAHostAreBounded(t *testing.T) {
	now := time.Now()
	ports := New(Config{
		Store: teststore.Open(t), Rates: new(tokenbucket.Buckets), Now: func() time.Time { return now },
	}, NewMetrics())
	isBusy := func(host string) bool {
		_, err := ports.AllocatePorts(t.Context(), &weirv1.AllocatePortsRequest{Name: host, Vip: red, Address: "10.0.0.1", Ports: 1})
		reason, after, _ := rpc.PortsRefused(err)
		return reason == rpc.PortsRate && after >= busyRetry
	}
	for i := range hostRate {
		if isBusy("host1") {
			t.Fatalf("request %d of a second is refused", i+1)
		}
	}
	if !isBusy("host1") || isBusy("host2") {
		t.Error("one more is taken, or another host's is not")
	}
	if now = now.Add(time.Second); isBusy("host1") {
		t.Error("one of the next second is refused")
	}
}
