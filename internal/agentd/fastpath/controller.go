package fastpath

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	agentfastpath "github.com/weirlb/weir/internal/datapath/agent/fastpath"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
)

const (
	// sweepInterval is the time between two sweeps of Fastpath connections.
	sweepInterval = time.Second
	// silence bounds how long a peer may be silent while packets are sent to it.
	silence = 2 * time.Second
	// acceptTime bounds the time until a peer's first packet.
	acceptTime = 30 * time.Second
	// After a peer was silent the connection stays with the muxes for so long, and twice as long each time.
	barTime, barMost = 5 * time.Second, 5 * time.Minute
	// maxBarred bounds the number of such connections that are remembered.
	maxBarred = 1 << 14
	// listTime bounds the age of a list of Fastpath connections by which one is ended.
	listTime = 200 * time.Millisecond
	// Bound of messages in one window, as each costs the check of a MAC.
	windowMessages, windowTime = 2048, 100 * time.Millisecond
)

// Datapath are the Fastpath connections of the data plane.
type Datapath interface {
	SetFastpath(agentfastpath.Entry) (state agentfastpath.State, changed bool, err error)
	EndFastpath(agentfastpath.Entry) error
	FastpathConnections() ([]agentfastpath.Entry, error)
}

// bar keeps a connection at the muxes for a time.
type bar struct {
	until time.Time
	wait  time.Duration
}

// unanswered is a connection whose peer has sent nothing since a packet was sent to it.
type unanswered struct {
	since time.Time     // when that was first seen
	sent  time.Duration // when the last packet had been sent then
	heard time.Duration // when the peer's last one had come
}

// Controller runs Fastpath: it moves connections past the muxes, and back.
type Controller struct {
	log      *slog.Logger
	datapath Datapath
	send     func(from, to netip.Addr, datagram []byte) error
	now      func() time.Time

	mu       sync.Mutex
	keys     []model.FastpathKey
	served   map[model.EndpointKey]model.HostBackend // one of each endpoint with a fastpath; nil: not told yet
	tunnels  map[model.HostBackendKey]bool           // all of them
	guard    fastpath.Guard
	barred   map[fastpath.Connection]bar
	quiet    map[fastpath.Connection]unanswered
	listed   map[fastpath.Connection]agentfastpath.Entry // by what this end sends
	listedAt time.Time
	strays   int // answered since straysAt
	straysAt time.Time
	counts   map[string]uint64           // messages by result
	states   map[agentfastpath.State]int // connections at the last sweep
}

// results are all results, for the metrics.
var results = []string{
	"accepted", "ready", "gone", "malformed", "forged", "key", "expired", "replayed", "wrong_source", "unknown", "forbidden",
	"unnamed", "local", "full", "barred", "stray", "stray_unanswered", "left", "silent", "ended", "failed",
}

// straysPerSecond bounds the answers to strays: their source may be forged, and an answer is three times as long.
const straysPerSecond = 500

// New returns a Controller of the connections in datapath. send sends a datagram to a peer.
func New(log *slog.Logger, datapath Datapath, send func(from, to netip.Addr, datagram []byte) error) *Controller {
	d := &Controller{
		log: log, datapath: datapath, send: send, now: time.Now,
		barred: map[fastpath.Connection]bar{}, quiet: map[fastpath.Connection]unanswered{}, counts: map[string]uint64{}, states: map[agentfastpath.State]int{},
	}
	for _, result := range results {
		d.counts[result] = 0
	}
	return d
}

// SetKeys sets the valid keys, the one that signs first.
func (d *Controller) SetKeys(keys []model.FastpathKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys = keys
}

// SetServed sets the backends of this host.
func (d *Controller) SetServed(backends []model.HostBackend) {
	served, tunnels := map[model.EndpointKey]model.HostBackend{}, map[model.HostBackendKey]bool{}
	for _, b := range backends {
		if b.Fastpath {
			served[b.Endpoint] = b
			tunnels[b.Key()] = true
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served, d.tunnels = served, tunnels
}

// serves says whether the connection is of a backend of this host.
func (d *Controller) serves(w agentfastpath.Entry) bool {
	server := w.Connection.Server
	for _, port := range []uint16{server.Port(), model.AllPorts} {
		key := model.EndpointKey{VIP: server.Addr(), Protocol: w.Connection.Protocol, Port: port}
		if d.tunnels[model.HostBackendKey{Endpoint: key, Tunnel: w.Own}] {
			return true
		}
	}
	return false
}

// mayLeave says whether the connection may use Fastpath by its VIP's policy. The server's end decides: a connection
// that a workload here has opened may. VIPs without Fastpath are known to the programs.
func (d *Controller) mayLeave(w agentfastpath.Entry) bool {
	server := w.Connection.Server
	for _, port := range []uint16{server.Port(), model.AllPorts} {
		key := model.EndpointKey{VIP: server.Addr(), Protocol: w.Connection.Protocol, Port: port}
		if b, there := d.served[key]; there && !w.Client {
			return b.MayLeave(w.Connection.Client.Addr())
		}
	}
	return true
}

// handleControl handles a packet that the programs handed to user space.
func (d *Controller) handleControl(c agentfastpath.ControlMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	result := ""
	if c.Message == nil {
		result = d.rejectStray(c)
	} else {
		result = d.handleMessage(c)
	}
	d.counts[result]++
}

// handleMessage acts on a sealed message and returns its result, for the metrics.
func (d *Controller) handleMessage(c agentfastpath.ControlMessage) string {
	now := d.now()
	m, err := d.guard.Open(c.Message, d.keys, now)
	switch {
	case errors.Is(err, fastpath.ErrForged):
		return "forged"
	case errors.Is(err, fastpath.ErrKey):
		return "key"
	case errors.Is(err, fastpath.ErrExpired):
		return "expired"
	case errors.Is(err, fastpath.ErrReplayed):
		return "replayed"
	case err != nil:
		return "malformed"
	case m.Own() != c.Destination, m.Kind == fastpath.Redirect && !c.FromMux, m.Kind != fastpath.Redirect && m.Peer() != c.Source:
		return "wrong_source" // all hosts have the keys: each one speaks for its own tunnels
	}
	w := agentfastpath.Entry{Connection: m.Connection, Client: m.ToClient, Own: m.Own(), Peer: m.Peer()}
	if m.Kind == fastpath.Gone {
		return d.handleGone(w)
	}
	if now.Before(d.barred[w.Connection].until) {
		return "barred"
	}
	if !d.mayLeave(w) {
		return "forbidden"
	}
	w.State = agentfastpath.Accept
	if m.Kind == fastpath.Ready {
		w.State = agentfastpath.Send
	}
	state, _, err := d.datapath.SetFastpath(w)
	if err != nil {
		return d.refusal(err)
	}
	if m.Kind == fastpath.Redirect && state == agentfastpath.Accept || m.Want {
		return d.sendReady(w, state != agentfastpath.Send, now)
	}
	return "accepted"
}

// refusal is the result for an error of the data plane.
func (d *Controller) refusal(err error) string {
	switch {
	case errors.Is(err, agentfastpath.ErrUnknown):
		return "unknown"
	case errors.Is(err, agentfastpath.ErrForbidden):
		return "forbidden"
	case errors.Is(err, agentfastpath.ErrLocal):
		return "local"
	case errors.Is(err, agentfastpath.ErrUnnamed):
		return "unnamed"
	case errors.Is(err, agentfastpath.ErrFull):
		return "full"
	}
	d.log.Warn("can't have a connection leave the muxes", "err", err)
	return "failed"
}

// sendReady tells the peer that this end accepts its packets; want asks for the peer's own READY.
func (d *Controller) sendReady(w agentfastpath.Entry, want bool, now time.Time) string {
	m := fastpath.Message{Kind: fastpath.Ready, Connection: w.Connection, Want: want, ToClient: !w.Client}
	m.Client, m.Server = w.Peer, w.Own
	if w.Client {
		m.Client, m.Server = w.Own, w.Peer
	}
	return d.sendMessage(m, now, "ready")
}

// sendMessage seals a message and sends it from tunnel to tunnel. The peer asks again if it is lost.
func (d *Controller) sendMessage(m fastpath.Message, now time.Time, result string) string {
	if len(d.keys) == 0 {
		return "key"
	}
	m.Nonce, m.Expires = rand.Uint64(), now.Add(fastpath.Lifetime)
	if err := d.send(m.Peer(), m.Own(), fastpath.Datagram(fastpath.Seal(m, d.keys[0]))); err != nil {
		d.log.Debug("can't send to a host", "peer", m.Own().String(), "err", err)
		return "failed"
	}
	return result
}

// handleGone returns a connection to the muxes whose peer does not know it. The message tells the packet that came
// there, so its client is this end, whoever opened the connection.
func (d *Controller) handleGone(w agentfastpath.Entry) string {
	if err := d.listConnections(); err != nil {
		return d.refusal(err)
	}
	found, there := d.listed[w.Connection]
	if !there || found.Own != w.Own || found.Peer != w.Peer {
		return "unknown"
	}
	delete(d.listed, w.Connection)
	return d.endConnection(found, "gone")
}

// listConnections reads the Fastpath connections, unless that was done just now: many may return at once.
func (d *Controller) listConnections() error {
	now := d.now()
	if d.listed != nil && now.Sub(d.listedAt) < listTime {
		return nil
	}
	all, err := d.datapath.FastpathConnections()
	if err != nil {
		return err
	}
	d.listed, d.listedAt = make(map[fastpath.Connection]agentfastpath.Entry, len(all)), now
	for _, w := range all {
		d.listed[sent(w)] = w
	}
	return nil
}

// sent is the connection as what this end sends tells it: its sender is the client.
func sent(w agentfastpath.Entry) fastpath.Connection {
	c := w.Connection
	if !w.Client {
		c.Client, c.Server = c.Server, c.Client
	}
	return c
}

// sendGone tells the peer that the backend has left this host, so that its next packet goes by the muxes.
func (d *Controller) sendGone(w agentfastpath.Entry, now time.Time) string {
	m := fastpath.Message{Kind: fastpath.Gone, Connection: w.Connection, ToClient: true, Client: w.Peer, Server: w.Own}
	return d.sendMessage(m, now, "left")
}

// rejectStray tells a host that it must not send a connection past the muxes.
func (d *Controller) rejectStray(c agentfastpath.ControlMessage) string {
	if now := d.now(); now.Sub(d.straysAt) >= time.Second {
		d.strays, d.straysAt = 0, now
	}
	if d.strays == straysPerSecond {
		return "stray_unanswered"
	}
	d.strays++
	m := fastpath.Message{Kind: fastpath.Gone, Connection: c.Stray, ToClient: true, Client: c.Source, Server: c.Destination}
	return d.sendMessage(m, d.now(), "stray")
}

// endConnection returns a connection to the muxes.
func (d *Controller) endConnection(w agentfastpath.Entry, why string) string {
	if err := d.datapath.EndFastpath(w); err != nil {
		return d.refusal(err)
	}
	return why
}

// sweep returns connections to the muxes that have ended, or whose peer is silent while packets go to it.
func (d *Controller) sweep() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.datapath.FastpathConnections()
	if err != nil {
		return err
	}
	now := d.now()
	clear(d.states)
	quiet := d.quiet
	d.quiet = make(map[fastpath.Connection]unanswered, len(quiet))
	for _, w := range all {
		if why := d.over(w, quiet[w.Connection], now); why != "" {
			d.counts[d.endConnection(w, why)]++
			if !w.Client && d.tunnels != nil && !d.serves(w) {
				d.counts[d.sendGone(w, now)]++
			}
			continue
		}
		d.states[w.State]++
		if w.State == agentfastpath.Accept && w.Heard > w.Sent {
			// The peer sends here already, so no mux sees what would make it tell again. Its word was lost.
			d.counts[d.sendReady(w, true, now)]++
		}
	}
	maps.DeleteFunc(d.barred, func(_ fastpath.Connection, b bar) bool { return now.After(b.until.Add(barMost)) })
	return nil
}

// over says why a connection can't go past the muxes any more; empty: it can. quiet is what the last sweep
// noted of it.
func (d *Controller) over(w agentfastpath.Entry, quiet unanswered, now time.Time) string {
	if _, _, err := d.datapath.SetFastpath(w); errors.Is(err, agentfastpath.ErrUnknown) || errors.Is(err, agentfastpath.ErrForbidden) {
		return "ended"
	}
	if !d.mayLeave(w) {
		return "forbidden"
	}
	if w.State == agentfastpath.Accept && session.Now()-w.Heard > acceptTime {
		return "ended"
	}
	if w.State != agentfastpath.Send || w.Sent <= w.Heard {
		return ""
	}
	if quiet.since.IsZero() || quiet.heard != w.Heard {
		quiet = unanswered{since: now, sent: w.Sent, heard: w.Heard}
	}
	d.quiet[w.Connection] = quiet
	// One packet without an answer is the end of a talk; only who goes on to send waits for something.
	if now.Sub(quiet.since) < silence || w.Sent == quiet.sent {
		return ""
	}
	if len(d.barred) < maxBarred {
		wait := min(max(2*d.barred[w.Connection].wait, barTime), barMost)
		d.barred[w.Connection] = bar{until: now.Add(wait), wait: wait}
	}
	return "silent"
}

// Run looks after the connections until ctx ends. read waits for what the programs hand over, and fails
// with fs.ErrClosed once closed was called.
func (d *Controller) Run(ctx context.Context, read func() (agentfastpath.ControlMessage, error), closed func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- d.serve(ctx, read) }()
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return errors.Join(closed(), <-ended)
		case err := <-ended:
			return errors.Join(err, closed())
		case <-ticker.C:
		}
		if err := d.sweep(); err != nil {
			d.log.Warn("can't look at connections that left the muxes", "err", err)
		}
	}
}

// serve takes what comes, and no more than so much at a time.
func (d *Controller) serve(ctx context.Context, read func() (agentfastpath.ControlMessage, error)) error {
	window, taken := d.now(), 0
	for {
		control, err := read()
		if errors.Is(err, fs.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		now := d.now()
		if now.Sub(window) > windowTime {
			window, taken = now, 0
		}
		if taken++; taken > windowMessages {
			select {
			case <-ctx.Done():
			case <-time.After(windowTime):
			}
		}
		d.handleControl(control)
	}
}

// told is what was counted, by result, and the connections by state.
func (d *Controller) told() (counts map[string]uint64, states map[agentfastpath.State]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counts), maps.Clone(d.states)
}

// Sample tells of the connections that have left the muxes, where any may.
func (d *Controller) Sample(to *telemetry.Sample) {
	if d == nil {
		return
	}
	counts, states := d.told()
	for result, n := range counts {
		telemetry.Put(to, "weir_agent_fastpath_messages_total", n, result)
	}
	for _, state := range []agentfastpath.State{agentfastpath.Accept, agentfastpath.Send} {
		telemetry.Put(to, "weir_agent_fastpath_connections", states[state], state.String())
	}
}
