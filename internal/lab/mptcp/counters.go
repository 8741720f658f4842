package mptcp

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// Names of counters of the kernel.
const (
	JoinSynTx        = "MPTcpExt.MPJoinSynTx"
	JoinSynAckRx     = "MPTcpExt.MPJoinSynAckRx"
	JoinNoTokenFound = "MPTcpExt.MPJoinNoTokenFound"
	PAWSRefused      = "TcpExt.PAWSEstab"
	PAWSOldAcks      = "TcpExt.PAWSOldAck"
	Reordered        = "TcpExt.TCPSACKReorder"
)

// Counters are the sums of the kernel's counters of TCP, each named as /proc/net/netstat does, over nodes.
func Counters(lab *netlab.Lab, nodes ...string) (map[string]int, error) {
	all := map[string]int{}
	for _, node := range nodes {
		text, err := lab.Run(node, "cat", "/proc/net/netstat")
		if err != nil {
			return nil, err
		}
		if err := addCounters(all, text); err != nil {
			return nil, fmt.Errorf("read the counters of %s: %w", node, err)
		}
	}
	return all, nil
}

// addCounters reads pairs of lines: names, and their values.
func addCounters(to map[string]int, text string) error {
	names := map[string][]string{}
	for line := range strings.Lines(text) {
		group, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if names[group] == nil {
			names[group] = fields
			continue
		}
		for i, name := range names[group][:min(len(names[group]), len(fields))] {
			value, err := strconv.Atoi(fields[i])
			if err != nil {
				return err
			}
			to[group+"."+name] += value
		}
	}
	return nil
}
