/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the fast path does not do: ICMP, fragments, packets that are too big, answers to SYNs. Each
 * step parses the frame again, but a SYN is handed over (syn_ctx.h). Each is a program of its
 * own (slowpath_progs.h), so that the fast path pays nothing for it, neither in time nor in stack.
 */
#pragma once

#include "mux/slowpath/syn_reply.h"
#include "mux/slowpath/fragment.h"
#include "mux/slowpath/icmp.h"
#include "mux/slowpath/reply.h"

/* Which of the steps goes on with a packet, by what the fast path said of it. */
enum aside {
	ASIDE_NONE = 0, /* the fast path had the last word */
	ASIDE_ICMP,
	ASIDE_FRAGMENT,
	ASIDE_GUE, /* for no VIP, but to GUE's port: another mux may have relayed it */
	ASIDE_TOO_BIG_V4, /* for a tunnel of IPv4 */
	ASIDE_TOO_BIG_V6,
	ASIDE_RARE, /* all over again, with what the fast path does not even parse */
	ASIDE_SYN, /* a SYN that the mux answers */
	ASIDE_COUNT,
};

static __always_inline enum verdict aside_icmp_packet(struct xdp_md *ctx)
{
	enum verdict verdict = icmp(ctx);

	return verdict == VERDICT_DROP_TOO_BIG ? too_big(ctx, ROOM_V6) : verdict;
}

static __always_inline enum verdict aside_fragment(struct xdp_md *ctx)
{
	enum verdict verdict = fragment_relay(ctx);

	if (!verdict)
		verdict = fragment_forward(ctx, false);
	return verdict == VERDICT_DROP_TOO_BIG ? too_big(ctx, FRAGMENT_ROOM) : verdict;
}

/* What was relayed to us is for nobody here: not even for the kernel. */
static __always_inline enum verdict aside_gue(struct xdp_md *ctx)
{
	enum verdict verdict = relay_accept(ctx);

	if (verdict)
		return verdict;
	verdict = fragment_forward(ctx, true);
	if (verdict == VERDICT_PASS_FRAGMENT || verdict == VERDICT_PASS_MALFORMED)
		return VERDICT_DROP_RELAYED;
	return verdict;
}

static __always_inline enum verdict step_aside(struct xdp_md *ctx, enum aside aside)
{
	switch (aside) {
	case ASIDE_ICMP:
		return aside_icmp_packet(ctx);
	case ASIDE_FRAGMENT:
		return aside_fragment(ctx);
	case ASIDE_GUE:
		return aside_gue(ctx);
	case ASIDE_TOO_BIG_V4:
		return too_big(ctx, ROOM_V4);
	case ASIDE_TOO_BIG_V6:
		return too_big(ctx, ROOM_V6);
	case ASIDE_SYN:
		return answer_syn_aside(ctx);
	case ASIDE_NONE:
	case ASIDE_RARE:
	case ASIDE_COUNT:
		break;
	}
	return VERDICT_NONE;
}
