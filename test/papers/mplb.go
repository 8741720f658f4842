package main

import (
	"fmt"
	"strings"
)

var mplb = paper{
	key: "mplb", title: "MPLB: Stateless load balancing of Multipath TCP (HotMiddlebox 2016)", figures: 10, tables: 1,
	entries: []figure{
		{
			name: "mplb-1", label: "Figure 1", section: "2", shows: "muxes with direct server return",
			missing: illustration("architecture.md"),
		},
		{
			name: "mplb-2", label: "Figure 2", section: "2", shows: "handshakes of Multipath TCP",
			missing: illustration(""),
		},
		{
			name: "mplb-3", label: "Figure 3", section: "3", shows: "stable hashing by buckets",
			missing: illustration("design/consistency.md"),
		},
		{
			name: "mplb-4", label: "Figure 4", section: "3", shows: "load balancing of MPTCP without state",
			missing: illustration("design/multipath.md"),
		},
		{
			name: "mplb-5", label: "Figure 5", section: "3", shows: "daisy chaining",
			missing: illustration("design/chaining.md"),
		},
		{
			name: "mplb-6", label: "Figure 6", section: "3", shows: "the algorithm of the mux",
			missing: illustration("design/mux.md"),
		},
		{
			name: "mplb-7", label: "Figure 7", section: "4", shows: "throughput by the size of the NIC's rings",
			says:    "no gain above 256 slots",
			differs: "by how many frames come to the mux at once: a veth has no ring of a NIC.",
			bench:   &bench{name: "mux", args: []string{"-only", "batches"}, drawings: []string{"mplb-7.svg"}},
			rows: []row{
				{name: "mpps-at-64", unit: "Mpps", from: source{path: "batches.points[batch=64].mpps"}},
				{name: "from-64-on-to-most", unit: "ratio", bound: atLeast(0.9), from: source{path: "batches.from_batch_64_on_to_most"}},
			},
		},
		{
			name: "mplb-8", label: "Figure 8", section: "4", shows: "latency while a mux forwards",
			says:    "at most 0.5 ms, 3 to 4 ms when overloaded",
			differs: "one CPU is the mux's, the other one the network's, the pings' and the load's.",
			bench: &bench{
				name: "capacity", args: []string{"-only", "latency", "-load", "syns"}, drawings: []string{"mplb-8.svg", "mplb-8-cpu.svg"},
			},
			rows: []row{
				pingRow("p50-at-10-percent", "0.1", "p50_us", nil), pingRow("p99-at-10-percent", "0.1", "p99_us", atMost(500)),
				pingRow("p50-at-50-percent", "0.5", "p50_us", nil), pingRow("p99-at-50-percent", "0.5", "p99_us", atMost(500)),
				pingRow("p50-at-90-percent", "0.9", "p50_us", atMost(500)), pingRow("p99-at-90-percent", "0.9", "p99_us", atMost(500)),
				overloaded("p50-overloaded", "p50_us"), overloaded("p99-overloaded", "p99_us"),
			},
		},
		{
			name: "mplb-9", label: "Figure 9", section: "4", shows: "throughput while a mux joins every 10 s",
			says: "1 Mpps more by each",
			differs: "all muxes share the CPUs of one machine, so the router gives each no more SYNs a second than a token bucket lets " +
				"through; they have no MP_CAPABLE, which muxes do not read. Routes are told by BGP.",
			bench: &bench{name: "scaleout", drawings: []string{"mplb-9.svg"}},
			rows: []row{
				{name: "scale-out-to-linear", unit: "ratio", paper: new(1.0), bound: atLeast(0.95), from: source{path: "least_to_linear"}},
				{name: "rise-after-the-route", unit: "s", bound: atMost(1), from: source{path: "longest_rise_s"}},
				{name: "from-start-to-route", unit: "s", from: source{path: "longest_join_s"}},
				{name: "connections-broken", unit: "connections", bound: atMost(0), from: source{path: "broken"}},
				{name: "subflows-lost", unit: "subflows", bound: atMost(0), from: source{path: "subflows_lost"}},
			},
		},
		{
			name: "mplb-10", label: "Figure 10", section: "4", shows: "throughput by packet size",
			says:    "26 Gbit/s with packets of 512 bytes, 11 Mpps with 86",
			differs: "one core makes the frames, forwards them, and takes them back from a veth.",
			bench: &bench{
				name: "mux", args: []string{"-only", "sizes"}, drawings: []string{"mplb-10.svg", "mplb-10-packets.svg"},
			},
			rows: []row{
				{name: "mpps-of-86-bytes", unit: "Mpps", paper: new(11.0), from: source{path: "sizes.points[bytes=86].mpps"}},
				{name: "gbit-per-s-of-512-bytes", unit: "Gbit/s", paper: new(26.0), from: source{path: "sizes.points[bytes=512].gbit_per_s"}},
				{name: "least-to-most-mpps", unit: "ratio", bound: atLeast(0.9), from: source{path: "sizes.least_to_most"}},
			},
		},
		mplbTable1, mplbJoins, mplbPAWS, mplbTimestamps, mplbKeys,
	},
}

var mplbTable1 = figure{
	name: "mplb-table-1", label: "Table 1", section: "4", shows: "packets that one core of a mux forwards, by class",
	says:    "1.01 to 4.36 Mpps",
	differs: "the program alone, by the kernel's test run: no NIC and no driver take part.",
	bench: &bench{
		name: "mux", args: []string{"-only", "packets", "-class", "tcp-syn,tcp-mpc,tcp-join,tcp-cookie-dss,tcp-cookie-last,tcp-dss-known"},
	},
	rows: []row{
		mppsRow("tcp-syn", 4.07), toFloorRow("tcp-syn"),
		mppsRow("tcp-mpc", 1.01), toFloorRow("tcp-mpc"), classesRow("tcp-mpc", "tcp-syn", 4.03, 1.05),
		mppsRow("tcp-join", 3.64), toFloorRow("tcp-join"), classesRow("tcp-join", "tcp-syn", 1.12, 1.05),
		mppsRow("data", 4.36), toFloorRow("data"),
		mppsRow("data-worst", 3.79), toFloorRow("data-worst"),
		classesRow("data-worst", "data", 1.15, 1.4),
		mppsRow("data-no-ts", 4.23), toFloorRow("data-no-ts"),
	},
}

// mplbClasses are the classes of test/bench/mux.
var mplbClasses = map[string]string{
	"tcp-syn": "tcp-syn", "tcp-mpc": "tcp-mpc", "tcp-join": "tcp-join",
	"data": "tcp-cookie-dss", "data-worst": "tcp-cookie-last", "data-no-ts": "tcp-dss-known",
}

func oneFlow(class, field string) string {
	return "packets[class=" + class + "][family=v4][flows=1]." + field
}

func mppsRow(name string, paper float64) row {
	return row{
		name: name, unit: "Mpps", paper: new(paper), bound: atLeast(3 * paper),
		from: source{over: oneFlow(mplbClasses[name], "ns"), times: 1000},
	}
}

// classesRow is what a packet of one class takes to one of another.
func classesRow(name, beside string, paper, most float64) row {
	return row{
		name: name + "-to-" + beside, unit: "ratio", paper: new(paper), bound: atMost(most),
		from: source{path: oneFlow(mplbClasses[name], "ns"), over: oneFlow(mplbClasses[beside], "ns")},
	}
}

// pingRow is of pings beside a load, as part of what the mux takes.
func pingRow(name, part, field string, keeps *bound) row {
	return row{name: name, unit: "µs", bound: keeps, from: source{path: "latency.steps[part=" + part + "]." + field}}
}

// overloaded is a row of a mux that gets more than it takes, if one CPU can send that.
func overloaded(name, field string) row {
	r := pingRow(name, "1.1", field, nil)
	r.mayLack = true
	return r
}

func toFloorRow(name string) row {
	return row{name: name + "-to-floor", unit: "ratio", from: source{path: oneFlow(mplbClasses[name], "ratio")}}
}

var mplbJoins = figure{
	name: "mplb-joins", section: "3", shows: "joins that reach their server, also while muxes and servers change",
	differs: "clients, muxes and servers are namespaces that share the CPUs of one machine; clients and servers have a stock kernel, where the " +
		"paper's are patched.",
	bench: &bench{name: "multipath", args: []string{"-only", "joins,early,cut,churn,plain"}},
	rows: []row{
		multipathRow("joins", "joins", atLeast(3000)),
		multipathRow("joins-right", "ratio", atLeast(1)),
		multipathRow("early-joins", "joins", atLeast(5000)),
		multipathRow("early-joins-rtt-p50-ms", "ms", nil),
		multipathRow("joins-before-their-row", "joins", atMost(0)),
		multipathRow("subflows-lost", "subflows", atMost(0)),
		multipathRow("connections-lost", "connections", atMost(0)),
		multipathRow("joins-lost-after-churn", "joins", atMost(0)),
		multipathRow("cut-path-gap-to-rto", "ratio", atMost(2)),
		multipathRow("plain-tcp-to-before", "ratio", atLeast(0.98)),
		multipathRow("bytes-per-mptcp-connection-and-home", "B", atMost(100)),
	},
}

// multipathRow is a row of test/bench/multipath.
func multipathRow(name, unit string, bound *bound) row {
	return row{name: name, unit: unit, bound: bound, from: source{path: "rows[name=" + strings.ReplaceAll(name, "-", "_") + "].value"}}
}

var mplbPAWS = figure{
	name: "mplb-paws", section: "4", shows: "segments that plain TCP refuses for their timestamp, by a VIP and directly",
	differs: "not in the paper, whose cookies are in timestamps, too.",
	bench:   &bench{name: "multipath", args: []string{"-only", "paws"}},
	rows: []row{
		multipathRow("paws-refusals-per-10-mb", "segments", atMost(1)),
		multipathRow("direct-paws-refusals-per-10-mb", "segments", nil),
	},
}

var mplbTimestamps = figure{
	name: "mplb-timestamps", section: "4",
	shows: "throughput with cookies in timestamps, RTT 1 to 500 ms, loss 0.01 to 5 %",
	says:  "differences under 10 to 20 %",
	differs: "both at the same time, over paths of 10 Mbit/s that a relay in user space makes, with loss in both directions; " +
		"with two paths all joins find the only server.",
	bench: &bench{name: "timestamps", drawings: []string{"mplb-timestamps-1.svg", "mplb-timestamps-2.svg"}},
	rows: []row{
		cookiesRow("throughput-with-cookies-to-without", 1, "least_ratio", new(0.8), atLeast(0.9)),
		cookiesRow("throughput-with-cookies-to-without-median", 1, "median_ratio", nil, nil),
		cookiesRow("throughput-with-cookies-to-without-two-paths", 2, "least_ratio", nil, atLeast(0.9)),
		cookiesRow("throughput-with-cookies-to-without-two-paths-median", 2, "median_ratio", nil, nil),
	},
}

func cookiesRow(name string, paths int, field string, paper *float64, keeps *bound) row {
	return row{
		name: name, unit: "ratio", paper: paper, bound: keeps, from: source{path: fmt.Sprintf("paths[count=%d].%s", paths, field)},
	}
}
