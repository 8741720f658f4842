package netload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netlab"
)

// Flood attacks targets from a node and returns what was sent. The router throws the answers away: they
// go to nobody.
func Flood(lab Lab, node string, config flood.Config) (flood.Result, error) {
	var result flood.Result
	for family, sources := range map[string]string{"-4": flood.Sources4.String(), "-6": flood.Sources6.String()} {
		if _, err := lab.Run(string(netlab.Router), "ip", family, "route", "replace", "blackhole", sources); err != nil {
			return result, err
		}
	}
	args := []string{
		"lab", "flood", "--duration", config.Duration.String(), "--kind", string(cmp.Or(config.Kind, flood.SYN)),
		"--rate", strconv.Itoa(config.Rate),
	}
	for _, target := range config.Targets {
		args = append(args, target.String())
	}
	out, err := lab.Run(node, lab.Find("weir"), args...)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return result, fmt.Errorf("read what was sent: %w: %s", err, out)
	}
	return result, nil
}
