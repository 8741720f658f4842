package main

var duet = paper{
	key: "duet", title: "Duet: Cloud Scale Load Balancing with Hardware and Software (SIGCOMM 2014)", figures: 20,
	tables: 1,
	entries: []figure{
		{
			name: "duet-1", label: "Figure 1", section: "2.2", shows: "latency and CPU of a software mux by load",
			says:    "196 µs in the median without load; full at 300 000 packets a second",
			missing: notBuilt("a bench of latency by load"),
		},
		{
			name: "duet-2", label: "Figure 2", section: "3.1", shows: "VIPs in the tables of a switch",
			missing: duetIllustration,
		},
		{
			name: "duet-3", label: "Figure 3", section: "3.2", shows: "partitioning of VIPs over switches",
			missing: duetIllustration,
		},
		{
			name: "duet-4", label: "Figure 4", section: "4.2", shows: "deadlock of memory during migration",
			missing: duetIllustration,
		},
		{
			name: "duet-5", label: "Figure 5", section: "4.2", shows: "links that a moved VIP loads",
			missing: duetIllustration,
		},
		{
			name: "duet-6", label: "Figure 6", section: "5.2", shows: "load balancing in virtualized clusters",
			missing: duetIllustration,
		},
		{name: "duet-7", label: "Figure 7", section: "5.2", shows: "VIPs with large fan-out", missing: duetIllustration},
		{
			name: "duet-8", label: "Figure 8", section: "5.2", shows: "ports of a VIP with different backends",
			missing: duetIllustration,
		},
		{
			name: "duet-9", label: "Figure 9", section: "6", shows: "components of the implementation",
			missing: duetIllustration,
		},
		{name: "duet-10", label: "Figure 10", section: "7", shows: "the testbed", missing: illustration("")},
		{
			name: "duet-11", label: "Figure 11", section: "7.1", shows: "latency while switch or software muxes are loaded",
			says: "one switch carries more than three software muxes", missing: notBuilt(switches),
		},
		{
			name: "duet-12", label: "Figure 12", section: "7.2", shows: "availability of VIPs while a switch fails",
			says: "38 ms without an answer", missing: notBuilt(switches),
			rows: []row{
				{name: "failover-gap-p99-ms", unit: "ms", paper: new(38.0), bound: atMost(38)},
				{name: "failover-others-lost", unit: "pings", paper: new(0.0), bound: atMost(0)},
			},
		},
		{
			name: "duet-13", label: "Figure 13", section: "7.3", shows: "availability of VIPs during migration",
			says: "no ping lost; 400 to 450 ms", missing: notBuilt(switches),
			rows: []row{
				{name: "migration-lost", unit: "pings", paper: new(0.0), bound: atMost(0)},
				{name: "migration-ms-p50", unit: "ms", paper: new(400.0), bound: atMost(100)},
				{name: "migration-ms-p99", unit: "ms", paper: new(450.0), bound: atMost(250)},
			},
		},
		{
			name: "duet-14", label: "Figure 14", section: "7.3", shows: "parts of the migration's delay",
			says: "80 to 90 % for the VIP in the forwarding table", missing: notBuilt(switches),
			rows: []row{{name: "migration-parts-to-whole", unit: "ratio", paper: new(1.0), bound: within(0.95, 1.05)}},
		},
		{
			name: "duet-15", label: "Figure 15", section: "8.1", shows: "traffic and backends of 30 000 VIPs",
			missing: notBuilt(planner),
		},
		duetMuxes,
		{
			name: "duet-17", label: "Figure 17", section: "8.3", shows: "latency by software muxes",
			says: "474 µs with 230; Ananta over 6 ms with as many, and 15 000 for as little", missing: notBuilt(planner),
		},
		{
			name: "duet-18", label: "Figure 18", section: "8.4", shows: "software muxes with random placement",
			says: "120 to 307 % more", missing: notBuilt(planner),
		},
		{
			name: "duet-19", label: "Figure 19", section: "8.5", shows: "utilization of the hottest link after failures",
			says: "at most 16 % more", missing: notBuilt(planner),
			rows: []row{{name: "hottest-link-after-container-failure", unit: "ratio", bound: atMost(0.72)}},
		},
		{
			name: "duet-20", label: "Figure 20", section: "8.6", shows: "migration algorithms over a trace of three hours",
			says: "95.1 % of traffic on switches; 3.5 % of traffic moved each time by Sticky", missing: notBuilt(planner),
			rows: []row{
				{name: "coverage-repair-mean", unit: "ratio", paper: new(0.951), bound: atLeast(0.99)},
				{name: "moved-repair-to-sticky", unit: "ratio", bound: atMost(0.5)},
				{name: "smux-repair-to-sticky", unit: "ratio", bound: atMost(0.5)},
				{name: "migration-through-software", unit: "ratio", bound: atMost(0.001)},
			},
		},
		{
			name: "duet-table-1", label: "Table 1", section: "4", shows: "notation of the assignment algorithm",
			missing: illustration(""),
		},
		duetPlacement, duetSteering, duetSwitch,
	},
}

const (
	planner  = "placement of VIPs on switches and its planner"
	switches = "switches as hardware muxes"
)

var duetIllustration = reason{text: "an illustration; not built: " + switches}

var duetMuxes = figure{
	name: "duet-16", label: "Figure 16", section: "8.2", shows: "software muxes by traffic",
	says: "12 to 24 times fewer than Ananta at 3.6 Gbit/s each", missing: notBuilt(planner),
	rows: []row{
		{name: "smux-ananta-to-paper-greedy-1.25-tbit", unit: "ratio", bound: within(12, 24)},
		{name: "smux-ananta-to-paper-greedy-2.5-tbit", unit: "ratio", bound: within(12, 24)},
		{name: "smux-ananta-to-paper-greedy-5-tbit", unit: "ratio", bound: within(12, 24)},
		{name: "smux-ananta-to-paper-greedy-10-tbit", unit: "ratio", bound: within(12, 24)},
		{name: "smux-ananta-to-weir", unit: "ratio", bound: atLeast(80)},
		{name: "smux-paper-greedy-to-weir", unit: "ratio", bound: atLeast(4)},
		{name: "smux-weir-to-lower-bound", unit: "ratio", bound: atMost(1.8)},
		{name: "hardware-traffic-weir-to-lp", unit: "ratio", bound: atLeast(0.93)},
	},
}

var duetPlacement = figure{
	name: "duet-placement", section: "4.1", shows: "cost of the placement of 30 000 VIPs", missing: notBuilt(planner),
	rows: []row{
		{name: "placement-30k-seconds-one-core", unit: "s", bound: atMost(3)},
		{name: "placement-30k-mib", unit: "MiB", bound: atMost(512)},
		{name: "fast-evaluation-error", unit: "ratio", bound: within(0, 1e-9)},
	},
}

var duetSteering = figure{
	name: "duet-steering", section: "5.1", shows: "connections while VIPs move, switches fail and backends change",
	missing: notBuilt(switches),
	rows: []row{
		{name: "broken-under-churn", unit: "connections", bound: atMost(0)},
		{name: "broken-without-steering", unit: "ratio", bound: atLeast(0.5)},
		{name: "extra-hops-steady", unit: "hops", bound: atMost(0)},
		{name: "extra-hops-new-after-move", unit: "hops", bound: atMost(0)},
		{name: "agent-switch-to-mux-delivered", unit: "ratio", bound: atMost(1.1)},
		{name: "agent-switch-to-mux-steered", unit: "ratio", bound: atMost(1.5)},
	},
}

var duetSwitch = figure{
	name: "duet-switch", section: "6", shows: "switches, their agents and the manager at scale",
	missing: notBuilt(switches),
	rows: []row{
		{name: "xdp-switch-hit-to-floor", unit: "ratio", bound: atMost(3.2)},
		{name: "xdp-switch-miss-to-floor", unit: "ratio", bound: atMost(1.8)},
		{name: "stale-entry-noticed-s", unit: "s", bound: atMost(20)},
		{name: "switches-1800-snapshot-s", unit: "s", bound: atMost(5)},
		{name: "drain-one-backend-p99-ms", unit: "ms", bound: atMost(100)},
		{name: "bytes-to-hosts", unit: "B", bound: atMost(1 << 20)},
	},
}
