package switchd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/switchd/told"
	"github.com/weirlb/weir/internal/wire"
)

// oneCommand bounds what status and unload do.
const oneCommand = 30 * time.Second

// Status is what the switch holds, read from its tables, and what the manager last told, whether a daemon runs or not.
type Status struct {
	Driver     string           `json:"driver"`
	Generation model.Generation `json:"generation"` // that was told last
	Heard      time.Time        `json:"heard"`      // the manager
	Tables     []StatusTable    `json:"tables"`
	VIPs       []StatusVIP      `json:"vips"`
}

// StatusTable is one of the switch's tables.
type StatusTable struct {
	Table string `json:"table"`
	Size  uint32 `json:"size"`
	Used  uint32 `json:"used"`
}

// StatusVIP is a VIP that the switch holds, or is to hold.
type StatusVIP struct {
	VIP      netip.Addr   `json:"vip"`
	Held     bool         `json:"held"`
	Told     bool         `json:"told"`
	Announce bool         `json:"announce"` // the manager says so
	Source   netip.Addr   `json:"source"`
	Members  []netip.Addr `json:"members"` // that the switch holds
}

// ReadStatus reads the switch's tables and what the manager last told.
func ReadStatus(o Options) (Status, error) {
	if err := daemon.CheckRoot(); err != nil {
		return Status{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), oneCommand)
	defer cancel()
	driver, err := o.open(ctx, settings{})
	if err != nil {
		return Status{}, err
	}
	defer driver.Close()
	able, err := driver.Capabilities(ctx)
	if err != nil {
		return Status{}, err
	}
	held, err := driver.Read(ctx)
	if err != nil {
		return Status{}, err
	}
	last, generation, heard, err := told.Read(o.DataDir)
	if err != nil {
		return Status{}, err
	}
	s := newStatus(able, held, last)
	s.Generation, s.Heard = generation, heard
	return s, nil
}

func newStatus(able hardware.Capabilities, held []hardware.Entry, last map[netip.Addr]wire.SwitchEntry) Status {
	s := Status{Driver: able.Driver, Tables: []StatusTable{
		{"hosts", able.Hosts.Size, able.Hosts.Used}, {"ecmp", able.ECMP.Size, able.ECMP.Used}, {"tunnels", able.Tunnels.Size, able.Tunnels.Used},
	}}
	rows := map[netip.Addr]StatusVIP{}
	for _, e := range held {
		row := StatusVIP{VIP: e.VIP, Held: true, Source: e.Source}
		for _, m := range e.Members {
			row.Members = append(row.Members, m.Tunnel)
		}
		rows[e.VIP] = row
	}
	for _, e := range last {
		row := rows[e.VIP]
		row.VIP, row.Told, row.Announce = e.VIP, true, e.Announce
		rows[e.VIP] = row
	}
	for _, vip := range slices.SortedFunc(maps.Keys(rows), netip.Addr.Compare) {
		s.VIPs = append(s.VIPs, rows[vip])
	}
	return s
}

// Table writes the status for people.
func (s Status) Table(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "driver\t%s\n", s.Driver)
	fmt.Fprintf(w, "generation\t%d\n", s.Generation)
	if !s.Heard.IsZero() {
		fmt.Fprintf(w, "manager heard\t%s\n", s.Heard.UTC().Format(time.DateTime))
	}
	for _, t := range s.Tables {
		fmt.Fprintf(w, "%s\t%d of %d\n", t.Table, t.Used, t.Size)
	}
	fmt.Fprintln(w, "\nVIP\tHELD\tTOLD\tANNOUNCE\tSOURCE\tMEMBERS")
	yes := map[bool]string{true: "yes", false: "no"}
	for _, v := range s.VIPs {
		source, members := "", make([]string, len(v.Members))
		for i, m := range v.Members {
			members[i] = m.String()
		}
		if v.Source.IsValid() {
			source = v.Source.String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", v.VIP, yes[v.Held], yes[v.Told], yes[v.Announce], source, strings.Join(members, ","))
	}
	return w.Flush()
}
