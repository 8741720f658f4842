package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Overload says what the manager does about a VIP that has too much come, beside what muxes do by themselves: they
// answer SYNs with cookies, and hold VIPs to their share. Its steps are taken one after the other, each in addition
// to those before it.
type Overload struct {
	Triggers    []OverloadCause // at least one
	Steps       []OverloadStep  // at least one; later ones are more severe
	HoldDown    time.Duration   // that a step lasts at least, in nanoseconds
	MaxHoldDown time.Duration
}

// OverloadCause is what a mux finds wrong with what comes for a VIP.
type OverloadCause string

// The causes.
const (
	CauseOverload OverloadCause = "overload"  // it exceeds its share of a mux by most
	CauseSYNFlood OverloadCause = "syn-flood" // the mux answers its SYNs with cookies, as it is flooded with them
)

// OverloadAction is what a step does.
type OverloadAction string

// The actions, the mildest first. The empty string is none.
const (
	ActionLimit     OverloadAction = "limit"     // limits on top of those of the VIP
	ActionScrub     OverloadAction = "scrub"     // announced for a scrubber
	ActionBlackhole OverloadAction = "blackhole" // taken back, or announced to be dropped
)

// OverloadActions are all, the mildest first.
var OverloadActions = []OverloadAction{ActionLimit, ActionScrub, ActionBlackhole}

// OverloadStep is one step of an Overload.
type OverloadStep struct {
	Action   OverloadAction
	After    time.Duration // of pressure since the step before, in nanoseconds
	Limits   *Limits       // of ActionLimit
	Scrubber string        // of ActionScrub: the name of one of the pool
}

// Defaults and bounds of an Overload.
const (
	DefaultAfter       = 10 * time.Second
	DefaultHoldDown    = time.Minute
	DefaultMaxHoldDown = time.Hour
	MinAfter           = time.Second
	MinHoldDown        = time.Second
	MaxHoldDown        = 24 * time.Hour
)

// Step is the number of the step with the action; -1: there is none.
func (o *Overload) Step(action OverloadAction) int {
	if o == nil {
		return -1
	}
	return slices.IndexFunc(o.Steps, func(s OverloadStep) bool { return s.Action == action })
}

// Least are the smaller ones of both; nil: nothing is limited.
func (l *Limits) Least(other *Limits) *Limits {
	if l == nil || other == nil {
		if l == nil {
			l = other
		}
		return l
	}
	least := func(a, b uint64) uint64 {
		if a == 0 || b == 0 {
			return max(a, b)
		}
		return min(a, b)
	}
	return &Limits{
		Packets: least(l.Packets, other.Packets), Bytes: least(l.Bytes, other.Bytes), Connections: least(l.Connections, other.Connections),
	}
}

func (vip VIP) validateOverload(v *validator) {
	o := vip.Overload
	if o == nil {
		return
	}
	if len(vip.Endpoints) == 0 {
		v.refuse("overload", "is about what comes to endpoints, of which there is none")
	}
	if len(o.Triggers) == 0 {
		v.refuse("overload.triggers", "must have at least one")
	}
	for i, cause := range o.Triggers {
		field := fmt.Sprintf("overload.triggers[%d]", i)
		if cause != CauseOverload && cause != CauseSYNFlood {
			v.refuse(field, "must be %s or %s, is %.64q", CauseOverload, CauseSYNFlood, string(cause))
		}
		if j := slices.Index(o.Triggers, cause); j < i {
			v.refuse(field, "is %s again, as overload.triggers[%d]", cause, j)
		}
	}
	if len(o.Steps) == 0 {
		v.refuse("overload.steps", "must have at least one")
	}
	before := -1
	for i, step := range o.Steps {
		before = step.validate(v, fmt.Sprintf("overload.steps[%d]", i), before)
	}
	if o.HoldDown < MinHoldDown || o.HoldDown > MaxHoldDown {
		v.refuse("overload.holdDown", "must be %s to %s, is %s", MinHoldDown, MaxHoldDown, o.HoldDown)
	}
	if o.MaxHoldDown < o.HoldDown || o.MaxHoldDown > MaxHoldDown {
		v.refuse("overload.maxHoldDown", "must be at least holdDown (%s) and at most %s, is %s", o.HoldDown, MaxHoldDown, o.MaxHoldDown)
	}
}

// validate looks at a step that follows one of that severity, and returns its own.
func (s OverloadStep) validate(v *validator, path string, before int) int {
	severity := slices.Index(OverloadActions, s.Action)
	switch {
	case severity < 0:
		v.refuse(path+".action", "must be limit, scrub or blackhole, is %.64q", string(s.Action))
	case severity <= before:
		v.refuse(path+".action", "%s must not come after %s: steps go from limit to scrub to blackhole", s.Action, OverloadActions[before])
	}
	if s.After < MinAfter || s.After > MaxHoldDown {
		v.refuse(path+".after", "must be %s to %s, is %s", MinAfter, MaxHoldDown, s.After)
	}
	switch limited := s.Action == ActionLimit; {
	case limited && (s.Limits == nil || *s.Limits == Limits{}):
		v.refuse(path+".limits", "must limit packets, bytes or connections")
	case !limited && s.Limits != nil:
		v.refuse(path+".limits", "are for the action limit only")
	case limited:
		s.Limits.validate(v, path+".limits")
	}
	switch scrubs := s.Action == ActionScrub; {
	case scrubs && s.Scrubber == "":
		v.refuse(path+".scrubber", "must name a scrubber of the address's pool")
	case !scrubs && s.Scrubber != "":
		v.refuse(path+".scrubber", "is for the action scrub only")
	}
	return max(severity, before)
}

// Diversion is where packets of VIPs go that are not to come to the muxes: what muxes announce of them then.
type Diversion struct {
	NextHops    []netip.Addr // at most one of each family; none of a VIP's: the muxes themselves
	Communities []Community  // that routers know what to do by
}

// NextHop is the next hop of VIPs of a's family; not valid: there is none.
func (d Diversion) NextHop(a netip.Addr) netip.Addr {
	for _, hop := range d.NextHops {
		if hop.Is4() == a.Is4() {
			return hop
		}
	}
	return netip.Addr{}
}

// Diverts says whether the routers can tell a VIP's route from its usual one.
func (d Diversion) Diverts(vip netip.Addr) bool {
	return len(d.Communities) > 0 || d.NextHop(vip).IsValid()
}

// Scrubber is a Diversion that packets come back from to the muxes, without those of attackers.
type Scrubber struct {
	Name string // unique in its pool; a DNS label
	Diversion
}

// Scrubber finds a scrubber of the pool.
func (p AddressPool) Scrubber(name string) (Scrubber, bool) {
	i := slices.IndexFunc(p.Scrubbers, func(s Scrubber) bool { return s.Name == name })
	if i < 0 {
		return Scrubber{}, false
	}
	return p.Scrubbers[i], true
}

// MaxCommunities bounds the communities of a Diversion; MaxScrubbers the scrubbers of a pool.
const (
	MaxCommunities = 16
	MaxScrubbers   = 16
)

func (p AddressPool) validateDiversions(v *validator) {
	if n := len(p.Scrubbers); n > MaxScrubbers {
		v.refuse("scrubbers", "must be at most %d, are %d", MaxScrubbers, n)
	}
	for i, s := range p.Scrubbers {
		path := fmt.Sprintf("scrubbers[%d]", i)
		v.name(path+".name", s.Name)
		if j := slices.IndexFunc(p.Scrubbers, func(other Scrubber) bool { return other.Name == s.Name }); j < i {
			v.refuse(path+".name", "is %s again, as scrubbers[%d]", s.Name, j)
		}
		s.validate(v, path, p)
	}
	if p.Blackhole != nil {
		p.Blackhole.validate(v, "blackhole", p)
	}
}

func (d Diversion) validate(v *validator, path string, p AddressPool) {
	if len(d.NextHops)+len(d.Communities) == 0 {
		v.refuse(path, "must have a next hop or a community")
	}
	if len(d.Communities) > MaxCommunities {
		v.refuse(path+".communities", "must be at most %d, are %d", MaxCommunities, len(d.Communities))
	}
	for i, hop := range d.NextHops {
		field := fmt.Sprintf("%s.nextHops[%d]", path, i)
		v.address(field, hop)
		if j := slices.IndexFunc(d.NextHops, func(other netip.Addr) bool { return other.Is4() == hop.Is4() }); j < i {
			v.refuse(field, "must not be of one family with nextHops[%d]", j)
		}
		if p.Covers(hop) {
			v.refuse(field, "must be no address of the pool itself, is %s", hop)
		}
	}
}

// Community is a BGP community (RFC 1997), or a large one (RFC 8092).
type Community struct {
	Large       bool
	Admin       uint32 // an AS; at most 65535 unless Large
	Value, Rest uint32 // Value is at most 65535 unless Large; Rest is of large ones alone
}

// String is "65535:666", or "4200000000:1:2" of a large one.
func (c Community) String() string {
	if c.Large {
		return fmt.Sprintf("%d:%d:%d", c.Admin, c.Value, c.Rest)
	}
	return fmt.Sprintf("%d:%d", c.Admin, c.Value)
}

// ParseCommunity reads what String writes.
func ParseCommunity(s string) (Community, error) {
	var c Community
	c.Large = strings.Count(s, ":") == 2
	form, parts := "%d:%d", []any{&c.Admin, &c.Value}
	if c.Large {
		form, parts = "%d:%d:%d", append(parts, &c.Rest)
	}
	_, err := fmt.Sscanf(s, form, parts...)
	if err != nil || c.String() != s || !c.Large && (c.Admin > 65535 || c.Value > 65535) {
		return Community{}, fmt.Errorf("must be a community such as 65535:666, or a large one such as 4200000000:1:2, is %.64q", s)
	}
	return c, nil
}

// MarshalText writes c as String does.
func (c Community) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Community) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCommunity(string(text))
	return err
}

// VIPRoute is how muxes announce a VIP that they do not announce as usual.
type VIPRoute struct {
	VIP         netip.Addr     `json:"vip"`
	Action      OverloadAction `json:"action"` // that it is for
	Withdrawn   bool           `json:"withdrawn,omitempty"`
	NextHop     netip.Addr     `json:"nextHop,omitzero"` // not valid: the mux
	Communities []Community    `json:"communities,omitempty"`
}

// Equal says whether both are the same route.
func (r VIPRoute) Equal(other VIPRoute) bool {
	return r.VIP == other.VIP && r.Action == other.Action && r.Withdrawn == other.Withdrawn && r.NextHop == other.NextHop &&
		slices.Equal(r.Communities, other.Communities)
}
