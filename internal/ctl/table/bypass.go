package table

import (
	"fmt"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// firstRTT is what handshakes of the first bucket took less than: see NetworkTraffic.handshakes.
const firstRTT = 1 << 15 * time.Nanosecond

// RTT writes the quantile of handshakes by their buckets, as if they lay evenly in each: "1.2ms"; empty: there are none.
func RTT(handshakes []uint64, quantile float64) string {
	var count uint64
	for _, n := range handshakes {
		count += n
	}
	if count == 0 {
		return ""
	}
	rank, below := quantile*float64(count), 0.0
	for i, n := range handshakes {
		if below+float64(n) < rank || n == 0 {
			below += float64(n)
			continue
		}
		high := float64(firstRTT << i)
		low := high / 2
		if i == 0 {
			low = 0
		}
		if i == len(handshakes)-1 {
			return ">" + short(time.Duration(low))
		}
		return short(time.Duration(low + (high-low)*(rank-below)/float64(n)))
	}
	return ""
}

// short writes a duration with two digits.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.2gµs", max(float64(d.Nanoseconds())/1e3, 1))
	case d < time.Second:
		return fmt.Sprintf("%.2gms", float64(d.Microseconds())/1e3)
	}
	return fmt.Sprintf("%.2gs", d.Seconds())
}

// RoundTrips lists the networks of a VIP, with the round trips to their clients.
func RoundTrips(all []*weirv1.NetworkTraffic) *Table {
	t := New("  ", "none", "NETWORK", "VIP", "HANDSHAKES", "RTT P50", "RTT P99")
	for _, n := range all {
		var count uint64
		for _, h := range n.GetHandshakes() {
			count += h
		}
		t.Add(n.GetNetwork(), n.GetAddress(), count, RTT(n.GetHandshakes(), 0.5), RTT(n.GetHandshakes(), 0.99))
	}
	return t
}

// BypassedBackends lists what backends did with clients of networks.
func BypassedBackends(all []*weirv1.NetworkTraffic) *Table {
	t := New("  ", "no host has told of any yet", "NETWORK", "ENDPOINT", "BACKEND", "HOST", "OPEN", "OPENED", "REFUSED", "RESET", "CLEANED", "PACKETS IN", "PACKETS OUT")
	for _, n := range all {
		for _, b := range n.GetBackends() {
			t.Add(n.GetNetwork(), b.GetProtocol()+" "+PortName(b.GetPort()), b.GetBackend(), b.GetHost(), b.GetOpen(), b.GetOpened(), b.GetRefused(), b.GetResets(),
				b.GetCleaned(), b.GetPacketsIn(), b.GetPacketsOut())
		}
	}
	return t
}
