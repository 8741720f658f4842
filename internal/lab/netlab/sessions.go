package netlab

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Sessions counts what a mux and its neighbours have opened, and lost: all of them only grow.
type Sessions struct {
	BGPEstablished int `json:"bgp_established"` // by the router
	BGPDropped     int `json:"bgp_dropped"`
	BFDDown        int `json:"bfd_down"` // likewise
	Streams        int `json:"streams"`  // to managers, by the mux
}

// Sessions asks the router, and reads the mux's log.
func (l *cluster) Sessions(mux string) (s Sessions, err error) {
	if s, err = l.sessions(mux); err != nil {
		return s, fmt.Errorf("count the sessions of %s: %w", mux, err)
	}
	return s, nil
}

func (l *cluster) sessions(mux string) (s Sessions, err error) {
	n, err := l.Node(mux)
	if err != nil {
		return s, err
	}
	var neighbors map[string]struct {
		ConnectionsEstablished, ConnectionsDropped *int
	}
	if err := l.ask("show bgp neighbors "+n.IPv4.String()+" json", &neighbors); err != nil {
		return s, err
	}
	bgp := neighbors[n.IPv4.String()]
	if bgp.ConnectionsEstablished == nil || bgp.ConnectionsDropped == nil {
		return s, fmt.Errorf("the router knows no neighbour %s", n.IPv4)
	}
	s.BGPEstablished, s.BGPDropped = *bgp.ConnectionsEstablished, *bgp.ConnectionsDropped
	var bfd struct {
		Down *int `json:"session-down"`
	}
	if err := l.ask("show bfd peer "+n.IPv4.String()+" counters json", &bfd); err != nil {
		return s, err
	}
	if bfd.Down == nil {
		return s, fmt.Errorf("the router has no BFD with %s", n.IPv4)
	}
	s.BFDDown = *bfd.Down
	s.Streams = strings.Count(l.Log(mux, "weir-mux"), `msg="connected to the manager"`)
	if s.Streams == 0 {
		return s, fmt.Errorf("its log tells of no stream")
	}
	return s, nil
}

// ask reads what the router's shell says as JSON.
func (l *cluster) ask(command string, answer any) error {
	out, err := l.Router().Vtysh(command)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), answer); err != nil {
		return fmt.Errorf("read %q: %w: %s", command, err, out)
	}
	return nil
}
