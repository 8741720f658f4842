package importer

import (
	"fmt"
	"net/netip"
	"strings"
)

// parseIPVS reads the lines of ipvsadm-save -n: -A adds a service, -a a real server of one.
func parseIPVS(text string) (*result, error) {
	r := &result{}
	var services []service
	index := map[string]int{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := parseIPVSLine(r, number, words, &services, index); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	for _, s := range services {
		if err := r.add(s); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func parseIPVSLine(r *result, number int, words []string, services *[]service, index map[string]int) error {
	options, err := ipvsOptions(words[1:])
	if err != nil {
		return err
	}
	protocol, address := "", ""
	switch {
	case options["-t"] != "":
		protocol, address = "TCP", options["-t"]
	case options["-u"] != "":
		protocol, address = "UDP", options["-u"]
	default:
		r.note(number, "only services of TCP and UDP have a counterpart, not marks nor SCTP: it is left out")
		return nil
	}
	at, err := parsePair(address)
	if err != nil {
		return err
	}
	key := protocol + at.String()
	switch words[0] {
	case "-A", "--add-service":
		if _, there := index[key]; there {
			return fmt.Errorf("%s %s is there twice", protocol, at)
		}
		s := service{line: number, protocol: protocol, at: at}
		if _, s.sticky = options["-p"]; s.sticky {
			r.note(number, "persistence has no timeout here: affinity is by the client's address")
		}
		if scheduler := options["-s"]; scheduler != "" && scheduler != "rr" && scheduler != "wrr" {
			r.note(number, "scheduler %.32s has no counterpart: connections are spread by weight", scheduler)
		}
		if len(*services) == mostServices {
			return errTooLarge
		}
		index[key] = len(*services)
		*services = append(*services, s)
	case "-a", "--add-server":
		i, there := index[key]
		if !there {
			return fmt.Errorf("there is no service %s %s", protocol, at)
		}
		b := backend{weight: 1}
		if b.at, err = parsePair(options["-r"]); err != nil {
			return err
		}
		if text, said := options["-w"]; said {
			if b.weight, err = parseWeight(text); err != nil {
				return err
			}
		}
		if len((*services)[i].backends) == mostBackends {
			return errTooLarge
		}
		(*services)[i].backends = append((*services)[i].backends, b)
	default:
		return fmt.Errorf("%.32q is no line of ipvsadm-save", words[0])
	}
	return nil
}

// ipvsFlags are the options that have no value.
const ipvsFlags = " -g -i -m -o -6 --gatewaying --ipip --masquerading --ops "

// ipvsLong are long names of options.
var ipvsLong = map[string]string{
	"--tcp-service": "-t", "--udp-service": "-u", "--fwmark-service": "-f", "--scheduler": "-s", "--persistent": "-p",
	"--real-server": "-r", "--weight": "-w",
}

// ipvsOptions reads options, by their short names.
func ipvsOptions(words []string) (map[string]string, error) {
	options := map[string]string{}
	for i := 0; i < len(words); i++ {
		name, value, joined := strings.Cut(words[i], "=")
		if short := ipvsLong[name]; short != "" {
			name = short
		}
		if !strings.HasPrefix(name, "-") {
			return nil, fmt.Errorf("%.32q is no option", words[i])
		}
		switch {
		case joined, strings.Contains(ipvsFlags, " "+name+" "):
		case i+1 < len(words) && !strings.HasPrefix(words[i+1], "-"):
			i++
			value = words[i]
		}
		options[name] = value
	}
	return options, nil
}

// parsePair reads ADDRESS:PORT, or an address alone for all ports.
func parsePair(text string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return parseAt(a.String(), "0")
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("%.64q is no ADDRESS:PORT: save with ipvsadm-save -n", text)
	}
	at, err := parseAt(strings.Trim(text[:i], "[]"), text[i+1:])
	if err != nil {
		return at, fmt.Errorf("%w: save with ipvsadm-save -n", err)
	}
	return at, nil
}
