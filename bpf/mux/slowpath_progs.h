/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The steps of the slow path as programs, which the fast path leaves for by a tail call. */
#pragma once

#include "mux/slowpath.h"
#include "mux/finish.h"

static __always_inline enum xdp_action slowpath_main(struct xdp_md *ctx, enum slowpath slowpath)
{
	__u64 bytes = bpf_xdp_get_buff_len(ctx);

	return finish(slowpath_step(ctx, slowpath), bytes);
}

SEC("xdp.frags")
int slowpath_icmp(struct xdp_md *ctx)
{
	return slowpath_main(ctx, SLOWPATH_ICMP);
}

SEC("xdp.frags")
int slowpath_frags(struct xdp_md *ctx)
{
	return slowpath_main(ctx, SLOWPATH_FRAGMENT);
}

SEC("xdp.frags")
int slowpath_gue(struct xdp_md *ctx)
{
	return slowpath_main(ctx, SLOWPATH_GUE);
}

SEC("xdp.frags")
int slowpath_big_v4(struct xdp_md *ctx)
{
	return slowpath_main(ctx, SLOWPATH_TOO_BIG_V4);
}

SEC("xdp.frags")
int slowpath_big_v6(struct xdp_md *ctx)
{
	return slowpath_main(ctx, SLOWPATH_TOO_BIG_V6);
}

/* Not by a function: a flood pays for each call, most where the kernel makes returns safe. */
SEC("xdp.frags")
int slowpath_syn(struct xdp_md *ctx)
{
	struct syn_ctx *h = syn_ctx();

	return h ? finish(answer_syn(ctx, h), h->limit) : finish(VERDICT_DROP_SYN, 0);
}

SEC("xdp.frags")
int slowpath_syn_v(struct xdp_md *ctx)
{
	return slowpath_main(ctx, SLOWPATH_VXLAN_SYN);
}

SEC("xdp.frags")
int slowpath_neigh(struct xdp_md *ctx)
{
	return slowpath_main(ctx, SLOWPATH_NEIGHBOR);
}

int mux_full_parse(struct xdp_md *ctx);
int slowpath_vxlan(struct xdp_md *ctx);
int slowpath_to_dip(struct xdp_md *ctx);
int slowpath_of_dip(struct xdp_md *ctx);

/* By enum slowpath: of one version of the programs, so no other version's fast path uses it. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SLOWPATH_COUNT);
	__type(key, __u32);
	__array(values, int(struct xdp_md *));
} slowpath_progs SEC(".maps") = {
	.values = {
		[SLOWPATH_ICMP] = (void *)&slowpath_icmp,
		[SLOWPATH_FRAGMENT] = (void *)&slowpath_frags,
		[SLOWPATH_GUE] = (void *)&slowpath_gue,
		[SLOWPATH_TOO_BIG_V4] = (void *)&slowpath_big_v4,
		[SLOWPATH_TOO_BIG_V6] = (void *)&slowpath_big_v6,
		[SLOWPATH_REPARSE] = (void *)&mux_full_parse,
		[SLOWPATH_SYN] = (void *)&slowpath_syn,
		[SLOWPATH_VXLAN] = (void *)&slowpath_vxlan,
		[SLOWPATH_VXLAN_SYN] = (void *)&slowpath_syn_v,
		[SLOWPATH_NAT_FORWARD] = (void *)&slowpath_to_dip,
		[SLOWPATH_NAT_REPLY] = (void *)&slowpath_of_dip,
		[SLOWPATH_NEIGHBOR] = (void *)&slowpath_neigh,
	},
};

/* As slowpath_syn not by a function, for it is measured, as these below. */
SEC("xdp.frags")
int slowpath_vxlan(struct xdp_md *ctx)
{
	__u64 bytes = bpf_xdp_get_buff_len(ctx);
	enum verdict verdict = vxlan_handle(ctx);

	if (verdict == VERDICT_DROP_SYN)
		bpf_tail_call_static(ctx, &slowpath_progs, SLOWPATH_VXLAN_SYN);
	if (!verdict)
		bpf_tail_call_static(ctx, &slowpath_progs, SLOWPATH_NAT_FORWARD);
	return finish(verdict, bytes);
}

SEC("xdp.frags")
int slowpath_to_dip(struct xdp_md *ctx)
{
	__u64 bytes = bpf_xdp_get_buff_len(ctx);

	return finish(nat_forward(ctx), bytes);
}

SEC("xdp.frags")
int slowpath_of_dip(struct xdp_md *ctx)
{
	__u64 bytes = bpf_xdp_get_buff_len(ctx);
	enum verdict verdict = nat_reply(ctx);

	if (verdict == VERDICT_DROP_TOO_BIG)
		verdict = too_big(ctx, NAT_ROOM);
	return finish(verdict, bytes);
}
