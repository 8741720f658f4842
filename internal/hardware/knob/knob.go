// Package knob sees to the sysctls that a driver's switch needs.
package knob

import (
	"fmt"
	"os"
	"strings"
)

// Knob is a sysctl of a network namespace, and what it has to be.
type Knob struct {
	Name, Value string // net.ipv4.ip_forward
	Settable    bool   // by a driver that may: it changes nothing for others
	Otherwise   string // what happens if it is not so
}

// SetUp sets those of the namespace that the calling thread is in which are settable, if it may. Of the others that are not
// as they have to be it returns a warning each, by name.
func SetUp(knobs []Knob, may bool) (warnings map[string]string, err error) {
	warnings = map[string]string{}
	for _, k := range knobs {
		path := "/proc/sys/" + strings.ReplaceAll(k.Name, ".", "/")
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read sysctl %s: %w", k.Name, err)
		}
		current := strings.TrimSpace(string(text))
		switch {
		case current == k.Value:
		case k.Settable && may:
			if err := os.WriteFile(path, []byte(k.Value), 0); err != nil {
				return nil, fmt.Errorf("set sysctl %s to %s: %w", k.Name, k.Value, err)
			}
		default:
			warnings[k.Name] = fmt.Sprintf("sysctl %s is %s, not %s: %s", k.Name, current, k.Value, k.Otherwise)
		}
	}
	return warnings, nil
}
