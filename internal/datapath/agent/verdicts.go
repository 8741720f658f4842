package agent

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/weirlb/weir/internal/model"
)

// Verdicts returns how many packets met which end, by the verdict's name: "deliver_native",
// "drop_no_rule". All names are there, also those that no packet has met.
func (d *Datapath) Verdicts() (map[string]model.Counter, error) {
	return readVerdicts(d.objects.Verdicts, d.verdictNames)
}

func readVerdicts(table *ebpf.Map, names map[agentVerdict]string) (map[string]model.Counter, error) {
	counters := make(map[string]model.Counter, len(names))
	for verdict, name := range names {
		var perCPU []agentCounter
		if err := table.Lookup(verdict, &perCPU); err != nil {
			return nil, fmt.Errorf("read counter %s: %w", name, err)
		}
		var sum model.Counter
		for _, c := range perCPU {
			sum.Packets += c.Packets
			sum.Bytes += c.Bytes
		}
		counters[name] = sum
	}
	return counters, nil
}

// verdictNames reads the names off the type of the counter map's key.
func verdictNames(spec *ebpf.CollectionSpec) (map[agentVerdict]string, error) {
	enum, ok := spec.Maps["verdicts"].Key.(*btf.Enum)
	if !ok {
		return nil, fmt.Errorf("read verdicts' names: key is %T, not an enum", spec.Maps["verdicts"].Key)
	}
	names := make(map[agentVerdict]string, len(enum.Values))
	for _, v := range enum.Values {
		verdict := agentVerdict(v.Value)
		if verdict == agentVerdictVERDICT_NONE || verdict == agentVerdictVERDICT_COUNT {
			continue
		}
		names[verdict] = strings.ToLower(strings.TrimPrefix(v.Name, "VERDICT_"))
	}
	return names, nil
}
