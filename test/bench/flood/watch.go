package main

import (
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/testkit/netlab"
)

// sessions are those of all muxes.
func (w *world) sessions() (all netlab.Sessions, err error) {
	for _, n := range w.lab.Of(netlab.Mux) {
		one, err := w.lab.Sessions(n.Name)
		if err != nil {
			return all, err
		}
		all.BGPEstablished += one.BGPEstablished
		all.BGPDropped += one.BGPDropped
		all.BFDDown += one.BFDDown
		all.Streams += one.Streams
	}
	return all, nil
}

// changed is how often sessions began or ended since.
func (w *world) changed(since netlab.Sessions) (netlab.Sessions, error) {
	now, err := w.sessions()
	return netlab.Sessions{
		BGPEstablished: now.BGPEstablished - since.BGPEstablished, BGPDropped: now.BGPDropped - since.BGPDropped,
		BFDDown: now.BFDDown - since.BFDDown, Streams: now.Streams - since.Streams,
	}, err
}

// acted is the line in which a mux says that it answers an endpoint's SYNs.
var acted = regexp.MustCompile(`(?m)^time=(\S+) level=WARN msg="SYN cookies on: .* vip=(\S+)`)

// detected has each trial know when the muxes acted, by their logs.
func (w *world) detected(s *series, within time.Duration) {
	for _, n := range w.lab.Of(netlab.Mux) {
		for _, line := range acted.FindAllStringSubmatch(w.lab.Log(n.Name, "weir-mux"), -1) {
			at, err := time.Parse(time.RFC3339Nano, line[1])
			if err != nil {
				continue
			}
			for i := range s.Trials {
				t := &s.Trials[i]
				after := at.Sub(t.Began)
				its := slices.ContainsFunc(vipsOf(t.Victim), func(vip netip.Addr) bool { return vip.String() == line[2] })
				if its && after >= 0 && after < within {
					t.Detect = append(t.Detect, float64(after.Microseconds())/1000)
				}
			}
		}
	}
}
