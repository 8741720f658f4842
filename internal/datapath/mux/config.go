package mux

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
)

// Mode is how the program is attached to the interface.
type Mode string

// The modes of XDP.
const (
	Auto    Mode = "auto"    // native if the driver has it, else generic
	Native  Mode = "native"  // in the driver
	Generic Mode = "generic" // in the kernel's stack: slow, for drivers without XDP
)

// Config says how to open a data plane. Sizes are rounded up to powers of two where the tables
// need it; 0 means the default.
type Config struct {
	Interface    string
	PinPath      string // folder on a bpffs, this data plane's alone
	Mode         Mode   // "" is Auto
	MaxEndpoints int    // default 16 384
	MaxBuckets   int    // of all endpoints together, twice over while one is replaced; default 8 388 608
	MaxBackends  int    // likewise; an endpoint takes its highest slot, rounded up; default 262 144
	MaxSNATPorts int    // of all VIPs with source NAT together, 65 536 each; default 4 194 304
	MaxFlows     int    // flows that are remembered without much loss; default 1 048 576
	MaxSources   int    // prefixes of all lists of sources together, twice over while one is replaced; default 1 048 576
	MaxVIPFlows  int    // of one VIP that does not say itself; default half of MaxFlows

	MaxNATSessions int // of full NAT, of all attachments together; 0: there is no full NAT, and none of its tables

	Log *slog.Logger
}

const (
	defaultEndpoints = 16384
	defaultBuckets   = 8 << 20
	defaultBackends  = 256 << 10
	defaultSNATPorts = 4 << 20
	defaultFlows     = 1 << 20
)

// sizes are those of the tables, with defaults filled in.
func (c Config) sizes() (bpf.Sizes, error) {
	d := bpf.Sizes{
		Endpoints:  uint32(cmp.Or(max(c.MaxEndpoints, 0), defaultEndpoints)),
		BucketRows: bpf.PowerOfTwo(cmp.Or(max(c.MaxBuckets, 0), defaultBuckets) / bpf.RowBuckets),
		Backends:   bpf.PowerOfTwo(cmp.Or(max(c.MaxBackends, 0), defaultBackends)),
		SNATVIPs:   uint32((cmp.Or(max(c.MaxSNATPorts, 0), defaultSNATPorts) + 65535) / 65536),
		// Twice the cells: then only 2 % of the flows find their set full.
		FlowSets: bpf.PowerOfTwo(2 * cmp.Or(max(c.MaxFlows, 0), defaultFlows) / len(bpf.MuxFlowSet{}.Cells)),
	}
	if c.MaxNATSessions > 0 {
		d.NATSets = bpf.PowerOfTwo((c.MaxNATSessions + nat.Ways - 1) / nat.Ways)
	}
	d.FlowLimit = uint32(max(c.MaxVIPFlows, 0))
	d.Sources = uint32(max(c.MaxSources, 0))
	if d.BucketRows > bpf.MostBucketRows || d.Backends > bpf.MostBackends {
		return d, fmt.Errorf("tables of %d buckets and %d backends are too large",
			c.MaxBuckets, c.MaxBackends)
	}
	return d, nil
}
