/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* To the server: out of VXLAN, without FBT, from the local address to the
 * backend. */
#pragma once

#include "net/skb/tcp_options.h"
#include "overlay/session.h"

enum {
	OVERLAY_OVERHEAD4 = 20 + 30, /* IPv4 or IPv6, UDP, VXLAN, Ethernet */
	OVERLAY_OVERHEAD6 = 40 + 30,
};

static __always_inline __u32 overlay_overhead(const struct address *tunnel)
{
	return address_is_v4(tunnel) ? OVERLAY_OVERHEAD4 : OVERLAY_OVERHEAD6;
}

/* A client's IPv6 address in 32 bits, for the logs of servers. */
static __always_inline __u32 local_digest(const struct address *client)
{
	const __u32 *w = client->words;

	return (w[0] * 31 + w[1]) * 31 * 31 + w[2] * 31 + w[3];
}

/*
 * The address by which the server knows the client of a row. IPv6: 48 bits of
 * prefix, the VNI, 32 bits of the client's address, 24 of the row's number.
 */
static __always_inline void local_address(struct address *to, const struct address *client,
					  __u32 vni, __u32 row)
{
	__u32 digest = local_digest(client);

	if (address_is_v4(client)) {
		address_from_v4(to, settings.local4 | bpf_htonl(row));
		return;
	}
	to->words[0] = settings.local6[0];
	to->words[1] = settings.local6[1] | bpf_htonl(vni >> 8);
	to->words[2] = bpf_htonl(vni << 24 | digest >> 8);
	to->words[3] = bpf_htonl(digest << 24 | row);
}

/* Lowers the MSS that a SYN announces, so that segments fit the uplink with
 * overhead. */
static __noinline int overlay_clamp(struct __sk_buff *skb, const struct packet *p, __u32 overhead)
{
	__u32 headers = overhead + sizeof(struct tcphdr) +
			(p->ethertype == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr)
							     : sizeof(struct ipv6hdr));
	__u32 mtu = settings.mtu, at;
	__be16 mss;

	if (!(p->tcp_flags & TCP_FLAG_SYN) || mtu <= headers)
		return 0;
	at = tcp_option_offset(skb, p->l4, TCP_OPTION_MSS, TCP_OPTION_MSS_LENGTH);
	if (!at || bpf_skb_load_bytes(skb, p->l4 + at + 2, &mss, sizeof(mss)))
		return 0;
	if (bpf_ntohs(mss) <= mtu - headers)
		return 0;
	return rewrite_tcp16(skb, p, at + 2, mss, bpf_htons(mtu - headers));
}

/* By which family answers go by the muxes: the muxes, this host, and the client's host have it. */
enum answer_family { ANSWER_BY_NONE = 0, ANSWER_BY_V4, ANSWER_BY_V6 };

static __always_inline enum answer_family answer_family(__u32 number)
{
	const struct overlay_host *host = bpf_map_lookup_elem(&hosts, &number);

	if (!host)
		return ANSWER_BY_NONE;
	if (address_is_set(&settings.mux4) && address_is_set(&settings.own4) &&
	    address_is_set(&host->v4))
		return ANSWER_BY_V4;
	if (address_is_set(&settings.mux6) && address_is_set(&settings.own6) &&
	    address_is_set(&host->v6))
		return ANSWER_BY_V6;
	return ANSWER_BY_NONE;
}

/* What the server's answers get before them, straight or by a mux. */
static __always_inline __u32 answer_overhead(const struct overlay_ctx *a)
{
	if (a->via && answer_family(a->host) == ANSWER_BY_V6)
		return OVERLAY_OVERHEAD6;
	return overlay_overhead(&a->rule.tunnel);
}

/* Adds to a number of the TCP header. For difference see rewrite_begin(). */
static __always_inline int shift_number(struct __sk_buff *skb, const struct packet *p, __u32 at,
					__be32 from, __u32 add, __u32 *difference)
{
	return rewrite_tcp32(skb, p, at, from, bpf_htonl(bpf_ntohl(from) + add), difference);
}

/* Client and VIP become local address and backend. */
static __noinline int deliver_rewrite(struct __sk_buff *skb, struct overlay_ctx *a,
				      struct packet *p)
{
	__be16 port = a->rule.port ?: p->destination_port;
	struct address local, dip = a->rule.dip;
	__u32 difference = 0;
	int err;

	local_address(&local, &a->key.client, a->attachment.vni, a->number);
	if (p->fragment_offset)
		return rewrite_fragment(skb, p, SOURCE, &local) ||
		       rewrite_fragment(skb, p, DESTINATION, &dip);
	frame_reach(skb, p->l4 + sizeof(struct tcphdr));
	err = rewrite_begin(skb, p, SOURCE, &local, p->source_port, &difference);
	err = err ?: rewrite_begin(skb, p, DESTINATION, &dip, port, &difference);
	if (a->shift && p->tcp_flags & TCP_FLAG_ACK)
		err = err
			      ?: shift_number(skb, p, offsetof(struct tcphdr, ack_seq),
					      a->head.tcp.ack_seq, -a->shift, &difference);
	err = err ?: rewrite_end(skb, p, difference);
	return err ?: overlay_clamp(skb, p, answer_overhead(a));
}

/* The rule of the session, and the session. */
static __noinline enum verdict deliver_session(struct overlay_ctx *a)
{
	struct overlay_session *s = session_at(a->number);
	const struct overlay_rule *rule;
	__u32 number;

	if (!s)
		return VERDICT_DROP_SESSION_GONE;
	a->tag = session_tag(a->number);
	if (!tag_is_live(a->tag) || !session_is_of(s, &a->key))
		return VERDICT_DROP_SESSION_GONE;
	number = s->rule;
	rule = bpf_map_lookup_elem(&rule_rows, &number);
	if (!rule || rule->workload == OVERLAY_NO_WORKLOAD)
		return VERDICT_DROP_NO_WORKLOAD;
	a->rule = *rule;
	a->counters = s->counters;
	a->shift = session_shift(s);
	if (session_tag(a->number) != a->tag)
		return VERDICT_DROP_SESSION_GONE;
	session_note_client(a, s);
	return VERDICT_NONE;
}

static __noinline enum verdict deliver(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct packet p = a->inner;
	struct fbt_head head = a->head;
	struct overlay_backend_traffic *b;
	struct overlay_traffic *t;
	__u32 number = a->key.attachment, packets = skb->gso_segs ?: 1;
	enum verdict verdict = deliver_session(a);

	if (verdict)
		return verdict;
	if (address_is_v4(&a->rule.dip) != address_is_v4(&p.source))
		return VERDICT_DROP_NO_RULE;
	t = bpf_map_lookup_elem(&traffic, &number);
	if (t) {
		t->in.packets += packets;
		t->in.bytes += skb->len;
	}
	b = backend_traffic_of(a->counters);
	if (b) {
		b->in.packets += packets;
		b->in.bytes += skb->len;
	}

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, &p))
		return VERDICT_DROP_REWRITE;
	if (a->from_mux && (a->header.length ? bypass_header_strip(skb, &p, a->header.next)
					     : fbt_strip(skb, &p, &head)))
		return VERDICT_DROP_REWRITE;
	if (deliver_rewrite(skb, a, &p))
		return VERDICT_DROP_REWRITE;
	if (session_tag(a->number) != a->tag)
		return VERDICT_DROP_SESSION_GONE;
	a->ifindex = a->rule.ifindex;
	return a->rule.workload == OVERLAY_NATIVE ? VERDICT_DELIVER_NATIVE
						  : VERDICT_DELIVER_INTERFACE;
}
