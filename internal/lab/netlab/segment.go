package netlab

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/lab/netns"
)

// SegmentLink is the router's interface to the muxes' segment: a bridge.
const SegmentLink = "segment"

// On the segment the router takes VIPs for its neighbors.
var (
	segment4 = netip.MustParsePrefix("203.0.113.254/24")
	segment6 = netip.MustParsePrefix("2001:db8:113::fffe/64")
)

// buildSegment makes the bridge that the muxes' links join. It forwards at once, as a switch does whose ports are for hosts.
func buildSegment(router *netns.NS) error {
	for _, args := range [][]string{
		{"link", "add", SegmentLink, "type", "bridge", "forward_delay", "0", "stp_state", "0"},
		{"link", "set", SegmentLink, "up"},
	} {
		if out, err := router.Run("ip", args...); err != nil {
			return fmt.Errorf("make the segment: %w: %s", err, out)
		}
	}
	return router.AddAddress(SegmentLink, segment4, segment6)
}

// joinSegment puts the router's end of a link into the bridge.
func joinSegment(router *netns.NS, port string) error {
	if out, err := router.Run("ip", "link", "set", port, "master", SegmentLink); err != nil {
		return fmt.Errorf("put %s into the segment: %w: %s", port, err, out)
	}
	return nil
}
