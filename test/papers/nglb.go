package main

import "fmt"

var nglb = paper{
	key: "nglb", title: "NGLB: Cloud Load Balancers Need to Stay Off the Data Path (Alibaba)", figures: 16,
	entries: []figure{
		{
			name: "nglb-1", label: "Figure 1", section: "I", shows: "growth of a cluster's traffic over 30 days",
			says: "1.8 Tbit/s on average", missing: production,
		},
		{
			name: "nglb-2", label: "Figure 2", section: "II-B", shows: "full NAT, direct server return, full bypass",
			missing: nglbIllustration,
		},
		{name: "nglb-3", label: "Figure 3", section: "III", shows: "the architecture", missing: nglbIllustration},
		{
			name: "nglb-4", label: "Figure 4", section: "IV-A", shows: "the first packet in the load balancer",
			missing: nglbIllustration,
		},
		{
			name: "nglb-5", label: "Figure 5", section: "IV-B", shows: "learning of addresses in the client's switch",
			missing: nglbIllustration,
		},
		{
			name: "nglb-6", label: "Figure 6", section: "IV-B", shows: "packets in the server's module",
			missing: nglbIllustration,
		},
		{
			name: "nglb-7", label: "Figure 7", section: "V-A", shows: "mapping of addresses of isolated tenants",
			missing: nglbIllustration,
		},
		{
			name: "nglb-8", label: "Figure 8", section: "VI-A", shows: "active termination of idle connections",
			missing: nglbIllustration,
		},
		{name: "nglb-9", label: "Figure 9", section: "VI-B", shows: "packets of a handshake", missing: nglbIllustration},
		{name: "nglb-10", label: "Figure 10", section: "VI-B", shows: "the session table", missing: nglbIllustration},
		{
			name: "nglb-11", label: "Figure 11", section: "VII-A", shows: "latency of an object store in production",
			says: "uploads 18 % and downloads 10 % sooner than with full NAT", missing: production,
		},
		{
			name: "nglb-12", label: "Figure 12", section: "VII-B", shows: "RTT by packets a second",
			says:  "40 % less than full NAT below 100 000; the knee at 210 000 instead of 110 000",
			bench: bypassBench,
			differs: "both ends of a connection are on one CPU, round trips are of 128 bytes, one after the other. Full NAT is a " +
				"relay here and in Figures 13 and 16: it has no state, as an attachment with that mode where backends' hosts have " +
				"agents. Beside is the kernel's own VXLAN device, on hosts without Weir. The knee is the rate at which the 99th " +
				"percentile of round trips is twice its least, on the last time that it is; messages come at a rate whatever the " +
				"answers do, on 64 connections, and trips count from when they were due. For it the mux has one of two CPUs, and " +
				"all else the other one, which saturates first; in the paper that is the load balancer's. Threads of the kernel take " +
				"what comes to machines, and idle CPUs of a guest poll before they halt: to wake one takes up to 25 µs, and full NAT " +
				"wakes the other CPU.",
			rows: []row{
				{name: "rtt-bypass-to-full-nat", unit: "ratio", paper: new(0.6), bound: atMost(0.82), from: rowOf("rtt-bypass-to-full-nat")},
				{name: "rtt-bypass-to-vxlan-device", unit: "ratio", bound: atMost(0.95), from: rowOf("rtt-bypass-to-vxlan-device")},
				{name: "knee-bypass-to-full-nat", unit: "ratio", paper: new(1.91), bound: atLeast(1.9), from: rowOf("knee-bypass-to-full-nat")},
			},
		},
		{
			name: "nglb-13", label: "Figure 13", section: "VII-B", shows: "throughput with packets of 128 bytes",
			says:  "290 000 packets a second instead of 110 000",
			bench: bypassBench,
			differs: "TCP segments of 128 bytes of one connection, with the CPUs as for the knee. The paper's load balancer has one " +
				"core to ten of the servers, and saturates first; here the ends do. The second row is computed from this run: what ten " +
				"CPUs as that of the ends would send by bypass, to what the mux's time for a packet leaves to one.",
			rows: []row{
				{
					name: "rate-128-bypass-to-full-nat", unit: "ratio", paper: new(2.64), bound: atLeast(2.6),
					from: rowOf("rate-128-bypass-to-full-nat"),
				},
				{name: "rate-128-at-the-papers-cores", unit: "ratio", from: rowOf("rate-128-at-the-papers-cores")},
			},
		},
		{
			name: "nglb-14", label: "Figure 14", section: "VII-B", shows: "connections kept by load balancer and server",
			says:  "50 000 new connections a second instead of 5 000",
			bench: bypassBench, differs: "2 000 connections of ten round trips are open at the same time.",
			rows: []row{
				{
					name: "mux-packets-per-bypassed-connection", unit: "packets", paper: new(1.0), bound: within(1, 1.05),
					from: rowOf("mux-packets-per-bypassed-connection"),
				},
				{
					name: "mux-rows-per-bypassed-connection", unit: "rows", paper: new(0.0), bound: atMost(0),
					from: rowOf("mux-rows-per-bypassed-connection"),
				},
			},
		},
		{
			name: "nglb-15", label: "Figure 15", section: "VII-B", shows: "latency and memory of the server's module",
			says: "10 to 20 µs more than without; a million rows take 490 Mbit", bench: &bench{name: "overlay"},
			differs: "time is that of the programs alone, in the kernel's test run, with a packet of another session each time; the " +
				"session path is the agent's for IP-in-IP, with a thousand sessions too.",
			rows: []row{
				{name: "vctk-latency-1m-to-1k", unit: "ratio", bound: atMost(1.3), from: rowOf("vctk-latency-1m-to-1k")},
				{name: "vctk-programs-to-session-path", unit: "ratio", bound: atMost(1.2), from: rowOf("vctk-programs-to-session-path")},
				{name: "vctk-bytes-per-row", unit: "B", paper: new(61.0), bound: atMost(60), from: rowOf("vctk-bytes-per-row")},
				{name: "vctk-bytes-per-row-with-room-at-1m", unit: "B", bound: atMost(72), from: rowOf("vctk-with-room-at-1m")},
			},
		},
		{
			name: "nglb-16", label: "Figure 16", section: "VII-B", shows: "CPU of the load balancer by connections a second",
			says:  "15 % at 10 000, where full NAT is overloaded",
			bench: bypassBench,
			differs: "the mux has a CPU of its own, as for the knee. Its time is that of the eBPF programs, of a connection of ten round " +
				"trips, less what an idle mux takes. The second row is all time of the kernel's thread that takes, handles and sends " +
				"the packets; of it most is for waking the other CPU, which in a guest takes up to 25 µs a packet. Connections begin one " +
				"after the other, so each packet finds a mux that waits.",
			rows: []row{
				{name: "mux-cpu-full-nat-to-bypass", unit: "ratio", bound: atLeast(10), from: rowOf("mux-cpu-full-nat-to-bypass")},
				{name: "mux-thread-full-nat-to-bypass", unit: "ratio", from: rowOf("mux-thread-full-nat-to-bypass")},
			},
		},
		{
			name: "nglb-cps", section: "VII-B", shows: "connections a second that a load balancer takes for 30 s (Figure 14)",
			says:  "50 000 by bypass, 5 000 by full NAT",
			bench: &bench{name: "mux", args: []string{"-only", "connections"}},
			differs: "the mux alone: real programs on a veth, behind whose other end simulated clients and backends shake hands, all " +
				"on one core. Full NAT is that with state in the mux. It has as many rows as the paper's: 5 000 connections a second " +
				"last 30 s there, 10 000 do not, so 150 000 to 300 000. As there, connections live on, so rows bound full NAT; the " +
				"core bounds bypass, which needs none. The ratio is that of these two bounds. The last row is Figure 16's: time of " +
				"the eBPF programs for a connection of 20 packets, ten of which begin each millisecond.",
			rows: []row{
				{name: "cps-bypass-to-full-nat", unit: "ratio", paper: new(10.0), bound: atLeast(10), from: source{path: "connections.ratio"}},
				{name: "cps-bypass", unit: "1/s", paper: new(50000.0), from: source{path: "connections.bypass_per_second"}},
				{name: "cps-full-nat", unit: "1/s", paper: new(5000.0), from: source{path: "connections.full_nat_per_second"}},
				{name: "mux-programs-full-nat-to-bypass-at-10000-a-second", unit: "ratio", from: source{path: "connections.cpu.ratio"}},
			},
		},
		{
			name: "nglb-mux", section: "IV-A", shows: "cost of the mux's packets to the floor",
			bench: &bench{name: "mux", args: []string{"-only", "packets", "-class", "network-syn,network-later,network-full-nat", "-time", "90s"}},
			differs: "the harness is in both sides of a ratio, as it was when the bounds were set, but that one took 66 of the " +
				"floor's 95 ns, and this one takes 6 of 14; in rows without it, it is in neither. A later packet has a Fast " +
				"Bypass option with a MAC too. A packet of full NAT is a client's, of an open connection with a row in the mux, to " +
				"its backend; of a million connections each packet is another's.",
			rows: []row{
				{name: "mux-syn-fbt-to-floor", unit: "ratio", bound: atMost(2.5), from: source{path: "packets[class=network-syn][family=v4][flows=1].ratio"}},
				{name: "mux-vxlan-again-to-floor", unit: "ratio", bound: atMost(1.8), from: source{path: "packets[class=network-later][family=v4][flows=1].ratio"}},
				{name: "mux-syn-fbt-to-floor-without-harness", unit: "ratio", from: lessHarness("network-syn")},
				{name: "mux-vxlan-again-to-floor-without-harness", unit: "ratio", from: lessHarness("network-later")},
				{name: "mux-full-nat-to-floor-1", unit: "ratio", bound: atMost(2.2), from: fullNATOf(1, "ratio")},
				{name: "mux-full-nat-to-floor-1m", unit: "ratio", bound: atMost(4), from: fullNATOf(1_000_000, "ratio")},
				{name: "mux-full-nat-to-floor-1-without-harness", unit: "ratio", from: fullNATOf(1, "ratio_without_harness")},
				{name: "mux-full-nat-to-floor-1m-without-harness", unit: "ratio", from: fullNATOf(1_000_000, "ratio_without_harness")},
			},
		},
		{
			name: "nglb-bulk", section: "VII-B", shows: "bulk throughput", bench: bypassBench,
			differs: "one connection. With TSO, segments pass the links whole; without, packets of the MTU do, which the " +
				"server's host merges (GRO).",
			rows: []row{
				{name: "bulk-tso-bypass-to-vxlan-device", unit: "ratio", bound: atLeast(0.95), from: rowOf("bulk-tso-bypass-to-vxlan-device")},
				{name: "bulk-tso-bypass-to-full-nat", unit: "ratio", bound: atLeast(3), from: rowOf("bulk-tso-bypass-to-full-nat")},
				{name: "bulk-mtu-bypass-to-vxlan-device", unit: "ratio", bound: atLeast(0.9), from: rowOf("bulk-mtu-bypass-to-vxlan-device")},
				{name: "bulk-mtu-bypass-to-full-nat", unit: "ratio", bound: atLeast(1.5), from: rowOf("bulk-mtu-bypass-to-full-nat")},
			},
		},
		{
			name: "nglb-cleaner", section: "VI", shows: "termination of 100 000 idle connections among active ones",
			bench:   &bench{name: "failures"},
			differs: "The idle sessions are made by packets that are run through the programs; the active ones are real.",
			rows: []row{
				{name: "cleaner-late-p99-s", unit: "s", bound: atMost(10), from: rowOf("cleaner-late-p99-s")},
				{name: "cleaner-active-broken", unit: "connections", bound: atMost(0), from: rowOf("cleaner-active-broken")},
			},
		},
		{
			name: "nglb-failures", section: "VIII-B", shows: "fallback to the load balancer, and migration of clients",
			bench: &bench{name: "failures"},
			rows: []row{
				{name: "fallback-broken", unit: "connections", bound: atMost(0), from: rowOf("fallback-broken")},
				{name: "fallback-stall-ms", unit: "ms", bound: atMost(300), from: rowOf("fallback-stall-ms")},
				{name: "migration-broken", unit: "connections", bound: atMost(0), from: rowOf("migration-broken")},
				{name: "migration-mux-packets-each", unit: "packets", bound: atMost(2), from: rowOf("migration-mux-packets-each")},
				{name: "forged-taken", unit: "packets", bound: atMost(0), from: rowOf("forged-taken")},
			},
		},
	},
}

// lessHarness is the ratio of a class of the mux's bench to the floor without the harness.
func lessHarness(class string) source {
	return source{path: "packets[class=" + class + "][family=v4][flows=1].ratio_without_harness"}
}

// fullNATOf is a field of the class of full NAT, with so many flows.
func fullNATOf(flows int, field string) source {
	return source{path: fmt.Sprintf("packets[class=network-full-nat][family=v4][flows=%d].%s", flows, field)}
}

var (
	nglbIllustration = illustration("design/bypass.md")
	bypassBench      = &bench{name: "bypass"}
)

// rowOf is a row of the benches of bypass.
func rowOf(name string) source { return source{path: "rows[name=" + name + "].value"} }
