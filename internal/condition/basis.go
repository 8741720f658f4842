package condition

import (
	"fmt"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// Basis is what the health of all VIPs, and how far they are programmed, follows from: it is the same in two States that have
// the same. A State differs from the one before with every status of a host, and mostly in nothing else.
type Basis struct {
	generation model.Generation // of VIPs and nodes
	health     int64            // the newest revision of any host's
	hosts      int              // that said how their backends are
	muxes      string           // what they run, refused, and answer for
}

// BasisOf is that of a State; reported is what a node said last.
func BasisOf(s *store.State, reported func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus)) Basis {
	b := Basis{generation: s.Generation, hosts: s.Reported.Len()}
	for at := range s.Reported.Values() {
		b.health = max(b.health, at)
	}
	var muxes strings.Builder
	for mux := range s.MuxNodes() {
		said := s.Status.At(mux.Name)
		fmt.Fprintf(&muxes, "%s %v %v %d %d %q", mux.Name, s.Streams.At(mux.Name), s.Excluded.Has(mux.Name), said.Generation, said.Rejected, said.Reason)
		if len(mux.NeighborPrefixes) > 0 && reported != nil {
			_, detail := reported(s, mux)
			fmt.Fprintf(&muxes, " %v %v %q", s.Neighbors.Has(mux.Name), s.Neighbors.At(mux.Name).Prefixes, detail.GetMux().GetNeighbors())
		}
	}
	b.muxes = muxes.String()
	return b
}
