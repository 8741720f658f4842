/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Policing of packets to an endpoint: the ACL of its sources, rate limits and the fair share of its
 * VIP. Only endpoints that have any of these pay for it: flags of the row, which is loaded anyway,
 * say so.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/police.h"
#include "net/counter.h"
#include "net/ratelimit.h"
#include "mux/trace.h"
#include "mux/fairness.h"
#include "mux/maps.h"
#include "mux/ctx.h"

/*
 * Prefixes of all source lists. User space writes: lists without a name are immutable and replaced
 * as a whole, named ones are updated in place, additions before deletions. User space bounds the
 * number of rows; memory is allocated as they come.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 20);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_key);
	__type(value, __u8);
} sources SEC(".maps");

/* Sets of several lists. User space writes a row only while no row of `acls` names it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct source_set);
} source_sets SEC(".maps");

/* Names of lists, by their numbers. User space writes and reads. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192); /* twice what there may be, as they come before others go */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct source_name);
} source_names SEC(".maps");

/* ACLs by endpoint id. Read for endpoints with ENDPOINT_SOURCES alone; user space writes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags, BPF_F_MMAPABLE); /* to store a word at once */
	__type(key, __u32);
	__type(value, struct acl);
} acls SEC(".maps");

/*
 * Rate limits and drop probabilities, by the VIP's index of vip_usage. Read for endpoints with
 * ENDPOINT_LIMITED or ENDPOINT_FAIR_SHARE, and for fragments that are relayed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__uint(map_flags,
	       BPF_F_MMAPABLE); /* to store a word at once; and it aligns rows to lines */
	__type(key, __u32);
	__type(value, struct vip_policer);
} vip_policers SEC(".maps");

/* Packets that a VIP's rate limits or its fair share dropped, by its index. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct counter);
} vip_drops SEC(".maps");

/* The verdict before the first of those that police_verdict() returns, which are contiguous. */
enum {
	POLICE_VERDICTS = VERDICT_DROP_ACL - 1,
	POLICE_VERDICTS_MASK = 7,
};

_Static_assert(VERDICT_DROP_FAIR_SHARE - POLICE_VERDICTS <= POLICE_VERDICTS_MASK,
	       "bits for each verdict");
_Static_assert(VERDICT_DROP_TOO_BIG - POLICE_VERDICTS > POLICE_VERDICTS_MASK, "needs a backend");

/* What policing needs to know of a packet. */
struct policed {
	struct address source;
	__u32 id; /* of the endpoint */
	__u32 vip;
	__u32 bytes;
	enum endpoint_flag flags;
	__u32 opens; /* 1: a SYN, which opens a connection */
	__u32 paid; /* 1: the mux that relayed it has counted it in packets and bytes */
};

static __always_inline bool acl_list_matches(__u32 list, const struct address *source)
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

/* Is the source in the list, or in one of a set of lists? */
static __always_inline bool acl_matches(__u32 lists, const struct address *source)
{
	struct source_set *set;
	__u32 row = lists & ~SOURCE_SET, list;

	if (!(lists & SOURCE_SET))
		return acl_list_matches(lists, source);
	set = bpf_map_lookup_elem(&source_sets, &row);
	if (!set)
		return false;
	for (int i = 0; i < SOURCE_SET_LISTS; i++) {
		list = set->lists[i];
		if (!list)
			return false;
		if (acl_list_matches(list, source))
			return true;
	}
	return false;
}

static __always_inline bool acl_allows(const struct policed *g)
{
	__u32 id = g->id, allow, deny;
	struct acl *acl = bpf_map_lookup_elem(&acls, &id);
	__u64 lists;

	if (!acl)
		return true;
	lists = *(volatile __u64 *)&acl->lists;
	allow = lists;
	deny = lists >> 32;
	if (deny && acl_matches(deny, &g->source))
		return false;
	return !allow || acl_matches(allow, &g->source);
}

/* Takes tokens from the bucket of one of the VIP's limits. True also if there is no such limit. */
static __always_inline bool vip_token_take(struct vip_policer *v, enum vip_limit limit,
					   __u64 amount, __u64 now)
{
	__u64 interval = *(volatile __u64 *)&v->emission_interval[limit];

	if (!interval)
		return true;
	return ratelimit_take(&v->tat[limit], interval * amount >> VIP_COST_SHIFT,
			      v->burst_tolerance[limit], now, &cfg_trace);
}

static __always_inline enum verdict vip_ratelimit(const struct policed *g, struct vip_policer *v)
{
	__u64 now = bpf_ktime_get_coarse_ns();

	if (g->opens && !vip_token_take(v, VIP_LIMIT_CONNECTIONS, 1, now))
		return VERDICT_DROP_LIMIT_CONNECTIONS;
	if (g->paid)
		return VERDICT_NONE;
	if (!vip_token_take(v, VIP_LIMIT_PACKETS, 1, now))
		return VERDICT_DROP_LIMIT_PACKETS;
	if (!vip_token_take(v, VIP_LIMIT_BYTES, g->bytes, now))
		return VERDICT_DROP_LIMIT_BYTES;
	return VERDICT_NONE;
}

static __always_inline enum verdict vip_police(const struct policed *g, struct vip_policer *v)
{
	if (g->flags & ENDPOINT_FAIR_SHARE && fair_drop(&g->source, g->vip, v))
		return VERDICT_DROP_FAIR_SHARE;
	if (g->flags & ENDPOINT_LIMITED)
		return vip_ratelimit(g, v);
	return VERDICT_NONE;
}

/*
 * Why the packet is dropped, as a distance from POLICE_VERDICTS; 0: it is not. A function of its
 * own, which the verifier walks once.
 */
__noinline int police_verdict(const struct policed *g)
{
	enum verdict verdict;
	struct vip_policer *v;
	__u32 vip;

	if (!g)
		return 0;
	if (g->flags & ENDPOINT_SOURCES && !acl_allows(g))
		return VERDICT_DROP_ACL - POLICE_VERDICTS;
	if (!(g->flags & (ENDPOINT_FAIR_SHARE | ENDPOINT_LIMITED)))
		return 0;
	vip = g->vip;
	v = bpf_map_lookup_elem(&vip_policers, &vip);
	if (!v)
		return 0;
	verdict = vip_police(g, v);
	if (!verdict)
		return 0;
	count(&vip_drops, vip, g->bytes);
	return verdict - POLICE_VERDICTS;
}

static __always_inline enum verdict police_packet(const struct policed *g)
{
	__u32 why = police_verdict(g);

	if (!why)
		return VERDICT_NONE;
	barrier_var(why); /* the verifier is to see the bound */
	return POLICE_VERDICTS + (why & POLICE_VERDICTS_MASK);
}

/* Holds the packet against its endpoint's ACL and its VIP's limits. NONE: it goes on. */
static __always_inline enum verdict police(const struct mux_ctx *w, const bool paid)
{
	struct policed g;

	if (!(w->endpoint->flags & (ENDPOINT_SOURCES | ENDPOINT_LIMITED | ENDPOINT_FAIR_SHARE)))
		return VERDICT_NONE;
	g.source = w->packet.source;
	g.id = w->endpoint->id;
	g.vip = w->endpoint->vip;
	g.bytes = w->packet.limit;
	g.flags = w->endpoint->flags;
	g.opens = (w->packet.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
	g.paid = paid;
	return police_packet(&g);
}

/*
 * Holds a packet whose ports are not known against its VIP's limits. No endpoint says whether there
 * are any, but the VIP's row of `vip_policers` does.
 */
static __always_inline enum verdict police_vip(const struct packet *p, const struct endpoint *vip)
{
	struct policed g = {
		.source = p->source,
		.vip = vip->vip,
		.bytes = p->limit,
		.flags = ENDPOINT_LIMITED,
	};

	return police_packet(&g);
}
