/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counting SYNs, and what share of them is followed by more. An endpoint that is not watched pays
 * for its SYNs alone.
 */
#pragma once

#include "abi/mux_syn.h"
#include "lib/flowhash.h"
#include "lib/mux_look.h"
#include "lib/mux_work.h"

/* What SYNs come to, by the endpoint's id. Written by packets. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct syn_counter);
} syn_counters SEC(".maps");

/*
 * Connections of watched endpoints whose handshake is under way, by hash: the upper end of the
 * hash; or 0. Where there is one already it is forgotten, and counts as never completed. All are in
 * one row, for each row takes 8 bytes: a flood is to find them in a cache.
 */
struct syn_trials {
	__u16 tags[SYN_TRIALS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syn_trials);
} syn_trials SEC(".maps");

/* Which connections of watched endpoints are tried. */
static __always_inline bool syn_sampled(__u64 hash)
{
	return !(hash & ((1 << SYN_TRIAL_SHIFT) - 1));
}

static __always_inline __u16 *syn_trial(__u64 hash)
{
	__u32 row = 0;
	struct syn_trials *trials = bpf_map_lookup_elem(&syn_trials, &row);

	return trials ? &trials->tags[hash >> SYN_TRIAL_SHIFT & (SYN_TRIALS - 1)] : NULL;
}

static __always_inline __u16 syn_trial_tag(__u64 hash)
{
	return hash >> 48 | 1; /* 0 is an empty cell */
}

/* Counts a SYN, whatever becomes of it. Of a watched endpoint it may begin a trial. */
static __always_inline void syn_count(const struct work *w)
{
	__u32 id = w->endpoint->id;
	struct syn_counter *counter = bpf_map_lookup_elem(&syn_counters, &id);
	__u16 tag = syn_trial_tag(w->hash), *trial;

	if (!counter || only_looking())
		return;
	counter->syns++;
	if (!(w->endpoint->flags & ENDPOINT_WATCHED) || !syn_sampled(w->hash))
		return;
	trial = syn_trial(w->hash);
	if (!trial)
		return;
	counter->tried += *trial != tag; /* not one that is sent again */
	*trial = tag;
}

static __always_inline void syn_count_answer(__u32 id)
{
	struct syn_counter *counter = bpf_map_lookup_elem(&syn_counters, &id);

	if (counter && !only_looking())
		counter->answered++;
}

/* A packet that is no SYN, of a connection that may be tried. The verifier walks this once. */
__noinline int syn_complete(__u32 id, __u64 hash)
{
	__u16 *trial = syn_trial(hash);
	struct syn_counter *counter;

	if (!trial || *trial != syn_trial_tag(hash) || only_looking())
		return 0;
	counter = bpf_map_lookup_elem(&syn_counters, &id);
	if (!counter)
		return 0;
	*trial = 0;
	counter->completed++;
	return 0;
}

/*
 * A packet of TCP that is no SYN, of an endpoint that is watched. A reset completes no handshake:
 * it is what a host sends whose address was forged.
 */
static __always_inline void syn_follow(struct work *w)
{
	__u64 hash = w->hash;

	if (w->packet.tcp_flags & TCP_FLAG_RST)
		return;
	if (!hash)
		hash = flowhash(&w->packet, &pool.hash_key);
	if (syn_sampled(hash))
		syn_complete(w->endpoint->id, hash);
}
