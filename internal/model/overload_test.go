package model

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func overloadOf(steps ...OverloadStep) *Overload {
	return &Overload{Triggers: []OverloadCause{CauseOverload}, Steps: steps, HoldDown: time.Minute, MaxHoldDown: time.Hour}
}

func TestInvalidOverloadPolicies(t *testing.T) {
	hole, scrub := OverloadStep{Action: ActionBlackhole, After: time.Second}, OverloadStep{Action: ActionScrub, Scrubber: "east", After: time.Second}
	limit := OverloadStep{Action: ActionLimit, After: time.Second, Limits: &Limits{Packets: 1}}
	change := func(s OverloadStep, do func(*OverloadStep)) *Overload {
		do(&s)
		return overloadOf(s)
	}
	for want, o := range map[string]*Overload{
		"":                                       overloadOf(limit, scrub, hole),
		"overload.steps: must have at least one": overloadOf(),
		"overload.triggers: must have at least one": {Steps: []OverloadStep{hole}, HoldDown: time.Minute, MaxHoldDown: time.Hour},
		"overload.triggers[0]: must be overload or syn-flood, is \"anger\"": {
			Triggers: []OverloadCause{"anger"}, Steps: []OverloadStep{hole}, HoldDown: time.Minute, MaxHoldDown: time.Hour,
		},
		"overload.maxHoldDown: must be at least holdDown (1m0s) and at most 24h0m0s, is 1s": {
			Triggers: []OverloadCause{CauseOverload}, Steps: []OverloadStep{hole}, HoldDown: time.Minute, MaxHoldDown: time.Second,
		},
		"overload.steps[1].action: scrub must not come after blackhole: steps go from limit to scrub to blackhole":     overloadOf(hole, scrub),
		"overload.steps[1].action: blackhole must not come after blackhole: steps go from limit to scrub to blackhole": overloadOf(hole, hole),
		"overload.steps[0].action: must be limit, scrub or blackhole, is \"drop\"":                                     change(hole, func(s *OverloadStep) { s.Action = "drop" }),
		"overload.steps[0].after: must be 1s to 24h0m0s, is 0s":                                                        change(hole, func(s *OverloadStep) { s.After = 0 }),
		"overload.steps[0].limits: must limit packets, bytes or connections":                                           change(limit, func(s *OverloadStep) { s.Limits = &Limits{} }),
		"overload.steps[0].limits.packets: must be at most 1000000000000, is 1000000000001":                            change(limit, func(s *OverloadStep) { s.Limits = &Limits{Packets: MaxLimit + 1} }),
		"overload.steps[0].limits: are for the action limit only":                                                      change(hole, func(s *OverloadStep) { s.Limits = &Limits{Packets: 1} }),
		"overload.steps[0].scrubber: must name a scrubber of the address's pool":                                       change(scrub, func(s *OverloadStep) { s.Scrubber = "" }),
		"overload.steps[0].scrubber: is for the action scrub only":                                                     change(hole, func(s *OverloadStep) { s.Scrubber = "east" }),
	} {
		vip := validVIP()
		vip.Overload = o
		got := ""
		if err := vip.Validate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCommunities(t *testing.T) {
	for text, want := range map[string]Community{
		"65535:666": {Admin: 65535, Value: 666}, "0:0": {}, "4200000000:1:4294967295": {Large: true, Admin: 4_200_000_000, Value: 1, Rest: 1<<32 - 1},
	} {
		if c, err := ParseCommunity(text); err != nil || c != want || c.String() != text {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "65536:1", "1:65536", "1", "1:2:3:4", "-1:2", "1:2 ", "01:2", "a:b", "4294967296:1:1", "no-export"} {
		if c, err := ParseCommunity(text); err == nil {
			t.Errorf("%q: %v", text, c)
		}
	}
}

func TestInvalidDiversions(t *testing.T) {
	for want, change := range map[string]func(*AddressPool){
		"scrubbers[0].name: must be a DNS label":            func(p *AddressPool) { p.Scrubbers[0].Name = "East" },
		"scrubbers[1].name: is east again, as scrubbers[0]": func(p *AddressPool) { p.Scrubbers = append(p.Scrubbers, p.Scrubbers[0]) },
		"scrubbers[0]: must have a next hop or a community": func(p *AddressPool) { p.Scrubbers[0].Diversion = Diversion{} },
		"scrubbers[0].nextHops[1]: must not be of one family with nextHops[0]": func(p *AddressPool) {
			p.Scrubbers[0].NextHops = append(p.Scrubbers[0].NextHops, netip.MustParseAddr("10.0.9.3"))
		},
		"blackhole.nextHops[0]: must be no address of the pool itself, is 203.0.113.9": func(p *AddressPool) {
			p.Blackhole = &Diversion{NextHops: []netip.Addr{netip.MustParseAddr("203.0.113.9")}}
		},
	} {
		pool := AddressPool{Name: "public", Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, Scrubbers: []Scrubber{
			{Name: "east", Diversion: Diversion{NextHops: []netip.Addr{netip.MustParseAddr("10.0.9.2")}}},
		}}
		if err := pool.Validate(); err != nil {
			t.Fatal(err)
		}
		if change(&pool); pool.Validate() == nil || !strings.Contains(pool.Validate().Error(), want) {
			t.Errorf("got %v, want %s", pool.Validate(), want)
		}
	}
}
