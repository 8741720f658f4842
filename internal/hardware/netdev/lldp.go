package netdev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
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
			RID     string `json:"rid"` // number of the neighbour: later ones have higher ones
			Age     string `json:"age"` // since it was heard first, as "0 day, 00:00:05"
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

// heard is a neighbour, and when it was heard first.
type heard struct {
	neighbour
	age, rid uint64
	twice    bool // another one was heard first just then
}

// newer says whether a neighbour came after another one.
func (h heard) newer(than heard) bool {
	return h.age < than.age || h.age == than.age && h.rid > than.rid
}

var agePattern = regexp.MustCompile(`^(\d{1,5}) days?, (\d\d):(\d\d):(\d\d)$`)

// seconds is an age in seconds; of a text that is none it is the highest.
func seconds(age string) uint64 {
	all := agePattern.FindStringSubmatch(age)
	if all == nil {
		return math.MaxUint64
	}
	var n [4]uint64
	for i := range n {
		n[i], _ = strconv.ParseUint(all[i+1], 10, 64) // digits
	}
	return ((n[0]*24+n[1])*60+n[2])*60 + n[3]
}

// parseNeighbours reads what lldpcli says. Of several neighbours of a port the newest is believed: lldpd keeps one that goes
// by another identifier by now, as after it started, until it has aged.
func parseNeighbours(text []byte) (map[string]neighbour, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("read what lldpcli says: %w", err)
	}
	newest := map[string]heard{}
	for _, l := range a.LLDP {
		for _, i := range l.Interface {
			if i.Via != "LLDP" || len(i.Chassis) == 0 || len(i.Chassis[0].Name) == 0 {
				continue
			}
			h := heard{neighbour: neighbour{system: i.Chassis[0].Name[0].Value}, age: seconds(i.Age)}
			h.rid, _ = strconv.ParseUint(i.RID, 10, 64)
			if len(i.Port) > 0 && len(i.Port[0].ID) > 0 {
				h.port = i.Port[0].ID[0].Value
			}
			before, known := newest[i.Name]
			switch {
			case !known || h.newer(before):
				newest[i.Name] = h
			case !before.newer(h) && before.neighbour != h.neighbour:
				before.twice = true
				newest[i.Name] = before
			}
		}
	}
	all := map[string]neighbour{}
	for name, h := range newest {
		if !h.twice {
			all[name] = h.neighbour
		}
	}
	return all, nil
}
