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
 * Connections of watched endpoints whose handshake is under way, by hash: the rest of the hash.
 * Full means that the one before is forgotten, and counts as never completed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYN_TRIALS);
	__type(key, __u32);
	__type(value, __u32);
} syn_trials SEC(".maps");

/* A packet of a watched endpoint. A function of its own, which the verifier walks once. */
__noinline int syn_try(__u32 id, __u64 hash, bool syn)
{
	__u32 row = hash >> SYN_TRIAL_SHIFT & (SYN_TRIALS - 1);
	__u32 tag = hash >> 32 | 1; /* 0: nothing is tried */
	struct syn_counter *counter;
	__u32 *trial;

	if (hash & ((1 << SYN_TRIAL_SHIFT) - 1) || only_looking())
		return 0;
	trial = bpf_map_lookup_elem(&syn_trials, &row);
	if (!trial)
		return 0;
	if (!syn && *trial != tag)
		return 0;
	counter = bpf_map_lookup_elem(&syn_counters, &id);
	if (!counter)
		return 0;
	if (!syn) {
		*trial = 0;
		counter->completed++;
	} else if (*trial != tag) { /* not one that is sent again */
		*trial = tag;
		counter->tried++;
	}
	return 0;
}

static __always_inline void syn_count(__u32 id, bool answered)
{
	struct syn_counter *counter = bpf_map_lookup_elem(&syn_counters, &id);

	if (!counter || only_looking())
		return;
	counter->syns++;
	counter->answered += answered;
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
	syn_try(w->endpoint->id, hash, false);
}
