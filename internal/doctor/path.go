package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// Bounds of the proof of a path.
const (
	probesPerMux = 64 // connections per mux of the pool, at most, until each has had an answered one
	probeTime    = 2 * time.Second
	probePause   = 50 * time.Millisecond
	attachTime   = 5 * time.Second // for muxes to begin their captures
	captureTime  = 2 * time.Minute
)

// Path opens TCP connections from this machine to an endpoint, one after the other, while each mux captures their
// packets, until one has come through each mux and was answered. The routers choose the mux by the connection's
// source port, as for any client. A finding of ok proves: the routers send to this mux, the mux sends to a backend's
// host, the host delivers, the backend answers, and the answer finds its way here. source is the address that muxes
// see of this machine; left out, the one that it sends from.
func Path(ctx context.Context, client *rpc.Client, endpoint netip.AddrPort, source netip.Addr) ([]Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, captureTime)
	defer cancel()
	muxes, err := client.Nodes(ctx, model.RoleMux)
	if err != nil {
		return nil, err
	}
	p := &prober{seen: map[string]map[uint16]string{}, ended: map[string]error{}, answers: map[uint16]time.Duration{}}
	var away []Finding
	for _, n := range muxes {
		switch {
		case n.GetStatus().GetConnected():
			p.muxes = append(p.muxes, n.GetName())
		default:
			away = append(away, named("path", bad(Warn, "weir describe node "+n.GetName(), "mux %s is not connected: what it does can't be seen", n.GetName()))...)
		}
	}
	if len(p.muxes) == 0 {
		return append(away, named("path", bad(Fail, "start weir-mux on the muxes", "no mux is connected"))...), nil
	}
	if !source.IsValid() {
		if source, err = sourceTo(endpoint); err != nil {
			return nil, err
		}
	}
	if err := p.run(ctx, client, endpoint, source); err != nil {
		return nil, err
	}
	return append(p.findings(endpoint, source), away...), nil
}

func named(check string, found []Finding) []Finding {
	for i := range found {
		found[i].Check = check
	}
	return found
}

// sourceTo is the address that this machine sends from.
func sourceTo(endpoint netip.AddrPort) (netip.Addr, error) {
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(endpoint))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to %s: %w", endpoint, err)
	}
	defer socket.Close()
	return socket.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// prober is a running proof.
type prober struct {
	muxes []string

	mu      sync.Mutex
	seen    map[string]map[uint16]string // by mux and source port: the verdict
	ended   map[string]error             // captures that ended by themselves
	answers map[uint16]time.Duration     // by source port: how long the handshake took
	lost    int                          // connections without an answer
}

func (p *prober) run(ctx context.Context, client *rpc.Client, endpoint netip.AddrPort, source netip.Addr) error {
	ctx, stop := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	for _, mux := range p.muxes {
		group.Go(func() error {
			err := client.EachCapture(ctx, &weirv1.CaptureRequest{
				Mux: mux, Count: uint32(4 * probesPerMux * len(p.muxes)), SnapLength: 128, Duration: durationpb.New(captureTime),
				Filter: &weirv1.CaptureFilter{Client: source.String(), Vip: endpoint.Addr().String(), Port: uint32(endpoint.Port()), Protocol: "TCP"},
			}, func(r *weirv1.CaptureResponse) error {
				p.copies(mux, r.GetPackets())
				return nil
			})
			if connect.CodeOf(err) == connect.CodePermissionDenied {
				return fmt.Errorf("copy packets on mux %s: %w; of all tenants: an admin makes such a user by weir user create NAME --role operator --write FILE, and --config FILE names it",
					mux, err)
			}
			if ctx.Err() == nil {
				p.mu.Lock()
				p.ended[mux] = err
				p.mu.Unlock()
			}
			return nil
		})
	}
	group.Go(func() error {
		defer stop()
		return p.probe(ctx, endpoint)
	})
	return group.Wait()
}

// copies records packets that a mux captured.
func (p *prober) copies(mux string, packets []*weirv1.CapturedPacket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen[mux] == nil {
		p.seen[mux] = map[uint16]string{}
	}
	for _, packet := range packets {
		if packet.GetDirection() != "in" {
			continue
		}
		decoded := gopacket.NewPacket(packet.GetFrame(), layers.LayerTypeEthernet, gopacket.NoCopy)
		if tcp, ok := decoded.Layer(layers.LayerTypeTCP).(*layers.TCP); ok {
			p.seen[mux][uint16(tcp.SrcPort)] = packet.GetVerdict()
		}
	}
}

// probe connects until each mux has had an answered connection, or the bound is reached. The captures may miss the first
// connections, which does no harm.
func (p *prober) probe(ctx context.Context, endpoint netip.AddrPort) error {
	begin := time.Now()
	for n := 0; n < probesPerMux*len(p.muxes) || time.Since(begin) < attachTime; n++ {
		at := time.Now()
		connection, err := (&net.Dialer{Timeout: probeTime}).DialContext(ctx, "tcp", endpoint.String())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			port := connection.LocalAddr().(*net.TCPAddr).AddrPort().Port()
			p.mu.Lock()
			p.answers[port] = time.Since(at)
			p.mu.Unlock()
			connection.Close()
		} else {
			p.mu.Lock()
			p.lost++
			p.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(probePause):
		}
		if p.confirmed() || n >= 8*len(p.muxes) && p.hopeless() {
			return nil
		}
	}
	return nil
}

// confirmed says whether each mux has had an answered connection.
func (p *prober) confirmed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(p.muxes, func(mux string) bool { _, answered := p.through(mux); return len(answered) == 0 })
}

// hopeless says whether no connection was answered so far, so that more would show nothing new.
func (p *prober) hopeless() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answers) == 0
}

// through lists the connections that a mux captured: the number without an answer, by verdict, and the handshake times
// of the others.
func (p *prober) through(mux string) (silent map[string]int, answered []time.Duration) {
	silent = map[string]int{}
	for port, verdict := range p.seen[mux] {
		if took, ok := p.answers[port]; ok {
			answered = append(answered, took)
		} else {
			silent[verdict]++
		}
	}
	return silent, answered
}

func (p *prober) findings(endpoint netip.AddrPort, source netip.Addr) []Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []Finding
	for _, mux := range p.muxes {
		silent, answered := p.through(mux)
		var verdicts []string
		count := 0
		for verdict, n := range silent {
			verdicts, count = append(verdicts, verdict), count+n
		}
		slices.Sort(verdicts)
		switch ended := p.ended[mux]; {
		case len(answered) > 0 && count == 0:
			found = append(found, ok("%d connections to %s went through mux %s and were answered, the quickest in %s",
				len(answered), endpoint, mux, slices.Min(answered).Round(time.Microsecond))...)
		case len(answered) > 0:
			found = append(found, bad(Warn, "weir describe vip, and ask again", "%d connections through mux %s were answered, and %d were not (%s)",
				len(answered), mux, count, strings.Join(verdicts, ", "))...)
		case count > 0:
			found = append(found, bad(Fail, nextAfter(verdicts, mux, endpoint, source),
				"%d connections reached mux %s (%s), and no answer came back", count, mux, strings.Join(verdicts, ", "))...)
		case ended != nil && !errors.Is(ended, context.Canceled):
			found = append(found, bad(Fail, nextWithoutCopies(ended), "mux %s copies nothing, so nothing is proven of it: %v", mux, ended)...)
		default:
			found = append(found, bad(Fail, fmt.Sprintf("look at the routers: have they a route to %s by this mux (weir describe node %s: BGP established, "+
				"its family not missing)? None: the import policy refuses it (FRR: (Policy) in show bgp summary), or the family is not activated. "+
				"Several muxes: maximum-paths, and a hash of ports. If this machine is behind a NAT, name its outer address with --source", endpoint.Addr(), mux),
				"of %d connections from %s to %s none reached mux %s", len(p.answers)+p.lost, source, endpoint, mux)...)
		}
	}
	return named("path", found)
}

// nextAfter is the remedy for packets that a mux got and that were not answered: it forwarded them, or did not.
func nextAfter(verdicts []string, mux string, endpoint netip.AddrPort, source netip.Addr) string {
	if slices.ContainsFunc(verdicts, func(v string) bool { return strings.HasPrefix(v, "forward_") }) {
		return "look at the hosts: weir describe vip; weir doctor host there"
	}
	return fmt.Sprintf("the mux itself sends them to no host; it says why: weir explain --mux %s %s %s",
		mux, netip.AddrPortFrom(source, exampleSource), endpoint)
}

// exampleSource is the port of a client in an example.
const exampleSource = 40000

// nextWithoutCopies is the remedy for a mux that captures nothing.
func nextWithoutCopies(err error) string {
	switch {
	case connect.CodeOf(err) == connect.CodeResourceExhausted, strings.Contains(err.Error(), "another capture is under way"):
		return "end the other capture, which weir audit names, and ask again"
	case connect.CodeOf(err) == connect.CodeFailedPrecondition, connect.CodeOf(err) == connect.CodeUnavailable:
		return "wait until it is connected: weir get nodes"
	}
	return "ask again"
}
