package diagnosis

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// explainJoin goes on where r ends, at the backend of the flow's bucket: the flow is a subflow of the connection that has the token.
func (m *Service) explainJoin(ctx context.Context, s *store.State, vip model.VIP, flow model.Flow, token multipath.Token, r *weirv1.ExplainResponse) {
	e, found := endpointOf(vip, flow)
	if !found || r.GetBackend() == nil {
		return
	}
	step := func(format string, args ...any) { r.Steps = append(r.Steps, fmt.Sprintf(format, args...)) }
	first := r.GetBackend().GetHost()
	if !nodeconfig.HasMultipath(s.State, e) {
		step("the endpoint has no multipath, or a host of it can not: the workload refuses the SYN unless it has the connection with the token 0x%08x itself, by chance", uint32(token))
		return
	}
	hosts := map[netip.Addr]string{}
	for _, b := range e.Backends {
		hosts[b.TunnelAddress()] = b.Host
	}
	homes := multipath.HomesOf(nodeconfig.HomesOf(e, s.Tables.At(desired.Key(vip, e))))[token.Cell()]
	for _, home := range homes {
		if home.IsValid() {
			r.Homes = append(r.Homes, hosts[home])
		}
	}
	if len(r.Homes) == 0 {
		step("no host of the endpoint is there to be a home of the token 0x%08x: only what is on %s itself is delivered", uint32(token), first)
		return
	}
	step("the SYN joins the connection with the token 0x%08x: %s hands it on if it knows where that is", uint32(token), first)
	step("else it goes to a home of cell %d of tokens: %s; that host hands it to the one that has the connection", token.Cell(), strings.Join(r.Homes, ", then "))
	asked := []string{first}
	for _, home := range r.Homes {
		if home != first {
			asked = append(asked, home)
		}
	}
	for _, host := range asked {
		switch tunnel, err := m.holderOf(ctx, s, host, desired.Key(vip, e), token); {
		case err != nil:
			step("%s can't be asked whether it knows the token: %v", host, err)
		case !tunnel.IsValid():
			step("%s does not know the token", host)
		case hosts[tunnel] == "":
			step("%s says that the connection is behind %s, where the endpoint has no backend any more", host, tunnel)
		default:
			step("%s says that the connection is on %s, behind the tunnel %s", host, hosts[tunnel], tunnel)
			r.Holder = hosts[tunnel]
			return
		}
	}
	step("if no home knows the token, it is dropped as drop_join_unknown, and the client sends it again after 1, 3 and 7 seconds")
}

// tokenAnswer is how long a host has to say who has a token.
const tokenAnswer = 2 * time.Second

// holderOf is the tunnel behind which a connection is, by what a host was told; zero: it does not know.
func (m *Service) holderOf(ctx context.Context, s *store.State, host string, endpoint model.EndpointKey, token multipath.Token) (tunnel netip.Addr, err error) {
	task := &weirv1.FindTokenTask{Endpoint: wire.EndpointKeyToProto(endpoint), Token: uint32(token)}
	asked, done, err := m.tasks.ask(s, host, model.RoleHost, &weirv1.NodeTask{Task: &weirv1.NodeTask_FindToken{FindToken: task}})
	if err != nil {
		return tunnel, err
	}
	defer done()
	answer, err := asked.next(ctx, time.After(tokenAnswer))
	if err != nil || answer.GetHolder() == "" {
		return tunnel, err
	}
	return netip.ParseAddr(answer.GetHolder())
}
