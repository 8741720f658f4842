// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The harness that makes the kernel's repeated test run measure the mux: before each call it
 * restores the Ethernet header and writes the next flow's source address, after it it undoes
 * the growth of the head. The floor runs in the same harness.
 */
#include "mux.bpf.c"

#include "floor.h"

volatile const __u32 cfg_flows = 1; /* how many flows come in turn */
volatile const bool cfg_v6; /* family of the packets, and of their outer header */
volatile const bool cfg_keep; /* leave the packet as the program left it, to look at it */

__u32 flow; /* the next one */

static __always_inline bool restore(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	/* The low word of the source; its upper byte tells the classes apart. */
	__u32 *source = data + sizeof(struct ethhdr) + (cfg_v6 ? 20 : 12);

	if (data + sizeof(struct ethhdr) + sizeof(struct ipv6hdr) > end)
		return false;
	*(__u64 *)data = 0x0a02020202020202ULL;
	*(__u32 *)(data + 8) = 0x0a0a0a0a;
	*(__be16 *)(data + 12) = cfg_v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	*source = (*source & bpf_htonl(0xff000000)) | bpf_htonl(flow);
	flow = flow + 1 < cfg_flows ? flow + 1 : 0;
	return true;
}

static __always_inline int undo(struct xdp_md *ctx, int action)
{
	int growth = cfg_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (action == XDP_TX && !cfg_keep && bpf_xdp_adjust_head(ctx, growth))
		return XDP_ABORTED;
	return action;
}

__noinline int run_mux(struct xdp_md *ctx)
{
	return mux_main(ctx, false);
}

__noinline int run_floor(struct xdp_md *ctx)
{
	return cfg_v6 ? floor_v6(ctx) : floor_v4(ctx);
}

SEC("xdp")
int bench_mux(struct xdp_md *ctx)
{
	return restore(ctx) ? undo(ctx, run_mux(ctx)) : XDP_ABORTED;
}

SEC("xdp")
int bench_floor(struct xdp_md *ctx)
{
	return restore(ctx) ? undo(ctx, run_floor(ctx)) : XDP_ABORTED;
}
