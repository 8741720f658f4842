package main

import "strings"

// dashboards are all of Weir's.
func dashboards() []dashboard {
	return []dashboard{overview(), managers(), muxes(), switches(), hosts()}
}

func stat(title, tells, expr string) panel {
	return panel{title: title, tells: tells, unit: "short", stat: true, queries: []query{{expr, ""}}}
}

func graph(title, tells, unit string, queries ...query) panel {
	return panel{title: title, tells: tells, unit: unit, queries: queries}
}

// quantiles are the median and the 99th percentile of a histogram, by a label.
func quantiles(metric, selector, by string) []query {
	legend := "{{" + strings.ReplaceAll(by, ", ", "}} {{") + "}}"
	rate := "sum by (le, " + by + ") (rate(" + metric + "_bucket" + selector + "[$__rate_interval]))"
	return []query{
		{"histogram_quantile(0.5, " + rate + ")", "p50 " + legend},
		{"histogram_quantile(0.99, " + rate + ")", "p99 " + legend},
	}
}

func overview() dashboard {
	return dashboard{uid: "weir-overview", title: "Weir: overview", rows: []row{
		{"Is all well", []panel{
			stat("Leaders", "One, and only one.", `sum(weir_manager_leader)`),
			stat("Muxes connected", "Muxes whose stream is open to any manager.", `sum(max by (mux) (weir_manager_mux_connected))`),
			stat("Hosts disconnected", "Registered hosts without a stream.", `max(weir_manager_nodes{role="host",connected="false"})`),
			stat("Nodes rejecting", "Muxes and hosts that rejected their newest generation: see the status of a VIP for the reason.", `sum(max by (role) (weir_manager_nodes_rejecting))`),
			stat("Endpoints without a backend", "No healthy or unchecked backend.", `max(weir_manager_endpoints_without_backends)`),
			stat("BGP sessions down", "Of all muxes.", `count(weir_mux_bgp_session_up == 0) or vector(0)`),
		}},
		{"Traffic", []panel{
			graph("Packets forwarded", "By mux.", "pps", query{`sum by (instance) (rate(weir_mux_packets_total{verdict=~"forward_.*"}[$__rate_interval]))`, "{{instance}}"}),
			graph("Bytes forwarded", "By mux.", "Bps", query{`sum by (instance) (rate(weir_mux_bytes_total{verdict=~"forward_.*"}[$__rate_interval]))`, "{{instance}}"}),
			graph("Packets dropped", "By all muxes and hosts, by verdict.", "pps",
				query{`sum by (verdict) (rate(weir_mux_packets_total{verdict=~"drop_.*"}[$__rate_interval])) > 0`, "mux {{verdict}}"},
				query{`sum by (verdict) (rate(weir_agent_packets_total{verdict=~"drop_.*"}[$__rate_interval])) > 0`, "host {{verdict}}"}),
			graph("The ten busiest VIPs", "Packets to backends.", "pps", query{`topk(10, sum by (vip) (rate(weir_mux_endpoint_packets_total[$__rate_interval])))`, "{{vip}}"}),
			graph("Sessions", "In the hosts' tables.", "short", query{`sum by (instance) (weir_agent_sessions)`, "{{instance}}"}),
			graph("Backends", "By health.", "short", query{`max by (health) (weir_manager_backends)`, "{{health}}"}),
		}},
		{"Changes", []panel{
			graph("Generation", "Of the desired state, and that each mux runs.", "short",
				query{`max(weir_manager_generation)`, "desired"}, query{`weir_mux_generation`, "{{instance}}"}),
			graph("Time to acknowledge", "From sending a generation to a node until it acknowledges it.", "s", quantiles("weir_manager_sync_duration_seconds", "", "role")...),
			graph("Versions", "Programs by version.", "short", query{`count by (program, version) (weir_build_info)`, "{{program}} {{version}}"}),
		}},
	}}
}
