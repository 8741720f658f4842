/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Clamping TCP's maximum segment size, so that a client's full segment plus the largest outer
 * header fits the MTU between mux and host.
 */
#pragma once

#include "lib/rewrite.h"

#define OUTER_HEADER_MAX 40 /* IPv6 */

enum {
	TCP_OPTIONS_MAX = 40,
	TCP_OPTION_END = 0,
	TCP_OPTION_NOP = 1,
	TCP_OPTION_MSS = 2,
	TCP_OPTION_MSS_LENGTH = 4,
};

/* Bytes of the TCP header's options, all of which lie within the packet. */
static __always_inline __u32 tcp_options_length(struct __sk_buff *skb, const struct packet *p)
{
	__u32 fixed = sizeof(struct tcphdr), header;
	__u8 offset;

	if (bpf_skb_load_bytes(skb, p->l4 + 12, &offset, sizeof(offset)))
		return 0;
	header = (offset >> 4) * 4;
	if (header <= fixed || p->l4 + header > p->l3 + p->l3_length)
		return 0;
	return header - fixed;
}

/* Offset of the MSS option within the options, or -1. */
static __always_inline int mss_find(const __u8 *options, __u32 length)
{
	__u32 at = 0;

	for (int i = 0; i < TCP_OPTIONS_MAX; i++) {
		__u8 size = 1;

		if (at > TCP_OPTIONS_MAX - TCP_OPTION_MSS_LENGTH ||
		    at + TCP_OPTION_MSS_LENGTH > length || options[at] == TCP_OPTION_END)
			return -1;
		if (options[at] != TCP_OPTION_NOP)
			size = options[at + 1];
		if (options[at] == TCP_OPTION_MSS)
			return size == TCP_OPTION_MSS_LENGTH ? (int)at : -1;
		if (size == 0)
			return -1;
		at += size;
	}
	return -1;
}

static __always_inline int mss_replace(struct __sk_buff *skb, const struct packet *p, __u32 at,
				       __be16 from, __be16 to)
{
	int err;

	/* A word at an odd offset enters the checksum with its bytes swapped. */
	if (at & 1)
		err = bpf_l4_csum_replace(skb, transport_checksum(p), __builtin_bswap16(from),
					  __builtin_bswap16(to), sizeof(to));
	else
		err = bpf_l4_csum_replace(skb, transport_checksum(p), from, to, sizeof(to));
	return err ?: bpf_skb_store_bytes(skb, p->l4 + at, &to, sizeof(to), 0);
}

static __always_inline int mss_clamp(struct __sk_buff *skb, const struct packet *p, __u32 mtu)
{
	__u32 ip =
		p->ethertype == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 headers = OUTER_HEADER_MAX + ip + sizeof(struct tcphdr);
	__u8 options[TCP_OPTIONS_MAX] = {};
	__u32 length, mss;
	int at;

	if (!(p->tcp_flags & TCP_FLAG_SYN) || mtu <= headers)
		return 0;
	length = tcp_options_length(skb, p);
	if (length == 0 || length > TCP_OPTIONS_MAX)
		return 0;
	if (bpf_skb_load_bytes(skb, p->l4 + sizeof(struct tcphdr), options, length))
		return 0;
	at = mss_find(options, length);
	if (at < 0 || at > TCP_OPTIONS_MAX - TCP_OPTION_MSS_LENGTH)
		return 0;
	mss = options[at + 2] << 8 | options[at + 3];
	if (mss <= mtu - headers)
		return 0;
	return mss_replace(skb, p, sizeof(struct tcphdr) + at + 2, bpf_htons(mss),
			   bpf_htons(mtu - headers));
}
