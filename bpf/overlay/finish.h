/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The only place that turns a verdict into an action. */
#pragma once

#include "overlay/maps.h"

static __always_inline void verdict_count(enum verdict verdict, __u32 packets, __u32 bytes)
{
	struct counter *counter = bpf_map_lookup_elem(&verdicts, &verdict);

	if (counter) {
		counter->packets += packets;
		counter->bytes += bytes;
	}
}

/* What a program of ours sends by the uplink is known there: see
 * departure_is_sealed(). */
static __always_inline int finish_send(struct __sk_buff *skb, __u32 ifindex)
{
	skb->cb[0] = settings.seal[0];
	skb->cb[1] = settings.seal[1];
	return bpf_redirect_neigh(ifindex, NULL, 0, 0);
}

static __always_inline int finish(struct __sk_buff *skb, enum verdict verdict, __u32 ifindex)
{
	switch (verdict) {
	case VERDICT_PASS_OTHER:
	case VERDICT_PASS_NOT_VXLAN:
	case VERDICT_PASS_NOT_OURS:
	case VERDICT_PASS_NOT_LOCAL:
	case VERDICT_PASS_NOT_A_VIP:
	case VERDICT_DELIVER_NATIVE:
	case VERDICT_SYNCOOKIE_NATIVE:
		return TCX_NEXT;
	case VERDICT_DELIVER_INTERFACE:
	case VERDICT_SYNCOOKIE_INTERFACE:
		return bpf_redirect_neigh(ifindex, NULL, 0, 0);
	case VERDICT_DELIVER_CLIENT:
		return bpf_redirect(ifindex, 0);
	case VERDICT_ANSWER_ARP:
	case VERDICT_ANSWER_ND:
	case VERDICT_ANSWER_TOO_BIG:
		return bpf_redirect(skb->ifindex, 0);
	case VERDICT_REPLY_LOCAL: /* as if it came by the wire */
	case VERDICT_SEND_LOCAL:
		return bpf_redirect(ifindex, BPF_F_INGRESS);
	case VERDICT_REPLY:
	case VERDICT_REPLY_BY_MUX:
	case VERDICT_RESET_CLIENT:
	case VERDICT_SEND_DIRECT:
	case VERDICT_SEND_MUX:
		return finish_send(skb, ifindex);
	case VERDICT_RESET_SERVER: /* back where it came from */
	case VERDICT_SYNCOOKIE_ANSWER:
		return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
	case VERDICT_RESET_SERVER_NATIVE:
	case VERDICT_ANSWER_TOO_BIG_NATIVE:
	case VERDICT_SYNCOOKIE_ANSWER_HOST:
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	case VERDICT_NONE:
	case VERDICT_DROP_INNER_FRAGMENT:
	case VERDICT_DROP_INNER_OTHER:
	case VERDICT_DROP_INNER_MALFORMED:
	case VERDICT_DROP_ECN:
	case VERDICT_DROP_NOT_A_VTEP:
	case VERDICT_DROP_FBT_MISSING:
	case VERDICT_DROP_FBT_KEY:
	case VERDICT_DROP_FBT_FORGED:
	case VERDICT_DROP_FBT_VNI:
	case VERDICT_DROP_FBT_HOST:
	case VERDICT_DROP_SYN_PAST_MUX:
	case VERDICT_DROP_OTHER_HOST:
	case VERDICT_DROP_NO_SESSION:
	case VERDICT_DROP_RESET_LIMITED:
	case VERDICT_DROP_NO_RULE:
	case VERDICT_DROP_NO_WORKLOAD:
	case VERDICT_DROP_QUOTA:
	case VERDICT_DROP_HALF_OPEN:
	case VERDICT_DROP_SESSION_FULL:
	case VERDICT_DROP_SESSION_PENDING:
	case VERDICT_DROP_SESSION_GONE:
	case VERDICT_DROP_SYNCOOKIE_PENDING:
	case VERDICT_DROP_SYNCOOKIE_REPLAYED:
	case VERDICT_DROP_LOCAL_OTHER:
	case VERDICT_DROP_TOO_BIG:
	case VERDICT_DROP_SPOOFED:
	case VERDICT_DROP_TAGGED:
	case VERDICT_DROP_NO_MUX:
	case VERDICT_DROP_NOT_ACKED:
	case VERDICT_DROP_REWRITE:
	case VERDICT_COUNT:
		return TCX_DROP;
	}
	return TCX_DROP;
}
