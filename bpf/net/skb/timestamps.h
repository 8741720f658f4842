/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* TCP's timestamps option (RFC 7323, section 3). */
#pragma once

#include "net/skb/rewrite.h"
#include "net/skb/tcp_options.h"

struct timestamps {
	__u32 at; /* of TSval, from the TCP header's first byte; 0: the segment has no such option
		   */
	__u32 tsval;
	__u32 tsecr;
};

/* Nearly every segment but SYN has them there, and whatever may follow. */
static __always_inline bool timestamps_aligned(struct __sk_buff *skb, const struct packet *p,
					       struct timestamps *ts)
{
	struct tcp_aligned *segment;
	__u32 l4 = p->l4;

	barrier_var(l4);
	if (l4 > FRAME_L4_MAX)
		return false;
	segment = frame_data(skb) + l4;
	barrier_var(segment);
	if ((void *)(segment + 1) > frame_end(skb))
		return false;
	if (segment->tcp.doff * 4 < sizeof(*segment) || segment->head != TCP_ALIGNED_TIMESTAMPS)
		return false;
	ts->at = offsetof(struct tcp_aligned, tsval);
	ts->tsval = bpf_ntohl(segment->tsval);
	ts->tsecr = bpf_ntohl(segment->tsecr);
	return true;
}

static __always_inline struct timestamps timestamps_read(struct __sk_buff *skb,
							 const struct packet *p)
{
	struct timestamps ts = {};
	__be32 values[2];
	__u32 at;

	if (p->protocol != IPPROTO_TCP || timestamps_aligned(skb, p, &ts))
		return ts;
	at = tcp_option_offset(skb, p->l4, TCP_OPTION_TIMESTAMPS, TCP_OPTION_TIMESTAMPS_LENGTH);
	if (!at || bpf_skb_load_bytes(skb, p->l4 + at + 2, values, sizeof(values)))
		return ts;
	ts.at = at + 2;
	ts.tsval = bpf_ntohl(values[0]);
	ts.tsecr = bpf_ntohl(values[1]);
	return ts;
}
