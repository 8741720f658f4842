/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fair shares of an overloaded mux: drops a part of the packets of VIPs that exceed theirs, and
 * samples which sources those come from. Only packets of endpoints with ENDPOINT_FAIR_SHARE get
 * here.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/police.h"
#include "abi/mux/fairness.h"
#include "mux/trace.h"
#include "mux/maps.h"

/* The sketch of heavy hitters among sources. Written by packets; user space clears it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HEAVY_HITTER_CELLS);
	__type(key, __u32);
	__type(value, struct heavy_hitter);
} heavy_hitters SEC(".maps");

/*
 * How many of 2^32 packets of a prefix of sources are dropped, in place of its VIP's number.
 * Written by user space, which bounds it; empty unless the mux is overloaded.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SHARE_SOURCES);
	__type(key, struct share_key);
	__type(value, __u64);
} source_shares SEC(".maps");

static __always_inline __u64 share_prefix(const struct address *a)
{
	const __u32 mask4 = bpf_htonl(~0U << (32 - SHARE_PREFIX_V4));
	const __u32 mask6 = bpf_htonl(~0U << (64 - SHARE_PREFIX_V6));

	if (address_is_v4(a))
		return (a->words[3] & mask4) | (__u64)SHARE_V4 << 56;
	return a->words[0] | (__u64)(a->words[1] & mask6) << 32;
}

/*
 * The prefix's column in a row of the sketch, by a keyed hash: without the pool's secret nobody can
 * tell which prefixes share a cell.
 */
static __always_inline __u32 heavy_hitter_column(const struct share_key *key, __u32 row)
{
	const __u32 *secret = &settings.hash_key.words[4 * row];
	__u64 h = key->prefix ^ (secret[0] | (__u64)secret[1] << 32);

	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h ^= key->vip ^ (secret[2] | (__u64)secret[3] << 32);
	h *= 0xc4ceb9fe1a85ec53ULL;
	return h >> 54; /* of HEAVY_HITTER_COLUMNS */
}

static __always_inline void heavy_hitter_count(struct heavy_hitter *t, const struct share_key *key)
{
	t->all++;
	if (t->candidate.prefix == key->prefix && t->candidate.vip == key->vip) {
		t->lead++;
	} else if (t->lead) {
		t->lead--;
	} else {
		t->candidate = *key;
		t->lead = 1;
	}
}

static __always_inline void heavy_hitter_sample(const struct share_key *key)
{
	if (trace_only() || bpf_get_prandom_u32() % SHARE_SAMPLE)
		return;
	for (__u32 row = 0; row < HEAVY_HITTER_ROWS; row++) {
		__u32 cell = row * HEAVY_HITTER_COLUMNS + heavy_hitter_column(key, row);
		struct heavy_hitter *t = bpf_map_lookup_elem(&heavy_hitters, &cell);

		if (t)
			heavy_hitter_count(t, key);
	}
}

/* Is the packet to be dropped, because its VIP or its prefix of sources exceeds its fair share? */
static __always_inline bool fair_drop(const struct address *source, __u32 vip,
				      const struct vip_policer *v)
{
	struct share_key key = { .prefix = share_prefix(source), .vip = vip };
	__u64 *of_source, drop = v->drop;

	heavy_hitter_sample(&key);
	if (v->until < bpf_ktime_get_coarse_ns())
		return false;
	of_source = bpf_map_lookup_elem(&source_shares, &key);
	if (of_source)
		drop = *of_source;
	return drop && bpf_get_prandom_u32() < drop;
}
