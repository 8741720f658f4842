package multipath

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	agentmultipath "github.com/weirlb/weir/internal/datapath/agent/multipath"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
)

// tables are the data plane's, as far as the controller sees them.
type tables struct {
	own     []agentmultipath.Own
	stale   []agentmultipath.Stale
	tunnels map[netip.Addr]bool
	noted   []agentmultipath.Own
}

func (t *tables) SweepMultipath() (agentmultipath.Report, error) {
	return agentmultipath.Report{Tokens: len(t.own), Endpoints: min(len(t.own), 1)}, nil
}
func (t *tables) OwnTokens() ([]agentmultipath.Own, error)     { return t.own, nil }
func (t *tables) StaleTokens() ([]agentmultipath.Stale, error) { return t.stale, nil }
func (t *tables) HasTunnel(tunnel netip.Addr) bool             { return t.tunnels[tunnel] }
func (t *tables) HolderOf(multipath.Name) (netip.Addr, error)  { return netip.Addr{}, nil }
func (t *tables) MultipathEvents() (agentmultipath.Events, error) {
	return agentmultipath.Events{Own: 1, Brought: 2, Asked: 3, HandedOn: 4, Unknown: 5, Segments: 6, Announcements: 7}, nil
}

func (t *tables) NoteName(own agentmultipath.Own) error {
	t.noted = append(t.noted, own)
	return nil
}

var (
	here, here6, first, second, third = address("10.1.0.1"), address("fd01::1"), address("10.1.0.2"), address("fd01::3"), address("10.1.0.4")
	client                            = netip.MustParseAddrPort("198.51.100.7:40000")
	endpoint                          = model.EndpointKey{VIP: address("203.0.113.10"), Protocol: model.TCP, Port: 80}
)

func address(s string) netip.Addr { return netip.MustParseAddr(s) }

func ownToken(token multipath.Token, homes ...netip.Addr) agentmultipath.Own {
	own := agentmultipath.Own{Name: multipath.Name{Endpoint: endpoint, Token: token}, Tunnel: here, Client: client}
	copy(own.Homes[:], homes)
	return own
}

// sent is a datagram.
type sent struct {
	from, to netip.Addr
	message  string
}

// controller is one whose messages are kept.
func controller(t *tables) (*Controller, *[]sent) {
	all := &[]sent{}
	return New(Config{
		Log: slog.New(slog.DiscardHandler), Datapath: t, Addresses: []netip.Addr{address("10.1.0.9"), address("fd01::9")},
		Send: func(from, to netip.Addr, datagram []byte) error {
			*all = append(*all, sent{from, to, string(datagram)})
			return nil
		},
	}), all
}

// TestTokensAreToldWhenTheyAreDue follows a token: a second after it began, each five minutes, at once to new homes, and no more
// when its workload has moved.
func TestTokensAreToldWhenTheyAreDue(t *testing.T) {
	rows := &tables{tunnels: map[netip.Addr]bool{here: true}, own: []agentmultipath.Own{ownToken(7, first, second)}}
	c, all := controller(rows)
	tell := func(token multipath.Token, to netip.Addr, step multipath.Step) sent {
		from := here
		if to.Is6() {
			from = address("fd01::9") // the host's, as the tunnel is of another family
		}
		return sent{from, to, string(multipath.Tell(multipath.Name{Endpoint: endpoint, Token: token}, here, client, step))}
	}
	both := []sent{tell(7, first, multipath.StepHome), tell(7, second, multipath.StepHomeNext)}
	began := time.Unix(1_000_000, 0)
	for _, s := range []struct {
		what  string
		after time.Duration
		do    func()
		want  []sent
	}{
		{"when it began", 0, nil, nil},
		{"a second later", time.Second, nil, both},
		{"then", 2 * time.Second, nil, nil},
		{"before five minutes", 5 * time.Minute, nil, nil},
		{"after five minutes", 5*time.Minute + time.Second, nil, both},
		{"with another home", 6 * time.Minute, func() { rows.own = []agentmultipath.Own{ownToken(7, third, first)} }, []sent{tell(7, third, multipath.StepHome), tell(7, first, multipath.StepHomeNext)}},
		{"this host as a home", 7 * time.Minute, func() { rows.own = []agentmultipath.Own{ownToken(7, here, first)} }, []sent{tell(7, first, multipath.StepHomeNext)}},
		{"when its workload has moved", 13 * time.Minute, func() { delete(rows.tunnels, here) }, nil},
		{"when it is back", 14 * time.Minute, func() { rows.tunnels[here] = true }, []sent{tell(7, first, multipath.StepHomeNext)}},
		{"when it has ended", 20 * time.Minute, func() { rows.own = nil }, nil},
	} {
		if s.do != nil {
			s.do()
		}
		*all = nil
		if err := c.tell(began.Add(s.after)); err != nil || !slices.Equal(*all, s.want) {
			t.Errorf("%s: %v, %v, not %v", s.what, err, *all, s.want)
		}
	}
	if len(rows.noted) != 2 || rows.noted[0].Name.Token != 7 || len(c.told) != 0 {
		t.Errorf("noted are %v, remembered %v", rows.noted, c.told)
	}
}

// TestTellingIsPaced has no more sent at a time than may be, and all in the end.
func TestTellingIsPaced(t *testing.T) {
	rows := &tables{tunnels: map[netip.Addr]bool{here: true}}
	for i := range maxTold {
		rows.own = append(rows.own, ownToken(multipath.Token(i+1), first, third))
	}
	c, all := controller(rows)
	began := time.Unix(1_000_000, 0)
	for i, want := range []int{0, maxTold, maxTold, 0} {
		*all = nil
		if err := c.tell(began.Add(time.Duration(i) * time.Second)); err != nil || len(*all) != want {
			t.Errorf("second %d: %d messages, %v", i, len(*all), err)
		}
	}
}

// TestStaleTokensAreAskedAbout has a home ask the tunnel of a token that nobody refreshes, unless it is here: then the other home
// asks.
func TestStaleTokensAreAskedAbout(t *testing.T) {
	name := multipath.Name{Endpoint: endpoint, Token: 7}
	rows := &tables{tunnels: map[netip.Addr]bool{here: true, here6: true}, stale: []agentmultipath.Stale{
		{Name: name, Tunnel: first, From: here, Client: client}, {Name: name, Tunnel: here6, From: here, Client: client}, {Name: name, Tunnel: second, From: here, Client: client},
	}}
	c, all := controller(rows)
	question := string(multipath.Tell(name, here, client, multipath.StepHolder))
	if err := c.ask(); err != nil || !slices.Equal(*all, []sent{{here, first, question}, {address("fd01::9"), second, question}}) {
		t.Errorf("%v, %v", err, *all)
	}
}

// TestAMessageThatFails is told, once a look, and the next token's is sent.
func TestAMessageThatFails(t *testing.T) {
	rows := &tables{tunnels: map[netip.Addr]bool{here: true}, own: []agentmultipath.Own{ownToken(7, first), ownToken(8, first), ownToken(9, first)}}
	c, _ := controller(rows)
	failure, calls := errors.New("no route"), 0
	c.c.Send = func(_, _ netip.Addr, _ []byte) error {
		if calls++; calls == 3 {
			return nil
		}
		return fmt.Errorf("try %d: %w", calls, failure)
	}
	began := time.Unix(1_000_000, 0)
	if err := c.tell(began); err != nil {
		t.Fatal(err)
	}
	if err := c.tell(began.Add(time.Second)); !errors.Is(err, failure) || err.Error() != "try 1: no route" || calls != 3 || c.sent != 1 || c.failed != 2 {
		t.Errorf("%v after %d calls, %d sent, %d failed", err, calls, c.sent, c.failed)
	}
}

// The manager is told nothing by a host whose endpoints have no multipath.
func TestReports(t *testing.T) {
	c, _ := controller(&tables{})
	c.sweep()
	if got, err := c.Report(); got != nil || err != nil {
		t.Errorf("without endpoints: %v, %v", got, err)
	}
	c, _ = controller(&tables{own: []agentmultipath.Own{ownToken(1), ownToken(2)}})
	c.sweep()
	got, err := c.Report()
	if err != nil || got.GetConnections() != 2 || got.GetOwn() != 1 || got.GetBrought() != 2 || got.GetAsked() != 3 || got.GetHandedOn() != 4 ||
		got.GetUnknown() != 5 || got.GetSegments() != 6 || got.GetAnnouncements() != 7 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := (*Controller)(nil).Report(); got != nil || err != nil {
		t.Errorf("without a controller: %v, %v", got, err)
	}
}
