package manager

import (
	"context"
	"slices"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/matrix"
	"github.com/weirlb/weir/internal/rpc"
)

// readTraffic is what a manager says that clients sent.
func readTraffic(t *testing.T, client *rpc.Client, own bool) (rows []matrix.Row) {
	t.Helper()
	stream, err := client.ReadTraffic(t.Context(), &weirv1.ReadTrafficRequest{Own: own})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		m := stream.Msg()
		if m.GetTrouble() != "" || m.GetManager() == "" || m.GetAt().AsTime().Before(m.GetSince().AsTime()) || m.GetSince().AsTime().Unix() == 0 {
			t.Fatalf("told %v", m)
		}
		rows = append(rows, matrix.RowsFromProto(m.GetTraffic())...)
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// Agents are told the prefixes of racks, and what they count by them is added up. A host says nothing of VIPs that it has no
// backend of, and names no other prefixes.
func TestTrafficOfHosts(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	c.apply(inHardware("sw1"))
	if _, err := c.api.UpdateFabric(t.Context(), &weirv1.UpdateFabricRequest{Name: "east", Fabric: &weirv1.Fabric{
		Name: "east", Clos: &weirv1.Clos{Containers: 1, TorsPerContainer: 2, AggsPerContainer: 1, Cores: 1, TorMbitPerS: 1000, AggMbitPerS: 1000},
		Racks: []*weirv1.FabricRack{{Name: "rack-1-1", Prefixes: []string{"10.3.1.0/24"}}, {Name: "rack-1-2", Prefixes: []string{"10.3.2.0/24"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	report := func(host string, racks uint64, rows ...*weirv1.TrafficRow) *weirv1.RackPrefixes {
		t.Helper()
		r, err := c.api.ReportHost(context.Background(), &weirv1.ReportHostRequest{
			Name: host, Status: &weirv1.HostStatus{}, Generation: uint64(c.m.store.State().Generation), Traffic: rows, Racks: racks,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetRacks()
	}
	eventually(t, "the racks are known", func() bool { return len(report("host1", 0).GetPrefixes()) == 2 })
	told := report("host1", 0)
	if got := told.GetPrefixes(); !slices.Equal(got, []string{"10.3.1.0/24", "10.3.2.0/24"}) {
		t.Errorf("told %v", got)
	}
	row := func(vip, from string, bytes uint64) *weirv1.TrafficRow {
		return &weirv1.TrafficRow{Vip: vip, From: from, Bytes: bytes}
	}
	const vip = "203.0.113.10"
	if again := report("host1", told.GetVersion(), row(vip, "10.3.1.0/24", 100), row(vip, "", 7), row(vip, "10.0.0.0/8", 1)); again != nil {
		t.Errorf("told again: %v", again)
	}
	report("host2", told.GetVersion(), row(vip, "10.3.1.0/24", 50), row("203.0.113.99", "", 1000), row("nothing", "", 1000))
	want := matrix.RowsFromProto([]*weirv1.TrafficRow{row(vip, "", 8), row(vip, "10.3.1.0/24", 150)})
	for _, own := range []bool{true, false} {
		if got := readTraffic(t, c.api, own); !slices.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
	}
}
