/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What stands between a packet and its endpoint: which sources it takes, and how much its VIP may
 * have. Only endpoints that have such a thing pay for it: flags of the row, which is loaded anyway,
 * say so.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/police.h"
#include "net/counter.h"
#include "mux/trace.h"
#include "mux/fairness.h"
#include "mux/maps.h"
#include "mux/ctx.h"

/*
 * Prefixes of all lists. Written by user space: a list of an endpoint changes only by being
 * replaced; one that has a name in place, what is new before what is gone. Bounded by user space,
 * which counts; memory is taken as rows come.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_key);
	__type(value, __u8);
} sources SEC(".maps");

/* Written by user space while no row of `guards` names the row. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct source_set);
} source_sets SEC(".maps");

/* By the number of a list that has a name. User space writes and reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192); /* twice what there may be, as they come before others go */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct source_name);
} source_names SEC(".maps");

/* By the endpoint's id. Of an endpoint without ENDPOINT_SOURCES nobody reads the row. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_MMAPABLE); /* to store a word at once */
	__type(key, __u32);
	__type(value, struct guard);
} guards SEC(".maps");

/*
 * By the VIP's index of vip_usage. Read for endpoints with ENDPOINT_LIMITED or ENDPOINT_SHARED, and
 * for fragments that are relayed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags,
	       BPF_F_MMAPABLE); /* to store a word at once; and it aligns rows to lines */
	__type(key, __u32);
	__type(value, struct vip_guard);
} vip_guards SEC(".maps");

/* Packets that a VIP's limits, or its share, kept out; by its index. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct counter);
} vip_refused SEC(".maps");

/* The verdict before those that are given here, which are one behind the other. */
enum {
	GUARD_VERDICTS = VERDICT_DROP_SOURCE - 1,
	GUARD_VERDICTS_MASK = 7,
};

_Static_assert(VERDICT_DROP_SHARE - GUARD_VERDICTS <= GUARD_VERDICTS_MASK, "bits for each verdict");
_Static_assert(VERDICT_DROP_TOO_BIG - GUARD_VERDICTS > GUARD_VERDICTS_MASK, "needs a backend");

/* A packet that asks to get through. */
struct guarded {
	struct address source;
	__u32 id; /* of the endpoint */
	__u32 vip;
	__u32 bytes;
	enum endpoint_flag flags;
	__u32 opens; /* a connection */
	__u32 paid; /* packets and bytes are, at the mux that relayed it */
};

static __always_inline bool source_is_listed(__u32 list, const struct address *source)
{
	struct source_key key = {
		.length = 8 * (sizeof(key.list) + sizeof(key.address)),
		.list = list << SOURCE_LIST_SHIFT,
		.address = *source,
	};

	if (address_is_v4(source)) {
		key.list |= SOURCE_LIST_V4;
		key.address.words[0] = source->words[3];
		key.address.words[2] = 0;
		key.address.words[3] = 0;
	}
	return bpf_map_lookup_elem(&sources, &key);
}

/* Says so of a list, or of several that hold as one. */
static __always_inline bool source_is_in(__u32 lists, const struct address *source)
{
	struct source_set *set;
	__u32 row = lists & ~SOURCE_SET, list;

	if (!(lists & SOURCE_SET))
		return source_is_listed(lists, source);
	set = bpf_map_lookup_elem(&source_sets, &row);
	if (!set)
		return false;
	for (int i = 0; i < SOURCE_SET_LISTS; i++) {
		list = set->lists[i];
		if (!list)
			return false;
		if (source_is_listed(list, source))
			return true;
	}
	return false;
}

static __always_inline bool source_may_come(const struct guarded *g)
{
	__u32 id = g->id, allow, deny;
	struct guard *guard = bpf_map_lookup_elem(&guards, &id);
	__u64 lists;

	if (!guard)
		return true;
	lists = *(volatile __u64 *)&guard->lists;
	allow = lists;
	deny = lists >> 32;
	if (deny && source_is_in(deny, &g->source))
		return false;
	return !allow || source_is_in(allow, &g->source);
}

enum { VIP_LIMIT_TRIES = 16 };

/*
 * Takes so much from a VIP's bucket if it has it. Many CPUs may race for it; the one that loses
 * every try goes without: then the bucket is as good as empty.
 */
static __always_inline bool vip_limit_take(struct vip_guard *v, enum vip_limit limit, __u64 amount,
					   __u64 now)
{
	__u64 cost = *(volatile __u64 *)&v->cost[limit], most = v->most[limit], full, from;

	if (!cost)
		return true;
	cost = cost * amount >> VIP_COST_SHIFT;
	for (int i = 0; i < VIP_LIMIT_TRIES; i++) {
		full = *(volatile __u64 *)&v->full[limit];
		from = full > now ? full : now;
		if (from - now + cost > most)
			return false;
		if (only_looking())
			return true;
		if (__sync_val_compare_and_swap(&v->full[limit], full, from + cost) == full)
			return true;
	}
	return false;
}

static __always_inline enum verdict vip_has_room(const struct guarded *g, struct vip_guard *v)
{
	__u64 now = bpf_ktime_get_coarse_ns();

	if (g->opens && !vip_limit_take(v, VIP_LIMIT_CONNECTIONS, 1, now))
		return VERDICT_DROP_LIMIT_CONNECTIONS;
	if (g->paid)
		return VERDICT_NONE;
	if (!vip_limit_take(v, VIP_LIMIT_PACKETS, 1, now))
		return VERDICT_DROP_LIMIT_PACKETS;
	if (!vip_limit_take(v, VIP_LIMIT_BYTES, g->bytes, now))
		return VERDICT_DROP_LIMIT_BYTES;
	return VERDICT_NONE;
}

static __always_inline enum verdict vip_takes(const struct guarded *g, struct vip_guard *v)
{
	if (g->flags & ENDPOINT_SHARED && share_is_exceeded(&g->source, g->vip, v))
		return VERDICT_DROP_SHARE;
	if (g->flags & ENDPOINT_LIMITED)
		return vip_has_room(g, v);
	return VERDICT_NONE;
}

/*
 * Gives back why the packet may not go on, as a distance from GUARD_VERDICTS; 0: it may. A function
 * of its own, which the verifier walks once.
 */
__noinline int guard_refuses(const struct guarded *g)
{
	enum verdict verdict;
	struct vip_guard *v;
	__u32 vip;

	if (!g)
		return 0;
	if (g->flags & ENDPOINT_SOURCES && !source_may_come(g))
		return VERDICT_DROP_SOURCE - GUARD_VERDICTS;
	if (!(g->flags & (ENDPOINT_SHARED | ENDPOINT_LIMITED)))
		return 0;
	vip = g->vip;
	v = bpf_map_lookup_elem(&vip_guards, &vip);
	if (!v)
		return 0;
	verdict = vip_takes(g, v);
	if (!verdict)
		return 0;
	count(&vip_refused, vip, g->bytes);
	return verdict - GUARD_VERDICTS;
}

static __always_inline enum verdict guard_ask(const struct guarded *g)
{
	__u32 why = guard_refuses(g);

	if (!why)
		return VERDICT_NONE;
	barrier_var(why); /* the verifier is to see the bound */
	return GUARD_VERDICTS + (why & GUARD_VERDICTS_MASK);
}

/* May the packet go on to its endpoint? */
static __always_inline enum verdict guard(const struct work *w, const bool paid)
{
	struct guarded g;

	if (!(w->endpoint->flags & (ENDPOINT_SOURCES | ENDPOINT_LIMITED | ENDPOINT_SHARED)))
		return VERDICT_NONE;
	g.source = w->packet.source;
	g.id = w->endpoint->id;
	g.vip = w->endpoint->vip;
	g.bytes = w->packet.limit;
	g.flags = w->endpoint->flags;
	g.opens = (w->packet.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
	g.paid = paid;
	return guard_ask(&g);
}

/*
 * May the VIP have one packet more, of which no ports are known? So no endpoint says whether the
 * VIP has limits, but its row of `vip_guards` does.
 */
static __always_inline enum verdict guard_vip(const struct packet *p, const struct endpoint *vip)
{
	struct guarded g = {
		.source = p->source,
		.vip = vip->vip,
		.bytes = p->limit,
		.flags = ENDPOINT_LIMITED,
	};

	return guard_ask(&g);
}
