package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// blockRule is the priority of the router's rules that lose packets between two machines.
const blockRule = "100"

// Block makes the router lose what one machine sends to another, by their own addresses: the other way,
// and what is for VIPs or workloads, goes on. Nobody is told, as by a broken cable. It holds until Unblock.
func (l *network) Block(from, to string) error { return l.blocking("add", from, to) }

// BlockBoth is Block in both directions.
func (l *network) BlockBoth(a, b string) error { return errors.Join(l.Block(a, b), l.Block(b, a)) }

func (l *network) blocking(what, from, to string) error {
	a, err := l.Node(from)
	if err != nil {
		return err
	}
	b, err := l.Node(to)
	if err != nil {
		return err
	}
	return first(
		func() error { return l.rule("-4", what, a.IPv4, b.IPv4) },
		func() error { return l.rule("-6", what, a.IPv6, b.IPv6) },
	)
}

func (l *network) rule(family, what string, from, to netip.Addr) error {
	_, err := l.Run(string(Router), "ip", family, "rule", what, "pref", blockRule,
		"from", from.String(), "to", to.String(), "blackhole")
	if err != nil {
		return fmt.Errorf("block what %s sends to %s: %w", from, to, err)
	}
	return nil
}

// Unblock ends all that Block and BlockBoth began.
func (l *network) Unblock() error {
	for _, family := range []string{"-4", "-6"} {
		rules, err := l.Run(string(Router), "ip", family, "rule", "show", "pref", blockRule)
		if err != nil {
			return err
		}
		for range strings.Count(rules, "blackhole") {
			if _, err := l.Run(string(Router), "ip", family, "rule", "del", "pref", blockRule); err != nil {
				return err
			}
		}
	}
	return nil
}
