package planinput

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/placement"
)

// rulesHeader is the first line of a file of rules.
const rulesHeader = "vip,rule,switches"

// Bounds of a file of rules.
const (
	maxRuleBytes = 4096 // of a line
	maxRules     = 1 << 18
)

// Rules are what is asked for single VIPs, from a file with a line for each: never and require stand alone, pin has
// switches, separated by spaces.
type Rules struct {
	VIPs  map[string]placement.VIPPolicy
	lines map[string]int
}

// Unused names the first VIP with a rule that is not among those seen, and its line. The line is 0 if there is none.
func (r Rules) Unused(seen map[string]bool) (vip string, line int) {
	for name, at := range r.lines {
		if !seen[name] && (line == 0 || at < line) {
			vip, line = name, at
		}
	}
	return vip, line
}

func readRulesFile(path string) (Rules, error) {
	file, err := os.Open(path)
	if err != nil {
		return Rules{}, fmt.Errorf("read the rules: %w", err)
	}
	defer file.Close()
	rules, err := readRules(file)
	if err != nil {
		return Rules{}, fmt.Errorf("read %s: %w", path, err)
	}
	return rules, nil
}

func readRules(r io.Reader) (Rules, error) {
	rules := Rules{VIPs: map[string]placement.VIPPolicy{}, lines: map[string]int{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxRuleBytes), maxRuleBytes)
	n := 0
	for lines.Scan() {
		n++
		text := strings.TrimSuffix(lines.Text(), "\r")
		if n == 1 {
			if text != rulesHeader {
				return rules, fmt.Errorf("line 1: the first line of a file of rules is %s", rulesHeader)
			}
			continue
		}
		vip, policy, err := readRule(text)
		switch {
		case err != nil:
			return rules, fmt.Errorf("line %d: %w", n, err)
		case rules.lines[vip] > 0:
			return rules, fmt.Errorf("line %d: vip %q has a rule in line %d already: keep one", n, vip, rules.lines[vip])
		case len(rules.lines) == maxRules:
			return rules, fmt.Errorf("line %d: more than %d rules", n, maxRules)
		}
		rules.VIPs[vip], rules.lines[vip] = policy, n
	}
	if err := lines.Err(); err != nil {
		return rules, fmt.Errorf("line %d: %w", n+1, err)
	}
	if n == 0 {
		return rules, fmt.Errorf("line 1: the file is empty: the first line is %s", rulesHeader)
	}
	return rules, nil
}

func readRule(text string) (vip string, policy placement.VIPPolicy, err error) {
	fields := strings.Split(text, ",")
	if len(fields) != 3 || fields[0] == "" {
		return "", policy, fmt.Errorf("%q is not a name of a VIP, a rule and switches, with a comma between", text)
	}
	vip, policy.Pin = fields[0], strings.Fields(fields[2])
	slices.Sort(policy.Pin)
	switch rule := fields[1]; {
	case rule == "pin" && len(policy.Pin) == 0:
		return "", policy, fmt.Errorf("the pin of vip %q names no switch", vip)
	case rule == "pin":
		return vip, policy, nil
	case rule != "never" && rule != "require":
		return "", policy, fmt.Errorf("rule %q of vip %q: it is one of never, require and pin", rule, vip)
	case len(policy.Pin) > 0:
		return "", policy, fmt.Errorf("rule %s of vip %q has switches: those are of pin", rule, vip)
	default:
		policy.Never, policy.Require = rule == "never", rule == "require"
		return vip, policy, nil
	}
}
