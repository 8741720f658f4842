/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sweep of source NAT's tables: it ends what has been idle, and counts what stays. A table may
 * have a million rows, and a program that user space runs can't be scheduled away. So user space
 * reads the keys, and hands them to the program in pieces.
 */
#pragma once

#include "agent/snat/calls.h"

/* The keys of a piece, by table. User space writes, one sweep at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SNAT_PIECE);
	__type(key, __u32);
	__type(value, struct session_key);
} swept_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SNAT_PIECE);
	__type(key, __u32);
	__type(value, struct snat_port_key);
} swept_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SNAT_PIECE);
	__type(key, __u32);
	__type(value, struct snat_target_key);
} swept_targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SNAT_PIECE);
	__type(key, __u32);
	__type(value, struct snat_used_key);
} swept_used SEC(".maps");

/* Keeps the mapping of a borrowed port alive. */
static __noinline int snat_touch_mapping(const struct session_key *key, __u64 seen)
{
	struct session_key mapping_key = { .dip = key->dip,
					   .dip_port = key->dip_port,
					   .protocol = key->protocol };
	struct snat_flow *mapping = bpf_map_lookup_elem(&snat_flows, &mapping_key);

	if (mapping && mapping->last_seen < seen)
		mapping->last_seen = seen;
	return 0;
}

/* A row that stays. */
static __always_inline void snat_found(__u32 workload, enum snat_table table)
{
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &workload);

	if (state)
		state->found[table]++;
}

static long snat_forget_found(void *map, __u32 *workload, struct snat_stat *state,
			      struct snat_sweep_call *call)
{
	__builtin_memset(state->found, 0, sizeof(state->found));
	return 0;
}

static __always_inline long snat_sweep_flow(const struct session_key *key, struct snat_flow *flow,
					    struct snat_sweep_call *call)
{
	struct session_key own = *key;
	const struct snat_port *port;
	__u64 seen = flow->last_seen;
	__u32 remote = 0;

	if (call->workload) {
		if (flow->workload == call->workload)
			call->ended += snat_end(&own);
		return 0;
	}
	port = flow->vip_port ? snat_port_of(&own, flow) : NULL;
	if (port) {
		remote = port->events;
		/* A mapping for all is kept by what the workload sends alone. */
		if (port->last_seen > seen && (!flow->borrowed || own.protocol == IPPROTO_TCP))
			seen = port->last_seen;
	}
	if (call->now > seen &&
	    call->now - seen > snat_bound(call, own.protocol, flow->events, remote)) {
		call->ended += snat_end(&own);
		return 0;
	}
	call->live++;
	if (flow->events & SNAT_REMOTE_RESET && call->now - seen >= call->reset)
		call->doubtful++;
	snat_found(flow->workload, SNAT_TABLE_FLOWS);
	if (flow->borrowed)
		snat_touch_mapping(&own, call->now);
	return 0;
}

/* Is it a permission of a mapping that has gone? */
static __always_inline bool snat_permits_nothing(const struct snat_port_key *key,
						 const struct snat_port *port)
{
	struct session_key flow_key = {
		.dip = port->dip,
		.dip_port = port->dip_port,
		.protocol = key->protocol,
	};

	if (key->remote_port || !address_is_set(&key->remote) || key->protocol == IPPROTO_ICMP ||
	    key->protocol == IPPROTO_ICMPV6)
		return false;
	return !bpf_map_lookup_elem(&snat_flows, &flow_key);
}

/* Rows of snat_ports without a flow: permissions of mappings that have gone, or all of a workload.
 */
static __always_inline long snat_sweep_port(const struct snat_port_key *key, struct snat_port *port,
					    struct snat_sweep_call *call)
{
	struct snat_port_key own = *key;
	__u32 workload = port->workload;

	if (call->workload ? workload == call->workload : snat_permits_nothing(&own, port))
		snat_drop_port(&own, workload);
	else
		snat_found(workload, SNAT_TABLE_PORTS);
	return 0;
}

/*
 * Hints of targets that have had no connection for the time of an idle one of UDP. Of one that
 * begins this moment the next hint does not know: it has one less than none when that has ended.
 */
static __always_inline long snat_sweep_target(const struct snat_target_key *key,
					      struct snat_target *target,
					      struct snat_sweep_call *call)
{
	struct snat_target_key own = *key;
	bool idle = (__s32)target->live <= 0 && call->now > target->used_at &&
		    call->now - target->used_at > call->udp;

	if (call->workload ? own.workload != call->workload : !idle)
		snat_found(own.workload, SNAT_TABLE_DESTS);
	else if (!bpf_map_delete_elem(&snat_dests, &own))
		snat_count_rows(own.workload, SNAT_TABLE_DESTS, -1);
	return 0;
}

/* A row has gone. A connection may have begun this moment, and taken its bit before: a row again.
 */
static __noinline int snat_unused(const struct snat_used_key *key, __u64 used)
{
	if (!used || bpf_map_update_elem(&snat_block_use, key, &used, BPF_NOEXIST))
		snat_count_rows(key->target.workload, SNAT_TABLE_BLOCK_USE, -1);
	return 0;
}

static __always_inline long snat_sweep_used(const struct snat_used_key *key, __u64 *used,
					    struct snat_sweep_call *call)
{
	struct snat_used_key own = *key;
	bool idle = !*used && !bpf_map_lookup_elem(&snat_dests, &own.target);

	if (call->workload ? own.target.workload != call->workload : !idle)
		snat_found(own.target.workload, SNAT_TABLE_BLOCK_USE);
	else if (!bpf_map_delete_elem(&snat_block_use, &own))
		snat_unused(&own, *used);
	return 0;
}

static long snat_sweep_flows_at(__u32 i, struct snat_sweep_call *call)
{
	const void *key = bpf_map_lookup_elem(&swept_flows, &i);
	struct snat_flow *row = key ? bpf_map_lookup_elem(&snat_flows, key) : NULL;

	return row ? snat_sweep_flow(key, row, call) : 0;
}

static long snat_sweep_ports_at(__u32 i, struct snat_sweep_call *call)
{
	const void *key = bpf_map_lookup_elem(&swept_ports, &i);
	struct snat_port *row = key ? bpf_map_lookup_elem(&snat_ports, key) : NULL;

	return row ? snat_sweep_port(key, row, call) : 0;
}

static long snat_sweep_targets_at(__u32 i, struct snat_sweep_call *call)
{
	const void *key = bpf_map_lookup_elem(&swept_targets, &i);
	struct snat_target *row = key ? bpf_map_lookup_elem(&snat_dests, key) : NULL;

	return row ? snat_sweep_target(key, row, call) : 0;
}

static long snat_sweep_used_at(__u32 i, struct snat_sweep_call *call)
{
	const void *key = bpf_map_lookup_elem(&swept_used, &i);
	__u64 *row = key ? bpf_map_lookup_elem(&snat_block_use, key) : NULL;

	return row ? snat_sweep_used(key, row, call) : 0;
}

static __always_inline void snat_sweep_piece(struct snat_sweep_call *call)
{
	__u32 keys = call->keys < SNAT_PIECE ? call->keys : SNAT_PIECE;

	switch (call->table) {
	case SNAT_TABLE_FLOWS:
		bpf_loop(keys, snat_sweep_flows_at, call, 0);
		break;
	case SNAT_TABLE_PORTS:
		bpf_loop(keys, snat_sweep_ports_at, call, 0);
		break;
	case SNAT_TABLE_DESTS:
		bpf_loop(keys, snat_sweep_targets_at, call, 0);
		break;
	case SNAT_TABLE_BLOCK_USE:
		bpf_loop(keys, snat_sweep_used_at, call, 0);
		break;
	case SNAT_TABLES:
		bpf_for_each_map_elem(&snat_stats, snat_forget_found, call, 0);
		break;
	}
}

SEC("syscall")
int snat_sweep(struct snat_sweep_call *call)
{
	struct snat_sweep_call own = *call;

	snat_sweep_piece(&own);
	*call = own;
	return 0;
}
