package mptcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// Cut is what a download noticed when one of its paths was cut.
type Cut struct {
	Backend, Path string
	Bytes         int64
	RTO           time.Duration // of the server on that path, before
	Gap           time.Duration // the longest time without data
}

const (
	cutWatched = 300 * time.Millisecond // to see which path has the data
	cutSettled = 2 * time.Second        // of download after the cut
)

// CutUnderDownload has a client download by several paths, from which its connections join, and cuts the one that brings most.
// The path is restored when it returns.
func CutUnderDownload(ctx context.Context, lab *netlab.Lab, from netip.AddrPort, paths []Path) (cut Cut, err error) {
	ns, err := lab.NS(paths[0].Client)
	if err != nil {
		return cut, err
	}
	d, err := StartDownload(ns, from)
	if err != nil {
		return cut, err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	cut.Backend = d.Backend
	if err := netlab.Poll(ctx, patience, func() error {
		all, err := Subflows(d.TCPConn)
		if err == nil && len(all) < len(paths) {
			err = fmt.Errorf("the download has %d subflows of %d", len(all), len(paths))
		}
		return err
	}); err != nil {
		return cut, err
	}
	busiest, err := d.busiest(ctx)
	if err != nil {
		return cut, err
	}
	if cut.RTO, err = ServerRTO(lab, cut.Backend, busiest.Local); err != nil {
		return cut, err
	}
	for _, p := range paths {
		if busiest.Local.Addr() != p.IPv4 && busiest.Local.Addr() != p.IPv6 {
			continue
		}
		cut.Path = p.Interface
		d.Begin()
		if err := p.Cut(); err != nil {
			return cut, err
		}
		err := wait(ctx, cutSettled)
		cut.Bytes, cut.Gap = d.Seen()
		return cut, errors.Join(err, p.Restore())
	}
	return cut, fmt.Errorf("no path has %s", busiest.Local)
}

// busiest is the subflow that brings most.
func (d *Download) busiest(ctx context.Context) (most Subflow, err error) {
	before, err := Subflows(d.TCPConn)
	if err != nil {
		return most, err
	}
	if err := wait(ctx, cutWatched); err != nil {
		return most, err
	}
	after, err := Subflows(d.TCPConn)
	if err != nil {
		return most, err
	}
	earlier := View{d.Conn: before}
	var bytes uint64
	for _, s := range after {
		was, _ := earlier.find(d.Conn, s)
		if came := s.Bytes - was.Bytes; came > bytes {
			most, bytes = s, came
		}
	}
	if bytes == 0 {
		return most, errors.New("no subflow brings data")
	}
	return most, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
