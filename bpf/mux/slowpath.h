/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the fast path does not do: ICMP, fragments, packets that are too big, answers to SYNs. Each
 * step parses the frame again, but a SYN is handed over (syn_ctx.h). Each is a program of its
 * own (slowpath_progs.h), so that the fast path pays nothing for it, neither in time nor in stack.
 */
#pragma once

#include "mux/slowpath/syn_reply.h"
#include "mux/slowpath/fragment.h"
#include "mux/slowpath/relay.h"
#include "mux/slowpath/icmp.h"
#include "mux/slowpath/reply.h"
#include "mux/slowpath/neighbor.h"
#include "mux/nat/reply.h"
#include "mux/overlay/vxlan.h"

/* Which of the steps goes on with a packet, by what the fast path said of it. */
enum slowpath {
	SLOWPATH_NONE = 0, /* the fast path had the last word */
	SLOWPATH_ICMP,
	SLOWPATH_FRAGMENT,
	SLOWPATH_GUE, /* for no VIP, but to GUE's port: another mux may have relayed it */
	SLOWPATH_TOO_BIG_V4, /* for a tunnel of IPv4 */
	SLOWPATH_TOO_BIG_V6,
	SLOWPATH_REPARSE, /* of no common shape: parse it in full */
	SLOWPATH_SYN, /* a SYN that the mux answers */
	SLOWPATH_VXLAN, /* for no VIP, but to VXLAN's port: of a virtual network's client */
	SLOWPATH_VXLAN_SYN, /* a SYN of these that the mux answers */
	SLOWPATH_NAT_FORWARD, /* that is of full NAT: SLOWPATH_VXLAN has said so */
	SLOWPATH_NAT_REPLY, /* for no VIP, but to a NAT address: of a backend with full NAT */
	SLOWPATH_NEIGHBOR, /* not to the mux's own MAC, or not IP: ARP or NDP for its VIPs */
	SLOWPATH_COUNT,
};

static __always_inline enum verdict handle_icmp(struct xdp_md *ctx)
{
	enum verdict verdict = icmp(ctx);

	return verdict == VERDICT_DROP_TOO_BIG ? too_big(ctx, ROOM_V6) : verdict;
}

/* What nobody has relayed: it may be NDP to the mux's own MAC. */
static __always_inline enum verdict handle_received_icmp(struct xdp_md *ctx)
{
	enum verdict verdict = handle_icmp(ctx);

	return verdict == VERDICT_PASS_ICMP && neighbor_has_lease() ? neighbor(ctx) : verdict;
}

static __always_inline enum verdict handle_fragment(struct xdp_md *ctx)
{
	enum verdict verdict = fragment_relay(ctx);

	if (!verdict)
		verdict = fragment_forward(ctx, false);
	return verdict == VERDICT_DROP_TOO_BIG ? too_big(ctx, FRAGMENT_ROOM) : verdict;
}

static __always_inline enum verdict handle_relayed_by_host(struct xdp_md *ctx,
							   const struct address *host)
{
	switch ((enum relayed)relayed_by_host(ctx, host)) {
	case RELAYED_FRAGMENT:
		return handle_fragment(ctx);
	case RELAYED_ERROR:
		return handle_icmp(ctx);
	case RELAYED_REFUSED:
		break;
	}
	return VERDICT_DROP_NOT_A_MUX;
}

/*
 * A fragment that another mux relayed, or what a host did. The kernel gets none of these: they are
 * for no address here.
 */
static __always_inline enum verdict handle_relayed(struct xdp_md *ctx)
{
	struct address host = {};
	enum verdict verdict = relay_accept(ctx, &host);

	if (verdict)
		return verdict;
	verdict = address_is_set(&host) ? handle_relayed_by_host(ctx, &host)
					: fragment_forward(ctx, true);
	if (verdict == VERDICT_PASS_FRAGMENT || verdict == VERDICT_PASS_MALFORMED ||
	    verdict == VERDICT_PASS_ICMP)
		return VERDICT_DROP_RELAY_INVALID;
	return verdict;
}

static __always_inline enum verdict handle_vxlan(struct xdp_md *ctx)
{
	enum verdict verdict = vxlan_handled(ctx);

	if (verdict == VERDICT_DROP_SYN)
		return vxlan_answer_syn(ctx);
	return verdict ?: nat_forwarded(ctx);
}

static __always_inline enum verdict handle_nat_reply(struct xdp_md *ctx)
{
	enum verdict verdict = nat_replied(ctx);

	return verdict == VERDICT_DROP_TOO_BIG ? too_big(ctx, NAT_ROOM) : verdict;
}

static __always_inline enum verdict slowpath_step(struct xdp_md *ctx, enum slowpath slowpath)
{
	switch (slowpath) {
	case SLOWPATH_ICMP:
		return handle_received_icmp(ctx);
	case SLOWPATH_FRAGMENT:
		return handle_fragment(ctx);
	case SLOWPATH_GUE:
		return handle_relayed(ctx);
	case SLOWPATH_TOO_BIG_V4:
		return too_big(ctx, ROOM_V4);
	case SLOWPATH_TOO_BIG_V6:
		return too_big(ctx, ROOM_V6);
	case SLOWPATH_SYN:
		return answer_syn_parsed(ctx);
	case SLOWPATH_VXLAN:
		return handle_vxlan(ctx);
	case SLOWPATH_VXLAN_SYN:
		return vxlan_answer_syn(ctx);
	case SLOWPATH_NAT_FORWARD:
		return nat_forwarded(ctx);
	case SLOWPATH_NAT_REPLY:
		return handle_nat_reply(ctx);
	case SLOWPATH_NEIGHBOR:
		return neighbor(ctx);
	case SLOWPATH_NONE:
	case SLOWPATH_REPARSE:
	case SLOWPATH_COUNT:
		break;
	}
	return VERDICT_NONE;
}
