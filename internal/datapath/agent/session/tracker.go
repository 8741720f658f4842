package session

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// Tracker is of the clients' sessions with workloads: the tables new_sessions, sessions and their quotas.
type Tracker struct {
	objects *bpf.AgentObjects
	maxVIP  int                                               // bounds the sessions of a VIP; 0: what others leave does
	rules   func() map[model.HostBackendKey]model.HostBackend // of the host

	mu     *sync.Mutex                          // the data plane's: guards the below, and the rules
	key    *flowhash.Key                        // of the pool; nil: not known yet
	before map[netip.Addr]bpf.AgentSessionUsage // what the counts said at the last sweep
}

// New is of the tables of objects.
func New(objects *bpf.AgentObjects, mu *sync.Mutex, maxVIP int, rules func() map[model.HostBackendKey]model.HostBackend) *Tracker {
	return &Tracker{objects: objects, mu: mu, maxVIP: maxVIP, rules: rules}
}

// State is how far a session has got.
type State string

// The states. Those of TCP follow its handshake and its end.
const (
	StateSYN         State = "syn"         // not yet answered, or not yet acknowledged
	StateEstablished State = "established" // also while only one side has finished
	StateClosing     State = "closing"     // both sides have sent FIN
	StateReset       State = "reset"
	StateUDP         State = "udp"
)

// Session is a client's connection to a workload through a VIP.
type Session struct {
	Protocol model.Protocol
	Client   netip.AddrPort
	VIP      netip.AddrPort
	Backend  netip.AddrPort
	State    State
	Cookie   model.Slot    // that its timestamps carry; 0: none
	LastSeen time.Duration // on the clock of Now; may lag by 134 ms
}

// String is "TCP 198.51.100.7:40000 → 203.0.113.10:80 → 10.1.0.5:8080 established".
func (s Session) String() string {
	return fmt.Sprintf("%s %s → %s → %s %s", s.Protocol, s.Client, s.VIP, s.Backend, s.State)
}

// Timeouts say how long a session may be idle in each state.
type Timeouts struct {
	SYN, Established, Closing, Reset, UDP time.Duration
	SNATUDP, ICMP                         time.Duration // of workloads' own connections
}

// DefaultTimeouts are those of RFC 5382, RFC 4787 and RFC 5508, where they speak of them.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		SYN:         30 * time.Second,
		Established: 2*time.Hour + 4*time.Minute,
		Closing:     2 * time.Minute,
		Reset:       10 * time.Second,
		UDP:         2 * time.Minute,
		SNATUDP:     5 * time.Minute,
		ICMP:        time.Minute,
	}
}

func (t Timeouts) timeoutOf(s State) time.Duration {
	switch s {
	case StateSYN:
		return t.SYN
	case StateEstablished:
		return t.Established
	case StateClosing:
		return t.Closing
	case StateReset:
		return t.Reset
	case StateUDP:
		return t.UDP
	}
	return 0
}

// Now is the clock that sessions are timed by: monotonic since boot, without suspends.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // can't fail for this clock
	return time.Duration(ts.Nano())
}

// Sweep ends the sessions that have been idle for longer than their state allows at the time now,
// and counts the others. Of those that were reset, maybe by a forged segment, the result has the keepalive probes.
func (t *Tracker) Sweep(now time.Duration, timeouts Timeouts) (Report, error) {
	var result Report
	count := t.newSessionReport()
	vips, err := t.NewLedger()
	if err != nil {
		return result, err
	}
	for _, table := range t.Tables() {
		err := Each(table, func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
			if expired(key, row, now, timeouts) {
				// It may have lived again since the batch was read.
				err := table.Lookup(&key, &row)
				if err != nil || expired(key, row, now, timeouts) {
					result.Ended++
					return endSession(table, key, err)
				}
			}
			if mayBeReset(key, row, now, timeouts) {
				result.Doubtful = append(result.Doubtful, newProbe(key, row))
			}
			result.Live++
			session := fromSession(key, row)
			count.add(session, CarriesCookie(row) || row.Events&bpf.AgentSessionEventSESSION_JOINED != 0)
			count.addSYN(session, row, now)
			vips.add(table, session, row.Overflow != 0)
			return nil
		})
		if err != nil {
			return result, fmt.Errorf("sweep sessions: %w", err)
		}
	}
	if err := t.countElsewhere(count); err != nil {
		return result, err
	}
	result.Backends, result.SYNs = count.backends(), count.unanswered()
	result.VIPs, result.Tenants, err = t.ApplyQuotas(vips)
	return result, err
}

// countElsewhere counts subflows that others have, if there are draining buckets that they may need.
func (t *Tracker) countElsewhere(count sessionReport) error {
	if len(count.elsewhere) == 0 {
		return nil
	}
	if err := abi.EachBatched(t.objects.MptcpJoined, func(key bpf.AgentMultipathFlow, _ bpf.AgentMultipathJoined) {
		count.addElsewhere(bpf.FromAddrPort(key.Client, key.ClientPort), bpf.FromAddrPort(key.Vip, key.VipPort))
	}); err != nil {
		return fmt.Errorf("count subflows that others have: %w", err)
	}
	return nil
}

// Tables are where sessions are. One may move from the first to the second meanwhile, so the
// second comes later: it is seen twice rather than missed.
func (t *Tracker) Tables() []*ebpf.Map {
	return []*ebpf.Map{t.objects.NewSessions, t.objects.Sessions}
}

// endSession removes a session whose row was looked up with the result looked.
func endSession(table *ebpf.Map, key bpf.AgentSessionKey, looked error) error {
	err := looked
	if err == nil {
		err = table.Delete(&key)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// Sessions lists what is live.
func (t *Tracker) Sessions() ([]Session, error) {
	var all []Session
	for _, table := range t.Tables() {
		err := Each(table, func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
			all = append(all, fromSession(key, row))
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list sessions: %w", err)
		}
	}
	return all, nil
}

func expired(key bpf.AgentSessionKey, row bpf.AgentSession, now time.Duration, t Timeouts) bool {
	state := StateOf(key.Protocol, row.Events)
	bound := t.timeoutOf(state)
	if own := row.IdleTimeout; own != 0 && (state == StateEstablished || state == StateUDP) {
		bound = time.Duration(own) * time.Millisecond
	}
	if isDoubtful(key, row) {
		bound = min(bound, t.Closing)
	}
	return now-time.Duration(row.LastSeen) > bound
}

// isDoubtful says whether the session's client has reset it, or somebody as the client. It ends if its workload does
// not answer to that.
func isDoubtful(key bpf.AgentSessionKey, row bpf.AgentSession) bool {
	return row.Events&bpf.AgentSessionEventSESSION_CLIENT_RESET != 0 && StateOf(key.Protocol, row.Events) == StateEstablished
}

// mayBeReset says whether it is time to ask the workload of such a session.
func mayBeReset(key bpf.AgentSessionKey, row bpf.AgentSession, now time.Duration, t Timeouts) bool {
	return isDoubtful(key, row) && now-time.Duration(row.LastSeen) >= t.Reset
}

func fromSession(key bpf.AgentSessionKey, row bpf.AgentSession) Session {
	return Session{
		Protocol: model.Protocol(key.Protocol),
		Client:   bpf.FromAddrPort(key.Client, key.ClientPort),
		VIP:      bpf.FromAddrPort(row.Vip, row.VipPort),
		Backend:  bpf.FromAddrPort(key.Dip, key.DipPort),
		State:    StateOf(key.Protocol, row.Events),
		Cookie:   model.Slot(row.Cookie),
		LastSeen: time.Duration(row.LastSeen),
	}
}

// CarriesCookie says whether muxes find the session by its timestamps. Before the workload's answer
// the client's offer counts.
func CarriesCookie(row bpf.AgentSession) bool {
	if row.Events&bpf.AgentSessionEventSESSION_OWN_TICKS != 0 {
		return false
	}
	if row.Events&bpf.AgentSessionEventSESSION_WORKLOAD_ANSWER == 0 {
		return row.Cookie|row.Offer != 0
	}
	return row.Cookie != 0
}

// StateOf is how far a session with these events has got.
func StateOf(protocol uint8, events bpf.AgentSessionEvent) State {
	const (
		finished = bpf.AgentSessionEventSESSION_CLIENT_FIN | bpf.AgentSessionEventSESSION_WORKLOAD_FIN
		open     = bpf.AgentSessionEventSESSION_CLIENT_ACK | bpf.AgentSessionEventSESSION_WORKLOAD_ANSWER
	)
	switch {
	case model.Protocol(protocol) == model.UDP:
		return StateUDP
	case events&bpf.AgentSessionEventSESSION_RESET != 0:
		return StateReset
	case events&finished == finished:
		return StateClosing
	case events&open == open:
		return StateEstablished
	}
	return StateSYN
}

// Each reads in batches, which costs a fraction of reading one by one. A session that is
// made or ends meanwhile may be missed or seen twice.
func Each(table *ebpf.Map, visit func(bpf.AgentSessionKey, bpf.AgentSession) error) error {
	const batch = 4096
	keys, rows := make([]bpf.AgentSessionKey, batch), make([]bpf.AgentSession, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := table.BatchLookup(&cursor, keys, rows, nil)
		last := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !last {
			return err
		}
		for i := range n {
			if err := visit(keys[i], rows[i]); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}
