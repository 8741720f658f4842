package main

const chosen = `{instance=~"$instance"}`

func managers() dashboard {
	return dashboard{uid: "weir-manager", title: "Weir: managers", program: "weir-manager", rows: []row{
		{"Leader", []panel{
			graph("Leader", "1 on the manager that writes.", "short", query{`weir_manager_leader` + chosen, "{{instance}}"}),
			graph("Epoch", "It grows with every new leader.", "short", query{`weir_manager_epoch` + chosen, "{{instance}}"}),
			graph("Generation", "Desired, and published to muxes.", "short",
				query{`weir_manager_generation` + chosen, "{{instance}} desired"}, query{`weir_manager_published_generation` + chosen, "{{instance}} published"}),
		}},
		{"API", []panel{
			graph("Calls", "By procedure.", "reqps", query{`sum by (procedure) (rate(weir_manager_api_requests_total` + chosen + `[$__rate_interval]))`, "{{procedure}}"}),
			graph("Calls that failed", "By code.", "reqps", query{`sum by (code) (rate(weir_manager_api_requests_total{instance=~"$instance",code!="ok"}[$__rate_interval]))`, "{{code}}"}),
			graph("Duration of calls", "Without streams.", "s", quantiles("weir_manager_api_request_duration_seconds", chosen, "procedure")...),
		}},
		{"Nodes", []panel{
			graph("Streams", "Open to this manager.", "short", query{`weir_manager_streams` + chosen, "{{instance}} {{role}}"}),
			graph("Behind, or rejecting", "Connected nodes that do not run the published generation.", "short",
				query{`max by (role) (weir_manager_nodes_behind` + chosen + `)`, "behind {{role}}"},
				query{`max by (role) (weir_manager_nodes_rejecting` + chosen + `)`, "rejecting {{role}}"}),
			graph("Time to acknowledge", "By role.", "s", quantiles("weir_manager_sync_duration_seconds", chosen, "role")...),
		}},
		{"VIPs in switches", []panel{
			graph("Places", "By phase: each switch of a VIP counts.", "short", query{`max by (phase) (weir_manager_hardware_vips` + chosen + `)`, "{{phase}}"}),
			graph("Links of the fabric", "Declared, and as switches report.", "short", query{`max by (state) (weir_manager_fabric_links` + chosen + `)`, "{{state}}"}),
			graph("Out of switches", "VIPs for a flood, and switches that are drained.", "short",
				query{`max(weir_manager_hardware_flooded_vips` + chosen + `)`, "flooded VIPs"},
				query{`max(weir_manager_drained_switches` + chosen + `)`, "drained switches"}),
		}},
		{"Source NAT", []panel{
			graph("Port requests", "By result.", "reqps", query{`sum by (result) (rate(weir_manager_snat_port_requests_total` + chosen + `[$__rate_interval]))`, "{{result}}"}),
			graph("Duration of port requests", "Granted ones.", "s", quantiles("weir_manager_snat_port_request_duration_seconds", chosen, "instance")...),
			graph("Ports", "Allocated to workloads.", "short", query{`max(weir_manager_snat_ports` + chosen + `)`, "ports"}),
			graph("Drift", "Differences from the store that the audit found and repaired.", "short", query{`sum by (role) (increase(weir_manager_snat_drift_total` + chosen + `[$__rate_interval]))`, "{{role}}"}),
		}},
		{"Store", []panel{
			graph("Duration of etcd calls", "By operation.", "s", quantiles("weir_manager_store_request_duration_seconds", chosen, "operation")...),
			graph("Database", "Size, part in use, and quota.", "bytes",
				query{`weir_manager_store_db_bytes` + chosen, "{{instance}} size"},
				query{`weir_manager_store_db_used_bytes` + chosen, "{{instance}} in use"},
				query{`weir_manager_store_db_quota_bytes` + chosen, "{{instance}} quota"}),
			graph("Duration of fsync", "Of the embedded etcd's log. More than 10 ms slows every change down.", "s", quantiles("etcd_disk_wal_fsync_duration_seconds", chosen, "instance")...),
		}},
		{"Process", []panel{
			graph("Memory", "Resident.", "bytes", query{`process_resident_memory_bytes` + chosen, "{{instance}}"}),
			graph("CPU", "Cores.", "short", query{`rate(process_cpu_seconds_total` + chosen + `[$__rate_interval])`, "{{instance}}"}),
			graph("Goroutines", "", "short", query{`go_goroutines` + chosen, "{{instance}}"}),
		}},
	}}
}

func muxes() dashboard {
	return dashboard{uid: "weir-mux", title: "Weir: muxes", program: "weir-mux", rows: []row{
		{"Packets", []panel{
			graph("By verdict", "", "pps", query{`sum by (verdict) (rate(weir_mux_packets_total` + chosen + `[$__rate_interval])) > 0`, "{{verdict}}"}),
			graph("Drops", "By verdict.", "pps", query{`sum by (instance, verdict) (rate(weir_mux_packets_total{instance=~"$instance",verdict=~"drop_.*"}[$__rate_interval])) > 0`, "{{instance}} {{verdict}}"}),
			graph("The ten busiest endpoints", "Packets.", "pps", query{`topk(10, sum by (vip, protocol, port) (rate(weir_mux_endpoint_packets_total` + chosen + `[$__rate_interval])))`, "{{vip}} {{protocol}} {{port}}"}),
			graph("The ten busiest endpoints", "Bytes.", "Bps", query{`topk(10, sum by (vip, protocol, port) (rate(weir_mux_endpoint_bytes_total` + chosen + `[$__rate_interval])))`, "{{vip}} {{protocol}} {{port}}"}),
			graph("Slow path", "Packets from the fast path.", "pps", query{`sum by (reason) (rate(weir_mux_slow_path_packets_total` + chosen + `[$__rate_interval]))`, "{{reason}}"}),
			graph("Slow path: frames", "By result, and fragments that are queued.", "pps",
				query{`sum by (result) (rate(weir_mux_slow_path_frames_total` + chosen + `[$__rate_interval]))`, "{{result}}"},
				query{`weir_mux_slow_path_queued_fragments` + chosen, "queued {{instance}}"}),
			graph("Fastpath", "Redirects to hosts.", "pps", query{`sum by (result) (rate(weir_mux_redirects_total` + chosen + `[$__rate_interval]))`, "{{result}}"}),
		}},
		{"Routers", []panel{
			graph("BGP sessions", "1: established.", "short", query{`weir_mux_bgp_session_up` + chosen, "{{instance}} {{peer}}"}),
			graph("BFD", "1: up.", "short", query{`weir_mux_bfd_up` + chosen, "{{instance}} {{peer}}"}),
			graph("Routes", "Announced to each router; and VIPs that are forwarded.", "short",
				query{`weir_mux_bgp_routes` + chosen, "{{instance}} {{peer}}"}, query{`weir_mux_vips` + chosen, "{{instance}} VIPs"}),
		}},
		{"Tables", []panel{
			graph("Generation", "In force.", "short", query{`weir_mux_generation` + chosen, "{{instance}}"}),
			graph("Use", "Part of each table in use.", "percentunit", query{`weir_mux_table_rows` + chosen + ` / weir_mux_table_capacity` + chosen, "{{instance}} {{table}}"}),
			graph("Time to apply", "A message of the manager; removing a VIP includes the wait for routers.", "s", quantiles("weir_mux_apply_duration_seconds", chosen, "result")...),
			graph("Flows", "In the flow table, by state.", "short", query{`sum by (instance, state) (weir_mux_flows` + chosen + `)`, "{{instance}} {{state}}"}),
			graph("VIPs near their limit of flows", "Part of the limit, the ten fullest.", "percentunit", query{`topk(10, weir_mux_flows{instance=~"$instance",state="trusted"} / on (instance, vip) weir_mux_flow_limit` + chosen + `)`, "{{instance}} {{vip}}"}),
			graph("Hosts", "Whose next hop is unresolved.", "short", query{`weir_mux_hosts{instance=~"$instance",reachable="false"}`, "{{instance}}"}),
		}},
		{"Manager", []panel{
			graph("Stream", "1: open.", "short", query{`weir_mux_stream_connected` + chosen, "{{instance}}"}),
			graph("Breaks", "Streams that broke.", "short", query{`increase(weir_mux_stream_breaks_total` + chosen + `[$__rate_interval])`, "{{instance}}"}),
			graph("Warnings", "See the status of the node.", "short", query{`weir_mux_warnings` + chosen, "{{instance}}"}),
		}},
	}}
}

func hosts() dashboard {
	return dashboard{uid: "weir-agent", title: "Weir: hosts", program: "weir-agent", rows: []row{
		{"Packets", []panel{
			graph("By verdict", "", "pps", query{`sum by (verdict) (rate(weir_agent_packets_total` + chosen + `[$__rate_interval])) > 0`, "{{verdict}}"}),
			graph("Drops", "By verdict.", "pps", query{`sum by (instance, verdict) (rate(weir_agent_packets_total{instance=~"$instance",verdict=~"drop_.*"}[$__rate_interval])) > 0`, "{{instance}} {{verdict}}"}),
			graph("Bytes", "By host.", "Bps", query{`sum by (instance) (rate(weir_agent_bytes_total` + chosen + `[$__rate_interval]))`, "{{instance}}"}),
		}},
		{"Sessions", []panel{
			graph("Use", "Part of the session table in use.", "percentunit", query{`weir_agent_sessions` + chosen + ` / weir_agent_session_capacity` + chosen, "{{instance}}"}),
			graph("VIPs near their limit of sessions", "Part of the limit, the ten fullest.", "percentunit", query{`topk(10, weir_agent_vip_sessions{instance=~"$instance",state="confirmed"} / on (instance, vip) weir_agent_vip_session_limit` + chosen + `)`, "{{instance}} {{vip}}"}),
			graph("The ten busiest backends", "Sessions.", "short", query{`topk(10, weir_agent_backend_sessions` + chosen + `)`, "{{vip}} {{port}} {{tunnel}}"}),
			graph("Daisy chaining", "Sessions whose bucket moved to another backend.", "short", query{`sum by (instance) (weir_agent_backend_sessions_draining` + chosen + `)`, "{{instance}}"}),
			graph("Idle sessions", "Sessions that ended as idle, and keepalive probes to silent workloads.", "short",
				query{`rate(weir_agent_sessions_ended_total` + chosen + `[$__rate_interval])`, "{{instance}} ended"},
				query{`rate(weir_agent_keepalives_total` + chosen + `[$__rate_interval])`, "{{instance}} probed"}),
			graph("Fastpath", "Connections between hosts, by state.", "short", query{`sum by (instance, state) (weir_agent_fastpath_connections` + chosen + `)`, "{{instance}} {{state}}"}),
			graph("Fastpath: messages", "By result.", "pps", query{`sum by (result) (rate(weir_agent_fastpath_messages_total` + chosen + `[$__rate_interval]))`, "{{result}}"}),
		}},
		{"Multipath TCP", []panel{
			graph("Joins", "SYNs of further subflows: of a connection here (own, brought), handed on, or of none that a host has (unknown).", "pps", query{`sum by (result) (rate(weir_agent_multipath_joins_total` + chosen + `[$__rate_interval]))`, "{{result}}"}),
			graph("Rows", "Tokens of connections here (own), and as a home (names); subflows of other hosts.", "short", query{`sum by (instance, table) (weir_agent_multipath_rows` + chosen + `)`, "{{instance}} {{table}}"}),
			graph("Refused, and removed", "Rows for which a VIP had no room, and announcements of workloads' own addresses.", "short",
				query{`rate(weir_agent_multipath_refused_total` + chosen + `[$__rate_interval])`, "{{instance}} refused"},
				query{`rate(weir_agent_multipath_announcements_removed_total` + chosen + `[$__rate_interval])`, "{{instance}} announcements"}),
			graph("Segments without cookies", "To the host of their subflow.", "pps", query{`rate(weir_agent_multipath_segments_total` + chosen + `[$__rate_interval])`, "{{instance}}"}),
		}},
		{"Virtual networks", []panel{
			graph("Sessions", "With backends here, by state.", "short", query{`sum by (instance, state) (weir_agent_network_sessions` + chosen + `)`, "{{instance}} {{state}}"}),
			graph("Packets of clients", "Straight to backends' hosts, by the muxes, and delivered.", "pps", query{`sum by (network, vip, direction) (rate(weir_agent_network_client_packets_total` + chosen + `[$__rate_interval]))`, "{{network}} {{vip}} {{direction}}"}),
			graph("Round trips", "Between clients and backends here, as handshakes took.", "s", quantiles("weir_agent_network_handshake_duration_seconds", chosen, "network, vip")...),
			graph("Packets of backends", "Between backends here and clients, the ten busiest.", "pps", query{`topk(10, sum by (network, vip, protocol, port, tunnel) (rate(weir_agent_network_backend_packets_total` + chosen + `[$__rate_interval])))`, "{{network}} {{vip}} {{protocol}} {{port}} {{tunnel}}"}),
			graph("Connections of backends", "By what happened.", "short", query{`sum by (network, vip, result) (rate(weir_agent_network_backend_connections_total` + chosen + `[$__rate_interval]))`, "{{network}} {{vip}} {{result}}"}),
			graph("Connections of clients", "By what happened.", "short", query{`sum by (network, result) (rate(weir_agent_network_client_connections_total` + chosen + `[$__rate_interval]))`, "{{network}} {{result}}"}),
			graph("Drops", "By verdict.", "pps", query{`sum by (instance, verdict) (rate(weir_agent_network_packets_total{instance=~"$instance",verdict=~"drop_.*"}[$__rate_interval])) > 0`, "{{instance}} {{verdict}}"}),
		}},
		{"Backends", []panel{
			graph("Unhealthy", "By their checks.", "short", query{`count by (instance) (weir_agent_backend_healthy` + chosen + ` == 0)`, "{{instance}}"}),
			graph("Duration of checks", "By result.", "s", quantiles("weir_agent_health_check_duration_seconds", chosen, "result")...),
			graph("Not found", "Backends whose address is not on this host.", "short", query{`weir_agent_backends_missing` + chosen, "{{instance}}"}),
		}},
		{"Manager", []panel{
			graph("Stream", "1: open.", "short", query{`weir_agent_stream_connected` + chosen, "{{instance}}"}),
			graph("Generation", "In force.", "short", query{`weir_agent_generation` + chosen, "{{instance}}"}),
			graph("Time to apply", "A message of the manager.", "s", quantiles("weir_agent_apply_duration_seconds", chosen, "result")...),
		}},
	}}
}

func switches() dashboard {
	return dashboard{uid: "weir-switch", title: "Weir: switches", program: "weir-switch", rows: []row{
		{"VIPs", []panel{
			graph("Entries", "By state.", "short", query{`sum by (instance, state) (weir_switch_entries` + chosen + `)`, "{{instance}} {{state}}"}),
			graph("Tables", "Part of each in use.", "percentunit", query{`weir_switch_table_rows` + chosen + ` / weir_switch_table_capacity` + chosen, "{{instance}} {{table}}"}),
			graph("Time to program", "By result.", "s", quantiles("weir_switch_program_duration_seconds", chosen, "result")...),
			graph("Generation", "That the switch is at.", "short", query{`weir_switch_generation` + chosen, "{{instance}}"}),
		}},
		{"Switch", []panel{
			graph("Trouble", "1: it does not do what its driver asks, or no manager was heard for too long.", "short",
				query{`weir_switch_stuck` + chosen, "{{instance}} stuck"}, query{`weir_switch_lease_over` + chosen, "{{instance}} lease over"}),
			graph("Differences", "Entries that were read back other than programmed, and lost tables.", "short",
				query{`increase(weir_switch_differences_total` + chosen + `[$__rate_interval])`, "{{instance}} differences"},
				query{`increase(weir_switch_reboots_total` + chosen + `[$__rate_interval])`, "{{instance}} reboots"}),
			graph("Since it was read", "", "s", query{`time() - weir_switch_read_timestamp_seconds` + chosen, "{{instance}}"}),
		}},
		{"Ports", []panel{
			graph("Received", "Part of the port's speed, the ten busiest.", "percentunit",
				query{`topk(10, rate(weir_switch_port_received_bytes_total` + chosen + `[$__rate_interval]) / (weir_switch_port_speed_bytes` + chosen + ` > 0))`, "{{instance}} {{port}}"}),
			graph("Sent", "Part of the port's speed, the ten busiest.", "percentunit",
				query{`topk(10, rate(weir_switch_port_sent_bytes_total` + chosen + `[$__rate_interval]) / (weir_switch_port_speed_bytes` + chosen + ` > 0))`, "{{instance}} {{port}}"}),
			graph("Errors", "Frames that were dropped or broken.", "pps", query{`rate(weir_switch_port_errors_total` + chosen + `[$__rate_interval]) > 0`, "{{instance}} {{port}}"}),
			graph("Links", "Ports that are up, and that LLDP hears a neighbour on.", "short",
				query{`sum by (instance) (weir_switch_port_up` + chosen + `)`, "{{instance}} up"}, query{`sum by (instance) (weir_switch_port_neighbour` + chosen + `)`, "{{instance}} neighbours"}),
		}},
		{"Router and manager", []panel{
			graph("BGP sessions", "1: established.", "short", query{`weir_switch_bgp_session_up` + chosen, "{{instance}} {{peer}}"}),
			graph("Routes", "Announced.", "short", query{`weir_switch_bgp_routes` + chosen, "{{instance}} {{peer}}"}),
			graph("Stream", "1: open.", "short", query{`weir_switch_stream_connected` + chosen, "{{instance}}"}),
			graph("Warnings", "See the status of the node.", "short", query{`weir_switch_warnings` + chosen, "{{instance}}"}),
		}},
	}}
}
