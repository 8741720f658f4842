/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/shared/address.h"

struct agent_settings {
	__u64 generation; /* of the desired state that the tables hold */
	__u32 uplink; /* ifindex */
	__u32 mtu; /* of the uplink; 0: not known */
	__u32 cookie_scale; /* of new sessions: see struct session */
	__u32 snat; /* workloads with source NAT: 0 spares a lookup in their tables */
	struct address address4; /* of the uplink: outer source of forwarded packets */
	struct address address6; /* not set: the uplink has none of the family */
	__u32 snat_flows; /* room for those of one workload */
	__u32 snat_queue_limit; /* packets of one workload that may wait for a port */
	__u32 check_sources; /* 1: workloads may send only from what lives behind their interface */
	__u32 take_over; /* 1: the kernel makes sockets of SYN cookies that we have checked */
	__u32 steered; /* endpoints of VIPs that switches hold: 0 spares lookups in their tables */
	__u32 multipath; /* endpoints whose subflows find their connection: 0 spares a look at
			    options */
	__u32 mss4; /* the most that a workload's SYN may announce; 0: leave the option alone */
	__u32 mss6;
	__u32 ipv4_tunnels; /* 1: those of the workloads here are IPv4 alone */
	__u32 pad;
};

_Static_assert(sizeof(struct agent_settings) == 96, "agent_settings");
