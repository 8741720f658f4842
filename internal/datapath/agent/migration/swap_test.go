package migration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/attachment"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/lab/netns"
)

// TestSwapGoesBack has one program of several not be replaced: the others run on as before.
func TestSwapGoesBack(t *testing.T) {
	ns := netns.New(t, fmt.Sprintf("wagent%d-swap", os.Getpid()))
	if err := netns.Veth(ns, "uplink", ns, "other"); err != nil {
		t.Fatal(err)
	}
	folder, err := pin.Open(fmt.Sprintf("/sys/fs/bpf/weir-agent-swap-%d", os.Getpid()))
	check(t, err)
	t.Cleanup(func() { check(t, errors.Join(folder.Remove(), folder.Close())) })
	spec, err := bpf.LoadAgent()
	check(t, err)
	first, err := ebpf.NewCollection(spec)
	check(t, err)
	defer first.Close()
	next, err := ebpf.NewCollection(spec)
	check(t, err)
	defer next.Close()
	check(t, folder.Publish(func(at string) error { return PinTables(at, first) }))
	var objects bpf.AgentObjects
	check(t, first.Assign(&objects))
	defer objects.Close()
	uplink := attachment.NewUplink(attachment.Config{
		Uplink: "uplink", Settings: func(*bpf.AgentAgentSettings) {}, Objects: &objects, Folder: folder, Lock: &sync.Mutex{},
	})
	check(t, ns.Do(uplink.Refresh))

	m := &Migration{spec: spec, folder: folder}
	links := []string{attachment.FromUplink, attachment.ToUplink, "from_workload_0"}
	before := m.running(t, links[:2])
	if err := m.swap(links, next); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("swap with a link that is not there: %v", err)
	}
	if after := m.running(t, links[:2]); !slices.Equal(before, after) {
		t.Errorf("programs %v run, not %v", after, before)
	}
	check(t, m.swap(links[:2], next))
	if after := m.running(t, links[:2]); slices.Equal(before, after) {
		t.Errorf("programs %v run on", after)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running are the programs that links run.
func (m *Migration) running(t *testing.T, links []string) (programs []ebpf.ProgramID) {
	t.Helper()
	for _, name := range links {
		live, err := link.LoadPinnedLink(m.folder.Live(name), nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := live.Info()
		if err := errors.Join(err, live.Close()); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, info.Program)
	}
	return programs
}

// Programs that take the place of those of a release before announce no larger segment than these did.
func TestSegmentSizesFollowFromTheMTUOfBefore(t *testing.T) {
	spec, err := bpf.LoadAgent()
	check(t, err)
	collection, err := ebpf.NewCollection(spec)
	check(t, err)
	defer collection.Close()
	table := collection.Maps[settingsTable]
	check(t, table.Put(uint32(0), &bpf.AgentAgentSettings{Mtu: 1500, Generation: 41}))
	check(t, (&Migration{spec: spec}).copyAll(collection.Maps))
	var got bpf.AgentAgentSettings
	check(t, table.Lookup(uint32(0), &got))
	if got.Mss4 != 1370 || got.Mss6 != 1364 || got.Mtu != 1500 || got.Generation != 41 {
		t.Errorf("settings are %+v", got)
	}
}

// TestLateSessions brings what old programs wrote of replies, and keeps what new ones wrote of requests.
func TestLateSessions(t *testing.T) {
	spec, err := bpf.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	layout, err := specLayout(spec.Maps["sessions"])
	if err != nil {
		t.Fatal(err)
	}
	values, err := movesOf(layout.value, layout.value)
	if err != nil {
		t.Fatal(err)
	}
	member := func(row []byte, name string) []byte {
		i := slices.IndexFunc(layout.value, func(f abi.Field) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("a session has no %s", name)
		}
		return row[layout.value[i].Offset:][:layout.value[i].Size]
	}
	row, late := make([]byte, spec.Maps["sessions"].ValueSize), make([]byte, spec.Maps["sessions"].ValueSize)
	binary.NativeEndian.PutUint32(member(row, "events"), uint32(bpf.AgentSessionEventSESSION_CLIENT_ACK))
	binary.NativeEndian.PutUint32(member(late, "events"), uint32(bpf.AgentSessionEventSESSION_WORKLOAD_ANSWER))
	member(row, "client_tsval")[0], member(late, "client_tsval")[0] = 2, 1
	for _, name := range repliesWrite {
		member(late, name)[0] = 7
	}
	mergeLate(row, late, values)
	const both = uint32(bpf.AgentSessionEventSESSION_CLIENT_ACK | bpf.AgentSessionEventSESSION_WORKLOAD_ANSWER)
	if got := binary.NativeEndian.Uint32(member(row, "events")); got != both {
		t.Errorf("events are %#x, not %#x", got, both)
	}
	if got := member(row, "client_tsval")[0]; got != 2 {
		t.Errorf("the client's timestamp is %d, the late one", got)
	}
	for _, name := range repliesWrite {
		if got := member(row, name)[0]; got != 7 {
			t.Errorf("%s is %d, not the late one", name, got)
		}
	}
}
