package manager

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// blocksWorld is a manager with a mux, a host that serves its workloads from a port block, and one of before.
func blocksWorld(t *testing.T) (url string, mux *fakeMux, host *fakeHost, key model.SNATKey) {
	t.Helper()
	url, _ = start(t, Config{})
	host = startBlockHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	mux = startMux(t, url, "mux1", "10.1.1.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	apply(t, url, crawler())
	key = model.BlockKey(firstSNATClient.VIP, "host1")
	eventually(t, "the host is told of its block", func() bool { return host.holds(key).MaxPorts != 0 })
	return url, mux, host, key
}

// A host that says that it knows blocks gets one: the mux has it before the answer, with the tunnel of a workload; a host
// of before gets none, and its workloads ask as they did.
func TestAHostGetsAPortBlock(t *testing.T) {
	url, mux, host, key := blocksWorld(t)
	client := dial(t, url)
	given, err := allocate(t, client, "host1", key, 8)
	if err != nil || len(given) != 8 {
		t.Fatalf("given %v, %v", given, err)
	}
	owners := mux.owners(key.VIP)
	for _, r := range given {
		if !slices.Contains(owners[r], key.Address) {
			t.Errorf("range %d was answered, and the mux has it of %v", r, owners[r])
		}
	}
	mux.mu.Lock()
	if tunnel := mux.snat[key].Tunnel; tunnel != firstSNATClient.Address {
		t.Errorf("the block's tunnel is %s", tunnel)
	}
	mux.mu.Unlock()
	if given, err = allocate(t, client, "host1", key, 8); err != nil || len(given) != 8+16 {
		t.Errorf("the next block makes %d ranges, %v", len(given), err)
	}
	eventually(t, "the stream tells of it", func() bool { return len(host.holds(key).Ranges) == 24 })
	r, err := client.GetSNAT(t.Context(), &weirv1.GetSNATRequest{Name: "crawler"})
	if err != nil {
		t.Fatal(err)
	}
	blocks := slices.DeleteFunc(r.GetWorkloads(), func(w *weirv1.WorkloadPorts) bool { return !w.GetBlock() })
	if len(blocks) != 1 || blocks[0].GetHost() != "host1" || len(blocks[0].GetRanges()) != 24 {
		t.Errorf("told of blocks is %v", blocks)
	}
	for name, of := range map[string]model.SNATKey{"another's": key, "of a host without": model.BlockKey(key.VIP, "host2")} {
		_, err := allocate(t, client, "host2", of, 8)
		if code := connect.CodeOf(err); code != connect.CodePermissionDenied && code != connect.CodeFailedPrecondition {
			t.Errorf("a block that is %s is refused with %v", name, err)
		}
	}
	if given, err := allocate(t, client, "host2", secondSNATClient, 8); err != nil || len(given) != 2 {
		t.Errorf("a workload of a host of before is given %v, %v", given, err)
	}
}

// A host has no more for its workloads than they may have, and what an operator reclaims goes back.
func TestAPortBlockIsBoundedAndReclaimed(t *testing.T) {
	url, _, host, key := blocksWorld(t)
	client := dial(t, url)
	vip := crawler()
	vip.Snat.MaxPorts = 32 // 4 ranges, of which one is preallocated
	apply(t, url, vip)
	given, err := allocate(t, client, "host1", key, 64)
	if err != nil || len(given) != 3 {
		t.Fatalf("given %v, %v", given, err)
	}
	_, err = allocate(t, client, "host1", key, 1)
	if reason, _, refused := rpc.PortsRefused(err); !refused || reason != rpc.PortsLimit || !strings.Contains(err.Error(), "the port block of host1") {
		t.Errorf("beyond the limit: %v", err)
	}
	if _, err := client.ReclaimPorts(t.Context(), &weirv1.ReclaimPortsRequest{Name: "crawler", Address: "host1", Ranges: wire.RangesToProto(given[:1])}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host hears of it", func() bool { return slices.Equal(host.holds(key).Reclaim, given[:1]) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := client.ReleasePorts(ctx, &weirv1.ReleasePortsRequest{
		Name: "host1", Vip: key.VIP.String(), Address: key.Address.String(), Ranges: wire.RangesToProto(given[:1]),
	})
	if err != nil || !slices.Equal(r.GetAllocation().GetRanges(), wire.RangesToProto(given[1:])) {
		t.Errorf("after it is given back: %v, %v", r, err)
	}
	// What rests is not given again at once: the host may give it to another workload than before.
	if again, err := allocate(t, client, "host1", key, 1); err != nil || len(again) != 3 || slices.Contains(again, given[0]) {
		t.Errorf("given %v, %v; %d rests", again, err, given[0])
	}
}

// The agent of a host is replaced by one of before: its block rests, and muxes forget it.
func TestABlockOfAnAgentOfBeforeIsReleased(t *testing.T) {
	url, mux, _, key := blocksWorld(t)
	client := dial(t, url)
	if given, err := allocate(t, client, "host1", key, 8); err != nil || len(given) != 8 {
		t.Fatalf("given %v, %v", given, err)
	}
	startHost(t, url, "host1", "10.2.1.2")
	eventually(t, "the block is nobody's", func() bool {
		mux.mu.Lock()
		defer mux.mu.Unlock()
		return len(mux.snat[key].Ranges) == 0
	})
}
