package manager

import (
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// A request is under way, and is not answered, until the muxes have answered: replies to a port that a mux does not know
// are lost.
func TestPortsAreGivenWhenMuxesKnow(t *testing.T) {
	url, mux, hosts := leaving(t)
	client := dial(t, url)
	mux.setMute(true)
	answered := make(chan error, 1)
	go func() {
		_, err := allocate(t, client, "host1", firstSNATClient, 8)
		answered <- err
	}()
	eventually(t, "the mux reads them", func() bool { return len(mux.owners(firstSNATClient.VIP)) > 2 })
	// Each of these is answered long after the first would have been, had it not waited.
	for range 20 {
		_, err := allocate(t, client, "host1", firstSNATClient, 8)
		if reason, _, _ := rpc.PortsRefused(err); reason != rpc.PortsOutstanding {
			t.Fatalf("another request of the workload, before the mux had answered: %v", err)
		}
	}
	if len(answered) > 0 {
		t.Errorf("answered (%v) before the mux had", <-answered)
	}
	if n := len(hosts[0].holds(firstSNATClient).Ranges); n != 1 {
		t.Errorf("the host has %d ranges before the mux answered", n)
	}
	mux.setMute(false)
	eventually(t, "the mux has reported", mux.report)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if _, err := allocate(t, client, "host1", firstSNATClient, 8); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

// Released ranges are not free until the muxes have answered that their workload has them no more, however long their
// quarantine lasts.
func TestReleasedRangesWaitForMuxes(t *testing.T) {
	const quarantine = 120 * time.Millisecond
	var m *Manager
	url, mux, _ := leaving(t, func(started *Manager) { m, started.allocator.Quarantine = started, quarantine })
	client := dial(t, url)
	given, err := allocate(t, client, "host1", firstSNATClient, 8)
	if err != nil || len(given) == 0 {
		t.Fatalf("given %v, %v", given, err)
	}
	mux.setMute(true)
	had := m.store.State().PortsWritten.At(firstSNATClient)
	answered := make(chan error, 1)
	go func() {
		_, err := client.ReleasePorts(t.Context(), &weirv1.ReleasePortsRequest{
			Name: "host1", Vip: firstSNATClient.VIP.String(), Address: firstSNATClient.Address.String(), Ranges: wire.RangesToProto(given),
		})
		answered <- err
	}()
	eventually(t, "the mux reads it", func() bool {
		written := m.store.State().PortsWritten.At(firstSNATClient)
		return written > had && mux.has(uint64(written))
	})
	free := func() bool {
		s := m.store.State()
		h := s.Ports.At(firstSNATClient)
		return len(h.Quarantined) == 0 && !slices.ContainsFunc(given, func(r model.Range) bool { return slices.Contains(h.Ranges, r) })
	}
	begun := time.Now()
	eventually(t, "the quarantine is over", func() bool { return time.Since(begun) > 6*quarantine })
	if free() {
		t.Error("a range is free that a mux may still send to the workload that had it")
	}
	mux.setMute(false)
	eventually(t, "the mux has reported", mux.report)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	eventually(t, "they are free", free)
}
