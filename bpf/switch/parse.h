/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a switch reads of a packet. */
#pragma once

#include "net/packet.h"
#include "switch/maps.h"

/* The ports of TCP and UDP as one word, for the hash; 0 where there are none. */
static __always_inline bool parse_ports(void *data, void *end, const struct packet *p, __u32 *ports)
{
	__u32 l4 = p->l4, *at;

	*ports = 0;
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return true;
	barrier_var(l4);
	if (l4 > EXTENSIONS_START_MAX) /* for the verifier: of a TIP it comes through memory */
		return false;
	at = data + l4;
	barrier_var(at);
	if ((void *)(at + 1) > end || p->l4 + sizeof(*at) > p->l3 + p->l3_length)
		return false;
	*ports = *at;
	return true;
}

static __always_inline enum verdict parse(struct xdp_md *ctx, struct packet *p, __u32 *ports)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	enum parsed parsed;

	p->limit = end - data;
	if ((void *)(eth + 1) > end)
		return VERDICT_PASS_MALFORMED;
	p->l3 = sizeof(*eth);
	p->ethertype = eth->h_proto;
	if (eth->h_dest[0] & 1)
		return VERDICT_PASS_NOT_ROUTED;
	parsed = parse_ip(data, end, p);
	if (parsed == PARSED_OTHER)
		return VERDICT_PASS_NOT_ROUTED;
	if (parsed == PARSED_MALFORMED)
		return VERDICT_PASS_MALFORMED;
	if (!packet_is_whole(p)) {
		p->limit = bpf_xdp_get_buff_len(ctx); /* a frame in several buffers */
		if (!packet_is_whole(p))
			return VERDICT_PASS_MALFORMED;
	}
	*ports = 0;
	if (parsed == PARSED_OK && !parse_ports(data, end, p, ports))
		return VERDICT_PASS_MALFORMED;
	return VERDICT_NONE;
}
