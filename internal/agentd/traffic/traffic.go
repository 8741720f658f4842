// Package traffic estimates what clients send to the VIPs of a host, by the racks that they are in, from samples of what
// the host delivers.
package traffic

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent/sample"
	"github.com/weirlb/weir/internal/matrix"
)

const (
	readInterval = time.Second
	// ReportInterval is how often the manager is told.
	ReportInterval = 10 * time.Second
)

// Meter estimates the traffic of a host.
type Meter struct {
	log *slog.Logger

	mu      sync.Mutex
	racks   matrix.Racks
	counted matrix.Count
	due     time.Time // of the next report
	told    matrix.Count
}

// New makes a meter that has counted nothing. All clients are outside until the manager says which racks there are.
func New(log *slog.Logger, now time.Time) *Meter {
	return &Meter{log: log, counted: matrix.Count{}, due: now.Add(ReportInterval)}
}

// Samples are what a data plane sampled.
type Samples interface {
	EachSample(take func(sample.Packet)) error
}

// Run reads samples until ctx ends.
func (m *Meter) Run(ctx context.Context, samples Samples) error {
	ticker := time.NewTicker(readInterval)
	defer ticker.Stop()
	for trouble := ""; ; {
		if err := m.read(samples); err != nil && trouble != err.Error() {
			trouble = err.Error()
			m.log.Warn("traffic of VIPs is not estimated", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (m *Meter) read(samples Samples) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return samples.EachSample(func(p sample.Packet) { m.counted.Add(m.racks, p.VIP, p.Client, p.Bytes) })
}

// Add writes into a report what is due. What a report has that is not answered comes again with the next.
func (m *Meter) Add(report *weirv1.ReportHostRequest, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	report.Racks = m.racks.Version()
	if m.told == nil && now.Before(m.due) {
		return
	}
	if m.told == nil {
		m.told, m.counted = m.counted, matrix.Count{}
		m.due = now.Add(ReportInterval)
	}
	report.Traffic = matrix.RowsToProto(m.told.Rows(matrix.MaxRows))
}

// Answered takes the answer to a report.
func (m *Meter) Answered(response *weirv1.ReportHostResponse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = nil
	if response.GetRacks() == nil {
		return nil
	}
	prefixes := make([]netip.Prefix, 0, len(response.GetRacks().GetPrefixes()))
	for _, text := range response.GetRacks().GetPrefixes() {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("prefixes of racks: %w", err)
		}
		prefixes = append(prefixes, p)
	}
	m.racks = matrix.NewRacks(prefixes)
	return nil
}
