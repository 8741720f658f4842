package compile

import (
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// overloadMessage writes o; nil stays nil.
func overloadMessage(o *model.Overload) *weirv1.Overload {
	if o == nil {
		return nil
	}
	p := &weirv1.Overload{HoldDown: durationpb.New(o.HoldDown), MaxHoldDown: durationpb.New(o.MaxHoldDown)}
	for _, cause := range o.Triggers {
		p.Triggers = append(p.Triggers, string(cause))
	}
	for _, s := range o.Steps {
		p.Steps = append(p.Steps, &weirv1.OverloadStep{
			Action: string(s.Action), After: durationpb.New(s.After), Limits: LimitsMessage(s.Limits), Scrubber: s.Scrubber,
		})
	}
	return p
}

// overload reads and completes with defaults.
func (f *Fields) overload(path string, p *weirv1.Overload) *model.Overload {
	if p == nil {
		return nil
	}
	f.enter(path, -1)
	defer f.leave()
	o := &model.Overload{HoldDown: f.Duration("holdDown", p.GetHoldDown(), model.DefaultHoldDown)}
	o.MaxHoldDown = f.Duration("maxHoldDown", p.GetMaxHoldDown(), max(model.DefaultMaxHoldDown, o.HoldDown))
	for _, cause := range p.GetTriggers() {
		o.Triggers = append(o.Triggers, model.OverloadCause(cause))
	}
	if len(o.Triggers) == 0 {
		o.Triggers = []model.OverloadCause{model.CauseOverload}
	}
	for i, s := range p.GetSteps() {
		o.Steps = append(o.Steps, model.OverloadStep{
			Action: model.OverloadAction(s.GetAction()), Limits: Limits(s.GetLimits()), Scrubber: s.GetScrubber(),
			After: f.Duration(fmt.Sprintf("steps[%d].after", i), s.GetAfter(), model.DefaultAfter),
		})
	}
	return o
}

func diversionMessage(d *model.Diversion) *weirv1.Diversion {
	if d == nil {
		return nil
	}
	return &weirv1.Diversion{NextHops: AddressTexts(d.NextHops), Communities: CommunityTexts(d.Communities)}
}

func (f *Fields) diversion(path string, nextHops, communities []string) model.Diversion {
	f.enter(path, -1)
	defer f.leave()
	return model.Diversion{NextHops: f.Addresses("nextHops", nextHops), Communities: f.Communities("communities", communities)}
}

// Communities reads BGP communities.
func (f *Fields) Communities(path string, list []string) []model.Community {
	var all []model.Community
	for i, s := range list {
		c, err := model.ParseCommunity(s)
		if err != nil {
			f.Refuse(fmt.Sprintf("%s[%d]", path, i), "%v", err)
		}
		all = append(all, c)
	}
	return all
}

// CommunityTexts writes what Communities reads.
func CommunityTexts(list []model.Community) []string {
	all := make([]string, 0, len(list))
	for _, c := range list {
		all = append(all, c.String())
	}
	return all
}

func scrubberMessages(list []model.Scrubber) []*weirv1.Scrubber {
	var all []*weirv1.Scrubber
	for _, s := range list {
		all = append(all, &weirv1.Scrubber{Name: s.Name, NextHops: AddressTexts(s.NextHops), Communities: CommunityTexts(s.Communities)})
	}
	return all
}
