package rpc

import (
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// OverloadToProto writes o; nil stays nil.
func OverloadToProto(o *model.Overload) *weirv1.Overload {
	if o == nil {
		return nil
	}
	p := &weirv1.Overload{HoldDown: durationpb.New(o.HoldDown), MaxHoldDown: durationpb.New(o.MaxHoldDown)}
	for _, cause := range o.Triggers {
		p.Triggers = append(p.Triggers, string(cause))
	}
	for _, s := range o.Steps {
		p.Steps = append(p.Steps, &weirv1.OverloadStep{
			Action: string(s.Action), After: durationpb.New(s.After), Limits: LimitsToProto(s.Limits), Scrubber: s.Scrubber,
		})
	}
	return p
}

// overload reads and completes with defaults.
func (f *fields) overload(path string, p *weirv1.Overload) *model.Overload {
	if p == nil {
		return nil
	}
	o := &model.Overload{HoldDown: f.duration(path+".holdDown", p.GetHoldDown(), model.DefaultHoldDown)}
	o.MaxHoldDown = f.duration(path+".maxHoldDown", p.GetMaxHoldDown(), max(model.DefaultMaxHoldDown, o.HoldDown))
	for _, cause := range p.GetTriggers() {
		o.Triggers = append(o.Triggers, model.OverloadCause(cause))
	}
	if len(o.Triggers) == 0 {
		o.Triggers = []model.OverloadCause{model.CauseOverload}
	}
	for i, s := range p.GetSteps() {
		o.Steps = append(o.Steps, model.OverloadStep{
			Action: model.OverloadAction(s.GetAction()), Limits: limitsFromProto(s.GetLimits()), Scrubber: s.GetScrubber(),
			After: f.duration(fmt.Sprintf("%s.steps[%d].after", path, i), s.GetAfter(), model.DefaultAfter),
		})
	}
	return o
}

func diversionToProto(d *model.Diversion) *weirv1.Diversion {
	if d == nil {
		return nil
	}
	return &weirv1.Diversion{NextHops: addressStrings(d.NextHops), Communities: communityStrings(d.Communities)}
}

func (f *fields) diversion(path string, nextHops, communities []string) model.Diversion {
	return model.Diversion{NextHops: f.addresses(path+".nextHops", nextHops), Communities: f.communities(path+".communities", communities)}
}

func (f *fields) communities(path string, list []string) []model.Community {
	var all []model.Community
	for i, s := range list {
		c, err := model.ParseCommunity(s)
		if err != nil {
			f.refuse(fmt.Sprintf("%s[%d]", path, i), "%v", err)
		}
		all = append(all, c)
	}
	return all
}

func communityStrings(list []model.Community) []string {
	all := make([]string, 0, len(list))
	for _, c := range list {
		all = append(all, c.String())
	}
	return all
}

func scrubbersToProto(list []model.Scrubber) []*weirv1.Scrubber {
	var all []*weirv1.Scrubber
	for _, s := range list {
		all = append(all, &weirv1.Scrubber{Name: s.Name, NextHops: addressStrings(s.NextHops), Communities: communityStrings(s.Communities)})
	}
	return all
}

func routesToProto(list []model.VIPRoute) []*weirv1.VIPRoute {
	var all []*weirv1.VIPRoute
	for _, r := range list {
		all = append(all, &weirv1.VIPRoute{
			Vip: r.VIP.String(), Action: string(r.Action), Withdrawn: r.Withdrawn, NextHop: optional(r.NextHop),
			Communities: communityStrings(r.Communities),
		})
	}
	return all
}

func (f *fields) routes(path string, list []*weirv1.VIPRoute) []model.VIPRoute {
	var all []model.VIPRoute
	for i, p := range list {
		path := fmt.Sprintf("%s[%d]", path, i)
		r := model.VIPRoute{
			VIP: f.address(path+".vip", p.GetVip()), Action: model.OverloadAction(p.GetAction()), Withdrawn: p.GetWithdrawn(),
			Communities: f.communities(path+".communities", p.GetCommunities()),
		}
		if p.GetNextHop() != "" {
			r.NextHop = f.address(path+".nextHop", p.GetNextHop())
		}
		all = append(all, r)
	}
	return all
}
