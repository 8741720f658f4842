package main

var duet = paper{
	key: "duet", title: "Duet: Cloud Scale Load Balancing with Hardware and Software (SIGCOMM 2014)", figures: 20,
	tables: 1,
	entries: []figure{
		duetSoftware,
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
		duetCapacity,
		{
			name: "duet-12", label: "Figure 12", section: "7.2", shows: "availability of VIPs while a switch fails",
			says: "38 ms without an answer", differs: inFabric, bench: clos("failover"),
			rows: []row{
				{name: "failover-gap-p50-ms", unit: "ms", from: source{path: "rows[name=failover_gap_p50_ms].value"}},
				{name: "failover-gap-p99-ms", unit: "ms", paper: new(38.0), bound: atMost(38), from: source{path: "rows[name=failover_gap_p99_ms].value"}},
				{name: "failover-beside-gap-p99-ms", unit: "ms", bound: atMost(38), from: source{path: "rows[name=failover_beside_gap_p99_ms].value"}},
				{name: "failover-others-lost", unit: "pings", paper: new(0.0), bound: atMost(0), from: source{path: "rows[name=failover_others_lost].value"}},
			},
		},
		{
			name: "duet-13", label: "Figure 13", section: "7.3", shows: "availability of VIPs during migration",
			says: "no ping lost; 400 to 450 ms", differs: inFabric, bench: clos("migration"),
			rows: []row{
				{name: "migration-lost", unit: "pings", paper: new(0.0), bound: atMost(0), from: source{path: "rows[name=migration_lost].value"}},
				{name: "migration-ms-p50", unit: "ms", paper: new(400.0), bound: atMost(100), from: source{path: "rows[name=migration_ms_p50].value"}},
				{name: "migration-ms-p99", unit: "ms", paper: new(450.0), bound: atMost(250), from: source{path: "rows[name=migration_ms_p99].value"}},
			},
		},
		{
			name: "duet-14", label: "Figure 14", section: "7.3", shows: "parts of the migration's delay",
			says: "80 to 90 % for the VIP in the forwarding table", differs: inFabric, bench: clos("migration"),
			rows: []row{
				{name: "migration-entry-ms-p50", unit: "ms", from: source{path: "rows[name=migration_entry_ms_p50].value"}},
				{name: "migration-route-ms-p50", unit: "ms", from: source{path: "rows[name=migration_route_ms_p50].value"}},
				{name: "migration-packet-ms-p50", unit: "ms", from: source{path: "rows[name=migration_packet_ms_p50].value"}},
				{name: "migration-parts-to-whole", unit: "ratio", paper: new(1.0), bound: within(0.95, 1.05), from: source{path: "rows[name=migration_parts_to_whole].value"}},
			},
		},
		duetTraffic, duetMuxes, duetLatency, duetRandom, duetFailures, duetMigration,
		{
			name: "duet-table-1", label: "Table 1", section: "4", shows: "notation of the assignment algorithm",
			missing: illustration(""),
		},
		duetPlacement, duetScale, duetOptimum, duetSteering, duetAgent, duetStale, duetSwitch, duetStandIn,
	},
}

var duetIllustration = illustration("")

var duetSteering = figure{
	name: "duet-steering", section: "5.1", shows: "connections while VIPs move, switches fail and backends change",
	differs: inFabric, bench: clos("churn,control,hops"),
	rows: []row{
		{name: "broken-under-churn", unit: "connections", bound: atMost(0), from: source{path: "rows[name=broken_under_churn].value"}},
		{name: "broken-without-steering", unit: "ratio", bound: atLeast(0.5), from: source{path: "rows[name=broken_without_steering].value"}},
		{name: "extra-hops-steady", unit: "hops", bound: atMost(0), from: source{path: "rows[name=extra_hops_steady].value"}},
		{name: "extra-hops-new-after-move", unit: "hops", bound: atMost(0), from: source{path: "rows[name=extra_hops_new_after_move].value"}},
	},
}

// inFabric is how the lab's fabric differs from the paper's testbed.
const inFabric = "ten switches, each an XDP program with FRR, share the CPUs of one machine with hosts, muxes and clients."

func clos(only string) *bench { return &bench{name: "clos", args: []string{"-only", only}} }

// onTwoCPUs is how the bench of a mux's and a switch's capacity differs from the paper's testbed.
const onTwoCPUs = "the mux has one of two CPUs, and load, clients, network and host the other one. Load is datagrams of 60 bytes, " +
	"each of a flow of its own, that a program of the kernel sends to the mux's interface, whose ring has room for 256; what it " +
	"forwards of them the network drops. A ping is a datagram that a backend sends back; it comes from the CPU that sends the load, so it " +
	"finds room in the ring more often than the load does."

var duetSoftware = figure{
	name: "duet-1", label: "Figure 1", section: "2.2", shows: "latency and CPU of a software mux by load",
	says: "196 µs in the median without load, 1 ms at the 90th percentile; full at 300 000 packets a second", differs: onTwoCPUs,
	bench: &bench{name: "capacity", args: []string{"-only", "latency"}, drawings: []string{"duet-1-latency.svg", "duet-1-cpu.svg"}},
	rows: []row{
		{name: "mux-adds-p50", unit: "µs", paper: new(196.0), from: source{path: "latency.mux_adds_p50_us"}},
		{name: "mux-adds-p90", unit: "µs", paper: new(1000.0), from: source{path: "latency.mux_adds_p90_us"}},
		{name: "mux-most", unit: "packets/s", paper: new(300_000.0), from: source{path: "mux_per_s"}},
		{name: "mux-cpu-at-half", unit: "ratio", from: source{path: "latency.steps[part=0.5].cpu"}},
		{name: "mux-p50-at-half", unit: "µs", from: source{path: "latency.steps[part=0.5].p50_us"}},
		{name: "mux-p99-at-half", unit: "µs", from: source{path: "latency.steps[part=0.5].p99_us"}},
		{name: "mux-p50-overloaded", unit: "µs", from: source{path: "latency.steps[part=1.3].p50_us"}},
		{name: "lost-overloaded", unit: "ratio", from: source{path: "latency.steps[part=1.3].lost"}},
	},
}

var duetCapacity = figure{
	name: "duet-11", label: "Figure 11", section: "7.1", shows: "latency while switch or software muxes are loaded",
	says: "one switch carries more than three software muxes",
	differs: "one mux, not three; the switch is the lab's stand-in, an XDP program on the CPU that the mux had, which is no ASIC: what " +
		"it takes says nothing of one. Otherwise as Figure 1: " + onTwoCPUs,
	bench: &bench{name: "capacity", args: []string{"-only", "switch"}, drawings: []string{"duet-11.svg", "duet-11-packets.svg"}},
	rows: []row{
		phaseRow("mux-below-p50", "µs", "mux, two thirds", "p50_us"), phaseRow("mux-below-lost", "ratio", "mux, two thirds", "lost"),
		phaseRow("mux-above-p50", "µs", "mux, four thirds", "p50_us"), phaseRow("mux-above-lost", "ratio", "mux, four thirds", "lost"),
		phaseRow("switch-p50", "µs", "switch", "p50_us"), phaseRow("switch-lost", "ratio", "switch", "lost"),
		{name: "xdp-switch-to-mux-most", unit: "ratio", from: source{path: "switch_per_s", over: "mux_per_s"}},
	},
}

func phaseRow(name, unit, phase, field string) row {
	return row{name: name, unit: unit, from: source{path: "phases[name=" + phase + "]." + field}}
}

var duetAgent = figure{
	name: "duet-agent", section: "5.1", shows: "what a packet from a switch costs a host's agent, to one from a mux that is delivered",
	differs: "the programs alone, by the kernel's test run, with one flow. TCP has timestamps; plain TCP and UDP are found by session, " +
		"or by bucket if they are steered.",
	bench: &bench{name: "agent", args: []string{"-switches", "-rounds", "200"}},
	rows: []row{
		{name: "agent-switch-to-mux-delivered", unit: "ratio", bound: atMost(1.1), from: switchToMux("tcp", "here")},
		{name: "agent-switch-to-mux-steered", unit: "ratio", bound: atMost(1.5), from: switchToMux("tcp", "away")},
		{name: "agent-switch-to-mux-delivered-plain-tcp", unit: "ratio", bound: atMost(1.1), from: switchToMux("tcp-plain", "here")},
		{name: "agent-switch-to-mux-steered-plain-tcp", unit: "ratio", bound: atMost(1.5), from: switchToMux("tcp-plain", "away")},
		{name: "agent-switch-to-mux-delivered-udp", unit: "ratio", bound: atMost(1.1), from: switchToMux("udp", "here")},
		{name: "agent-switch-to-mux-steered-udp", unit: "ratio", bound: atMost(1.5), from: switchToMux("udp", "away")},
	},
}

// switchToMux is the worst of both families and kinds of workloads.
func switchToMux(class, to string) source {
	return source{path: "[class=" + class + "][to=" + to + "].ratio", fold: "max"}
}

var duetSwitch = figure{
	name: "duet-switch", section: "6", shows: "switches, their agents and the manager at scale",
	differs: "1 800 switches and 1 024 hosts are simulated and share two CPUs with three managers: 16 384 VIPs, each in four switches.",
	bench:   &bench{name: "manager", args: []string{"-only", "hardware", "-limit", "30m"}},
	rows: []row{
		{name: "switches-1800-snapshot-s", unit: "s", bound: atMost(5), from: source{path: "[name=snapshots of all switches].max", times: 0.001}},
		{name: "drain-one-backend-p99-ms", unit: "ms", bound: atMost(100), from: source{path: "[name=drain of a backend].p99"}},
		{name: "drain-while-switches-come-back-p50-ms", unit: "ms", from: source{path: "[name=drain of a backend while switches come back].p50"}},
		{name: "bytes-to-hosts", unit: "B", bound: atMost(1 << 20), from: source{path: "[name=drain of a backend of the widest VIP].bytes"}},
	},
}

var duetStale = figure{
	name: "duet-stale", section: "6", shows: "an entry that is removed from a switch by hand",
	differs: inFabric, bench: clos("stale"),
	rows: []row{{name: "stale-entry-noticed-s", unit: "s", bound: atMost(20), from: source{path: "rows[name=stale_entry_noticed_s].value"}}},
}

var duetStandIn = figure{
	name: "duet-hardware-switch", section: "3.1", shows: "the stand-in for a switch that labs and tests have",
	differs: "a program for the kernel's XDP by its test run, which is no ASIC; its rows are bounds for the lab's sake.",
	bench:   &bench{name: "switch"},
	rows: []row{
		{name: "xdp-switch-hit-to-floor", unit: "ratio", bound: atMost(3.2), from: source{path: "packets[class=hit][family=v4].ratio"}},
		{name: "xdp-switch-hit-v6-to-floor", unit: "ratio", from: source{path: "packets[class=hit][family=v6].ratio"}},
		{name: "xdp-switch-miss-to-floor", unit: "ratio", bound: atMost(1.8), from: source{path: "packets[class=miss].ratio", fold: "max"}},
	},
}
