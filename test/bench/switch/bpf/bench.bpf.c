// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The harness that makes the kernel's repeated test run measure the stand-in for a switch: before
 * each call it writes the frame's headers anew, of the next flow, after it it undoes the growth of
 * the head. What the switch is measured against runs in the same harness.
 */
#include "switch/switch.bpf.c"

#include "../../mux/bpf/floor.h"

volatile const __u32 cfg_flows = 1; /* how many flows come in turn */
volatile const bool cfg_v6; /* family of the packets, and of their outer header */

__u32 flow; /* the next one */
__u8 template[56]; /* Ethernet and IP headers */

static __always_inline bool restore(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + sizeof(template) > end)
		return false;
#pragma unroll
	for (__u32 at = 0; at < sizeof(template); at += 8)
		*(__u64 *)(data + at) = *(__u64 *)(template + at);
	*(__u32 *)(data + sizeof(struct ethhdr) + (cfg_v6 ? 20 : 12)) |= bpf_htonl(flow);
	flow = flow + 1 < cfg_flows ? flow + 1 : 0;
	return true;
}

static __always_inline long length(const struct xdp_md *ctx)
{
	return (long)ctx->data_end - (long)ctx->data;
}

/* Takes off what the program put before the packet. */
static __always_inline int undo(struct xdp_md *ctx, int action, long before)
{
	long after = length(ctx);

	barrier_var(after); /* else the pointers are subtracted as 32-bit numbers */
	if (after != before && bpf_xdp_adjust_head(ctx, after - before))
		return XDP_ABORTED;
	return action;
}

__noinline int run_switch(struct xdp_md *ctx)
{
	return switch_main(ctx);
}

__noinline int run_floor(struct xdp_md *ctx)
{
	return cfg_v6 ? floor_v6(ctx, IPPROTO_TCP, 80) : floor_v4(ctx, IPPROTO_TCP, 80);
}

SEC("xdp.frags")
int bench_switch(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore(ctx) ? undo(ctx, run_switch(ctx), before) : XDP_ABORTED;
}

SEC("xdp.frags")
int bench_floor(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore(ctx) ? undo(ctx, run_floor(ctx), before) : XDP_ABORTED;
}

/* The harness alone, to tell its own cost. */
SEC("xdp.frags")
int bench_empty(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore(ctx) ? undo(ctx, XDP_PASS, before) : XDP_ABORTED;
}
