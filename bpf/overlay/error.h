/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors about packets of sessions. Who reports one is somewhere in the client's network, or
 * in the server's, and can't be named in the other: the error is the client's, or the VIP's. The
 * quoted transport checksum is left as it is: nobody can verify it, for the quote is cut.
 */
#pragma once

#include "overlay/deliver.h"

/* One address of the error p, or of what it quotes. */
static __noinline int error_address(struct __sk_buff *skb, const struct packet *p,
				    const struct packet *in, enum side side,
				    const struct address *to)
{
	struct address from = side == SOURCE ? in->source : in->destination, target = *to;

	if (p->ethertype == bpf_htons(ETH_P_IP))
		return icmp_rewrite_v4(skb, in->l3, side, from.words[3], target.words[3]);
	return icmp_rewrite_v6(skb, p, in->l3, side, &from, &target);
}

/* One port of what the error p quotes. */
static __noinline int error_port(struct __sk_buff *skb, const struct packet *p,
				 const struct packet *quoted, enum side side, __be16 to)
{
	__be16 from = side == SOURCE ? quoted->source_port : quoted->destination_port;
	__u32 at = quoted->l4 + side * sizeof(to);

	if (from == to)
		return 0;
	return bpf_l4_csum_replace(skb, p->l4 + 2, from, to, sizeof(to)) ||
	       bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0);
}

/* The error is from one end and to the other one, which has sent what is quoted. */
static __noinline int error_addresses(struct __sk_buff *skb, const struct packet *p,
				      const struct packet *quoted, const struct address *from,
				      const struct address *to)
{
	return error_address(skb, p, p, SOURCE, from) ||
	       error_address(skb, p, p, DESTINATION, to) ||
	       error_address(skb, p, quoted, SOURCE, to) ||
	       error_address(skb, p, quoted, DESTINATION, from);
}

/* From the client's network, by a mux, to the server whose packet it is about. */
static __noinline enum verdict error_inbound(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct packet p = a->inner, quoted = a->quoted;
	__u32 number = a->key.attachment, removed = a->tunnel.header + sizeof(a->header);
	struct address local, dip;
	struct overlay_backend_traffic *b;
	struct overlay_traffic *t;
	enum verdict verdict;
	int row = session_find(&a->key);
	struct overlay_session *s = row < 0 ? NULL : session_at(row);

	if (!s)
		return VERDICT_DROP_NO_SESSION;
	if (s->host != a->host)
		return VERDICT_DROP_OTHER_HOST;
	a->number = row;
	a->inner.tcp_flags = 0;
	verdict = deliver_session(a);
	if (verdict)
		return verdict;
	dip = a->rule.dip;
	if (address_is_v4(&dip) != address_is_v4(&p.source))
		return VERDICT_DROP_NO_RULE;
	t = bpf_map_lookup_elem(&traffic, &number);
	if (t) {
		t->in.packets++;
		t->in.bytes += skb->len;
	}
	b = backend_traffic_of(a->counters);
	if (b) {
		b->in.packets++;
		b->in.bytes += skb->len;
	}
	local_address(&local, &a->key.client, a->attachment.vni, a->number);

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, &p) || bypass_header_strip(skb, &p, a->header.next))
		return VERDICT_DROP_REWRITE;
	quoted.l3 -= removed;
	quoted.l4 -= removed;
	if (error_addresses(skb, &p, &quoted, &local, &dip) ||
	    error_port(skb, &p, &quoted, SOURCE, a->rule.port ?: a->key.vip_port))
		return VERDICT_DROP_REWRITE;
	if (session_tag(a->number) != a->tag)
		return VERDICT_DROP_SESSION_GONE;
	a->ifindex = a->rule.ifindex;
	return a->rule.workload == OVERLAY_NATIVE ? VERDICT_DELIVER_NATIVE
						  : VERDICT_DELIVER_INTERFACE;
}

/* From the server or its network, about what a client has sent: as if the VIP had sent it. */
static __noinline int error_outbound(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct packet p = a->inner, quoted = a->quoted;
	struct address client = a->row.client, vip = a->attachment.vip;

	return error_addresses(skb, &p, &quoted, &vip, &client) ||
	       error_port(skb, &p, &quoted, DESTINATION, a->row.vip_port);
}
