/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Clamping the maximum segment size that a workload announces, so that a client's full segment plus
 * the largest outer header fits the MTU between mux and host. What a client announces is for what
 * the workload sends, which has no outer header, or goes to a workload that announced in its turn.
 */
#pragma once

#include "net/skb/rewrite.h"
#include "abi/shared/gue.h"
#include "net/skb/tcp_options.h"

static __always_inline int mss_clamp(struct __sk_buff *skb, const struct packet *p, __u32 mtu)
{
	__u32 ip =
		p->ethertype == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 headers = OUTER_HEADER_MAX + ip + sizeof(struct tcphdr);
	__be16 mss, bound = bpf_htons(mtu - headers);
	__u32 at;

	if (!(p->tcp_flags & TCP_FLAG_SYN) || mtu <= headers)
		return 0;
	at = tcp_option_offset(skb, p->l4, TCP_OPTION_MSS, TCP_OPTION_MSS_LENGTH);
	if (!at || bpf_skb_load_bytes(skb, p->l4 + at + 2, &mss, sizeof(mss)))
		return 0;
	if (bpf_ntohs(mss) <= mtu - headers)
		return 0;
	return rewrite_tcp16(skb, p, at + 2, mss, bound);
}
