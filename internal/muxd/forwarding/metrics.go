package forwarding

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
)

// Sample puts the metrics of what runs.
func (s *State) Sample(to *telemetry.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	telemetry.Put(to, "weir_mux_vips", len(s.live.ofVIP))
	telemetry.Put(to, "weir_mux_generation", uint64(s.generations.runs))
	var rejected model.Generation
	if s.generations.rejected != nil {
		rejected = s.generations.rejected.Generation
	}
	telemetry.Put(to, "weir_mux_rejected_generation", uint64(rejected))
	tunnels := s.config.Datapath.Tunnels()
	resolved := s.hops.resolved(tunnels)
	telemetry.Put(to, "weir_mux_hosts", resolved, "true")
	telemetry.Put(to, "weir_mux_hosts", len(tunnels)-resolved, "false")
	s.networks.sample(to)
	s.networks.full.sample(to)
	s.swept.sample(to)
}

// maxAttachmentSeries bounds how many attachments have series of their own.
const maxAttachmentSeries = 10000

// sample puts what was forwarded for each VIP of a virtual network.
func (n *networks) sample(to *telemetry.Sample) {
	telemetry.Put(to, "weir_mux_network_vips", len(n.numbers))
	if len(n.numbers) > maxAttachmentSeries {
		return
	}
	for key, number := range n.numbers {
		of := n.wanted.attachments[key]
		if of.Network == "" { // adopted, and not named by the manager yet
			continue
		}
		counter, err := n.datapath.AttachmentCounter(number)
		if err != nil {
			to.Fail("weir_mux_network_vip_packets_total", err)
			return
		}
		telemetry.Put(to, "weir_mux_network_vip_packets_total", counter.Packets, of.Network, key.VIP.String())
		telemetry.Put(to, "weir_mux_network_vip_bytes_total", counter.Bytes, of.Network, key.VIP.String())
	}
}

// Ready says what is missing until the tables forward.
func (s *State) Ready(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch runs, rejected := s.generations.runs, s.generations.rejected; {
	case runs == 0:
		return "", errors.New("no tables have come yet")
	case s.reach().None:
		return "", errors.New("no host can be reached")
	case rejected != nil:
		return fmt.Sprintf("generation %d runs; %d was refused: %s", runs, rejected.Generation, rejected.Reason), nil
	default:
		return fmt.Sprintf("generation %d runs", runs), nil
	}
}
