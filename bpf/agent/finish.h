/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The only place that turns a verdict into an action. */
#pragma once

#include "agent/maps.h"
#include "agent/source_check.h"
#include "net/skb/frame.h"

/* What finish() must know of a packet besides the verdict, taken before it is changed. */
struct skb_meta {
	__u32 packets; /* of the wire: GRO makes one buffer of many */
	__u32 bytes;
	__u32 ifindex; /* where to, for the verdicts that redirect */
};

static __always_inline struct skb_meta skb_meta(struct __sk_buff *skb)
{
	struct skb_meta meta = { .packets = skb->gso_segs ?: 1, .bytes = skb->len };

	return meta;
}

static __always_inline int finish(struct __sk_buff *skb, enum verdict verdict,
				  const struct skb_meta *meta)
{
	struct counter *counter = bpf_map_lookup_elem(&verdicts, &verdict);

	if (counter) {
		counter->packets += meta->packets;
		counter->bytes += meta->bytes;
	}
	switch (verdict) {
	case VERDICT_PASS_OURS:
	case VERDICT_PASS_OTHER_MAC:
	case VERDICT_PASS_TAGGED:
	case VERDICT_PASS_OTHER:
	case VERDICT_PASS_MALFORMED:
	case VERDICT_PASS_FRAGMENT:
	case VERDICT_PASS_NOT_TUNNEL:
	case VERDICT_PASS_UNKNOWN_TUNNEL:
	case VERDICT_PASS_NO_SESSION:
	case VERDICT_DELIVER_NATIVE:
	case VERDICT_REPLY_NATIVE:
	case VERDICT_REPLY_HOST:
	case VERDICT_PASS_SNAT_EXEMPT:
	case VERDICT_PASS_NO_FLOW:
	case VERDICT_SNAT_NATIVE:
	case VERDICT_SYNCOOKIE_SOCKET:
	case VERDICT_SYNCOOKIE_NATIVE:
		return TCX_NEXT;
	case VERDICT_REPLY_UPLINK: /* by the uplink */
	case VERDICT_CHAIN_ON:
	case VERDICT_CHAIN_BACK:
	case VERDICT_JOIN_HOME:
	case VERDICT_JOIN_ON:
	case VERDICT_JOIN_TOLD:
	case VERDICT_STEERED_COOKIE:
	case VERDICT_STEERED_BUCKET:
	case VERDICT_STEERED_QUERY:
	case VERDICT_STEERED_ANSWER:
	case VERDICT_STEERED_ERROR:
	case VERDICT_RELAY_FRAGMENT:
	case VERDICT_RELAY_ERROR:
	case VERDICT_REPLY_PING:
	case VERDICT_REPLY_DIRECT:
	case VERDICT_SNAT_UPLINK:
		departure_seal(skb);
		return bpf_redirect_neigh(meta->ifindex, NULL, 0, 0);
	case VERDICT_DELIVER_INTERFACE:
	case VERDICT_REPLY_INTERFACE:
	case VERDICT_SYNCOOKIE_INTERFACE:
		return bpf_redirect_neigh(meta->ifindex, NULL, 0, 0);
	case VERDICT_SYNCOOKIE_ANSWER: /* back where it came from */
		return bpf_redirect_neigh(skb->ifindex, NULL, 0, 0);
	case VERDICT_SYNCOOKIE_ANSWER_HOST:
	case VERDICT_SYNCOOKIE_REQUEUE:
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	case VERDICT_NONE:
	case VERDICT_DROP_NOT_A_MUX:
	case VERDICT_DROP_NOT_CHAIN_PEER:
	case VERDICT_DROP_NOT_A_VIP_HOST:
	case VERDICT_DROP_GUE_MALFORMED:
	case VERDICT_DROP_GUE_UNKNOWN:
	case VERDICT_DROP_GUE_MERGED:
	case VERDICT_DROP_INNER_MALFORMED:
	case VERDICT_DROP_INNER_FRAGMENT:
	case VERDICT_DROP_INNER_OTHER:
	case VERDICT_DROP_ICMP_UNKNOWN:
	case VERDICT_DROP_NO_RULE:
	case VERDICT_DROP_NO_WORKLOAD:
	case VERDICT_DROP_ECN:
	case VERDICT_DROP_SESSION_TAKEN:
	case VERDICT_DROP_SESSION_FULL:
	case VERDICT_DROP_SESSION_GONE:
	case VERDICT_DROP_CHAIN_FAMILY:
	case VERDICT_DROP_CHAIN:
	case VERDICT_DROP_STEER_CLOSED:
	case VERDICT_DROP_STEER_PING:
	case VERDICT_DROP_STEER_NO_BACKEND:
	case VERDICT_DROP_STEER_MERGED:
	case VERDICT_DROP_RELAY_LIMITED:
	case VERDICT_DROP_RELAY_NO_MUX:
	case VERDICT_JOIN_NOTED: /* a table has it */
	case VERDICT_DROP_JOIN_UNKNOWN:
	case VERDICT_DROP_JOIN_CONFLICT:
	case VERDICT_DROP_JOIN_FULL:
	case VERDICT_DROP_JOIN_STALE:
	case VERDICT_SNAT_QUEUE: /* user space has it */
	case VERDICT_DROP_SPOOFED_SOURCE:
	case VERDICT_DROP_TAGGED:
	case VERDICT_DROP_OWN_TUNNEL:
	case VERDICT_DROP_PORTS_EXHAUSTED:
	case VERDICT_DROP_FLOWS_FULL:
	case VERDICT_DROP_UNSOLICITED_FULL:
	case VERDICT_DROP_FILTERED:
	case VERDICT_DROP_SNAT_QUEUE_FULL:
	case VERDICT_DROP_SNAT_QUEUE_LARGE:
	case VERDICT_DROP_SNAT_QUEUE_FRAGMENT:
	case VERDICT_DROP_DECAPSULATE:
	case VERDICT_DROP_REWRITE:
	case VERDICT_DROP_DIRECT:
	case VERDICT_DROP_CONTROL:
	case VERDICT_PUNT_CONTROL:
	case VERDICT_DROP_SYNCOOKIE_INVALID:
	case VERDICT_DROP_SYNCOOKIE_EXPIRED:
	case VERDICT_DROP_SYNCOOKIE_REPLAYED:
	case VERDICT_DROP_SYNCOOKIE_PENDING:
	case VERDICT_DROP_SYNCOOKIE_REWRITE:
	case VERDICT_COUNT:
		return TCX_DROP;
	}
	return TCX_DROP;
}
