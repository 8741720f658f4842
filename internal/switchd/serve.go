package switchd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/daemon"
	"github.com/weirlb/weir/internal/switchd/told"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/trust"
)

// Serve opens the driver and runs the switch by it. It returns after a clean stop, when ctx ends, or a hand-over, at SIGUSR2.
func Serve(ctx context.Context, o Options, log *slog.Logger) error {
	if err := daemon.CheckRoot(); err != nil {
		return err
	}
	s, err := o.settings()
	if err != nil {
		return err
	}
	process := telemetry.Process{Program: "weir-switch", Name: o.Name, Version: daemon.Version}
	observed, err := telemetry.Start(ctx, o.Telemetry, process, log)
	if err != nil {
		return err
	}
	defer observed.Close()
	return serve(ctx, o, s, observed, log)
}

func serve(ctx context.Context, o Options, s settings, observed *telemetry.Telemetry, log *slog.Logger) error {
	handOver := make(chan os.Signal, 1)
	signal.Notify(handOver, syscall.SIGUSR2)
	defer signal.Stop(handOver)

	unlock, err := lock(o.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	s.bgp.Log = log
	speaker, err := bgp.New(s.bgp)
	if err != nil {
		return err
	}
	driver, err := o.open(ctx, s)
	if err != nil {
		return err
	}
	client, closed, err := o.Connect(ctx, trust.Switch, log)
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	defer closed()
	file, messages, heard, damage := told.Open(o.DataDir)
	if damage != nil {
		log.Warn("nothing is announced until a manager is reached", "err", damage)
	}
	defer file.Close()
	d, err := New(Config{
		Name: o.Name, Version: daemon.Version, Source4: s.source4, Source6: s.source6, NextHop4: s.bgp.NextHop4, NextHop6: s.bgp.NextHop6,
		Communities: s.communities, VIPs: s.vips, TIPs: s.tips, Lease: o.Lease, Lead: withdrawLead, DrainTime: o.DrainTime, Driver: driver, Speaker: speaker,
		Manager: client, Told: file, Messages: messages, Heard: heard, Log: log, Telemetry: observed,
	})
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	log.Info("switch started", "name", o.Name, "driver", o.Driver, "manager", o.Manager)
	daemon.Ready(log)
	return d.Run(ctx, handOver)
}

// lock makes the data directory this process's own, and with it the switch.
func lock(dataDir string) (unlock func(), err error) {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w: name one that may be written, with --data-dir", err)
	}
	file, err := os.OpenFile(filepath.Join(dataDir, "lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w: name one that may be written, with --data-dir", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: is in use by another process: stop the other weir-switch, or give this one another --data-dir", dataDir), file.Close())
	}
	return func() { file.Close() }, nil
}

// Unload removes the switch's entries. The routes must be withdrawn before: by a stop of the daemon.
func Unload(o Options) error {
	if err := daemon.CheckRoot(); err != nil {
		return err
	}
	unlock, err := lock(o.DataDir)
	if err != nil {
		return fmt.Errorf("%w: stop weir-switch first", err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(context.Background(), oneCommand)
	defer cancel()
	driver, err := o.open(ctx, settings{})
	if err != nil {
		return err
	}
	held, err := driver.Read(ctx)
	errs := []error{err}
	for _, e := range held {
		errs = append(errs, driver.Remove(ctx, e.VIP))
	}
	return errors.Join(append(errs, driver.Close())...)
}
