package agentd

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
)

// Status is the state of a host's data plane, read from its tables, whether a daemon runs or not.
type Status struct {
	Generation model.Generation         `json:"generation"`
	Uplink     string                   `json:"uplink"`
	MTU        int                      `json:"mtu"`
	Muxes      []string                 `json:"muxes"` // addresses and prefixes
	Backends   []StatusBackend          `json:"backends"`
	Sessions   map[session.State]int    `json:"sessions"`
	SNAT       []StatusSNAT             `json:"snat"`
	Verdicts   map[string]model.Counter `json:"verdicts"`
	// SYNCookies is what the host's own stack makes of them: "sockets", or needs: "handshakes".
	SYNCookies string `json:"synCookies"`
	// Networks is what runs for virtual networks; left out: nothing.
	Networks *overlay.Status `json:"networks,omitempty"`
}

// StatusBackend is one rule and the interface of its workload.
type StatusBackend struct {
	Endpoint string         `json:"endpoint"`
	Tunnel   netip.Addr     `json:"tunnel"`
	Backend  netip.AddrPort `json:"backend"`
	Workload string         `json:"workload"` // an interface, "native", or "missing"
}

// StatusSNAT is a workload with source NAT, and its ports.
type StatusSNAT struct {
	VIP      netip.Addr    `json:"vip"`
	Workload netip.Addr    `json:"workload"`
	Ranges   []model.Range `json:"ranges"` // of 8 ports; range n begins with port 8 n
}

// ReadStatus reads the data plane that is pinned at pinPath.
func ReadStatus(pinPath string) (Status, error) {
	if err := daemon.CheckRoot(); err != nil {
		return Status{}, err
	}
	live, err := agent.Inspect(pinPath)
	if errors.Is(err, agent.ErrNotLoaded) {
		return Status{}, fmt.Errorf("%w: start weir-agent, or name another --pin-path", err)
	}
	if err != nil {
		return Status{}, err
	}
	status := newStatus(live, interfaceName)
	status.Networks, err = readNetworks(pinPath)
	return status, err
}

func newStatus(live agent.Status, name func(ifindex int) string) Status {
	s := Status{
		Generation: live.Generation, Uplink: name(live.Uplink), MTU: live.MTU, Muxes: sourceNames(live.Muxes),
		Sessions: live.Sessions, Verdicts: live.Verdicts, SYNCookies: "handshakes",
	}
	if live.CheckNativeSYNCookies {
		s.SYNCookies = "sockets"
	}
	keys := slices.SortedFunc(maps.Keys(live.Rules), func(a, b model.HostBackendKey) int {
		if order := a.Endpoint.Compare(b.Endpoint); order != 0 {
			return order
		}
		return a.Tunnel.Compare(b.Tunnel)
	})
	for _, key := range keys {
		backend := live.Rules[key].Backend
		row := StatusBackend{Endpoint: key.Endpoint.String(), Tunnel: key.Tunnel, Backend: backend, Workload: "missing"}
		if ifindex, found := live.Workloads[backend.Addr()]; found {
			row.Workload = "native"
			if ifindex != 0 {
				row.Workload = name(ifindex)
			}
		}
		s.Backends = append(s.Backends, row)
	}
	for _, key := range slices.SortedFunc(maps.Keys(live.SNAT), model.SNATKey.Compare) {
		s.SNAT = append(s.SNAT, StatusSNAT{VIP: key.VIP, Workload: key.Address, Ranges: live.SNAT[key]})
	}
	return s
}

func interfaceName(ifindex int) string {
	found, err := net.InterfaceByIndex(ifindex)
	if err != nil {
		return "interface " + strconv.Itoa(ifindex) + ", which is gone"
	}
	return found.Name
}

// Table writes the status for people.
func (s Status) Table(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "generation\t%d\n", s.Generation)
	fmt.Fprintf(w, "uplink\t%s, MTU %d\n", s.Uplink, s.MTU)
	fmt.Fprintf(w, "muxes\t%s\n", orNone(s.Muxes))
	fmt.Fprintf(w, "syn cookies\t%s\n", s.SYNCookies)
	for _, state := range slices.Sorted(maps.Keys(s.Sessions)) {
		fmt.Fprintf(w, "sessions %s\t%d\n", state, s.Sessions[state])
	}
	fmt.Fprintln(w, "\nENDPOINT\tTUNNEL\tBACKEND\tWORKLOAD")
	for _, b := range s.Backends {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", b.Endpoint, b.Tunnel, b.Backend, b.Workload)
	}
	if len(s.SNAT) > 0 {
		fmt.Fprintln(w, "\nVIP\tWORKLOAD\tPORTS")
	}
	for _, n := range s.SNAT {
		fmt.Fprintf(w, "%s\t%s\t%d\n", n.VIP, n.Workload, len(n.Ranges)*model.RangePorts)
	}
	daemon.WriteVerdicts(w, s.Verdicts)
	writeNetworks(w, s.Networks)
	return w.Flush()
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// sourceNames writes prefixes of a single address as that address.
func sourceNames(prefixes []netip.Prefix) []string {
	names := make([]string, len(prefixes))
	for i, p := range prefixes {
		names[i] = p.String()
		if p.IsSingleIP() {
			names[i] = p.Addr().String()
		}
	}
	return names
}
