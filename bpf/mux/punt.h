/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hands a packet to user space, which sends it on: what XDP can't do, for it can't wait or copy. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/punt.h"
#include "mux/ratelimit.h"
#include "mux/trace.h"
#include "net/packet.h"

/* Packets for user space, as struct punt. Full means that the packet is dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21);
} punts SEC(".maps");

struct punt_small {
	struct punt head;
	__u8 frame[PUNT_SMALL];
};

struct punt_large {
	struct punt head;
	__u8 frame[PUNT_LARGE];
};

/* Fills a record and gives it away. */
static __always_inline bool punt_submit(struct xdp_md *ctx, struct punt *punt, __u32 length,
					__u32 l3, enum punt_reason reason)
{
	punt->length = length;
	punt->l3 = l3;
	punt->reason = reason;
	punt->pad = 0;
	if (bpf_xdp_load_bytes(ctx, 0, punt + 1, length)) {
		bpf_ringbuf_discard(punt, 0);
		return false;
	}
	bpf_ringbuf_submit(punt, 0);
	return true;
}

/* Copies the frame, whose IP header is at l3, to user space. Returns whether it could. */
__noinline int punt_frame(struct xdp_md *ctx, __u32 l3, const struct address *vip,
			  enum punt_reason reason)
{
	__u64 length = bpf_xdp_get_buff_len(ctx);
	struct punt_small *small;
	struct punt_large *large;

	if (!vip || length < 1 || length > PUNT_LARGE)
		return 0;
	if (trace_only())
		return 1;
	if (!ratelimit(LIMIT_PUNT, vip))
		return 0;
	if (length <= PUNT_SMALL) {
		small = bpf_ringbuf_reserve(&punts, sizeof(*small), 0);
		return small && punt_submit(ctx, &small->head, length, l3, reason);
	}
	large = bpf_ringbuf_reserve(&punts, sizeof(*large), 0);
	return large && punt_submit(ctx, &large->head, length, l3, reason);
}

/* The same, of a packet to a VIP. */
static __always_inline int punt(struct xdp_md *ctx, const struct packet *p, enum punt_reason reason)
{
	struct address vip = p->destination; /* a copy: what has an address is kept in memory */

	return punt_frame(ctx, p->l3, &vip, reason);
}
