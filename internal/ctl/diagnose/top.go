package diagnose

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/rpc"
)

// lookTime is the time between two requests to the manager. Muxes report every two seconds, so a shorter time shows
// nothing newer.
const lookTime = time.Second

// pollTime is that of weir top --once.
const pollTime = 100 * time.Millisecond

// ratesTime bounds the wait for the second report of every mux.
const ratesTime = 10 * time.Second

// TopCommand returns the command top.
func TopCommand(s *session.Session) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what muxes, VIPs, backends and verdicts do by the second, live",
		Long: `Show packets and bits a second: of muxes, of VIPs, and of verdicts, with the connections
of every backend; of more than 256 VIPs, of those with the most packets. Of VIPs that are
attached to virtual networks, show what their clients and backends do past the muxes, and
the round trips between both. Of endpoints with multipath, show what hosts know of their
connections and do with SYNs that join them. A rate is that between the last two reports
of a mux or host, which come every two seconds.

In a terminal it goes on until q is pressed; tab, or 1 to 6, chooses what is shown. Else,
or with --once, it shows everything once.`,
		Args:              session.Arguments(0, 0, ""),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := s.Connect()
			if err != nil {
				return err
			}
			defer client.Close()
			t := &top{client: client, gauge: newGauge()}
			out, ok := cmd.OutOrStdout().(*os.File)
			if ok && !once && term.IsTerminal(out.Fd()) && term.IsTerminal(os.Stdin.Fd()) {
				s.HoldProgress()
				return t.live(cmd.Context())
			}
			return t.writeOnce(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "show everything once, also in a terminal")
	return cmd
}

// top holds the rates.
type top struct {
	client *rpc.Client
	gauge  *gauge
	muxes  []*weirv1.Node
	hosts  []*weirv1.Node // if a VIP is attached to a network, or has multipath
	vips   []*weirv1.VIP
	more   bool // there are VIPs that are not shown
}

// topVIPs is the largest number of VIPs shown: a manager lists as many by their addresses.
const topVIPs = 256

// refresh requests the muxes, and the VIPs of the busiest addresses if not all are shown.
func (t *top) refresh(ctx context.Context, busiest []string) error {
	ctx, cancel := context.WithTimeout(ctx, session.CallTime)
	defer cancel()
	muxes, err := session.ListMuxes(ctx, t.client)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	vips, err := t.client.ListVIPs(ctx, &weirv1.ListVIPsRequest{PageSize: topVIPs})
	more := vips.GetNextPageToken() != ""
	if err == nil && more && len(busiest) > 0 {
		vips, err = t.client.ListVIPs(ctx, &weirv1.ListVIPsRequest{Addresses: busiest})
	}
	if err != nil {
		return fmt.Errorf("list vips: %w", err)
	}
	t.hosts = nil
	if anyAttached(vips.GetVips()) || anyMultipath(vips.GetVips()) {
		hosts, err := t.client.Nodes(ctx, model.RoleHost)
		if err != nil {
			return fmt.Errorf("list nodes: %w", err)
		}
		t.hosts = hosts
	}
	t.muxes, t.vips, t.more = muxes, vips.GetVips(), more
	t.gauge.observe(muxes)
	t.gauge.observeHosts(t.hosts)
	t.gauge.observeSubflows(t.hosts)
	return nil
}

// writeOnce writes all tables as soon as every mux has rates.
func (t *top) writeOnce(ctx context.Context, w io.Writer) error {
	ticker := time.NewTicker(pollTime)
	defer ticker.Stop()
	timeout := time.After(ratesTime)
	for {
		ready := t.gauge.ready()
		if err := t.refresh(ctx, t.gauge.busiest(topVIPs)); err != nil {
			return err
		}
		if t.gauge.ready() && (ready || !t.more) { // the VIPs are chosen by rates of the look before
			return t.write(w)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout:
			return fmt.Errorf("wait for the muxes' reports: not every one sent two within %s: "+
				"see weir get nodes --role mux", ratesTime)
		case <-ticker.C:
		}
	}
}

func (t *top) write(w io.Writer) error {
	for i, view := range topViews {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := view.table(t).Write(w); err != nil {
			return err
		}
	}
	t.writeMore(w)
	return nil
}

// writeMore says that not all VIPs are shown.
func (t *top) writeMore(w io.Writer) {
	if t.more {
		fmt.Fprintf(w, "\nVIPs and backends are those of the %d addresses with the most packets.\n", topVIPs)
	}
}

// topViews are the tables, in order.
var topViews = []struct {
	name  string
	table func(*top) *table.Table
}{
	{"muxes", (*top).muxTable},
	{"vips", (*top).vipTable},
	{"backends", (*top).backendTable},
	{"verdicts", (*top).verdictTable},
	{"networks", (*top).networkTable},
	{"multipath", (*top).multipathTable},
}

func (t *top) muxTable() *table.Table {
	var rows []rated
	for _, n := range t.muxes {
		forwarded := t.gauge.mux(n.GetName(), table.VerdictForward)
		passed := t.gauge.mux(n.GetName(), table.VerdictPass)
		dropped := t.gauge.mux(n.GetName(), table.VerdictDrop)
		state := "connected"
		if !n.GetStatus().GetConnected() {
			state = "disconnected"
		}
		rows = append(rows, rated{forwarded.Packets, []any{
			n.GetName(), state, perSecond(forwarded.Packets), perSecond(forwarded.Bits), perSecond(passed.Packets),
			perSecond(dropped.Packets),
		}})
	}
	return ratedTable(rows, "no muxes", "MUX", "STATE", "FORWARDED/S", "BITS/S", "PASSED/S", "DROPPED/S")
}

func (t *top) vipTable() *table.Table {
	var rows []rated
	for _, vip := range t.vips {
		for _, e := range vip.GetEndpoints() {
			name := table.EndpointName(&weirv1.EndpointKey{Vip: vip.GetAddress(), Protocol: e.GetProtocol(), Port: e.GetPort()})
			r := t.gauge.endpoint(name)
			var all table.Tally
			var sessions uint64
			for _, b := range e.GetBackends() {
				all.Add(b)
				sessions += b.GetStatus().GetSessions()
			}
			cells := []any{vip.GetName(), name, perSecond(r.Packets), perSecond(r.Bits), sessions, all, t.answers(name)}
			rows = append(rows, rated{r.Packets, cells})
		}
	}
	return ratedTable(rows, "no vips", "VIP", "ENDPOINT", "PACKETS/S", "BITS/S", "CONNECTIONS", "BACKENDS", "SYN COOKIES")
}

// answers is why muxes answer an endpoint's SYNs with cookies just now.
func (t *top) answers(endpoint string) string {
	why := "-"
	for _, n := range t.muxes {
		for _, p := range n.GetStatus().GetMux().GetPressures() {
			cause := model.OverloadCause(p.GetCause())
			if (cause == model.CauseSYNFlood || cause == backlog.Pressure) && table.EndpointName(p.GetEndpoint()) == endpoint {
				why = p.GetCause()
			}
		}
	}
	return why
}

func (t *top) backendTable() *table.Table {
	var rows []rated
	for _, vip := range t.vips {
		for _, e := range vip.GetEndpoints() {
			for _, b := range e.GetBackends() {
				s := b.GetStatus()
				share := "0 %"
				if n := s.GetBucketsTotal(); n > 0 {
					share = fmt.Sprintf("%.3g %%", 100*float64(s.GetBuckets())/float64(n))
				}
				rows = append(rows, rated{float64(s.GetSessions()), []any{
					vip.GetName(), e.GetProtocol() + "/" + table.PortName(e.GetPort()),
					table.HostPort(b.GetAddress(), b.GetPort()), b.GetHost(), s.GetHealth(), share,
					s.GetSessions(), s.GetSessionsWithoutCookie(),
				}})
			}
		}
	}
	return ratedTable(rows, "no backends", "VIP", "PORT", "BACKEND", "HOST", "HEALTH", "SHARE", "CONNECTIONS", "NO COOKIE")
}

func (t *top) verdictTable() *table.Table {
	var rows []rated
	for name, r := range t.gauge.verdicts() {
		if r.Packets > 0 {
			rows = append(rows, rated{r.Packets, []any{name, perSecond(r.Packets), perSecond(r.Bits)}})
		}
	}
	return ratedTable(rows, "no packets", "VERDICT", "PACKETS/S", "BITS/S")
}

// live shows one table at a time in a terminal until the user ends it.
func (t *top) live(ctx context.Context) error {
	_, err := tea.NewProgram(&screen{ctx: ctx, top: t, view: 1}, tea.WithContext(ctx)).Run()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil // a signal ended it
	}
	if err != nil {
		return fmt.Errorf("use the terminal: %w", err)
	}
	return nil
}

// screen is the terminal.
type screen struct {
	ctx           context.Context
	top           *top
	view          int // of topViews
	width, height int
	err           error // of the last look
}

type (
	looked struct { // a look came back
		muxes []*weirv1.Node
		vips  []*weirv1.VIP
		more  bool
		err   error
		hosts []*weirv1.Node
	}
	lookAgain struct{}
)

// Init asks for the first look.
func (s *screen) Init() tea.Cmd { return s.refresh() }

// refresh runs in a goroutine of its own: it returns a message and changes nothing.
func (s *screen) refresh() tea.Cmd {
	fresh, busiest := &top{client: s.top.client, gauge: newGauge()}, s.top.gauge.busiest(topVIPs)
	return func() tea.Msg {
		err := fresh.refresh(s.ctx, busiest)
		return looked{fresh.muxes, fresh.vips, fresh.more, err, fresh.hosts}
	}
}

// Update takes keys, sizes and looks.
func (s *screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = m.Width, m.Height
	case tea.KeyPressMsg:
		return s, s.press(m.String())
	case looked:
		if s.err = m.err; m.err == nil {
			s.top.muxes, s.top.vips, s.top.more = m.muxes, m.vips, m.more
			s.top.gauge.observe(m.muxes)
			s.top.gauge.observeHosts(m.hosts)
			s.top.gauge.observeSubflows(m.hosts)
		}
		return s, tea.Tick(lookTime, func(time.Time) tea.Msg { return lookAgain{} })
	case lookAgain:
		return s, s.refresh()
	}
	return s, nil
}

func (s *screen) press(key string) tea.Cmd {
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "tab", "right":
		s.view = (s.view + 1) % len(topViews)
	case "shift+tab", "left":
		s.view = (s.view + len(topViews) - 1) % len(topViews)
	case "1", "2", "3", "4", "5", "6":
		s.view = int(key[0] - '1')
	}
	return nil
}

// View draws the chosen table, cut to the terminal.
func (s *screen) View() tea.View {
	view := tea.NewView(s.draw())
	view.AltScreen = true
	return view
}

func (s *screen) draw() string {
	var out bytes.Buffer
	for i, v := range topViews {
		if i == s.view {
			fmt.Fprintf(&out, "[%d %s] ", i+1, v.name)
		} else {
			fmt.Fprintf(&out, " %d %s  ", i+1, v.name)
		}
	}
	fmt.Fprintln(&out, "  tab: next, q: quit")
	fmt.Fprintln(&out)
	switch {
	case s.err != nil:
		fmt.Fprintf(&out, "%v\n", s.err)
	case !s.top.gauge.ready():
		fmt.Fprintln(&out, "waiting for the muxes' reports")
	default:
		topViews[s.view].table(s.top).Write(&out) //nolint:errcheck // to memory
		s.top.writeMore(&out)
	}
	return cut(out.String(), s.width, s.height)
}

// cut keeps what fits a terminal of the size; 0 is not known yet.
func cut(text string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	for i, line := range lines {
		if runes := []rune(line); width > 0 && len(runes) > width {
			lines[i] = string(runes[:width])
		}
	}
	return strings.Join(lines, "\n")
}
