/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Clamping the maximum segment size that a workload announces, so that a client's full segment plus
 * the largest outer header fits the MTU between mux and host. What a client announces is for what
 * the workload sends, which has no outer header, or goes to a workload that announced in its turn.
 * How large that is, user space says: internal/datapath/mss.
 */
#pragma once

#include "agent/maps.h"
#include "net/skb/rewrite.h"
#include "net/skb/tcp_options.h"

static __always_inline int mss_clamp(struct __sk_buff *skb, const struct packet *p)
{
	__u32 at, most = p->ethertype == bpf_htons(ETH_P_IP) ? settings.mss4 : settings.mss6;
	__be16 mss;

	if (!(p->tcp_flags & TCP_FLAG_SYN) || !most)
		return 0;
	at = tcp_option_offset(skb, p->l4, TCP_OPTION_MSS, TCP_OPTION_MSS_LENGTH);
	if (!at || bpf_skb_load_bytes(skb, p->l4 + at + 2, &mss, sizeof(mss)))
		return 0;
	if (bpf_ntohs(mss) <= most)
		return 0;
	return rewrite_tcp16(skb, p, at + 2, mss, bpf_htons(most));
}
