package choice

import (
	"net/netip"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/matrix"
	"github.com/weirlb/weir/internal/traffic"
)

// What agents count leads to a rate, with its racks; the first reading of a manager, one that began anew, and one that could
// not be read, lead to none.
func TestSources(t *testing.T) {
	spec, err := fabric.Clos{Containers: 1, TorsPerContainer: 2, AggsPerContainer: 1, Cores: 1, TorUplink: 1_000_000, AggUplink: 1_000_000}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	rack := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.1.0/24")}
	for i := range spec.Racks {
		spec.Racks[i].Prefixes = rack[i : i+1]
	}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	vip, begin := netip.MustParseAddr("203.0.113.30"), time.Unix(1_700_000_000, 0)
	says := func(manager string, since time.Time, rows ...matrix.Row) *weirv1.ReadTrafficResponse {
		return &weirv1.ReadTrafficResponse{Manager: manager, Since: timestamppb.New(since), Traffic: matrix.RowsToProto(rows)}
	}
	row := func(from netip.Prefix, bytes uint64) matrix.Row {
		return matrix.Row{Key: matrix.Key{VIP: vip, From: from}, Bytes: bytes}
	}
	var s sources
	s.observe(f, []*weirv1.ReadTrafficResponse{says("m1", begin, row(netip.Prefix{}, 1e9)), says("m2", begin)}, begin)
	if all, shares := s.of(vip, 5); all != 5 || shares != nil {
		t.Errorf("after one reading: %d, %v", all, shares)
	}
	s.observe(f, []*weirv1.ReadTrafficResponse{
		says("m1", begin, row(netip.Prefix{}, 1e9+100_000), row(rack[1], 300_000)), says("m2", begin, row(rack[1], 100_000)),
		{Manager: "m3", Trouble: "away"},
		says("m4", begin, row(rack[0], 1e9)),
	}, begin.Add(10*time.Second))
	all, shares := s.of(vip, 5)
	if want := (traffic.Share{Rack: 1, Rate: 320}); all != 400 || len(shares) != 1 || shares[0] != want {
		t.Errorf("of 500 kB in 10 s, 400 kB from the second rack: %d, %v", all, shares)
	}
	if all, shares := s.of(vip, 800); all != 800 || len(shares) != 1 || shares[0].Rate != 640 {
		t.Errorf("muxes count twice as much: %d, %v", all, shares)
	}
	s.observe(f, []*weirv1.ReadTrafficResponse{says("m1", begin.Add(time.Second), row(rack[0], 1e9))}, begin.Add(20*time.Second))
	if all, shares := s.of(vip, 0); all != 0 || shares != nil {
		t.Errorf("of a manager that began anew: %d, %v", all, shares)
	}
}
