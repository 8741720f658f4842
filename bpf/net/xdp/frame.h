/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading the headers of a frame in an XDP program in full: with IPv6 extension headers, and of
 * frames in several buffers. Two programs call the parser (net/packet.h) in place instead: the fast
 * path, for with a step that both share the compiler stores eight more words of each packet, and
 * the trace, whose stack has no room for two more calls.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "net/packet.h"

/* A function of its own, for the verifier walks a loop with branches once for each way into it. */
__noinline int follow_extensions(struct xdp_md *ctx, struct extensions *x)
{
	if (!x)
		return 0;
	extensions_walk((void *)(long)ctx->data, (void *)(long)ctx->data_end, x);
	return 0;
}

/* As parse_extensions(). */
static __always_inline enum parsed parse_extensions_full(struct xdp_md *ctx, struct packet *p)
{
	struct extensions x = { .protocol = p->protocol, .l4 = p->l4 };

	follow_extensions(ctx, &x);
	return extensions_end(&x, p);
}

/*
 * Ethernet, the IP header of a whole packet, and its extension headers. A function of its own,
 * which the verifier walks once.
 */
__noinline int frame_parse(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u64 limit = bpf_xdp_get_buff_len(ctx);
	enum parsed parsed;

	if (!p || parse_ethernet(data, end, p) != PARSED_OK)
		return PARSED_MALFORMED;
	p->limit = limit;
	parsed = parse_ip(data, end, p);
	if (parsed == PARSED_OTHER || parsed == PARSED_MALFORMED || !packet_is_whole(p))
		return PARSED_MALFORMED;
	return parsed == PARSED_EXTENSIONS ? parse_extensions_full(ctx, p) : parsed;
}

/* Where an IP header can stand. */
enum {
	L3_UNTAGGED = sizeof(struct ethhdr),
	L3_TAGGED = L3_UNTAGGED + sizeof(struct vlan_header),
	L3_TAGGED_TWICE = L3_TAGGED + sizeof(struct vlan_header),
};

/* The offset as a constant that the verifier knows; 0 if it is none of them. */
static __always_inline __u32 l3_constant(__u32 l3)
{
	__u32 constant = 0;

	if (l3 == L3_UNTAGGED) {
		constant = L3_UNTAGGED;
		barrier_var(constant);
	} else if (l3 == L3_TAGGED) {
		constant = L3_TAGGED;
		barrier_var(constant);
	} else if (l3 == L3_TAGGED_TWICE) {
		constant = L3_TAGGED_TWICE;
		barrier_var(constant);
	}
	return constant;
}

/* The same, with offsets that are bounded for the verifier. */
static __always_inline enum parsed parse_full(struct xdp_md *ctx, struct packet *p)
{
	struct packet told = {};
	enum parsed parsed = frame_parse(ctx, &told);
	__u32 l3 = l3_constant(told.l3), l4 = told.l4;

	barrier_var(l4);
	if (!l3 || l4 > EXTENSIONS_START_MAX)
		return PARSED_MALFORMED;
	*p = told;
	p->l3 = l3;
	p->l4 = l4;
	return parsed;
}

/* All that stands before the ethertype of the IP header. */
struct frame_head {
	__u32 macs[3]; /* destination, then source */
	__u32 tags[2]; /* VLAN tags, TPID first */
};

static __always_inline bool frame_head_load(struct xdp_md *ctx, struct frame_head *head)
{
	return !bpf_xdp_load_bytes(ctx, 0, head, sizeof(*head));
}

/* Writes it in front of an IP header at p->l3. */
static __always_inline bool frame_head_store(struct xdp_md *ctx, const struct packet *p,
					     struct frame_head *head)
{
	__be16 ethertype = p->ethertype;
	__u32 type = p->l3 - sizeof(ethertype);

	barrier_var(type);
	if (type < sizeof(head->macs) || type > sizeof(*head))
		return false;
	return !bpf_xdp_store_bytes(ctx, 0, head, type) &&
	       !bpf_xdp_store_bytes(ctx, type, &ethertype, sizeof(ethertype));
}

/* The head of an answer to the frame: the addresses change places. */
static __always_inline void frame_head_turn(struct frame_head *head)
{
	__u32 a = head->macs[0], b = head->macs[1], c = head->macs[2];

	head->macs[0] = b >> 16 | c << 16;
	head->macs[1] = c >> 16 | a << 16;
	head->macs[2] = a >> 16 | b << 16;
}
