/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps of source NAT. None evicts: what ends, ends by the sweep. Rows are made when they are
 * needed, so room that is not used costs little.
 */
#pragma once

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include "abi/agent/session.h"
#include "abi/agent/snat_call.h"
#include "abi/agent/snat_flow.h"
#include "abi/agent/snat_queue.h"
#include "abi/agent/snat_workload.h"

/* DIPs whose own connections leave as a VIP. User space writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct snat_workload);
} snat_workloads SEC(".maps");

/* By a workload's number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct snat_stat);
} snat_stats SEC(".maps");

/* The ports of workloads, by block. The programs for user space write `ports`, all others the use.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct snat_block_key);
	__type(value, struct snat_block);
} snat_blocks SEC(".maps");

/* Destinations that are left alone. User space writes. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct snat_exempt);
	__type(value, __u8);
} snat_exempts SEC(".maps");

/* Connections as workloads see them. Full: a new one is refused. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 524288);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct session_key);
	__type(value, struct snat_flow);
} snat_flows SEC(".maps");

/* The same as the network sees them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1048576);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct snat_port_key);
	__type(value, struct snat_port);
} snat_ports SEC(".maps");

/*
 * Which ports are in use towards whom: what the search for a free one goes by. A hint, for
 * snat_ports decides.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 524288);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct snat_target_key);
	__type(value, struct snat_target);
} snat_dests SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1048576);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct snat_used_key);
	__type(value, __u64);
} snat_block_use SEC(".maps");

/* What user space must hear of, as struct snat_queue_entry. Full: packets that would wait are
 * dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} snat_notices SEC(".maps");
