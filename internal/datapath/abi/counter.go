package abi

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/weirlb/weir/internal/model"
)

// Counter adds up a row of a per-CPU table of struct counter. The library refuses a table whose rows
// are not of that size.
func Counter(table *ebpf.Map, row uint32) (sum model.Counter, err error) {
	var perCPU []model.Counter
	if err := table.Lookup(row, &perCPU); err != nil {
		return sum, err
	}
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
	}
	return sum, nil
}

// Verdicts are the names of a program's verdicts, by their number.
type Verdicts map[uint32]string

// VerdictsOf reads the names off the type of the key of the program's counters, without their prefix
// and in lower case. VERDICT_NONE and VERDICT_COUNT are no ends of a packet.
func VerdictsOf(spec *ebpf.CollectionSpec) (Verdicts, error) {
	counters := spec.Maps["verdicts"]
	if counters == nil {
		return nil, fmt.Errorf("read the names of verdicts: the program has no table of them")
	}
	enum, ok := btf.UnderlyingType(counters.Key).(*btf.Enum)
	if !ok {
		return nil, fmt.Errorf("read the names of verdicts: the key is %T, not an enum", counters.Key)
	}
	names := make(Verdicts, len(enum.Values))
	for _, v := range enum.Values {
		name := strings.ToLower(strings.TrimPrefix(v.Name, "VERDICT_"))
		if name != "none" && name != "count" {
			names[uint32(v.Value)] = name
		}
	}
	return names, nil
}

// Read returns how many packets met each verdict, also those that none has met.
func (v Verdicts) Read(table *ebpf.Map) (map[string]model.Counter, error) {
	counters := make(map[string]model.Counter, len(v))
	for verdict, name := range v {
		counter, err := Counter(table, verdict)
		if err != nil {
			return nil, fmt.Errorf("read counter of verdict %s: %w", name, err)
		}
		counters[name] = counter
	}
	return counters, nil
}
