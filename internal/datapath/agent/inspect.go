package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/natrule"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/model"
)

// Status is what runs, as the pinned tables tell it.
type Status struct {
	Generation model.Generation
	Uplink     int // ifindex
	MTU        int
	Muxes      []netip.Prefix
	Rules      map[model.HostBackendKey]model.HostBackend // what their rows say
	Workloads  map[netip.Addr]int                         // DIP to ifindex; 0: native
	Sessions   map[session.State]int
	Verdicts   map[string]model.Counter
	SNAT       map[model.SNATKey][]model.Range // the ports of workloads that leave as a VIP, in order
	// CheckNativeSYNCookies says whether the host's own stack makes sockets of SYN cookies.
	CheckNativeSYNCookies bool
}

// ErrNotLoaded means that no data plane is pinned.
var ErrNotLoaded = errors.New("no data plane is loaded")

// Inspect reads the data plane that is pinned at pinPath, without taking it from the agent that
// runs it.
func Inspect(pinPath string) (Status, error) {
	spec, err := bpf.LoadAgent()
	if err != nil {
		return Status{}, fmt.Errorf("read agent's programs: %w", err)
	}
	verdicts, err := abi.VerdictsOf(spec)
	if err != nil {
		return Status{}, err
	}
	maps := make(map[string]*ebpf.Map)
	defer func() {
		for _, m := range maps {
			m.Close()
		}
	}()
	for _, name := range []string{"settings", "muxes", "nat_rules", "workloads", "new_sessions", "sessions", "verdicts", "snat_workloads", "snat_blocks"} {
		m, err := ebpf.LoadPinnedMap(pin.Live(pinPath, name), &ebpf.LoadPinOptions{ReadOnly: true})
		if errors.Is(err, fs.ErrNotExist) {
			return Status{}, fmt.Errorf("inspect %s: %w", pinPath, ErrNotLoaded)
		}
		if err != nil {
			return Status{}, fmt.Errorf("inspect table %s: %w", name, err)
		}
		maps[name] = m
	}
	status, err := readStatus(maps, verdicts)
	if err != nil {
		return Status{}, fmt.Errorf("inspect %s: %w", pinPath, err)
	}
	return status, nil
}

func readStatus(maps map[string]*ebpf.Map, verdicts abi.Verdicts) (Status, error) {
	var settings bpf.AgentAgentSettings
	failed := []error{maps["settings"].Lookup(uint32(0), &settings)}
	status := Status{
		Generation:            model.Generation(settings.Generation),
		Uplink:                int(settings.Uplink),
		MTU:                   int(settings.Mtu),
		CheckNativeSYNCookies: settings.TakeOver != 0,
		Workloads:             make(map[netip.Addr]int),
		Sessions:              make(map[session.State]int),
	}

	muxes, err := abi.ReadTable[bpf.AgentPrefix, uint8](maps["muxes"])
	failed = append(failed, err)
	for p := range muxes {
		status.Muxes = append(status.Muxes, bpf.FromPrefix(p))
	}
	slices.SortFunc(status.Muxes, netip.Prefix.Compare)

	rules, err := abi.ReadTable[bpf.AgentNatRuleKey, bpf.AgentNatRule](maps["nat_rules"])
	failed = append(failed, err)
	status.Rules = natrule.FromRows(rules)

	workloads, err := abi.ReadTable[bpf.AgentAddress, uint32](maps["workloads"])
	failed = append(failed, err)
	for a, ifindex := range workloads {
		status.Workloads[bpf.FromAddress(a)] = int(ifindex)
	}

	for _, table := range []string{"new_sessions", "sessions"} {
		err = session.Each(maps[table], func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
			status.Sessions[session.StateOf(key.Protocol, row.Events)]++
			return nil
		})
		failed = append(failed, err)
	}

	status.SNAT, err = readPorts(maps["snat_workloads"], maps["snat_blocks"])
	failed = append(failed, err)

	status.Verdicts, err = verdicts.Read(maps["verdicts"])
	return status, errors.Join(append(failed, err)...)
}

// readPorts reads which ranges each workload has.
func readPorts(workloads, owned *ebpf.Map) (map[model.SNATKey][]model.Range, error) {
	rows, failed := abi.ReadTable[bpf.AgentAddress, bpf.AgentSnatWorkload](workloads)
	blocks, err := abi.ReadTable[bpf.AgentSnatBlockKey, bpf.AgentSnatBlock](owned)
	ports, byNumber := make(map[model.SNATKey][]model.Range, len(rows)), make(map[uint32]model.SNATKey, len(rows))
	for dip, row := range rows {
		key := model.SNATKey{VIP: bpf.FromAddress(row.Vip), Address: bpf.FromAddress(dip)}
		ports[key], byNumber[row.Number] = nil, key
	}
	for block, row := range blocks {
		key, known := byNumber[block.Workload]
		if !known {
			continue
		}
		held, _ := snat.RangesOfOwned(block, row)
		ports[key] = append(ports[key], held...)
	}
	for _, ranges := range ports {
		slices.Sort(ranges)
	}
	return ports, errors.Join(failed, err)
}
