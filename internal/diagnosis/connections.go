package diagnosis

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
)

// Bounds of a list of connections.
const (
	connectionsPage    = 100
	maxConnectionsPage = 1000
	connectionsTime    = 8 * time.Second // of a page: what is missing is the next page's
	connectionsAnswer  = 3 * time.Second // of a host
)

// connectionsToken is where a list of connections goes on.
type connectionsToken struct {
	Host string `json:"host"`
	Row  uint32 `json:"row"` // of its table
}

func readConnectionsToken(token string) (at connectionsToken, err error) {
	if token == "" {
		return at, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		return at, &model.FieldError{Field: "pageToken", Reason: fmt.Sprintf("must be the nextPageToken of the page before, is %.80q", token)}
	}
	return at, nil
}

func (at connectionsToken) String() string {
	text, err := json.Marshal(at)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ListConnections lists the connections of a VIP's clients in virtual networks, as the hosts of its backends have them.
func (m *Service) ListConnections(ctx context.Context, r *weirv1.ListConnectionsRequest) (*weirv1.ListConnectionsResponse, error) {
	state := m.Store.State()
	vip, there := state.VIPs.Get(r.GetVip())
	if !there || !authz.CanView(ctx, vip.Tenant) {
		return nil, apierr.NotFound("VIP", r.GetVip(), state.VIPs, authz.CanViewVIP(ctx))
	}
	at, err := readConnectionsToken(r.GetPageToken())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	task := &weirv1.ListConnectionsTask{Vip: vip.Address.String()}
	if task.Vni, err = attachedNetwork(state, vip, r.GetNetwork()); err != nil {
		return nil, err
	}
	hosts := connectionHosts(state, vip)
	if r.GetHost() != "" && !slices.Contains(hosts, r.GetHost()) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("VIP %s has no backend on a host %.64q", vip.Name, r.GetHost()))
	}
	page := &connectionsList{Service: m, to: &weirv1.ListConnectionsResponse{}, room: int(min(cmp.Or(r.GetPageSize(), connectionsPage), maxConnectionsPage)), until: time.Now().Add(connectionsTime)}
	for _, host := range hosts {
		if r.GetHost() != "" && host != r.GetHost() || host < at.Host {
			continue
		}
		row := uint32(0)
		if host == at.Host {
			row = at.Row
		}
		page.read(ctx, state, host, row, task, r)
	}
	if err := ctx.Err(); err != nil {
		return nil, apierr.ToConnect(err)
	}
	return page.to, nil
}

// attachedNetwork is the VNI of a network that the VIP is attached to; 0: of any.
func attachedNetwork(s *store.State, vip model.VIP, network string) (uint32, error) {
	if network == "" {
		return 0, nil
	}
	for _, a := range vip.Attachments {
		if n, there := s.Networks.Get(network); there && a.Network == network {
			return n.VNI, nil
		}
	}
	return 0, connect.NewError(connect.CodeNotFound, fmt.Errorf("VIP %s is attached to no network %.64q", vip.Name, network))
}

// connectionHosts are the hosts of a VIP's backends, in order.
func connectionHosts(s *store.State, vip model.VIP) []string {
	hosts := map[string]bool{}
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			if node, there := s.Nodes.Get(b.Host); there && node.Role == model.RoleHost {
				hosts[b.Host] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

// connectionsList is a page while it is filled.
type connectionsList struct {
	*Service
	to    *weirv1.ListConnectionsResponse
	room  int
	until time.Time
}

// read adds what a host has from a row on. A host that does not answer is told, and passed over.
func (l *connectionsList) read(ctx context.Context, s *store.State, host string, row uint32, task *weirv1.ListConnectionsTask, r *weirv1.ListConnectionsRequest) {
	for l.to.GetNextPageToken() == "" {
		if l.room == 0 || time.Now().After(l.until) {
			l.to.NextPageToken = connectionsToken{host, row}.String()
			return
		}
		part := &weirv1.ListConnectionsTask{Vip: task.GetVip(), Vni: task.GetVni(), Row: row, Count: uint32(l.room)}
		found, next, err := l.connectionsOf(ctx, s, host, part, r)
		if err != nil {
			l.to.Unanswered = append(l.to.Unanswered, &weirv1.UnansweredHost{Host: host, Reason: err.Error()})
			return
		}
		found = found[:min(len(found), l.room)]
		for _, c := range found {
			c.Host = host
			if n, _ := s.Networks.Get(c.GetNetwork()); !authz.CanView(ctx, n.Tenant) { // who clients are is not the VIP's tenant's to know
				c.Client = ""
			}
		}
		l.to.Connections, l.room = append(l.to.Connections, found...), l.room-len(found)
		if next <= row {
			return
		}
		row = next
	}
}

// connectionsOf asks a host, by the manager that has its stream.
func (m *Service) connectionsOf(
	ctx context.Context, s *store.State, host string, task *weirv1.ListConnectionsTask, r *weirv1.ListConnectionsRequest,
) ([]*weirv1.Connection, uint32, error) {
	asked, done, err := m.tasks.ask(s, host, model.RoleHost, &weirv1.NodeTask{Task: &weirv1.NodeTask_Connections{Connections: task}})
	if err != nil {
		if s.Streams.At(host) && !m.tasks.has(host) && !isForwarded(ctx) {
			return m.connectionsElsewhere(ctx, s, host, task, r)
		}
		return nil, 0, err
	}
	defer done()
	answer, err := asked.next(ctx, time.After(connectionsAnswer))
	if err != nil {
		return nil, 0, err
	}
	found, next := answer.GetConnections(), answer.GetNextRow()
	if next > vnet.MaxConnectionRows || next > 0 && len(found) < int(task.GetCount()) && next < task.GetRow()+vnet.ConnectionsScan {
		return nil, 0, fmt.Errorf("host %s says no end of its list: it goes on at row %d after %d", host, next, task.GetRow())
	}
	return found, next, nil
}

// connectionsElsewhere asks the other managers: which one has a host's stream they do not tell each other.
func (m *Service) connectionsElsewhere(
	ctx context.Context, s *store.State, host string, task *weirv1.ListConnectionsTask, r *weirv1.ListConnectionsRequest,
) ([]*weirv1.Connection, uint32, error) {
	var said []string
	for _, name := range slices.Sorted(maps.Keys(s.Managers)) {
		if name == m.Name || s.Managers[name].Address == "" {
			continue
		}
		client, forwarded, failed := m.onBehalf(ctx, s.Managers[name].Address)
		if failed != nil {
			return nil, 0, failed
		}
		response, failed := client.ListConnections(forwarded, &weirv1.ListConnectionsRequest{
			Vip: r.GetVip(), Network: r.GetNetwork(), Host: host, PageSize: task.GetCount(), PageToken: connectionsToken{host, task.GetRow()}.String(),
		})
		if failed != nil { // it is away
			said = append(said, fmt.Sprintf("manager %s is not reached", name))
			continue
		}
		if len(response.GetUnanswered()) > 0 { // it is not the one, or the host does not answer there
			said = append(said, response.GetUnanswered()[0].GetReason())
			continue
		}
		next, failed := readConnectionsToken(response.GetNextPageToken())
		return response.GetConnections(), next.Row, failed
	}
	return nil, 0, fmt.Errorf("host %s is connected to another manager, and the others say: %s", host, strings.Join(said, "; "))
}
