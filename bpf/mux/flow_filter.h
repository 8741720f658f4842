/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The filter in front of the flow table, which costs a miss of the caches where flows are many. It
 * has a bit for each flow that was found there in this epoch. Unless a bucket has moved, all flows
 * that are remembered of it are at the slot that it names: a flow with a bit goes there, and the
 * table is not read.
 *
 * A bit may be another flow's. Then the flow is remembered, or its cell lasts longer, an epoch
 * later: in each epoch flows have other bits. Of a word half of the bits are set at most, so that
 * whatever strangers send, a flow finds another one's bit in one epoch of two at most.
 *
 * Nothing is ever cleared: a word of another epoch counts as empty. A bit that CPUs lose to one
 * another is set again by the flow's next packet.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/flow_filter.h"
#include "mux/maps.h"

/* Ticks of the flow table in an epoch, as a power of two. Set at load: 8 s at most. */
volatile const __u32 cfg_flow_epoch_shift = 7;

/* The place of a flow's bit in an epoch. */
struct flow_bit {
	__u32 word;
	__u64 bit;
	__u64 epoch; /* as it stands in the word */
};

/*
 * Multiply-shift hashing, by another odd number in each epoch (Dietzfelbinger et al., 1997): two
 * flows that share a bit in one epoch do so in the next one no more often than any two.
 */
static __always_inline struct flow_bit flow_bit_of(__u64 tag, __u32 now)
{
	__u64 epoch = now >> cfg_flow_epoch_shift;
	__u64 factor = (epoch + 1) * 0x9e3779b97f4a7c15ULL;
	struct flow_bit at;
	__u64 hash;

	factor = (factor ^ factor >> 32) * 0xff51afd7ed558ccdULL;
	factor ^= factor >> 32;
	hash = tag * (factor | 1);
	at.word = hash >> (64 - FLOW_FILTER_WORD_BITS);
	at.bit = 1ULL << ((hash >> 16 & 0xffffffff) * FLOW_FILTER_BITS >> 32);
	at.epoch = epoch << FLOW_FILTER_BITS;
	return at;
}

/* Has a flow with this bit been found in this epoch? The tag is that of its cell. */
static __always_inline bool flow_filter_has(__u64 tag, __u32 now)
{
	struct flow_bit at = flow_bit_of(tag, now);
	__u64 word = *(volatile __u64 *)&flow_filter.words[at.word] ^ at.epoch;

	return word >> FLOW_FILTER_BITS == 0 && word & at.bit;
}

static __always_inline void flow_filter_add(__u64 tag, __u32 now)
{
	struct flow_bit at = flow_bit_of(tag, now);
	volatile __u64 *word = &flow_filter.words[at.word];
	__u64 bits = *word ^ at.epoch;

	if (bits >> FLOW_FILTER_BITS)
		bits = 0; /* of another epoch */
	if (__builtin_popcountll(bits) < FLOW_FILTER_MOST)
		*word = bits | at.bit | at.epoch;
}

/* Is a flow that goes on remembered well enough, though some of its packets are not looked up? */
static __always_inline bool flow_filter_suits(__u32 idle)
{
	return idle >> cfg_flow_epoch_shift >= FLOW_FILTER_EPOCHS;
}

/*
 * A flow is remembered at another slot than its bucket names. As long as that is seen, user space
 * leaves the bucket marked as moved.
 */
static __always_inline void flow_is_elsewhere(__u32 endpoint, __u32 bucket_hash)
{
	__u64 *parts = bpf_map_lookup_elem(&flows_elsewhere, &endpoint);
	__u64 part = 1ULL << bucket_hash % ELSEWHERE_PARTS;

	if (parts && !(*(volatile __u64 *)parts & part))
		__sync_fetch_and_or(parts, part);
}
