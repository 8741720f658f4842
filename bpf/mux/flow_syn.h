/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A SYN of a five-tuple that is remembered at another backend than the SYN goes to: the client uses
 * its port again, or the source is forged. The cell keeps its slot and notes the SYN's sequence
 * number. The next segment decides: one that follows the SYN begins the new connection, and any
 * other is of the one that is remembered.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/mux/flow.h"
#include "mux/flow_table.h"
#include "mux/trace.h"

/* A cell of the flow that records a SYN: only a part of the tag remains to compare. */
static __always_inline bool flow_has_syn(__u64 flow, __u64 tag)
{
	return flow & FLOW_SYN && (flow ^ tag) >> FLOW_SYN_TAG_SHIFT == 0;
}

/* Reads the upper bits of the segment's sequence number plus more. 0, or -1: it is not there. */
static __always_inline int flow_sequence(struct xdp_md *ctx, __u32 l4, __u32 more, __u64 *sequence)
{
	__be32 read;

	if (bpf_xdp_load_bytes(ctx, l4 + __builtin_offsetof(struct tcphdr, seq), &read,
			       sizeof(read)))
		return -1;
	*sequence = (bpf_ntohl(read) + more) >> FLOW_SEQUENCE_SHIFT;
	return 0;
}

/* Notes a SYN that goes to the slot. The segment behind it has the sequence number plus 1. */
__noinline int flow_note_syn(struct xdp_md *ctx, __u64 hash, __u64 tag, __u32 slot, __u32 l4)
{
	struct flow_set *set = flow_set_of(hash);
	__u32 now = flow_now();
	__u64 sequence;

	if (!set || trace_only())
		return 0;
	for (int i = 0; i < FLOW_CELLS; i++) {
		struct flow_cell *cell = &set->cells[i];
		__u64 flow = *(volatile __u64 *)&cell->flow;

		if ((!flow_matches(flow, tag) && !flow_has_syn(flow, tag)) ||
		    flow_is_free(cell, now))
			continue;
		if ((flow & SLOT_MASK) == slot)
			cell->flow = tag | slot;
		else if (!flow_sequence(ctx, l4, 1, &sequence))
			cell->flow = tag >> FLOW_SYN_TAG_SHIFT << FLOW_SYN_TAG_SHIFT |
				     sequence << FLOW_TAG_SHIFT | FLOW_SYN | (flow & SLOT_MASK);
		return 0;
	}
	return 0;
}

/*
 * The slot of a flow whose cell notes a SYN, or 0. A segment that follows the SYN frees the cell;
 * what a client sends first may be lost, so up to 128 KiB behind it. Any other ends the note.
 */
__noinline int flow_after_syn(struct xdp_md *ctx, const struct flow_claim *c, __u32 l4)
{
	struct flow_set *set = c ? flow_set_of(c->hash) : NULL;
	__u64 sequence;

	if (!set)
		return 0;
	for (int i = 0; i < FLOW_CELLS; i++) {
		struct flow_cell *cell = &set->cells[i];
		__u64 flow = *(volatile __u64 *)&cell->flow;

		if (!flow_has_syn(flow, c->tag) || flow_is_free(cell, c->now))
			continue;
		if (flow_sequence(ctx, l4, 0, &sequence))
			return 0;
		sequence = (sequence - (flow >> FLOW_TAG_SHIFT)) & FLOW_SEQUENCE_MASK;
		if (sequence > 1) {
			if (!trace_only())
				cell->flow = c->tag | (flow & SLOT_MASK);
			return flow & SLOT_MASK;
		}
		if (!trace_only())
			flow_free(cell);
		return 0;
	}
	return 0;
}
