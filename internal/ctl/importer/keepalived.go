package importer

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseKeepalived reads the virtual_server blocks of keepalived.conf. VRRP needs no counterpart: muxes announce by BGP.
func parseKeepalived(text string) (*result, error) {
	all, err := parseStatements(text)
	if err != nil {
		return nil, err
	}
	r := &result{}
	for _, s := range all {
		switch s.words[0] {
		case "virtual_server":
			if err := r.virtualServer(s); err != nil {
				return nil, fmt.Errorf("line %d: %w", s.line, err)
			}
		case "vrrp_instance", "vrrp_sync_group":
			r.note(s.line, "%s needs no counterpart: muxes announce VIPs by BGP", s.words[0])
		case "global_defs", "vrrp_script", "static_ipaddress", "static_routes":
		default:
			r.note(s.line, "%.64s has no counterpart", s.words[0])
		}
	}
	return r, nil
}

func (r *result) virtualServer(s statement) error {
	if len(s.words) != 3 || s.words[1] == "fwmark" || s.words[1] == "group" {
		r.note(s.line, "virtual_server of a mark or group has no counterpart: it is left out")
		return nil
	}
	at, err := parseAt(s.words[1], s.words[2])
	if err != nil {
		return err
	}
	v := service{line: s.line, protocol: "TCP", at: at}
	checks := map[check]bool{}
	interval, timeout := time.Duration(0), time.Duration(0)
	for _, in := range s.block {
		value := strings.Join(in.words[1:], " ")
		switch in.words[0] {
		case "protocol":
			if v.protocol = strings.ToUpper(value); v.protocol != "TCP" && v.protocol != "UDP" {
				r.note(in.line, "protocol %.32s has no counterpart: the service is left out", value)
				return nil
			}
		case "delay_loop":
			interval = seconds(value)
		case "connect_timeout":
			timeout = seconds(value)
		case "persistence_timeout":
			v.sticky = true
			r.note(in.line, "persistence has no timeout here: affinity is by the client's address")
		case "lb_algo", "lvs_sched":
			if value != "rr" && value != "wrr" {
				r.note(in.line, "%s %.32s has no counterpart: connections are spread by weight", in.words[0], value)
			}
		case "lb_kind", "lvs_method": // the agent does for all of them
		case "real_server":
			b, c, err := r.realServer(in, s.words[2])
			if err != nil {
				return fmt.Errorf("real_server in line %d: %w", in.line, err)
			}
			v.backends = append(v.backends, b)
			checks[c] = true
		default:
			r.note(in.line, "%.64s has no counterpart", in.words[0])
		}
	}
	v.check = r.common(s, checks)
	if v.check.kind != "" {
		v.check.interval = interval
		if v.check.timeout == 0 {
			v.check.timeout = timeout
		}
	}
	return r.add(v)
}

// common is the check of all real servers; an endpoint has one.
func (r *result) common(s statement, checks map[check]bool) check {
	if len(checks) > 1 {
		r.note(s.line, "its real servers are checked in different ways, and an endpoint has one check: none is written, choose one")
		return check{}
	}
	for c := range checks {
		return c
	}
	return check{}
}

// realServer reads a real server; one without a port has its service's.
func (r *result) realServer(s statement, port string) (b backend, c check, err error) {
	switch len(s.words) {
	case 2:
	case 3:
		port = s.words[2]
	default:
		return b, c, fmt.Errorf("must be an address and a port")
	}
	if b.at, err = parseAt(s.words[1], port); err != nil {
		return b, c, err
	}
	b.weight = 1
	for _, in := range s.block {
		value := strings.Join(in.words[1:], " ")
		switch in.words[0] {
		case "weight":
			if b.weight, err = parseWeight(value); err != nil {
				return b, c, err
			}
		case "TCP_CHECK":
			c.kind = "tcp"
			r.checkOf(in, &c)
		case "HTTP_GET":
			c.kind, c.path = "http", "/"
			r.checkOf(in, &c)
		case "SSL_GET":
			c.kind, c.path = "https", "/"
			r.checkOf(in, &c)
		case "UDP_CHECK":
			c.kind = "udp"
			r.checkOf(in, &c)
		default:
			r.note(in.line, "%.64s has no counterpart", in.words[0])
		}
	}
	return b, c, nil
}

// checkOf reads what is in a checker's block.
func (r *result) checkOf(s statement, c *check) {
	urls := 0
	for _, in := range s.block {
		value := strings.Join(in.words[1:], " ")
		switch in.words[0] {
		case "connect_port":
			if n, err := strconv.ParseUint(value, 10, 16); err == nil {
				c.port = uint32(n)
			}
		case "connect_timeout":
			c.timeout = seconds(value)
		case "retry", "nb_get_retry":
			if n, err := strconv.ParseUint(value, 10, 16); err == nil && n < 1000 {
				c.fall = uint32(n) + 1
			}
		case "url":
			if urls++; urls > 1 {
				r.note(in.line, "a check asks for one URL: the others are left out")
				continue
			}
			for _, u := range in.block {
				switch word := strings.Join(u.words[1:], " "); u.words[0] {
				case "path":
					c.path = word
				case "virtualhost":
					c.host = word
				default:
					r.note(u.line, "%.64s has no counterpart: 2xx and 3xx are healthy", u.words[0])
				}
			}
		case "virtualhost":
			c.host = value
		case "delay_before_retry", "warmup":
		default:
			r.note(in.line, "%.64s has no counterpart", in.words[0])
		}
	}
}

// seconds reads a number of seconds, as keepalived has it; 0: it is none that a check can have.
func seconds(text string) time.Duration {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0.001 || n > 3600 {
		return 0
	}
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond)
}
