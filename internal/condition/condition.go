// Package condition computes the conditions of a VIP from the State: accepted, programmed, healthy, overloaded, attached,
// synCookies, hardware.
package condition

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/vipstatus"
)

// Status of a condition.
const (
	True    = "true"
	False   = "false"
	Unknown = "unknown"
)

// Reasons of conditions, for programs.
const (
	reasonAdmitted    = "Admitted"
	reasonProgrammed  = "Programmed"
	ReasonPending     = "Pending"
	ReasonRejected    = "Rejected"
	reasonNoMux       = "NoMux"
	reasonUnreachable = "MuxesUnreachable"
	reasonAllHealthy  = "AllHealthy"
	reasonNotChecked  = "NotChecked"
	reasonSomeDown    = "SomeUnhealthy"
	reasonNoHealthy   = "NoHealthyBackend"
	ReasonNotYet      = "NotCheckedYet"
	reasonNoBackends  = "NoBackends"
	reasonOutbound    = "OutboundOnly"
)

// Condition is one of a VIP as the State has it now.
type Condition struct{ Status, Reason, Message string }

// Conditions are those of a VIP as the State has them now.
type Conditions struct {
	Programmed, Healthy Condition
	Serving, Backends   uint32 // backends that are healthy or not checked, of those that do not drain
}

// Of are the conditions of a VIP as the State has them now.
func Of(s *store.State, vip model.VIP) Conditions {
	var c Conditions
	c.Programmed = programmed(s, GenerationOf(s, vip)).whileHostsAreMissing(desired.PendingHosts(&s.State, vip))
	c.Healthy, c.Serving, c.Backends = healthy(s, vip)
	return c
}

// GenerationOf is the one at which what muxes run of the VIP last changed.
func GenerationOf(s *store.State, vip model.VIP) model.Generation {
	generation := s.Written.At(vip.Name)
	for _, e := range vip.Endpoints {
		generation = max(generation, s.Computed.At(desired.Key(vip, e)))
		for _, list := range e.Lists() {
			generation = max(generation, s.PrefixListWritten.At(list))
		}
	}
	return generation
}

// Refusal says who refuses a VIP. Why may name what is other tenants', so it is told of the mux alone.
func Refusal(mux string) string { return mux + ": weir describe mux " + mux + " says why" }

// programmed says whether all muxes that are connected run the generation. One that is away forwards
// nothing, or what it had: that is told of the mux, not of each VIP.
func programmed(s *store.State, generation model.Generation) Condition {
	var registered, connected, run int
	var refused []string
	for mux := range s.MuxNodes() {
		registered++
		if !s.Streams.Has(mux.Name) {
			continue
		}
		said := s.Status.At(mux.Name)
		if said.Generation == 0 && said.Rejected == 0 {
			continue // it joins just now
		}
		connected++
		switch {
		case said.Generation >= generation:
			run++
		case said.Rejected >= generation:
			refused = append(refused, Refusal(mux.Name))
		}
	}
	share := fmt.Sprintf("%d of %d connected muxes run it", run, connected)
	if away := registered - connected; away > 0 {
		share += fmt.Sprintf(", %d more %s away", away, isOrAre(away))
	}
	switch {
	case registered == 0:
		return Condition{False, reasonNoMux, "no mux is registered"}
	case connected == 0:
		return Condition{Unknown, reasonUnreachable, fmt.Sprintf("none of %d muxes is connected", registered)}
	case len(refused) > 0:
		return Condition{False, ReasonRejected, share + "; refused by " + strings.Join(refused, "; ")}
	case run < connected:
		return Condition{False, ReasonPending, share}
	}
	return Condition{True, reasonProgrammed, share}
}

// whileHostsAreMissing is a condition of a VIP that names hosts which have not joined: it is programmed without them. What
// muxes refuse, or that there is none, is told first.
func (c Condition) whileHostsAreMissing(waits []string) Condition {
	if len(waits) == 0 {
		return c
	}
	missing := strings.Join(waits, ", ")
	if c.Reason == reasonProgrammed || c.Reason == ReasonPending {
		return Condition{False, ReasonPending, missing + "; " + c.Message}
	}
	c.Message += "; " + missing
	return c
}

func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// healthy says whether each endpoint has a backend that is well. Backends that drain do not count.
func healthy(s *store.State, vip model.VIP) (c Condition, serving, backends uint32) {
	var checked, without, waiting []string // endpoints
	for _, e := range vip.Endpoints {
		var all, well, unknown int
		for _, b := range e.Backends {
			if b.Weight == 0 {
				continue
			}
			all++
			switch health := desired.HealthOf(&s.State, vip, e, b).Health; health {
			case model.HealthHealthy, model.HealthUnchecked:
				well++
			case model.HealthUnknown:
				unknown++
			}
		}
		name := fmt.Sprintf("%s %s", e.Protocol, cmp.Or(fmt.Sprint(e.Port), "all"))
		if e.Port == model.AllPorts {
			name = e.Protocol.String() + " all"
		}
		if e.HealthCheck != nil {
			checked = append(checked, name)
		}
		switch {
		case all > 0 && well == 0 && unknown == all:
			waiting = append(waiting, name)
		case well == 0:
			without = append(without, name)
		}
		serving += uint32(well)
		backends += uint32(all)
	}
	share := fmt.Sprintf("%d of %d backends are healthy", serving, backends)
	switch {
	case len(vip.Endpoints) == 0 && vip.SNAT != nil:
		return Condition{True, reasonOutbound, fmt.Sprintf("nothing is balanced, %d workloads leave as it", len(vip.SNAT.Workloads))}, 0, 0
	case backends == 0:
		return Condition{False, reasonNoBackends, "no backend takes connections"}, serving, backends
	case len(without) > 0:
		return Condition{False, reasonNoHealthy, share + ", none of " + strings.Join(without, ", ")}, serving, backends
	case len(waiting) > 0:
		return Condition{Unknown, ReasonNotYet, share + ", none of " + strings.Join(waiting, ", ") + " answered its check yet"}, serving, backends
	case serving < backends:
		return Condition{True, reasonSomeDown, share}, serving, backends
	case len(checked) == 0:
		return Condition{True, reasonNotChecked, fmt.Sprintf("%d backends, none is checked", backends)}, serving, backends
	}
	return Condition{True, reasonAllHealthy, share}, serving, backends
}

// Noted is what is to be in the store of the conditions, and whether it is there already.
func (c Conditions) Noted(before vipstatus.Conditions, now time.Time) (vipstatus.Conditions, bool) {
	next := vipstatus.Conditions{
		Programmed: c.Programmed.noted(before.Programmed, now), Healthy: c.Healthy.noted(before.Healthy, now), Backends: c.Serving,
	}
	same := next.Backends == before.Backends && next.Programmed.Reason == before.Programmed.Reason &&
		next.Healthy.Reason == before.Healthy.Reason && next.Programmed.Status == before.Programmed.Status &&
		next.Healthy.Status == before.Healthy.Status
	return next, same
}

func (c Condition) noted(before vipstatus.Condition, now time.Time) vipstatus.Condition {
	if before.Status != c.Status {
		before.Since = now
	}
	return vipstatus.Condition{Status: c.Status, Reason: c.Reason, Since: before.Since}
}

// toProto writes the condition; noted is what the leader noted of it last.
func (c Condition) toProto(kind string, noted vipstatus.Condition) *weirv1.Condition {
	p := &weirv1.Condition{Type: kind, Status: c.Status, Reason: c.Reason, Message: c.Message}
	if noted.Status == c.Status && !noted.Since.IsZero() {
		p.LastTransitionTime = timestamppb.New(noted.Since)
	}
	return p
}

// ToProto writes all conditions of a VIP.
func ToProto(s *store.State, vip model.VIP, c Conditions) []*weirv1.Condition {
	noted, record := s.Conditions.At(vip.Name), s.Records.At(vip.Name)
	accepted := Condition{True, reasonAdmitted, fmt.Sprintf("version %d fits with everything else", s.Written.At(vip.Name))}
	p := accepted.toProto("accepted", vipstatus.Condition{Status: True, Since: record.Created})
	if record.Created.IsZero() { // written by an older manager
		p.LastTransitionTime = nil
	}
	all := []*weirv1.Condition{
		p, c.Programmed.toProto("programmed", noted.Programmed), c.Healthy.toProto("healthy", noted.Healthy),
	}
	if now, has := overloaded(s, vip); has {
		all = append(all, now)
	}
	if now, has := attached(s, vip); has {
		all = append(all, now)
	}
	if now, has := inHardware(s, vip); has {
		all = append(all, now)
	}
	return all
}
