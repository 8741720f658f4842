package wire

import (
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

func routesToProto(list []model.VIPRoute) []*weirv1.VIPRoute {
	var all []*weirv1.VIPRoute
	for _, r := range list {
		all = append(all, &weirv1.VIPRoute{
			Vip: r.VIP.String(), Action: string(r.Action), Withdrawn: r.Withdrawn, NextHop: compile.OptionalAddress(r.NextHop),
			Communities: compile.CommunityTexts(r.Communities),
		})
	}
	return all
}

func (f *fields) routes(path string, list []*weirv1.VIPRoute) []model.VIPRoute {
	var all []model.VIPRoute
	for i, p := range list {
		path := fmt.Sprintf("%s[%d]", path, i)
		r := model.VIPRoute{
			VIP: f.Address(path+".vip", p.GetVip()), Action: model.OverloadAction(p.GetAction()), Withdrawn: p.GetWithdrawn(),
			Communities: f.Communities(path+".communities", p.GetCommunities()),
		}
		if p.GetNextHop() != "" {
			r.NextHop = f.Address(path+".nextHop", p.GetNextHop())
		}
		all = append(all, r)
	}
	return all
}
