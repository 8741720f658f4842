/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A ping from a client of a virtual network to a VIP there: the mux answers it, in the frame that
 * it came in. The answer is from the address that all muxes have, so that a VTEP which learns from
 * what it gets does not learn one mux.
 */
#pragma once

#include "mux/ctx.h"
#include "mux/endpoint.h"
#include "mux/martian.h"
#include "mux/overlay/maps.h"
#include "mux/overlay/push.h"
#include "mux/ratelimit.h"
#include "net/quote.h"
#include "net/vxlan.h"
#include "net/xdp/checksum.h"
#include "net/xdp/frame.h"

enum { VXLAN_ECHO_TTL = 64 };

/* A word that changes under a checksum. */
struct changed_word {
	__u16 from;
	__u16 to;
};

/* The ends of an IP header change places, and it begins its way anew. */
static __always_inline bool turn_v4(struct xdp_md *ctx, __u32 l3)
{
	struct iphdr ip;
	__be32 source;

	if (bpf_xdp_load_bytes(ctx, l3, &ip, sizeof(ip)))
		return false;
	source = ip.saddr;
	ip.saddr = ip.daddr;
	ip.daddr = source;
	ip.check = checksum_replace(ip.check, bpf_htons(ip.ttl << 8 | ip.protocol),
				    bpf_htons(VXLAN_ECHO_TTL << 8 | ip.protocol));
	ip.ttl = VXLAN_ECHO_TTL;
	return !bpf_xdp_store_bytes(ctx, l3, &ip, sizeof(ip));
}

/* Likewise; hop is what changes that it has no checksum for. */
static __always_inline bool turn_v6(struct xdp_md *ctx, __u32 l3, struct changed_word *hop)
{
	struct ipv6hdr ip;
	struct in6_addr source;

	if (bpf_xdp_load_bytes(ctx, l3, &ip, sizeof(ip)))
		return false;
	source = ip.saddr;
	ip.saddr = ip.daddr;
	ip.daddr = source;
	hop->from = bpf_htons(ip.nexthdr << 8 | ip.hop_limit);
	hop->to = bpf_htons(ip.nexthdr << 8 | VXLAN_ECHO_TTL);
	ip.hop_limit = VXLAN_ECHO_TTL;
	return !bpf_xdp_store_bytes(ctx, l3, &ip, sizeof(ip));
}

/*
 * UDP, VXLAN and the inner Ethernet header. UDP's checksum is of two changes alone: the route flag,
 * and a hop limit inside; all else that changes places or has a checksum of its own sums up the
 * same.
 */
static __always_inline bool turn_front(struct xdp_md *ctx, __u32 l4, const struct changed_word *hop)
{
	struct vxlan_front front;
	__u16 vni, flagged;
	__sum16 check;
	__u8 mac[ETH_ALEN];

	if (bpf_xdp_load_bytes(ctx, l4, &front, sizeof(front)))
		return false;
	__builtin_memcpy(mac, front.eth.h_dest, ETH_ALEN);
	__builtin_memcpy(front.eth.h_dest, front.eth.h_source, ETH_ALEN);
	__builtin_memcpy(front.eth.h_source, mac, ETH_ALEN);
	flagged = bpf_htons(front.vxlan.vni[2] << 8 | front.vxlan.route);
	vni = bpf_htons(front.vxlan.vni[2] << 8);
	front.vxlan.route = 0;
	if (front.udp.check) {
		check = checksum_replace(front.udp.check, flagged, vni);
		check = checksum_replace(check, hop->from, hop->to);
		front.udp.check = check ? check : 0xffff;
	}
	return !bpf_xdp_store_bytes(ctx, l4, &front, sizeof(front));
}

/* From request to answer. */
static __always_inline bool turn_icmp(struct xdp_md *ctx, const struct packet *p)
{
	bool v4 = p->ethertype == bpf_htons(ETH_P_IP);
	__u8 to = v4 ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY;
	struct icmp_header icmp;

	if (bpf_xdp_load_bytes(ctx, p->l4, &icmp, sizeof(icmp)))
		return false;
	icmp.checksum = checksum_replace(icmp.checksum, icmp.type, to);
	icmp.type = to;
	return !bpf_xdp_store_bytes(ctx, p->l4, &icmp, sizeof(icmp));
}

/* The whole frame becomes the answer to what is inside. */
static __always_inline bool vxlan_turn(struct xdp_md *ctx, const struct packet *outer,
				       const struct packet *p)
{
	struct changed_word inside = {}, outside = {};
	struct frame_head back;

	if (!turn_icmp(ctx, p) ||
	    !(p->ethertype == bpf_htons(ETH_P_IP) ? turn_v4(ctx, p->l3)
						  : turn_v6(ctx, p->l3, &inside)))
		return false;
	if (!turn_front(ctx, outer->l4, &inside) ||
	    !(outer->ethertype == bpf_htons(ETH_P_IP) ? turn_v4(ctx, outer->l3)
						      : turn_v6(ctx, outer->l3, &outside)))
		return false;
	if (!frame_head_load(ctx, &back))
		return false;
	frame_head_turn(&back);
	return frame_head_store(ctx, outer, &back);
}

/* What is for a VIP of the network, and neither TCP nor UDP. */
static __always_inline enum verdict vxlan_echo(struct xdp_md *ctx, const struct packet *outer,
					       const struct packet *p,
					       const struct address *service)
{
	const struct endpoint *vip = vip_of(service);
	struct icmp_header icmp;

	if (!packet_is_icmp(p) || bpf_xdp_load_bytes(ctx, p->l4, &icmp, sizeof(icmp)) ||
	    p->l4 + sizeof(icmp) > p->l3 + p->l3_length || !icmp_is_echo(p, icmp.type))
		return VERDICT_DROP_INNER_OTHER;
	if (!vip || !(vip->flags & ENDPOINT_PING) || !source_is_host(p))
		return VERDICT_DROP_ECHO;
	if (!ratelimit(LIMIT_ECHO, service))
		return VERDICT_DROP_ECHO_LIMITED;
	return vxlan_turn(ctx, outer, p) ? VERDICT_REPLY_ECHO : VERDICT_DROP_ECHO;
}
