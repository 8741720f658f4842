// Package traffic adds up what the agents of a manager report that clients sent to VIPs, by the racks that the clients are
// in, and reads the same of the other managers.
package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/matrix"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

const (
	// keepInterval is how often VIPs that are gone are forgotten.
	keepInterval = time.Minute
	// mostBytes bounds what a host may say of a row: 10 s at 800 Gbit/s.
	mostBytes = 1 << 40
	// chunk bounds the rows of a message.
	chunk = 4096
	// askTimeout bounds how long another manager may take.
	askTimeout = 5 * time.Second
)

// Config says what a Meter works with.
type Config struct {
	Name  string // of this manager
	Store *store.Store
	Peer  func(address string) (*rpc.Client, error) // of another manager
	Now   func() time.Time
}

// Meter has what the agents of this manager reported.
type Meter struct {
	Config

	since  time.Time
	totals *matrix.Totals

	mu    sync.Mutex
	racks matrix.Racks
	of    fabrics   // that racks are of
	kept  time.Time // when VIPs were forgotten
}

// fabrics tells those of a State from others.
type fabrics struct {
	number int
	newest model.Generation // that one was written in
}

// New makes a Meter, of nothing.
func New(c Config) *Meter { return &Meter{Config: c, since: c.Now(), totals: matrix.NewTotals()} }

// Take takes what a host reports of its own VIPs, and answers with the prefixes of racks if it knows others.
func (m *Meter) Take(host string, r *weirv1.ReportHostRequest) *weirv1.RackPrefixes {
	s := m.Store.State()
	racks := m.racksOf(s)
	rows := matrix.RowsFromProto(r.GetTraffic())
	rows = slices.DeleteFunc(rows, func(row matrix.Row) bool {
		vip, there := s.VIPAt(row.VIP)
		return !there || !s.Serves(host, vip.Name)
	})
	for i, row := range rows {
		if !racks.Has(row.From) { // it is no rack's any more
			rows[i].From = netip.Prefix{}
		}
		rows[i].Bytes = min(row.Bytes, mostBytes)
	}
	m.totals.Add(rows)
	if racks.Version() == r.GetRacks() {
		return nil
	}
	told := &weirv1.RackPrefixes{Version: racks.Version()}
	for _, p := range racks.Prefixes() {
		told.Prefixes = append(told.Prefixes, p.String())
	}
	return told
}

// racksOf are the racks of a State's fabrics. Now and then it forgets VIPs that are gone.
func (m *Meter) racksOf(s *store.State) matrix.Racks {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.Now(); now.Sub(m.kept) >= keepInterval {
		m.kept = now
		m.totals.Keep(func(vip netip.Addr) bool { _, there := s.VIPAt(vip); return there })
	}
	of := fabrics{number: s.Fabrics.Len()}
	for f := range s.Fabrics.Values() {
		of.newest = max(of.newest, f.Written)
	}
	if m.of == of {
		return m.racks
	}
	var prefixes []netip.Prefix
	for f := range s.Fabrics.Values() {
		for _, rack := range f.Message.GetRacks() {
			for _, text := range rack.GetPrefixes() {
				if p, err := netip.ParsePrefix(text); err == nil { // admission has refused others
					prefixes = append(prefixes, p)
				}
			}
		}
	}
	m.of, m.racks = of, matrix.NewRacks(prefixes)
	return m.racks
}

// Read sends what agents have reported to this manager, and to the others unless only its own is asked for.
func (m *Meter) Read(ctx context.Context, r *weirv1.ReadTrafficRequest, send func(*weirv1.ReadTrafficResponse) error) error {
	if err := m.sendOwn(send); err != nil || r.GetOwn() {
		return err
	}
	managers := m.Store.State().Managers
	for _, other := range managers {
		if other.Name == m.Name {
			continue
		}
		trouble := m.ask(ctx, other, send)
		if trouble == nil {
			continue
		}
		if err := send(&weirv1.ReadTrafficResponse{Manager: other.Name, Trouble: trouble.Error()}); err != nil {
			return err
		}
	}
	return nil
}

func (m *Meter) sendOwn(send func(*weirv1.ReadTrafficResponse) error) error {
	rows, at := m.totals.Rows(), m.Now()
	for first := true; first || len(rows) > 0; first = false {
		n := min(len(rows), chunk)
		message := &weirv1.ReadTrafficResponse{
			Manager: m.Name, Since: timestamppb.New(m.since), At: timestamppb.New(at), Traffic: matrix.RowsToProto(rows[:n]),
		}
		if err := send(message); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// ask sends on what another manager says. What it fails by is no error of the caller.
func (m *Meter) ask(ctx context.Context, other store.Manager, send func(*weirv1.ReadTrafficResponse) error) error {
	client, err := m.Peer(other.Address)
	if err != nil {
		return fmt.Errorf("ask manager %s: %w", other.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	stream, err := client.ReadTraffic(ctx, &weirv1.ReadTrafficRequest{Own: true})
	if err != nil {
		return fmt.Errorf("ask manager %s: %w", other.Name, err)
	}
	defer stream.Close()
	for stream.Receive() {
		if err := send(stream.Msg()); err != nil {
			return err
		}
	}
	return stream.Err()
}
