/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The mux's tables of virtual networks. User space writes all but the counters. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/overlay.h"
#include "abi/shared/counter.h"
#include "abi/shared/fbt.h"
#include "abi/shared/network.h"

/* VIPs by network and their addresses there. Never evicts, as none of these. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct network_address);
	__type(value, struct attached_vip);
} network_vips SEC(".maps");

/*
 * Hosts that may send VXLAN to muxes: by network of which they have workloads, and address. Those
 * with servers are there under network 0, too.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct network_address);
	__type(value, struct overlay_vtep);
} vteps SEC(".maps");

/* Hosts of clients by number, which answers name. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4097);
	__type(key, __u32);
	__type(value, struct overlay_host);
} overlay_hosts SEC(".maps");

/* Keys of hosts with backends, by their numbers: one makes the FBTs of what is sent there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4097);
	__type(key, __u32);
	__type(value, struct fbt_keys);
} host_keys SEC(".maps");

/* Packets forwarded for a VIP in a network, by attachment. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct counter);
} network_counts SEC(".maps");

/* A map of one row that needs no lookup. */
struct mux_overlay overlay SEC(".data.overlay");
