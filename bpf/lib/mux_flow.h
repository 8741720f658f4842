/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The flow table: remembers which slot a flow was sent to. abi/mux_flow.h tells its form.
 * CPUs share it without locks: a cell is one word, and a write that another undoes is made good
 * by the flow's next packet.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux_flow.h"
#include "lib/mux_tables.h"

/* Number of sets less one; the number is a power of two. Set at load to fit the map. */
volatile const __u32 cfg_flow_set_mask = 262143;

static __always_inline struct flow_set *flow_set_of(__u64 hash)
{
	__u32 row = hash & cfg_flow_set_mask;

	return bpf_map_lookup_elem(&flows, &row);
}

/* What tells the flow from others of its set: the upper bits of a cell. */
static __always_inline __u64 flow_tag(__u64 hash, __u64 salt)
{
	return (hash ^ salt) >> FLOW_TAG_SHIFT << FLOW_TAG_SHIFT;
}

static __always_inline bool flow_matches(__u64 cell, __u64 tag)
{
	return (cell ^ tag) >> FLOW_TAG_SHIFT == 0;
}

/* The slot that the flow was sent to, or 0. */
static __always_inline __u32 flow_recall(struct flow_set *set, __u64 tag)
{
#pragma unroll
	for (int i = 0; i < FLOW_CELLS; i++) {
		__u64 cell = set->cells[i];

		if (!flow_matches(cell, tag))
			continue;
		if (!(cell & FLOW_SEEN_AGAIN))
			set->cells[i] = cell | FLOW_SEEN_AGAIN;
		return cell & FLOW_SLOT_MASK;
	}
	return 0;
}

/* How willingly a cell is given to the flow of the tag. */
static __always_inline int flow_rank(__u64 cell, __u64 tag)
{
	if (flow_matches(cell, tag))
		return 3;
	if (!(cell & FLOW_SLOT_MASK))
		return 2;
	return !(cell & FLOW_SEEN_AGAIN);
}

/*
 * The two that write are functions of their own, which the verifier walks once, not once for
 * every way that leads to them. Their 0 means nothing; the kernel wants one.
 */

__noinline int flow_remember(struct flow_set *set, __u64 tag, __u32 slot)
{
	__u32 best = tag >> 61; /* when all were seen again, any of them */
	int rank = 0;

	if (!set)
		return 0;
	for (int i = 0; i < FLOW_CELLS; i++) {
		int r = flow_rank(set->cells[i], tag);

		if (r > rank) {
			rank = r;
			best = i;
		}
	}
	if (rank == 0) /* whoever is still there must show it again */
		for (int i = 0; i < FLOW_CELLS; i++)
			set->cells[i] &= ~(__u64)FLOW_SEEN_AGAIN;
	set->cells[best % FLOW_CELLS] = tag | slot;
	return 0;
}

__noinline int flow_forget(struct flow_set *set, __u64 tag)
{
	if (!set)
		return 0;
	for (int i = 0; i < FLOW_CELLS; i++)
		if (flow_matches(set->cells[i], tag))
			set->cells[i] = 0;
	return 0;
}
