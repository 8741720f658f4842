package overlay

import (
	"fmt"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// A report has at most so many attachments and backends, and the busiest of them.
func TestReportsAreBounded(t *testing.T) {
	var all []Statistics
	for i := range 400 {
		s := Statistics{AttachmentKey: vnet.AttachmentKey{VNI: uint32(i + 1), VIP: netip.MustParseAddr("10.99.0.1")}, Network: fmt.Sprint("n", i)}
		for j := range 10 {
			n := uint64(min(i, 300)*10 + j)
			b := BackendStatistics{Address: netip.MustParseAddrPort("10.9.0.6:80"), BackendTraffic: overlay.BackendTraffic{In: model.Counter{Packets: n}}}
			s.Backends = append(s.Backends, b)
			s.Traffic.In.Packets += n
		}
		s.Handshakes.Buckets[3] = 1
		all = append(all, s)
	}
	report, backends, least := reportOf(all), 0, uint64(1<<63)
	for _, n := range report {
		backends += len(n.GetBackends())
		for _, b := range n.GetBackends() {
			least = min(least, b.GetPacketsIn())
		}
	}
	if len(report) != 256 || backends != 1024 || least != 2976 {
		t.Errorf("%d attachments, %d backends, the idlest with %d packets", len(report), backends, least)
	}
	request := &weirv1.ReportHostRequest{Status: &weirv1.HostStatus{Networks: report}}
	if err := limits.Check(request); err != nil {
		t.Error(err)
	}
	if n := proto.Size(request); n > 128<<10 {
		t.Errorf("a report has %d bytes", n)
	}
	if few := reportOf(all[:2]); len(few) != 2 || len(few[1].GetBackends()) != 10 || few[1].GetHandshakes()[3] != 1 {
		t.Errorf("of two attachments: %v", few)
	}
}
