package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

// Port is what can be done to a port behind the driver's back.
type Port struct {
	Name string
	// SetUp has the link go up or down.
	SetUp func(up bool)
	// Exchange has frames come and go by it.
	Exchange func()
	// Hear has LLDP say what is at its other end.
	Hear func(system, port string)
}

// portTime is how long a driver may take to see what happened to a port.
const portTime = 20 * time.Second

func portCases() []testCase {
	return []testCase{
		{name: "ports are told of", run: portsAreTold},
		{name: "a link goes down and comes back", run: linkGoesDown},
		{name: "a neighbour is heard", run: neighbourIsHeard},
		{name: "ports are read beside other calls", run: portsBesideOtherCalls},
	}
}

func (s *suite) ports() hardware.Ports {
	s.Helper()
	ports, err := s.Driver.Ports(s.context())
	if err != nil {
		s.Fatalf("ports: %v", err)
	}
	for i, p := range ports.All {
		if p.Name == "" || i > 0 && ports.All[i-1].Name >= p.Name {
			s.Fatalf("ports are not by name: %+v", ports.All)
		}
	}
	return ports
}

// port is the port of the case.
func (s *suite) port() hardware.Port {
	s.Helper()
	ports := s.ports()
	for _, p := range ports.All {
		if p.Name == s.Port.Name {
			return p
		}
	}
	s.Fatalf("port %s is not told of: %+v", s.Port.Name, ports)
	return hardware.Port{}
}

func (s *suite) eventuallyPort(what string, is func(hardware.Port) bool) {
	s.Helper()
	for end := time.Now().Add(portTime); ; time.Sleep(50 * time.Millisecond) {
		p := s.port()
		if is(p) {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s: it is %+v (warnings: %q)", what, p, s.ports().Warnings)
		}
	}
}

func portsAreTold(s *suite) {
	before := s.port()
	if !before.Up || before.MbitPerS == 0 {
		s.Fatalf("the port is %+v, want it up, with a speed", before)
	}
	s.Port.Exchange()
	s.eventuallyPort("bytes are counted both ways", func(p hardware.Port) bool { return p.Received > before.Received && p.Sent > before.Sent })
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.Driver.Ports(ctx); !errors.Is(err, context.Canceled) {
		s.Errorf("ports: %v, want that the context has ended", err)
	}
}

func linkGoesDown(s *suite) {
	s.Port.SetUp(false)
	s.eventuallyPort("it is down", func(p hardware.Port) bool { return !p.Up })
	s.Port.SetUp(true)
	s.eventuallyPort("it is up", func(p hardware.Port) bool { return p.Up })
}

func neighbourIsHeard(s *suite) {
	if p := s.port(); p.Neighbour != "" {
		s.Fatalf("the port is %+v, and nobody has said anything", p)
	}
	s.Port.Hear("tor-1-1", "Ethernet4")
	s.eventuallyPort("the neighbour is told of", func(p hardware.Port) bool { return p.Neighbour == "tor-1-1" && p.NeighbourPort == "Ethernet4" })
}

func portsBesideOtherCalls(s *suite) {
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.Driver.Ports(s.Context()); err != nil {
				failed <- fmt.Errorf("ports: %w", err)
				return
			}
		}
	}()
	for i := range 20 {
		s.program(s.entry(vip(1), span(1+i%3, 4)...))
	}
	close(stop)
	if err := <-failed; err != nil {
		s.Fatal(err)
	}
	s.wantEntries(s.entry(vip(1), span(2, 4)...))
}
