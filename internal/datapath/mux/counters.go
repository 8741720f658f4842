package mux

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/weirlb/weir/internal/model"
)

// Verdicts counts packets by what became of them. The names are those of enum verdict, without
// the prefix and in lower case: "forward_syn", "pass_not_for_us", "drop_no_backend".
func (d *Datapath) Verdicts() (map[string]model.Counter, error) { return d.tables.readVerdicts() }

// EndpointCounters counts the packets forwarded for each live endpoint since it was made.
func (d *Datapath) EndpointCounters() (map[model.EndpointKey]model.Counter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counters := map[model.EndpointKey]model.Counter{}
	for key, live := range d.live {
		counter, err := readCounter(d.tables.EndpointCounters, live.row.Id)
		if err != nil {
			return nil, fmt.Errorf("read counter of endpoint %s: %w", key, err)
		}
		counters[key] = counter
	}
	return counters, nil
}

func (t *tables) readVerdicts() (map[string]model.Counter, error) {
	names, err := verdictNames()
	if err != nil {
		return nil, err
	}
	counters := map[string]model.Counter{}
	for verdict, name := range names {
		if counters[name], err = readCounter(t.Verdicts, uint32(verdict)); err != nil {
			return nil, fmt.Errorf("read counter of verdict %s: %w", name, err)
		}
	}
	return counters, nil
}

// readCounter adds up a counter's values of all CPUs.
func readCounter(m *ebpf.Map, row uint32) (sum model.Counter, err error) {
	var values []muxCounter
	if err := m.Lookup(row, &values); err != nil {
		return sum, err
	}
	for _, value := range values {
		sum.Packets += value.Packets
		sum.Bytes += value.Bytes
	}
	return sum, nil
}

// verdictNames reads the names from the type of the counters' key.
func verdictNames() (map[muxVerdict]string, error) {
	spec, err := loadMux()
	if err != nil {
		return nil, fmt.Errorf("read mux program: %w", err)
	}
	enum, ok := btf.UnderlyingType(spec.Maps[muxMapVerdicts].Key).(*btf.Enum)
	if !ok {
		return nil, errors.New("read verdicts' names: the key of the counters is no enum")
	}
	names := map[muxVerdict]string{}
	for _, value := range enum.Values {
		verdict := muxVerdict(value.Value)
		if verdict == muxVerdictVERDICT_NONE || verdict == muxVerdictVERDICT_COUNT {
			continue
		}
		names[verdict] = strings.ToLower(strings.TrimPrefix(value.Name, "VERDICT_"))
	}
	return names, nil
}
