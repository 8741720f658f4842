/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Putting a packet into VXLAN for another host, or for this one. */
#pragma once

#include "overlay/deliver.h"

enum { OVERLAY_TTL = 64 };

#define ADJ_ROOM_ENCAP_L2(bytes) ((__u64)(bytes) << 56)
#define ADJ_ROOM_ENCAP_L2_ETH	 (1ULL << 6)

/* The tunnel address of a host, of the family of another address. False: it has
 * none. */
static __always_inline bool host_tunnel(__u32 number, const struct address *like,
					struct address *to)
{
	const struct overlay_host *host = bpf_map_lookup_elem(&hosts, &number);

	if (!host)
		return false;
	*to = address_is_v4(like) ? host->v4 : host->v6;
	return address_is_set(to);
}

/* Of the attachment's network, from its gateway to a client. */
static __always_inline void path_to_client(struct overlay_ctx *a, const __u8 *mac)
{
	a->path.vni = a->attachment.vni;
	a->path.route = false;
	a->path.answer_to = 0;
	a->path.ticket = 0;
	__builtin_memcpy(a->path.to_mac, mac, sizeof(a->path.to_mac));
	__builtin_memcpy(a->path.from_mac, a->attachment.gateway_mac, sizeof(a->path.from_mac));
}

struct vxlan_v4 {
	struct iphdr ip;
	struct vxlan_front front;
};

struct vxlan_v6 {
	struct ipv6hdr ip;
	struct vxlan_front front;
};

/* UDP without a checksum (RFC 6935), VXLAN, and the inner Ethernet header. */
static __always_inline void encapsulate_front(const struct overlay_ctx *a, struct vxlan_front *f,
					      __u32 payload)
{
	f->udp.source = bpf_htons(0xc000 | (a->key.hash >> 40 & 0x3fff));
	f->udp.dest = bpf_htons(VXLAN_PORT);
	f->udp.len = bpf_htons(payload + sizeof(*f));
	f->udp.check = 0;
	vxlan_write(&f->vxlan, a->path.vni, a->path.route);
	if (a->path.ticket)
		f->vxlan.route = a->path.ticket;
	if (a->path.answer_to)
		answer_mark(&f->vxlan, a->path.answer_to, a->path.answer_key);
	__builtin_memcpy(f->eth.h_dest, a->path.to_mac, 6);
	__builtin_memcpy(f->eth.h_source, a->path.from_mac, 6);
	f->eth.h_proto = a->inner.ethertype;
}

static __always_inline __u16 encapsulate_checksum(const struct iphdr *ip)
{
	__u32 sum = bpf_csum_diff(NULL, 0, (__be32 *)ip, sizeof(*ip), 0);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __noinline int encapsulate_v4(struct __sk_buff *skb, const struct overlay_ctx *a)
{
	struct vxlan_v4 h = {};

	h.ip.version = 4;
	h.ip.ihl = 5;
	h.ip.tos = a->inner.tos;
	h.ip.tot_len = bpf_htons(a->inner.l3_length + OVERLAY_OVERHEAD4);
	h.ip.frag_off = bpf_htons(0x4000);
	h.ip.ttl = OVERLAY_TTL;
	h.ip.protocol = IPPROTO_UDP;
	h.ip.saddr = a->path.from.words[3];
	h.ip.daddr = a->path.to.words[3];
	h.ip.check = encapsulate_checksum(&h.ip);
	encapsulate_front(a, &h.front, a->inner.l3_length);
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &h, OVERLAY_OVERHEAD4, 0);
}

static __noinline int encapsulate_v6(struct __sk_buff *skb, const struct overlay_ctx *a)
{
	struct vxlan_v6 h = {};

	*(__be32 *)&h.ip = bpf_htonl(6U << 28 | (__u32)a->inner.tos << 20);
	h.ip.payload_len = bpf_htons(a->inner.l3_length + sizeof(h.front));
	h.ip.nexthdr = IPPROTO_UDP;
	h.ip.hop_limit = OVERLAY_TTL;
	__builtin_memcpy(&h.ip.saddr, &a->path.from, sizeof(h.ip.saddr));
	__builtin_memcpy(&h.ip.daddr, &a->path.to, sizeof(h.ip.daddr));
	encapsulate_front(a, &h.front, a->inner.l3_length);
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &h, OVERLAY_OVERHEAD6, 0);
}

/* Puts the packet a->inner on a->path. */
static __noinline int encapsulate(struct __sk_buff *skb, struct overlay_ctx *a)
{
	bool v4 = address_is_v4(&a->path.to);
	__be16 family = v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L4_UDP |
		      ADJ_ROOM_ENCAP_L2_ETH | ADJ_ROOM_ENCAP_L2(sizeof(struct ethhdr)) |
		      (v4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
	int err;

	if (bpf_skb_adjust_room(skb, v4 ? OVERLAY_OVERHEAD4 : OVERLAY_OVERHEAD6, BPF_ADJ_ROOM_MAC,
				flags))
		return -1;
	err = v4 ? encapsulate_v4(skb, a) : encapsulate_v6(skb, a);
	if (!err && family != a->inner.ethertype)
		err = frame_set_ethertype(skb, family);
	return err;
}

/* Is that an address of this host? */
static __always_inline bool address_is_own(const struct address *to)
{
	return address_equal(to, &settings.own4) || address_equal(to, &settings.own6);
}

/*
 * Puts the packet a->inner on a->path, from where it goes by the uplink. To this host it goes as if
 * the uplink had received it: the programs there do the rest.
 */
static __noinline enum verdict encapsulate_for(struct __sk_buff *skb, struct overlay_ctx *a,
					       enum verdict away, enum verdict here)
{
	__u8 mac[6];

	a->ifindex = settings.uplink;
	if (encapsulate(skb, a))
		return VERDICT_DROP_REWRITE;
	if (!address_is_own(&a->path.to))
		return away;
	__builtin_memcpy(mac, settings.uplink_mac, sizeof(mac));
	if (bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_dest), mac, sizeof(mac), 0))
		return VERDICT_DROP_REWRITE;
	return here;
}
