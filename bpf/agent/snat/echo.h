/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP echo (RFC 5508, section 3.1): the identifier is to it what a port is to UDP, and stands on
 * the workload's side of the connection both ways.
 */
#pragma once

#include "agent/icmp.h"

/* Is p an echo request (out), or a reply (in)? Then its identifier becomes the workload's port. */
static __always_inline bool echo_read(struct __sk_buff *skb, struct packet *p, bool out)
{
	bool v4 = p->ethertype == bpf_htons(ETH_P_IP);
	struct icmp_header icmp;
	__be16 identifier;
	__u8 type;

	if (p->protocol != (v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6) || p->fragment_offset)
		return false;
	if (p->l4 + ICMP_HEADER > p->l3 + p->l3_length)
		return false;
	if (bpf_skb_load_bytes(skb, p->l4, &icmp, sizeof(icmp)))
		return false;
	if (out)
		type = v4 ? ICMP_ECHO : ICMPV6_ECHO;
	else
		type = v4 ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY;
	if (icmp.type != type)
		return false;
	p->tcp_flags = 0;
	identifier = bpf_htons(bpf_ntohl(icmp.rest) >> 16);
	p->source_port = out ? identifier : 0;
	p->destination_port = out ? 0 : identifier;
	return true;
}

/* Replaces an address of an echo packet, and the identifier. */
static __always_inline int rewrite_echo(struct __sk_buff *skb, const struct packet *p,
					enum side side, const struct address *to, __be16 identifier)
{
	struct address from = side == SOURCE ? p->source : p->destination;
	__be16 old = side == SOURCE ? p->source_port : p->destination_port;
	int err;

	if (p->ethertype == bpf_htons(ETH_P_IP))
		err = icmp_rewrite_v4(skb, p->l3, side, from.words[3], to->words[3]);
	else
		err = icmp_rewrite_v6(skb, p, p->l3, side, &from, to);
	if (err || old == identifier)
		return err;
	err = bpf_l4_csum_replace(skb, p->l4 + 2, old, identifier, sizeof(identifier));
	return err
		       ?: bpf_skb_store_bytes(skb, p->l4 + ICMP_IDENTIFIER, &identifier,
					      sizeof(identifier), 0);
}
