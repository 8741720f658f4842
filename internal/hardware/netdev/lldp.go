package netdev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"time"
)

const (
	// lldpInterval is the time between two looks: neighbours speak every 30 s.
	lldpInterval = 5 * time.Second
	lldpTime     = 2 * time.Second
	maxAnswer    = 4 << 20 // bytes of lldpcli
	unknown      = "neighbours of ports are not known: lldpcli does not tell them; run it by hand to see why"
)

// neighbour is what is at the other end of a port.
type neighbour struct{ system, port string }

// lldp asks lldpd.
type lldp struct {
	socket  string
	asked   time.Time
	all     map[string]neighbour // by interface
	warning string
}

// neighbours are what lldpd heard, by interface; none, if it does not run.
func (l *lldp) neighbours(ctx context.Context, now time.Time) (all map[string]neighbour, warning string) {
	if !l.asked.IsZero() && now.Sub(l.asked) < lldpInterval {
		return l.all, l.warning
	}
	l.asked, l.all, l.warning = now, nil, ""
	if _, err := os.Stat(l.socket); errors.Is(err, fs.ErrNotExist) { // lldpd does not run
		return nil, ""
	}
	answer, err := l.ask(ctx)
	if err == nil {
		l.all, err = parseNeighbours(answer)
	}
	if err != nil {
		// Always the same: what lldpcli says has the time in it, and each text that is new is stored at once.
		l.warning = unknown
	}
	return l.all, l.warning
}

func (l *lldp) ask(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lldpTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "lldpcli", "-u", l.socket, "-f", "json0", "show", "neighbors")
	out := &bounded{}
	cmd.Stdout, cmd.WaitDelay = out, lldpTime // what it warns of is no JSON
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("lldpcli: %w", err)
	}
	return out.Bytes(), nil
}

// bounded takes so many bytes, then fails.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxAnswer {
		return 0, errors.New("it says more than is read")
	}
	return b.Buffer.Write(p)
}

// answer is what lldpcli says with the format json0, in which each element is a list.
type answer struct {
	LLDP []struct {
		Interface []struct {
			Name    string `json:"name"`
			Via     string `json:"via"`
			Chassis []struct {
				Name []value `json:"name"`
			} `json:"chassis"`
			Port []struct {
				ID []value `json:"id"`
			} `json:"port"`
		} `json:"interface"`
	} `json:"lldp"`
}

type value struct {
	Value string `json:"value"`
}

// parseNeighbours reads what lldpcli says. Of several neighbours of a port, as behind a hub, none is believed.
func parseNeighbours(text []byte) (map[string]neighbour, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("read what lldpcli says: %w", err)
	}
	all, several := map[string]neighbour{}, map[string]bool{}
	for _, l := range a.LLDP {
		for _, i := range l.Interface {
			if i.Via != "LLDP" || len(i.Chassis) == 0 || len(i.Chassis[0].Name) == 0 {
				continue
			}
			n := neighbour{system: i.Chassis[0].Name[0].Value}
			if len(i.Port) > 0 && len(i.Port[0].ID) > 0 {
				n.port = i.Port[0].ID[0].Value
			}
			if before, twice := all[i.Name]; twice && before != n {
				several[i.Name] = true
			}
			all[i.Name] = n
		}
	}
	for name := range several {
		delete(all, name)
	}
	return all, nil
}
