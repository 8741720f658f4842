package main

import "slices"

var ananta = paper{
	key: "ananta", title: "Ananta: Cloud Scale Load Balancing (SIGCOMM 2013)", figures: 18,
	entries: []figure{
		{
			name: "ananta-1", label: "Figure 1", section: "1", shows: "tiers of the data plane",
			missing: illustration("architecture.md"),
		},
		{
			name: "ananta-2", label: "Figure 2", section: "2.1", shows: "network of a data center",
			missing: illustration(""),
		},
		{
			name: "ananta-3", label: "Figure 3", section: "2.2",
			shows: "Internet and inter-service traffic of eight data centers",
			says:  "44 % of all traffic is VIP traffic", missing: production,
		},
		{
			name: "ananta-4", label: "Figure 4", section: "2.3", shows: "components of a traditional load balancer",
			missing: illustration(""),
		},
		{
			name: "ananta-5", label: "Figure 5", section: "3.2", shows: "the architecture",
			missing: illustration("architecture.md"),
		},
		{
			name: "ananta-6", label: "Figure 6", section: "3.2.1", shows: "a VIP configuration",
			missing: illustration("reference/manifest.md"),
		},
		{
			name: "ananta-7", label: "Figure 7", section: "3.2.2", shows: "load balancing of inbound connections",
			missing: illustration("architecture.md"),
		},
		{
			name: "ananta-8", label: "Figure 8", section: "3.2.3", shows: "outbound connections with source NAT",
			missing: illustration("design/snat.md"),
		},
		{
			name: "ananta-9", label: "Figure 9", section: "3.2.4", shows: "packets of Fastpath",
			missing: illustration("design/fastpath.md"),
		},
		{
			name: "ananta-10", label: "Figure 10", section: "4", shows: "stages of the manager",
			missing: illustration("design/control-plane.md"),
		},
		anantaFastpath, anantaFlood, anantaIsolation, anantaSetup, anantaPorts,
		{
			name: "ananta-16", label: "Figure 16", section: "5.2.2",
			shows: "availability of test tenants in seven data centers over a month",
			says:  "99.95 % on average, 99.92 % at least", missing: production,
		},
		anantaConfiguration,
		{
			name: "ananta-18", label: "Figure 18", section: "5.2.3", shows: "bandwidth and CPU of 14 muxes over a day",
			says: "33.6 Gbit/s with 25 % of the CPU, spread evenly by ECMP", missing: production,
		},
		anantaControlPlane, anantaScale, anantaMux, anantaHost,
	},
}

var anantaFastpath = figure{
	name: "ananta-11", label: "Figure 11", section: "5.1.1",
	shows: "CPU of muxes and hosts without Fastpath and with it",
	says:  "muxes handle the first two packets of a connection; their CPU falls, that of hosts rises",
	differs: "an upload of 1 MB goes in steps, and packets of the first pass a mux until both agents know the other's " +
		"host. Hosts do not pay for Fastpath in the lab: past the muxes its links carry buffers of many segments whole.",
	bench: &bench{name: "fastpath", drawings: []string{"fastpath-cpu.svg", "fastpath-packets.svg"}},
	rows: []row{
		{
			name: "mux-packets-per-connection", unit: "packets", paper: new(2.0),
			from: source{path: "phases[name=with Fastpath].packets_by_muxes_per_upload"},
		},
		{name: "mux-packets-with-to-without", unit: "ratio", from: withFastpath("packets_by_muxes")},
		{name: "mux-cpu-with-to-without", unit: "ratio", from: withFastpath("mux_cpu")},
		{name: "host-cpu-with-to-without", unit: "ratio", from: withFastpath("host_cpu")},
		{
			name: "throughput-with-to-without", unit: "ratio",
			from: source{path: "speeds[name=with Fastpath].gbit_per_s", over: "speeds[name=by the muxes].gbit_per_s"},
		},
	},
}

// withFastpath compares a field's medians.
func withFastpath(field string) source {
	return source{path: "phases[name=with Fastpath]." + field, over: "phases[name=by the muxes]." + field}
}

var anantaFlood = figure{
	name: "ananta-12", label: "Figure 12", section: "5.1.2",
	shows: "time until the victim of a SYN flood has no route, by base load",
	says:  "20 to 120 s without load, more with it",
	differs: "the victim's route is withdrawn only by an overload policy with a black hole; by default muxes answer the " +
		"flood with SYN cookies.",
	bench: &bench{
		name: "flood", args: []string{"-only", "figure"}, drawings: []string{"flood-impact.svg", "flood-loss.svg"},
	},
	rows: []row{
		{
			name: "black-hole-min-ms", unit: "ms", paper: new(20_000.0),
			from: source{path: "figure[mode=black hole][load=none].trials.gone_ms", fold: "min"},
		},
		{
			name: "black-hole-max-ms", unit: "ms", paper: new(120_000.0),
			from: source{path: "figure[mode=black hole][load=none].trials.gone_ms", fold: "max"},
		},
		{
			name: "black-hole-max-heavy-load-ms", unit: "ms",
			from: source{path: "figure[mode=black hole][load=heavy].trials.gone_ms", fold: "max"},
		},
		{
			name: "syn-cookies-max-ms", unit: "ms", bound: atMost(1000),
			from: source{path: "figure[mode=cookies].trials.detect_ms", fold: "max"},
		},
		{
			name: "others-lost", unit: "connections", bound: atMost(0),
			from: source{path: "figure[mode=cookies].trials.others.failed", fold: "sum"},
		},
		{
			name: "victim-lost-after-1-s", unit: "ratio", bound: atMost(0.01), from: source{
				path: "figure[mode=cookies].trials.own_late.failed",
				over: "figure[mode=cookies].trials.own_late.connections", fold: "sum",
			},
		},
	},
}

var anantaIsolation = figure{
	name: "ananta-13", label: "Figure 13", section: "5.1.2", shows: "normal users of source NAT beside a heavy one",
	says: "no SYN sent again by normal users, port requests within 55 ms",
	differs: "times are those of whole connections, not of port requests alone. The heavy user is not slowed, but " +
		"refused once it has all ports that it may have.",
	bench: &bench{name: "snat", args: []string{"-only", "isolation"}, drawings: []string{"snat-isolation.svg"}},
	rows: []row{
		{
			name: "normal-syns-again", unit: "SYNs", paper: new(0.0), bound: atMost(0),
			from: source{path: "isolation.normal_syns_again", fold: "sum"},
		},
		{
			name: "normal-failed", unit: "connections", paper: new(0.0), bound: atMost(0),
			from: source{path: "isolation.normal_failed", fold: "sum"},
		},
		{
			name: "normal-p50-worst-to-alone", unit: "ratio", paper: new(1.0),
			from: source{path: "isolation.normal_p50_ms", over: "isolation[heavy_rate=0].normal_p50_ms", fold: "max"},
		},
		{
			name: "normal-p99-worst-ms", unit: "ms", paper: new(55.0),
			from: source{path: "isolation.normal_p99_ms", fold: "max"},
		},
	},
}

var anantaSetup = figure{
	name: "ananta-14", label: "Figure 14", section: "5.1.3",
	shows:   "time to establish outbound connections with ranges and with prediction",
	says:    "88 % wait for no port request with ranges of 8, 96 % with prediction",
	differs: "the remote service is 0.3 ms away instead of 75 ms, so that the same delay is a larger part.",
	bench:   &bench{name: "snat", args: []string{"-only", "setup"}, drawings: []string{"snat-setup.svg"}},
	rows: []row{
		{
			name: "requests-per-connection-ranges", unit: "ratio", paper: new(0.12), bound: atMost(0.125),
			from: source{path: "setup[name=one range at a time].share"},
		},
		{
			name: "requests-per-connection-prediction", unit: "ratio", paper: new(0.04), bound: atMost(0.04),
			from: source{path: "setup[name=demand foreseen].share"},
		},
		{
			name: "p50-ranges-to-no-nat", unit: "ratio", paper: new(1.0),
			from: source{path: "setup[name=one range at a time].p50_ms", over: "setup[name=no source NAT].p50_ms"},
		},
		{
			name: "p50-prediction-to-no-nat", unit: "ratio", paper: new(1.0),
			from: source{path: "setup[name=demand foreseen].p50_ms", over: "setup[name=no source NAT].p50_ms"},
		},
		{name: "failed", unit: "connections", bound: atMost(0), from: source{path: "setup.failed", fold: "sum"}},
	},
}

// blocks is the part of the bench in which hosts serve port requests from their port blocks.
const blocks = "[name=500 port requests a second, by blocks]."

var anantaPorts = figure{
	name: "ananta-15", label: "Figure 15", section: "5.2.1", shows: "latency of port requests at the manager",
	says: "10 % within 50 ms, 70 % within 200 ms, 99 % within 2 s; 99 % of connections need none",
	differs: "500 requests a second over loopback, 5 replicas on one machine: of simulated agents without port blocks, and of " +
		"workloads that wait for ranges which 200 simulated hosts give from their port blocks.",
	bench: &bench{name: "manager", args: []string{"-only", "ports blocks"}, drawings: []string{"snat-requests.svg"}},
	rows: []row{
		{
			name: "port-request-p10-ms", unit: "ms", paper: new(50.0),
			from: source{path: "[name=500 port requests a second].quantiles[10]"},
		},
		{
			name: "port-request-p70-ms", unit: "ms", paper: new(200.0),
			from: source{path: "[name=500 port requests a second].quantiles[70]"},
		},
		{
			name: "port-request-p99-ms", unit: "ms", paper: new(2000.0),
			from: source{path: "[name=500 port requests a second].p99"},
		},
		{name: "port-wait-p50-ms", unit: "ms", bound: atMost(1), from: source{path: blocks + "p50"}},
		{name: "port-wait-p99-ms", unit: "ms", bound: atMost(100), from: source{path: blocks + "p99"}},
		{
			name: "port-grants-per-request", unit: "ratio", paper: new(0.01), bound: atMost(1.0 / 40),
			from: source{path: blocks + "grantsPerRequest"},
		},
	},
}

var anantaConfiguration = figure{
	name: "ananta-17", label: "Figure 17", section: "5.2.3", shows: "time of VIP configuration tasks",
	says:  "75 ms in the median, 200 s at most",
	bench: &bench{name: "manager", args: []string{"-only", "bounds", "-replicas", "5"}},
	rows: []row{
		{name: "change-p50-ms", unit: "ms", paper: new(75.0), from: source{path: "[name=one change][replicas=5].p50"}},
		{name: "change-p99-ms", unit: "ms", from: source{path: "[name=one change][replicas=5].p99"}},
		{
			name: "change-max-ms", unit: "ms", paper: new(200_000.0),
			from: source{path: "[name=one change][replicas=5].max"},
		},
	},
}

var anantaControlPlane = figure{
	name: "ananta-control-plane", section: "5.2.3", shows: "scale of the control plane",
	says: "VIP configuration is not blocked behind other tasks",
	differs: "1 000 changes in a second, in turns with the same beside 2 000 port requests a second that 200 simulated hosts " +
		"serve from their port blocks; 5 replicas on one machine. The CPU is all that the managers take, over the requests.",
	bench: &bench{name: "manager", args: []string{"-only", "beside blocks"}},
	rows: []row{
		{
			name: "burst-p99-beside-ports-to-alone-median", unit: "ratio", bound: atMost(1.3),
			from: source{path: "[name=p99 of the burst beside port requests, to alone].ratios", fold: "median"},
		},
		{
			name: "burst-p99-beside-ports-to-alone-9th-of-10", unit: "ratio", bound: atMost(2),
			from: source{path: "[name=p99 of the burst beside port requests, to alone].ratios[8]"},
		},
		{
			name: "manager-cpu-ms-per-port-request", unit: "ms", bound: atMost(0.35),
			from: source{path: blocks + "cpuPerPortRequest"},
		},
	},
}

var anantaScale = figure{
	name: "ananta-scale", section: "5.2.3", shows: "what one change costs with more VIPs, of tenants with quotas, and more muxes",
	differs: "muxes and hosts are simulated, and speak the real protocol. A VIP has 10 backends; its bytes are those by " +
		"which the manager's heap in use after a collection differs; resident memory also has garbage and the store's file. " +
		"Acknowledgements are CPU time of three managers, a change and mux.",
	bench: &bench{name: "manager", args: []string{"-only", "scale"}},
	rows: []row{
		{
			name: "change-p50-100k-vips-to-1k", unit: "ratio", bound: atMost(1.5),
			from: source{path: "[name=one change with quotas][vips=100000].p50", over: "[name=one change with quotas][vips=1000].p50"},
		},
		{name: "manager-bytes-per-vip", unit: "B", bound: atMost(20_000), from: source{path: "[name=memory of a VIP].bytesPerVIP"}},
		{name: "manager-resident-bytes-per-vip", unit: "B", from: source{path: "[name=memory of a VIP].residentPerVIP"}},
		{
			name: "acks-100-muxes-to-8", unit: "ratio", bound: atMost(1.5),
			from: source{path: "[name=one change to muxes][muxes=100].cpuPerMux", over: "[name=one change to muxes][muxes=8].cpuPerMux"},
		},
	},
}

var anantaMux = figure{
	name: "ananta-mux", section: "5.2.3", shows: "packets that one core of a mux forwards",
	says:    "220 000 packets a second",
	differs: "the program alone, by the kernel's test run: no NIC and no driver take part.",
	bench: &bench{
		name: "mux",
		args: []string{"-only", "packets", "-class", "tcp-cookie,tcp-cookie-last,tcp-syn,udp-known,tcp-known", "-burst", "300007"},
	},
	rows: []row{
		{
			name: "tcp-cookie-packets", unit: "packets/s", paper: new(220_000.0),
			from: source{over: "packets[class=tcp-cookie][family=v4][flows=1].ns", times: 1e9},
		},
		{
			name: "tcp-cookie-to-floor", unit: "ratio", bound: atMost(1.25),
			from: source{path: "packets[class=tcp-cookie].ratio", fold: "max"},
		},
		{
			name: "tcp-syn-to-floor", unit: "ratio", bound: atMost(1.35),
			from: source{path: "packets[class=tcp-syn].ratio", fold: "max"},
		},
		{
			name: "udp-known-1m-to-floor", unit: "ratio", bound: atMost(2.5),
			from: source{path: "packets[class=udp-known][flows=1000000].ratio", fold: "max"},
		},
		{
			name: "tcp-known-1m-to-floor", unit: "ratio", bound: atMost(2.5),
			from: source{path: "packets[class=tcp-known][flows=1000000].ratio", fold: "max"},
		},
		{
			name: "tcp-cookie-last-to-tcp-cookie", unit: "ratio", bound: atMost(1.4),
			from: source{path: "packets[class=tcp-cookie-last].ratio", over: "packets[class=tcp-cookie].ratio", fold: "median"},
		},
	},
}

var anantaHost = figure{
	name: "ananta-host", section: "3.4", shows: "throughput through the agent of a host to that without it",
	bench: &bench{name: "agent"},
	rows: slices.Concat(
		agentRows("agent-native-1-flow", "[workload=native][flows=1]"),
		agentRows("agent-native-8", "[workload=native][flows=8]"),
		agentRows("agent-interface-1", "[workload=container][flows=1]"),
		agentRows("agent-interface-8", "[workload=container][flows=8]"),
		[]row{
			agentRow("agent-native-1-flow-v6", "[mtu=1600][family=v6][workload=native].work_ratio", 0.95),
			agentRow("agent-interface-1-v6", "[mtu=1600][family=v6][workload=container].work_ratio", 0.95),
			agentRow("agent-native-1-flow-mtu-1500", "[mtu=1500][family=v4][workload=native][flows=1].ratio", 0.95),
			agentRow("agent-native-8-mtu-1500", "[mtu=1500][family=v4][workload=native][flows=8].ratio", 0.95),
			agentRow("agent-interface-1-mtu-1500", "[mtu=1500][family=v4][workload=container][flows=1].ratio", 0.95),
			agentRow("agent-interface-8-mtu-1500", "[mtu=1500][family=v4][workload=container][flows=8].ratio", 0.95),
			agentRow("agent-gue-to-ipip", "[encapsulation=gue].machine_ratio", 0.9),
		}),
}

// agentRows are by both ends' CPU time and by rate, of IPv4 and with an MTU that has room for the outer header. Where it has
// none, segments are smaller for clients, and rates are what these see.
func agentRows(name, rows string) []row {
	path := "[mtu=1600][family=v4][encapsulation=ipip]" + rows
	return []row{agentRow(name, path+".work_ratio", 0.95), agentRow(name+"-by-rate", path+".ratio", 0.9)}
}

// agentRow is the worst of what it selects, as of both senders.
func agentRow(name, path string, least float64) row {
	return row{name: name, unit: "ratio", bound: atLeast(least), from: source{path: path, fold: "min"}}
}
