/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP to a VIP. An error goes to the backend of the connection that the quoted packet belongs to:
 * found by the cookie in it, if the quote reaches so far, then as a packet of the client would be;
 * where that is a guess, user space asks all backends.
 */
#pragma once

#include "net/counter.h"
#include "mux/select.h"
#include "mux/encapsulate.h"
#include "mux/police.h"
#include "net/xdp/frame.h"
#include "mux/slowpath/reply.h"

/* The slot in the timestamp of the quoted segment, which is one of the backend's; 0: not told. */
static __always_inline __u32 quoted_cookie(struct xdp_md *ctx, const struct packet *quoted)
{
	__u32 at = quoted->l4 + sizeof(struct tcphdr), options;
	__u8 offset;

	if (quoted->protocol != IPPROTO_TCP || at > quoted->limit)
		return 0;
	if (bpf_xdp_load_bytes(ctx, quoted->l4 + 12, &offset, sizeof(offset)))
		return 0;
	options = (offset >> 4) * 4;
	if (options < sizeof(struct tcphdr))
		return 0;
	options -= sizeof(struct tcphdr);
	if (options > quoted->limit - at)
		options = quoted->limit - at;
	return cookie_search(ctx, at, options, TIMESTAMPS_VALUE) & SLOT_MASK;
}

/* From here on the packet counts as one that the client would send on the quoted connection. */
static __always_inline void turn_round(struct packet *p, const struct packet *quoted)
{
	p->source = quoted->destination;
	p->source_port = quoted->destination_port;
	p->destination = quoted->source;
	p->destination_port = quoted->source_port;
	p->protocol = quoted->protocol;
	p->tcp_flags = TCP_FLAG_ACK;
}

static __always_inline enum verdict icmp_error(struct xdp_md *ctx, struct mux_ctx *w)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet *p = &w->packet, quoted = {};
	enum verdict verdict;
	__u32 cookie;

	if (quote_parse(data, end, p, &quoted) != PARSED_OK ||
	    !address_equal(&quoted.source, &p->destination))
		return VERDICT_PASS_ICMP;
	cookie = quoted_cookie(ctx, &quoted);
	turn_round(p, &quoted);
	w->endpoint_port = p->destination_port;
	w->endpoint = endpoint_of(&p->destination, p->protocol, &w->endpoint_port);
	if (!w->endpoint)
		return VERDICT_PASS_ICMP;
	if (source_is_martian(p))
		return VERDICT_DROP_MARTIAN;
	w->slices = *(volatile __u64 *)&w->endpoint->slices;
	verdict = police(w, false);
	if (verdict)
		return verdict;
	if (w->endpoint->flags & ENDPOINT_SNAT) {
		verdict = choose_snat(w);
		if (verdict)
			return verdict;
	} else {
		w->backend = choose_known(w, cookie);
	}
	if (!w->backend)
		return punt(ctx, p, PUNT_ERROR) ? VERDICT_PUNT_ICMP : VERDICT_DROP_PUNT;
	verdict = encapsulate(ctx, w);
	if (verdict)
		return verdict;
	count(&endpoint_counts, w->endpoint->id, p->limit);
	return VERDICT_FORWARD_ICMP;
}

/* The answer to a ping that a workload sent as the VIP. */
static __always_inline enum verdict icmp_echo_reply(struct xdp_md *ctx, struct mux_ctx *w,
						    __be16 identifier)
{
	enum verdict verdict;

	w->packet.source_port = 0;
	w->packet.destination_port = identifier;
	w->slices = *(volatile __u64 *)&w->endpoint->slices;
	verdict = choose_snat(w);
	if (!verdict)
		verdict = encapsulate(ctx, w);
	if (verdict)
		return verdict;
	count(&endpoint_counts, w->endpoint->id, w->packet.limit);
	return w->forward;
}

/* What the fast path found to be ICMP. */
__noinline int icmp(struct xdp_md *ctx)
{
	struct icmp_header *header;
	struct endpoint *vip;
	struct mux_ctx w = {};
	__be16 identifier;

	if (parse_full(ctx, &w.packet) != PARSED_OK)
		return VERDICT_PASS_ICMP;
	header = icmp_header((void *)(long)ctx->data, (void *)(long)ctx->data_end, &w.packet);
	if (!header)
		return VERDICT_PASS_ICMP;
	vip = vip_of(&w.packet.destination);
	if (!vip)
		return VERDICT_PASS_ICMP;
	if (icmp_is_echo(&w.packet, header->type))
		return echo(ctx, &w.packet, vip->flags & ENDPOINT_PING);
	if (source_is_martian(&w.packet))
		return VERDICT_DROP_MARTIAN;
	identifier = header->rest;
	if (icmp_is_echo_reply(&w.packet, header->type) && vip->flags & ENDPOINT_SNAT) {
		w.endpoint = vip;
		return icmp_echo_reply(ctx, &w, identifier);
	}
	if (icmp_is_error(&w.packet, header->type))
		return icmp_error(ctx, &w);
	return VERDICT_PASS_ICMP;
}
