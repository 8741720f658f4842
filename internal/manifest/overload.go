package manifest

import "github.com/weirlb/weir/internal/model"

// overload reads an overload policy; nil: there is none.
func overload(o *object) *model.Overload {
	if o.fields == nil {
		return nil
	}
	policy := &model.Overload{HoldDown: o.get("holdDown").duration(model.DefaultHoldDown)}
	policy.MaxHoldDown = o.get("maxHoldDown").duration(max(model.DefaultMaxHoldDown, policy.HoldDown))
	for _, v := range o.get("triggers").list() {
		policy.Triggers = append(policy.Triggers, model.OverloadCause(v.text("")))
	}
	if !o.has("triggers") {
		policy.Triggers = []model.OverloadCause{model.CauseOverload}
	}
	for _, v := range o.get("steps").required().list() {
		step := v.object()
		policy.Steps = append(policy.Steps, model.OverloadStep{
			Action: model.OverloadAction(step.get("action").required().text("")), After: step.get("after").duration(model.DefaultAfter),
			Limits: limits(step.get("limits").object()), Scrubber: step.get("scrubber").text(""),
		})
		step.end()
	}
	o.end()
	return policy
}

func scrubber(o *object) model.Scrubber {
	s := model.Scrubber{Name: o.get("name").required().text(""), Diversion: diversion(o)}
	o.end()
	return s
}

// blackhole reads how VIPs that are black-holed are announced; nil: not at all.
func blackhole(o *object) *model.Diversion {
	if o.fields == nil {
		return nil
	}
	d := diversion(o)
	o.end()
	return &d
}

func diversion(o *object) (d model.Diversion) {
	for _, v := range o.get("nextHops").list() {
		d.NextHops = append(d.NextHops, v.address())
	}
	for _, v := range o.get("communities").list() {
		text := v.text("")
		c, err := model.ParseCommunity(text)
		if err != nil && text != "" {
			v.refuse("%v", err)
		}
		d.Communities = append(d.Communities, c)
	}
	return d
}

type overloadSpec struct {
	Triggers    []model.OverloadCause `json:"triggers"`
	Steps       []overloadStepSpec    `json:"steps"`
	HoldDown    string                `json:"holdDown"`
	MaxHoldDown string                `json:"maxHoldDown"`
}

type overloadStepSpec struct {
	Action   model.OverloadAction `json:"action"`
	After    string               `json:"after"`
	Limits   *model.Limits        `json:"limits,omitempty"`
	Scrubber string               `json:"scrubber,omitempty"`
}

func writeOverload(policy *model.Overload) *overloadSpec {
	if policy == nil {
		return nil
	}
	written := &overloadSpec{Triggers: policy.Triggers, HoldDown: policy.HoldDown.String(), MaxHoldDown: policy.MaxHoldDown.String()}
	for _, s := range policy.Steps {
		written.Steps = append(written.Steps, overloadStepSpec{Action: s.Action, After: s.After.String(), Limits: s.Limits, Scrubber: s.Scrubber})
	}
	return written
}
