package plan

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/rpc"
)

// reporting is a manager of a mux that reports with each call, and of a VIP. From call to call of the muxes it is away
// where away says so.
type reporting struct {
	weirv1connect.UnimplementedWeirServiceHandler
	away  func(call int) bool
	calls int
}

func (m *reporting) ListNodes(context.Context, *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	m.calls++
	if m.away(m.calls) {
		return nil, connect.NewError(connect.CodeInternal, errors.New("no leader"))
	}
	return &weirv1.ListNodesResponse{Nodes: []*weirv1.Node{{Name: "m1", Role: "mux", Status: &weirv1.NodeStatus{
		Connected: true, LastSeen: timestamppb.New(time.Unix(int64(2*m.calls), 0)), Mux: &weirv1.MuxStatus{
			Endpoints: []*weirv1.EndpointCounter{{
				Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.1", Protocol: "TCP", Port: 80}, Bytes: uint64(m.calls) * 1e6, // 4 Mbit/s
			}},
		},
	}}}}, nil
}

func (m *reporting) ListVIPs(context.Context, *weirv1.ListVIPsRequest) (*weirv1.ListVIPsResponse, error) {
	return &weirv1.ListVIPsResponse{Vips: []*weirv1.VIP{{
		Name: "shop", Address: "203.0.113.1",
		Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80, Backends: []*weirv1.Backend{{Address: "10.1.0.1"}}}},
	}}}, nil
}

// counting is a manager whose agents have counted nothing.
type counting struct {
	weirv1connect.UnimplementedClusterServiceHandler
}

func (counting) ReadTraffic(_ context.Context, _ *weirv1.ReadTrafficRequest, stream *connect.ServerStream[weirv1.ReadTrafficResponse]) error {
	return stream.Send(&weirv1.ReadTrafficResponse{Manager: "m1"})
}

// recordFrom records five intervals from the manager and returns the trace, what people are told, and the error.
func recordFrom(t *testing.T, m *reporting) (trace, log string, err error) {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewWeirServiceHandler(m))
	mux.Handle(weirv1connect.NewClusterServiceHandler(counting{}))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	client, err := rpc.NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	spec, err := fabric.Clos{Containers: 1, TorsPerContainer: 1, AggsPerContainer: 1, Cores: 1, TorUplink: 1e6, AggUplink: 1e6}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	spec.Racks[0].Prefixes = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	file := filepath.Join(t.TempDir(), "t.csv")
	r := recorder{client: client, fabric: f, every: time.Millisecond, patience: 40 * time.Millisecond, intervals: 5, log: &told}
	recorded, err := r.record(t.Context(), file)
	text, missing := os.ReadFile(file)
	if (missing == nil) != (len(recorded) > 0) {
		t.Errorf("%d intervals are recorded, the file: %v", len(recorded), missing)
	}
	if entries, err := os.ReadDir(filepath.Dir(file)); err != nil || len(entries) > 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	return string(text), told.String(), err
}

// A manager that is away for a moment is asked again: what muxes forwarded meanwhile counts.
func TestRecordWhileAManagerIsAway(t *testing.T) {
	trace, log, err := recordFrom(t, &reporting{away: func(call int) bool { return call == 2 || call == 3 }})
	if err != nil || strings.Count(trace, ",shop,external,4000,0\n") != 5 || strings.Count(trace, ",shop,rack-1-1,0,1\n") != 5 {
		t.Errorf("recorded, %v:\n%s", err, trace)
	}
	if strings.Count(log, "no leader: trying again") != 1 {
		t.Errorf("told:\n%s", log)
	}
}

// When it stays away, what was recorded is kept, and the error says why there is no more.
func TestRecordEndsWhenAManagerStaysAway(t *testing.T) {
	trace, _, err := recordFrom(t, &reporting{away: func(call int) bool { return call > 4 }})
	if strings.Count(trace, ",shop,external,4000,0\n") != 3 {
		t.Errorf("recorded:\n%s", trace)
	}
	if err == nil || !strings.Contains(err.Error(), "no mux reported twice in the interval") || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("error %v", err)
	}
	trace, _, err = recordFrom(t, &reporting{away: func(call int) bool { return call > 1 }})
	if trace != "" || err == nil || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("recorded, %v:\n%s", err, trace)
	}
}
