/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is relayed to this mux: fragments by other muxes, and by hosts what switches brought them.
 */
#pragma once

#include "abi/mux/relay.h"
#include "mux/slowpath/fragment.h"

/* Is it a mux's? Members relay between addresses of one family. */
__noinline int pool_has_member(const struct address *source, enum pool_member_family family)
{
	__u32 count = pool_members.count;

	if (!source || family >= POOL_MEMBER_FAMILIES ||
	    !address_is_set(source)) /* all zero: has none */
		return 0;
	for (__u32 i = 0; i < POOL_MEMBERS_MAX && i < count; i++)
		if (address_equal(&pool_members.rows[i].addresses[family], source))
			return 1;
	return 0;
}

/*
 * Hosts of VIPs that switches hold: they relay what switches bring and they can't decide. User
 * space writes. Full: what the others relay is dropped.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct relay_host);
	__type(value, __u8);
} relay_hosts SEC(".maps");

/* Has the tunnel a backend of any VIP that switches hold? */
static __always_inline bool relay_host_is_known(const struct address *tunnel)
{
	struct relay_host key = { .tunnel = *tunnel };

	return bpf_map_lookup_elem(&relay_hosts, &key);
}

enum relayed {
	RELAYED_REFUSED = 0,
	RELAYED_FRAGMENT,
	RELAYED_ERROR,
};

/* What a host has relayed: of a VIP that it has a backend of, and of what hosts do not answer. */
__noinline int relayed_by_host(struct xdp_md *ctx, const struct address *host)
{
	struct relay_host key = {};
	struct icmp_header *header;
	struct packet p = {};
	enum parsed parsed;

	if (!host)
		return RELAYED_REFUSED;
	parsed = parse_full(ctx, &p);
	if (parsed != PARSED_FRAGMENT && parsed != PARSED_OK)
		return RELAYED_REFUSED;
	key.vip = p.destination;
	key.tunnel = *host;
	if (!address_is_set(&key.vip) || !bpf_map_lookup_elem(&relay_hosts, &key))
		return RELAYED_REFUSED;
	if (parsed == PARSED_FRAGMENT)
		return RELAYED_FRAGMENT;
	header = icmp_header((void *)(long)ctx->data, (void *)(long)ctx->data_end, &p);
	return header && icmp_is_error(&p, header->type) ? RELAYED_ERROR : RELAYED_REFUSED;
}

struct gue_relay {
	struct gue gue;
	struct gue_weir weir;
};

/*
 * A packet to GUE's port that is for no VIP: if it is relayed to us, takes the outer header off.
 * VERDICT_NONE: what is left is to be forwarded; host is set if no mux of the pool has sent it.
 */
__noinline int relay_accept(struct xdp_md *ctx, struct address *host)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct frame_head front;
	struct gue_relay *head;
	struct packet p = {};
	enum pool_member_family family;
	__u32 l4, strip, self = pool_members.self;

	if (parse_full(ctx, &p) != PARSED_OK || p.protocol != IPPROTO_UDP ||
	    self >= POOL_MEMBERS_MAX)
		return VERDICT_PASS_NO_ENDPOINT;
	family = p.ethertype == bpf_htons(ETH_P_IP) ? POOL_MEMBER_V4 : POOL_MEMBER_V6;
	l4 = p.l4;
	barrier_var(l4);
	if (!address_is_set(&p.destination) || l4 > QUOTE_L3_MAX ||
	    !address_equal(&p.destination, &pool_members.rows[self].addresses[family]))
		return VERDICT_PASS_NO_ENDPOINT;
	if (l4 + sizeof(struct udphdr) + sizeof(*head) > p.l3 + p.l3_length)
		return VERDICT_PASS_NO_ENDPOINT;
	head = data + l4 + sizeof(struct udphdr);
	if ((void *)(head + 1) > end || head->gue.head != GUE_WEIR_WORDS || head->gue.flags ||
	    head->weir.version != GUE_WEIR_VERSION || head->weir.step != GUE_CHAIN_NONE ||
	    head->weir.kind != GUE_KIND_RELAY)
		return VERDICT_PASS_NO_ENDPOINT;
	if (!host)
		return VERDICT_DROP_NOT_A_MUX;
	if (!pool_has_member(&p.source, family)) {
		if (!relay_host_is_known(&p.source))
			return VERDICT_DROP_NOT_A_MUX;
		*host = p.source;
	}
	if (head->gue.protocol != IPPROTO_IPIP && head->gue.protocol != IPPROTO_IPV6)
		return VERDICT_DROP_RELAY_INVALID;
	p.ethertype =
		head->gue.protocol == IPPROTO_IPIP ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);

	strip = l4 + sizeof(struct udphdr) + sizeof(*head) - p.l3;
	if (!frame_head_load(ctx, &front))
		return VERDICT_PASS_MALFORMED;

	/* From here on the packet is changed. */
	if (bpf_xdp_adjust_head(ctx, strip) || !frame_head_store(ctx, &p, &front))
		return VERDICT_DROP_RELAY_INVALID;
	return VERDICT_NONE;
}
