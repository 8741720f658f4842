/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The steps aside as programs, which the fast path leaves for by a tail call. */
#pragma once

#include "mux/slowpath.h"
#include "mux/finish.h"

static __always_inline enum xdp_action aside_main(struct xdp_md *ctx, enum aside aside)
{
	__u64 bytes = bpf_xdp_get_buff_len(ctx);

	return finish(step_aside(ctx, aside), bytes);
}

SEC("xdp.frags")
int aside_icmp(struct xdp_md *ctx)
{
	return aside_main(ctx, ASIDE_ICMP);
}

SEC("xdp.frags")
int aside_fragments(struct xdp_md *ctx)
{
	return aside_main(ctx, ASIDE_FRAGMENT);
}

SEC("xdp.frags")
int aside_relayed(struct xdp_md *ctx)
{
	return aside_main(ctx, ASIDE_GUE);
}

SEC("xdp.frags")
int aside_too_big_v4(struct xdp_md *ctx)
{
	return aside_main(ctx, ASIDE_TOO_BIG_V4);
}

SEC("xdp.frags")
int aside_too_big_v6(struct xdp_md *ctx)
{
	return aside_main(ctx, ASIDE_TOO_BIG_V6);
}

/* Not by a function: a flood pays for each call, most where the kernel makes returns safe. */
SEC("xdp.frags")
int aside_syn(struct xdp_md *ctx)
{
	struct syn_handover *h = syn_handover();

	return h ? finish(answer_syn(ctx, h), h->limit) : finish(VERDICT_DROP_SYN, 0);
}

int mux_rare(struct xdp_md *ctx);

/* By enum aside: of one version of the programs, so no other version's fast path uses it. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ASIDE_COUNT);
	__type(key, __u32);
	__array(values, int(struct xdp_md *));
} asides SEC(".maps") = {
	.values = {
		[ASIDE_ICMP] = (void *)&aside_icmp,
		[ASIDE_FRAGMENT] = (void *)&aside_fragments,
		[ASIDE_GUE] = (void *)&aside_relayed,
		[ASIDE_TOO_BIG_V4] = (void *)&aside_too_big_v4,
		[ASIDE_TOO_BIG_V6] = (void *)&aside_too_big_v6,
		[ASIDE_RARE] = (void *)&mux_rare,
		[ASIDE_SYN] = (void *)&aside_syn,
	},
};
