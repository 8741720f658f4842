package endpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// SYNState is how a mux treats the SYNs of an endpoint whose SYN cookies are automatic.
type SYNState struct {
	Answers bool // all SYNs, with cookies
	Watches bool // samples whether handshakes are completed
	Tries   bool // answers the SYNs of sampled handshakes
}

// SYNCounter counts an endpoint's SYNs since it was made.
type SYNCounter struct {
	SYNs     uint64
	Answered uint64 // with cookies
	// Tried and Completed count sampled handshakes: those that began, and those whose ACK came, with the right
	// cookie if the mux answered the SYN.
	Tried, Completed uint64
}

const synFlags = bpf.MuxEndpointFlagENDPOINT_SYN_COOKIES | bpf.MuxEndpointFlagENDPOINT_SYN_COUNTED | bpf.MuxEndpointFlagENDPOINT_SYN_SAMPLED

// synFlags are those of an endpoint that is to be as e says. What this mux, or the process before, decided of
// it stays so. Without secrets no SYN is answered.
func (t *Table) synFlags(e model.MuxEndpoint) bpf.MuxEndpointFlag {
	var state SYNState
	if live := t.Live[e.Key]; live != nil && (live.Mode == model.SYNCookiesAuto || live.Mode == "") {
		state = synStateOf(live.Row.Flags)
	}
	if !t.hasSecrets {
		return 0
	}
	return synFlagsOf(e.SYNCookies, state)
}

// synFlagsOf are the flags of an endpoint that is in the mode, while state is what the mux decided.
func synFlagsOf(mode model.SYNCookies, state SYNState) (flags bpf.MuxEndpointFlag) {
	switch {
	case mode == model.SYNCookiesAlways, mode == model.SYNCookiesAuto && state.Answers:
		flags = bpf.MuxEndpointFlagENDPOINT_SYN_COOKIES
	}
	if mode == model.SYNCookiesAuto && state.Watches {
		flags |= bpf.MuxEndpointFlagENDPOINT_SYN_COUNTED
		if state.Tries {
			flags |= bpf.MuxEndpointFlagENDPOINT_SYN_SAMPLED
		}
	}
	return flags
}

func synStateOf(flags bpf.MuxEndpointFlag) SYNState {
	return SYNState{
		Answers: flags&bpf.MuxEndpointFlagENDPOINT_SYN_COOKIES != 0,
		Watches: flags&bpf.MuxEndpointFlagENDPOINT_SYN_COUNTED != 0,
		Tries:   flags&bpf.MuxEndpointFlagENDPOINT_SYN_SAMPLED != 0,
	}
}

// SYNs are the endpoints' SYNs.
type SYNs struct{ *Table }

// SetState changes how the SYNs of an endpoint with automatic SYN cookies are treated, until it is changed
// again or the endpoint goes. Without secrets no SYN is answered.
func (t SYNs) SetState(key model.EndpointKey, state SYNState) error {
	live := t.Live[key]
	if live == nil || live.Mode != model.SYNCookiesAuto || !t.hasSecrets {
		return nil
	}
	flags := synFlagsOf(live.Mode, state)
	if live.Row.Flags&synFlags == flags {
		return nil
	}
	live.Row.Flags = live.Row.Flags&^synFlags | flags
	live.Settings.flags = live.Settings.flags&^synFlags | flags
	return t.PutRow(key, live.Row)
}

// States are the states of all live endpoints with automatic SYN cookies.
func (t SYNs) States() map[model.EndpointKey]SYNState {
	states := map[model.EndpointKey]SYNState{}
	for key, live := range t.Live {
		if live.Mode == model.SYNCookiesAuto {
			states[key] = synStateOf(live.Row.Flags)
		}
	}
	return states
}

// Counters counts the SYNs of those endpoints.
func (t SYNs) Counters() (map[model.EndpointKey]SYNCounter, error) {
	var last uint32
	for _, live := range t.Live {
		if live.Mode == model.SYNCookiesAuto {
			last = max(last, live.Row.Id)
		}
	}
	rows, err := readSYNs(t.Tables, last)
	if err != nil {
		return nil, err
	}
	counters := map[model.EndpointKey]SYNCounter{}
	for key, live := range t.Live {
		if live.Mode == model.SYNCookiesAuto {
			counters[key] = rows[live.Row.Id]
		}
	}
	return counters, nil
}

// synBatch is how many rows of syn_counters are read at once.
const synBatch = 1024

// readSYNs sums the CPUs' counters of all endpoints to the last number, by number. In batches it costs a fraction of
// reading them one by one.
func readSYNs(t *bpf.Tables, last uint32) ([]SYNCounter, error) {
	cpus := ebpf.MustPossibleCPU()
	sums := make([]SYNCounter, last+1)
	ids, rows := make([]uint32, synBatch), make([]bpf.MuxSynCounter, synBatch*cpus)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := t.SYNCounters.BatchLookup(&cursor, ids, rows, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, fmt.Errorf("read syn counters: %w", err)
		}
		for i, id := range ids[:n] {
			if id > last {
				return sums, nil
			}
			for _, c := range rows[i*cpus : (i+1)*cpus] {
				sums[id].add(c)
			}
		}
		if err != nil {
			return sums, nil
		}
	}
}

func (c *SYNCounter) add(more bpf.MuxSynCounter) {
	c.SYNs += more.Syns
	c.Answered += more.Answered
	c.Tried += more.Tried
	c.Completed += more.Completed
}

// SetSecrets takes over the secrets that are valid, the oldest first, and the time of day, which may
// have been set anew.
func (t SYNs) SetSecrets(secrets []model.SYNSecret) error {
	var old bpf.MuxSynSecrets
	if err := t.Tables.SYNSecrets.Lookup(uint32(0), &old); err != nil {
		return fmt.Errorf("read syn secrets: %w", err)
	}
	next := bpf.MuxSynSecrets{Clock: old.Clock}
	clock, err := timeOfDay()
	if err != nil {
		return err
	}
	if apart := time.Duration(clock - old.Clock); apart.Abs() > time.Millisecond {
		next.Clock = clock
	}
	for _, s := range secrets {
		row := &next.Rows[s.ID%uint32(len(next.Rows))]
		row.Id = s.ID
		for i := range row.Key {
			row.Key[i] = binary.LittleEndian.Uint64(s.Secret[8*i:])
		}
	}
	next.Makes = model.MakesSYNCookies(secrets).ID % uint32(len(next.Rows))
	t.hasSecrets = len(secrets) > 0
	if next == old {
		return nil
	}
	if err := t.Tables.SYNSecrets.Put(uint32(0), next); err != nil {
		return fmt.Errorf("write syn secrets: %w", err)
	}
	return nil
}

// timeOfDay is what CLOCK_MONOTONIC lacks of the time since 1970, in ns.
func timeOfDay() (uint64, error) {
	var monotonic unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(time.Now().UnixNano() - monotonic.Nano()), nil
}
