package condition

import (
	"fmt"
	"slices"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/store/vipstatus"
)

// Answered is an endpoint whose SYNs muxes answer with cookies, as they report.
type Answered struct {
	Endpoint model.EndpointKey // without a port: an older mux does not say
	Cause    model.OverloadCause
	Muxes    []string
	Evidence string // of the first
}

// String is "mux1 and 2 more answer SYNs with cookies: ...".
func (a Answered) String() string {
	muxes := a.Muxes[0] + " answers"
	if more := len(a.Muxes) - 1; more > 0 {
		muxes = fmt.Sprintf("%s and %d more answer", a.Muxes[0], more)
	}
	return muxes + " SYNs with cookies: " + a.Evidence
}

// AnsweredBy are the endpoints of a VIP whose SYNs connected muxes answer just now, and not always, in order.
func AnsweredBy(s *store.State, reported func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus), vip model.VIP) (all []Answered) {
	for mux := range s.MuxNodes() {
		if !s.Streams.At(mux.Name) {
			continue
		}
		_, detail := reported(s, mux)
		for _, p := range detail.GetMux().GetPressures() {
			cause := model.OverloadCause(p.GetCause())
			if p.GetVip() != vip.Address.String() || cause != model.CauseSYNFlood && cause != backlog.Pressure {
				continue
			}
			key := model.EndpointKey{VIP: vip.Address, Port: uint16(p.GetEndpoint().GetPort())}
			key.Protocol, _ = model.ParseProtocol(p.GetEndpoint().GetProtocol())
			at := slices.IndexFunc(all, func(a Answered) bool { return a.Endpoint == key && a.Cause == cause })
			if at < 0 {
				all = append(all, Answered{Endpoint: key, Cause: cause, Evidence: events.CutMessage(p.GetEvidence())})
				at = len(all) - 1
			}
			all[at].Muxes = append(all[at].Muxes, mux.Name)
		}
	}
	slices.SortFunc(all, func(a, b Answered) int { return a.Endpoint.Compare(b.Endpoint) })
	return all
}

// SYNCookies is the condition of a VIP with such endpoints; nil: there are none.
func SYNCookies(answered []Answered) *weirv1.Condition {
	if len(answered) == 0 {
		return nil
	}
	c := Condition{True, "SYNFlood", ""}
	lines := make([]string, 0, len(answered))
	for _, a := range answered {
		lines = append(lines, a.String())
		if a.Cause == backlog.Pressure {
			c.Reason = "BacklogFull"
		}
	}
	c.Message = strings.Join(lines[:min(len(lines), 4)], "; ")
	return c.toProto("synCookies", vipstatus.Condition{})
}
