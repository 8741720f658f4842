/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ARP (RFC 826) and Neighbor Discovery (RFC 4861) for VIPs that no router has a route to: of the
 * muxes of a segment one answers for a VIP, while its lease lasts. The lease is looked at here, so
 * a daemon that is frozen holds no address for longer.
 */
#pragma once

#include "abi/mux/neighbor.h"
#include "mux/martian.h"
#include "mux/ratelimit.h"
#include "net/xdp/encap.h"
#include "net/xdp/frame.h"

/* VIPs that this mux answers for. Written by user space; full means that it takes no more of them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NEIGHBORS_MAX);
	__type(key, struct address);
	__type(value, __u8);
} neighbors SEC(".maps");

/* A map of one row that needs no lookup. Written by user space. */
struct neighbor_lease lease SEC(".data.neighbor");

enum {
	MAC_LENGTH = 6,
	ARP_ETHERNET = 1,
	ARP_REQUEST = 1,
	ARP_REPLY = 2,
	NDP_SOLICITATION = 135,
	NDP_ADVERTISEMENT = 136,
	NDP_HOP_LIMIT = 255, /* so it comes from the segment itself (RFC 4861, section 7.1.1) */
	NDP_TARGET_MAC = 2, /* option: target link-layer address */
	NDP_SOLICITED = 1 << 30,
	NDP_OVERRIDE = 1 << 29,
};

/* Of IPv4 over Ethernet. */
struct arp_packet {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_length;
	__u8 protocol_length;
	__be16 operation;
	__u8 sender_mac[MAC_LENGTH];
	__u8 sender[4];
	__u8 target_mac[MAC_LENGTH];
	__u8 target[4];
};

_Static_assert(sizeof(struct arp_packet) == 28, "arp_packet");

/* A solicitation and its advertisement, from the IPv6 header on. */
struct ndp_packet {
	__be32 version;
	__be16 length;
	__u8 next_header;
	__u8 hop_limit;
	struct address source;
	struct address destination;
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be32 flags;
	struct address target;
	__u8 option[8]; /* of the advertisement alone */
};

_Static_assert(sizeof(struct ndp_packet) == 72, "ndp_packet");

enum {
	NDP_BYTES = sizeof(struct ndp_packet),
	NDP_SOLICITATION_BYTES = NDP_BYTES - 8, /* without options */
	NDP_PAYLOAD = NDP_BYTES - sizeof(struct ipv6hdr),
};

/* Has the mux ever had a lease? Else frames that are not to it, and ARP, pass as they come. */
static __always_inline bool neighbor_has_lease(void)
{
	return *(volatile __u64 *)&lease.until;
}

/* What becomes of a request for the address; VERDICT_NONE: it is no VIP of this mux. */
static __always_inline enum verdict neighbor_verdict(const struct address *vip)
{
	if (!bpf_map_lookup_elem(&neighbors, vip))
		return VERDICT_NONE;
	if (bpf_ktime_get_boot_ns() >= *(volatile __u64 *)&lease.until)
		return VERDICT_PASS_NO_LEASE;
	return ratelimit(LIMIT_NEIGHBOR, vip) ? VERDICT_REPLY_NEIGHBOR : VERDICT_DROP_NEIGHBOR;
}

static __always_inline void own_mac(__u8 *to)
{
	__u64 mac = settings.mac >> 16;

	__builtin_memcpy(to, &mac, MAC_LENGTH);
}

/* The head of an answer from the interface's own address. */
static __always_inline void frame_head_answer(struct frame_head *head, const __u8 *to)
{
	__u8 *macs = (__u8 *)head->macs;

	__builtin_memcpy(macs, to, MAC_LENGTH);
	own_mac(macs + MAC_LENGTH);
}

static __always_inline bool arp_is_request(const struct arp_packet *arp)
{
	return arp->hardware == bpf_htons(ARP_ETHERNET) && arp->protocol == bpf_htons(ETH_P_IP) &&
	       arp->hardware_length == MAC_LENGTH && arp->protocol_length == 4 &&
	       arp->operation == bpf_htons(ARP_REQUEST) && !(arp->sender_mac[0] & 1);
}

/* Answers an ARP request in its frame. Whoever asks for his own address tells it (RFC 5227). */
static __always_inline enum verdict arp_answer(struct xdp_md *ctx, const struct packet *p,
					       struct frame_head *head)
{
	enum verdict verdict;
	struct arp_packet arp;
	struct address vip;
	__be32 asks, asked;

	if (bpf_xdp_load_bytes(ctx, p->l3, &arp, sizeof(arp)) || !arp_is_request(&arp))
		return VERDICT_NONE;
	__builtin_memcpy(&asks, arp.sender, sizeof(asks));
	__builtin_memcpy(&asked, arp.target, sizeof(asked));
	if (asks == asked)
		return VERDICT_NONE;
	address_from_v4(&vip, asked);
	verdict = neighbor_verdict(&vip);
	if (verdict != VERDICT_REPLY_NEIGHBOR)
		return verdict;
	arp.operation = bpf_htons(ARP_REPLY);
	__builtin_memcpy(arp.target_mac, arp.sender_mac, MAC_LENGTH);
	__builtin_memcpy(arp.target, &asks, sizeof(asks));
	own_mac(arp.sender_mac);
	__builtin_memcpy(arp.sender, &asked, sizeof(asked));
	frame_head_answer(head, arp.target_mac);
	/* From here on the frame is changed. */
	if (bpf_xdp_store_bytes(ctx, p->l3, &arp, sizeof(arp)) || !frame_head_store(ctx, p, head))
		return VERDICT_DROP_NEIGHBOR;
	return verdict;
}

/*
 * Its checksum is not looked at: where both ends are on one machine it is not computed, and a frame
 * that was damaged on a wire does not come so far.
 */
static __always_inline bool ndp_is_solicitation(const struct ndp_packet *s, __u32 bytes)
{
	__u32 length = bpf_ntohs(s->length);

	return (s->version & 0xf0) == 0x60 && s->next_header == IPPROTO_ICMPV6 &&
	       s->hop_limit == NDP_HOP_LIMIT && s->type == NDP_SOLICITATION && !s->code &&
	       length >= NDP_SOLICITATION_BYTES - sizeof(struct ipv6hdr) &&
	       length + sizeof(struct ipv6hdr) <= bytes && !address_is_v4(&s->target);
}

static __always_inline __sum16 ndp_checksum(const struct ndp_packet *a)
{
	const __u32 *words = (const __u32 *)&a->source;
	__u64 sum = (__u64)bpf_htonl(NDP_PAYLOAD) + bpf_htonl(IPPROTO_ICMPV6);

	for (__u32 i = 0; i < (NDP_BYTES - 8) / sizeof(*words); i++)
		sum += words[i];
	return checksum_fold(sum);
}

/* Makes the advertisement that answers a solicitation. One without a source tests for a duplicate.
 */
static __always_inline void ndp_advertise(struct ndp_packet *a, struct frame_head *head)
{
	bool known = address_is_set(&a->source);
	__u8 asks[MAC_LENGTH];

	__builtin_memcpy(asks, (__u8 *)head->macs + MAC_LENGTH, MAC_LENGTH);
	a->destination = a->source;
	if (!known) { /* to all nodes */
		__builtin_memset(asks, 0, sizeof(asks));
		asks[0] = asks[1] = 0x33;
		asks[5] = 1;
		a->destination.words[0] = bpf_htonl(0xff020000);
		a->destination.words[3] = bpf_htonl(1);
	}
	frame_head_answer(head, asks);
	a->source = a->target;
	a->version = bpf_htonl(6U << 28);
	a->length = bpf_htons(NDP_PAYLOAD);
	a->type = NDP_ADVERTISEMENT;
	a->checksum = 0;
	a->flags = bpf_htonl(NDP_OVERRIDE | (known ? NDP_SOLICITED : 0));
	a->option[0] = NDP_TARGET_MAC;
	a->option[1] = 1;
	own_mac(a->option + 2);
	a->checksum = ndp_checksum(a);
}

static __always_inline enum verdict ndp_answer(struct xdp_md *ctx, const struct packet *p,
					       struct frame_head *head)
{
	__u32 length = bpf_xdp_get_buff_len(ctx), l3 = p->l3;
	struct ndp_packet ndp = {};
	enum verdict verdict;

	if (bpf_xdp_load_bytes(ctx, l3, &ndp, NDP_SOLICITATION_BYTES) ||
	    !ndp_is_solicitation(&ndp, length - l3) || ((__u8 *)head->macs)[MAC_LENGTH] & 1)
		return VERDICT_NONE;
	verdict = neighbor_verdict(&ndp.target);
	if (verdict != VERDICT_REPLY_NEIGHBOR)
		return verdict;
	if (bpf_xdp_adjust_tail(ctx, (int)(l3 + NDP_BYTES) - (int)length))
		return VERDICT_DROP_NEIGHBOR;
	/* From here on the frame is changed. */
	ndp_advertise(&ndp, head);
	if (bpf_xdp_store_bytes(ctx, l3, &ndp, sizeof(ndp)) || !frame_head_store(ctx, p, head))
		return VERDICT_DROP_NEIGHBOR;
	return verdict;
}

/*
 * ARP or NDP, or any other frame that the fast path passes. A function of its own, which the
 * verifier walks once.
 */
__noinline int neighbor(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	enum verdict verdict = VERDICT_NONE, pass;
	struct frame_head head;
	struct packet p = {};

	if (parse_ethernet(data, end, &p) != PARSED_OK)
		return VERDICT_PASS_MALFORMED;
	if (data + sizeof(struct ethhdr) > end)
		return VERDICT_PASS_MALFORMED;
	pass = VERDICT_PASS_ICMP;
	if (p.ethertype != bpf_htons(ETH_P_IP) && p.ethertype != bpf_htons(ETH_P_IPV6))
		pass = VERDICT_PASS_NOT_IP;
	if (!frame_is_ours(data))
		pass = VERDICT_PASS_OTHER_MAC;
	if (!frame_head_load(ctx, &head))
		return pass;
	if (p.ethertype == bpf_htons(ETH_P_ARP))
		verdict = arp_answer(ctx, &p, &head);
	else if (p.ethertype == bpf_htons(ETH_P_IPV6))
		verdict = ndp_answer(ctx, &p, &head);
	return verdict ?: pass;
}
