/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Putting a packet into VXLAN for a client's host. */
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

struct vxlan_v4 {
	struct iphdr ip;
	struct vxlan_front front;
};

struct vxlan_v6 {
	struct ipv6hdr ip;
	struct vxlan_front front;
};

/* UDP without a checksum (RFC 6935), VXLAN, and the inner Ethernet header. */
static __always_inline void encapsulate_front(const struct overlay_ctx *a, const __u8 *to_mac,
					      struct vxlan_front *f, __u32 payload)
{
	f->udp.source = bpf_htons(0xc000 | (a->key.hash >> 40 & 0x3fff));
	f->udp.dest = bpf_htons(VXLAN_PORT);
	f->udp.len = bpf_htons(payload + sizeof(*f));
	f->udp.check = 0;
	vxlan_write(&f->vxlan, a->attachment.vni, false);
	__builtin_memcpy(f->eth.h_dest, to_mac, 6);
	__builtin_memcpy(f->eth.h_source, a->attachment.gateway_mac, 6);
	f->eth.h_proto = a->inner.ethertype;
}

static __always_inline __u16 encapsulate_checksum(const struct iphdr *ip)
{
	__u32 sum = bpf_csum_diff(NULL, 0, (__be32 *)ip, sizeof(*ip), 0);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __noinline int encapsulate_v4(struct __sk_buff *skb, struct overlay_ctx *a,
				     const struct address *to)
{
	struct vxlan_v4 h = {};

	h.ip.version = 4;
	h.ip.ihl = 5;
	h.ip.tos = a->inner.tos;
	h.ip.tot_len = bpf_htons(a->inner.l3_length + OVERLAY_OVERHEAD4);
	h.ip.frag_off = bpf_htons(0x4000);
	h.ip.ttl = OVERLAY_TTL;
	h.ip.protocol = IPPROTO_UDP;
	h.ip.saddr = a->rule.tunnel.words[3];
	h.ip.daddr = to->words[3];
	h.ip.check = encapsulate_checksum(&h.ip);
	encapsulate_front(a, a->row.client_mac, &h.front, a->inner.l3_length);
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &h, OVERLAY_OVERHEAD4, 0);
}

static __noinline int encapsulate_v6(struct __sk_buff *skb, struct overlay_ctx *a,
				     const struct address *to)
{
	struct vxlan_v6 h = {};

	*(__be32 *)&h.ip = bpf_htonl(6U << 28 | (__u32)a->inner.tos << 20);
	h.ip.payload_len = bpf_htons(a->inner.l3_length + sizeof(h.front));
	h.ip.nexthdr = IPPROTO_UDP;
	h.ip.hop_limit = OVERLAY_TTL;
	__builtin_memcpy(&h.ip.saddr, &a->rule.tunnel, sizeof(h.ip.saddr));
	__builtin_memcpy(&h.ip.daddr, to, sizeof(h.ip.daddr));
	encapsulate_front(a, a->row.client_mac, &h.front, a->inner.l3_length);
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &h, OVERLAY_OVERHEAD6, 0);
}

/* The packet a->inner, for the client of a->row, from a->rule's tunnel to the
 * address of its host. */
static __noinline int encapsulate(struct __sk_buff *skb, struct overlay_ctx *a,
				  const struct address *to)
{
	bool v4 = address_is_v4(to);
	__be16 family = v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_ENCAP_L4_UDP |
		      ADJ_ROOM_ENCAP_L2_ETH | ADJ_ROOM_ENCAP_L2(sizeof(struct ethhdr)) |
		      (v4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
	int err;

	if (bpf_skb_adjust_room(skb, v4 ? OVERLAY_OVERHEAD4 : OVERLAY_OVERHEAD6, BPF_ADJ_ROOM_MAC,
				flags))
		return -1;
	err = v4 ? encapsulate_v4(skb, a, to) : encapsulate_v6(skb, a, to);
	if (!err && family != a->inner.ethertype)
		err = frame_set_ethertype(skb, family);
	return err;
}
