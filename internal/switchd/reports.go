package switchd

import (
	"context"
	"errors"
	"log/slog"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

const (
	reportInterval = 2 * time.Second
	reportTimeout  = 5 * time.Second
)

// reports tells the manager how the switch stands: at once after a change, and every reportInterval. Reports are complete, so
// a lost one needs no retry.
func (s *Switch) reports(ctx context.Context) error {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.report:
		case <-ticker.C:
		}
		if _, err := s.stream.Ready(); err != nil {
			continue // no manager knows of this switch yet
		}
		s.send(ctx)
	}
}

func (s *Switch) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	_, err := s.config.Manager.ReportSwitch(ctx, s.request())
	if err == nil {
		s.refused = ""
		if s.follows.Load() {
			s.entries.Heard()
		}
		return
	}
	var refusal *rpc.Error
	level := slog.LevelDebug // lost connections are logged by the stream
	if errors.As(err, &refusal) && s.refused != err.Error() {
		level = slog.LevelWarn
	}
	s.refused = err.Error()
	s.config.Log.Log(ctx, level, "report not taken", "err", err)
}

func (s *Switch) request() *weirv1.ReportSwitchRequest {
	generation, refused, status := s.entries.Report()
	ports, warnings := s.ports.Report()
	status.Ports, status.Warnings = ports, append(status.Warnings, warnings...)
	up := false
	for _, p := range s.config.Speaker.Peers() {
		up = up || p.Established()
		status.Peers = append(status.Peers, p.ToProto())
	}
	if !up {
		status.Announced = 0
	}
	return &weirv1.ReportSwitchRequest{Name: s.config.Name, Generation: uint64(generation), Status: status, Refused: refused}
}
