package synflood

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
)

var web = model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}

// oneEndpoint is a data plane with one endpoint.
type oneEndpoint struct {
	state   endpoint.SYNState
	counter endpoint.SYNCounter
}

func (d *oneEndpoint) SetSYNSecrets([]model.SYNSecret) error { return nil }

func (d *oneEndpoint) SYNStates() map[model.EndpointKey]endpoint.SYNState {
	return map[model.EndpointKey]endpoint.SYNState{web: d.state}
}

func (d *oneEndpoint) SYNCounters() (map[model.EndpointKey]endpoint.SYNCounter, error) {
	return map[model.EndpointKey]endpoint.SYNCounter{web: d.counter}, nil
}

func (d *oneEndpoint) SetSYNState(_ model.EndpointKey, s endpoint.SYNState) error {
	d.state = s
	return nil
}

func (d *oneEndpoint) Verdicts() (map[string]model.Counter, error) {
	return map[string]model.Counter{"forward_syn": {Packets: d.counter.SYNs}}, nil
}

// A flood reaches the data plane, and the manager with its evidence.
func TestAFloodIsReported(t *testing.T) {
	d := &oneEndpoint{}
	var events []*weirv1.MuxEvent
	w := New(d, Limits{}, func(e *weirv1.MuxEvent) { events = append(events, e) }, slog.New(slog.DiscardHandler))
	now := time.Unix(1_700_000_000, 0)
	for range 10 {
		now = now.Add(sampleInterval)
		if err := w.sampleEndpoints(now); err != nil {
			t.Fatal(err)
		}
		d.counter.SYNs += 2000
		if d.state.Watches {
			d.counter.Tried += 250
		}
	}
	if !d.state.Answers || !d.state.Watches {
		t.Errorf("%+v", d.state)
	}
	const want = "SYN cookies on: 10000 SYN/s, 0.0 % of the handshakes completed; usual 0/s"
	if len(events) != 1 || events[0].GetReason() != "SYNCookiesOn" || !events[0].GetWarning() ||
		events[0].GetMessage() != want {
		t.Errorf("%v", events)
	}
	press := w.Pressures()
	if len(press) != 1 || press[0].Vip != "203.0.113.10" || press[0].Cause != "syn-flood" ||
		press[0].Evidence != "TCP 203.0.113.10:80: "+want {
		t.Errorf("pressures are %v", press)
	}
}
