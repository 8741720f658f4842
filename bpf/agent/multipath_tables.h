/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of Multipath TCP, and their quotas. */
#pragma once

#include "abi/agent/multipath.h"
#include "agent/rx_ctx.h"

/*
 * Tokens of this host's workloads. The programs write when a connection has begun, user space
 * keeps what lives. Full, as the next two: the least recently used one is forgotten.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct multipath_name);
	__type(value, struct multipath_holder);
} mptcp_tokens SEC(".maps");

/* Tokens of any host, of which this one is a home. Hosts tell them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct multipath_name);
	__type(value, struct multipath_holder);
} mptcp_names SEC(".maps");

/* Subflows that others have, who have said of a segment that came by here that it is the client's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct multipath_flow);
	__type(value, struct multipath_joined);
} mptcp_joined SEC(".maps");

/* Those of whose SYN alone they have: whoever has one connection can make any number, by forged
 * sources. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct multipath_flow);
	__type(value, struct multipath_joined);
} mptcp_joining SEC(".maps");

/* Homes by endpoint and cell. User space writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1048576);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct multipath_home_key);
	__type(value, struct multipath_homes);
} mptcp_homes SEC(".maps");

/* By VIP. User space makes and removes the rows. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct multipath_usage);
} mptcp_usages SEC(".maps");

/* By VIP. User space alone writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, struct multipath_quota);
} mptcp_quotas SEC(".maps");

/* ns for which a row counts unless it is refreshed: internal/multipath, NameLife. */
#define MULTIPATH_LIFE (15ULL * 60 * 1000 * 1000 * 1000)

/*
 * May the VIP have one more row? Then it is counted. Not static: the verifier looks at it once.
 */
__noinline int multipath_count(const struct address *vip __arg_nonnull, __u32 table)
{
	struct multipath_usage *usage = bpf_map_lookup_elem(&mptcp_usages, vip);
	const struct multipath_quota *quota = bpf_map_lookup_elem(&mptcp_quotas, vip);

	if (!usage || !quota || table >= MULTIPATH_TABLES)
		return false;
	if (usage->made[table] >= quota->limit[table]) {
		__sync_fetch_and_add(&usage->refused[table], 1);
		return false;
	}
	__sync_fetch_and_add(&usage->made[table], 1);
	return true;
}

static __always_inline bool multipath_lives(const struct multipath_holder *row)
{
	return row && (__s64)(row->until - bpf_ktime_get_coarse_ns()) > 0;
}

/* Makes a->name the one of a token of the rule's endpoint. */
static __always_inline void multipath_set_name(struct rx_ctx *a, __be32 token)
{
	a->name.vip = a->key.vip;
	a->name.port = a->key.port;
	a->name.protocol = a->key.protocol;
	a->name.pad = 0;
	a->name.token = token;
}

/* Makes a->holder the tunnel, as whose client the packet's sender is known. */
static __always_inline void multipath_set_holder(struct rx_ctx *a, const struct address *tunnel)
{
	a->holder.tunnel = *tunnel;
	a->holder.client = a->inner.source;
	a->holder.client_port = a->inner.source_port;
}

/* What becomes of what a host is told. */
enum noted {
	NOTED_NEW,
	NOTED_AGAIN,
	NOTED_CONFLICT,
	NOTED_FULL,
};

/*
 * Notes that a->holder has a->name: Note() of internal/multipath is the twin in Go. A row of
 * another one is not replaced while it lives: tokens are unique per server alone.
 */
static __always_inline enum noted multipath_note(struct rx_ctx *a, void *table,
						 enum multipath_table kind)
{
	struct multipath_holder *row = bpf_map_lookup_elem(table, &a->name);

	a->holder.until = bpf_ktime_get_coarse_ns() + MULTIPATH_LIFE;
	if (row && address_equal(&row->tunnel, &a->holder.tunnel)) {
		*row = a->holder;
		return NOTED_AGAIN;
	}
	if (multipath_lives(row))
		return NOTED_CONFLICT;
	if (!row && !multipath_count(&a->name.vip, kind))
		return NOTED_FULL;
	if (bpf_map_update_elem(table, &a->name, &a->holder, BPF_ANY))
		return NOTED_FULL;
	return NOTED_NEW;
}
