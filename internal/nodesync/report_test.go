package nodesync

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// fill sets a field to something that is not its zero value.
func fill(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsList() && f.Message() != nil:
		m.Mutable(f).List().AppendMutable()
	case f.IsList():
		m.Mutable(f).List().Append(protoreflect.ValueOfString("x"))
	case f.Message() != nil:
		m.Mutable(f)
	case f.Kind() == protoreflect.BoolKind:
		m.Set(f, protoreflect.ValueOfBool(true))
	case f.Kind() == protoreflect.StringKind:
		m.Set(f, protoreflect.ValueOfString("x"))
	default:
		m.Set(f, protoreflect.ValueOfUint64(1))
	}
}

// Of what hosts and muxes report, counters are no news: each report has others, and what is news is written at once.
func TestCountersOfHostsAreNoNews(t *testing.T) {
	news := []string{
		"uplink", "warnings", "tells_ranges", "backlogs", "floods", "steering_refused", "steering_refused_more",
		"xdp_mode", "interface", "peers", "pressures", "graceful_restart", "neighbors",
	}
	for _, empty := range []*weirv1.NodeStatus{{Host: &weirv1.HostStatus{}}, {Mux: &weirv1.MuxStatus{}}} {
		part := func(s *weirv1.NodeStatus) protoreflect.Message {
			if s.GetHost() != nil {
				return s.GetHost().ProtoReflect()
			}
			return s.GetMux().ProtoReflect()
		}
		fields := part(empty).Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			detail := proto.CloneOf(empty)
			fill(part(detail), f)
			before, after := report{detail: empty, bare: withoutCounters(empty)}, report{detail: detail, bare: withoutCounters(detail)}
			if is := !before.equals(after); is != slices.Contains(news, string(f.Name())) {
				t.Errorf("%s is news: %v", f.FullName(), is)
			}
			if !part(detail).Has(f) {
				t.Errorf("the report has lost %s", f.FullName())
			}
		}
	}
}

// acknowledged is told of generations, and asks what was reported.
type acknowledged struct{ ask func(name string) }

func (a acknowledged) AckMux(name string, _, _ model.Generation) bool {
	a.ask(name)
	return true
}
func (a acknowledged) AckHost(name string, _ model.Generation) { a.ask(name) }

// Who hears that a host has a generation finds what the host says of it, of news and of what is none.
func TestAReportIsKnownWhenItIsAcknowledged(t *testing.T) {
	n, _ := newService(t)
	n.Reports, n.Now, n.TellInterval = NewReports(n.Log), time.Now, DefaultTellInterval
	var want *weirv1.NodeStatus
	asked := 0
	n.acks = acknowledged{func(name string) {
		if _, detail, here := n.Reports.LatestSeen(name, nodestatus.Status{}); !here || detail != want {
			t.Errorf("report %d is acknowledged, and not known", asked)
		}
		asked++
	}}
	for range 3 {
		want = &weirv1.NodeStatus{Host: &weirv1.HostStatus{Sessions: uint64(asked)}}
		if err := n.takeReport(model.RoleHost, "host1", 1, nil, want, nodestatus.SessionCount{}); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 3 {
		t.Errorf("%d reports are acknowledged, of 3", asked)
	}
}
