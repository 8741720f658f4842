// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What a mux does, on TCX instead of XDP, for tests: buffers keep their offloads on the way, so
 * a tunnelled packet of 64 KiB with a partial checksum reaches the agent.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include "abi/address.h"
#include "lib/frame.h"

struct way {
	struct address source; /* of the outer header */
	struct address tunnel; /* of the same family */
	__u32 interface;
};

/* VIP to where its packets go; user space writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct address);
	__type(value, struct way);
} ways SEC(".maps");

static __always_inline int push4(struct __sk_buff *skb, const struct packet *p,
				 const struct way *way, __u8 protocol)
{
	__u64 flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_FIXED_GSO;
	struct iphdr outer = {
		.version = 4,
		.ihl = 5,
		.tos = p->tos,
		.tot_len = bpf_htons(p->l3_length + sizeof(outer)),
		.frag_off = bpf_htons(0x4000),
		.ttl = 64,
		.protocol = protocol,
		.saddr = way->source.words[3],
		.daddr = way->tunnel.words[3],
	};
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&outer, sizeof(outer), 0);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	outer.check = ~sum;
	return bpf_skb_adjust_room(skb, sizeof(outer), BPF_ADJ_ROOM_MAC, flags)
		       ?: bpf_skb_store_bytes(skb, p->l3, &outer, sizeof(outer),
					      BPF_F_INVALIDATE_HASH);
}

static __always_inline int push6(struct __sk_buff *skb, const struct packet *p,
				 const struct way *way, __u8 protocol)
{
	__u64 flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | BPF_F_ADJ_ROOM_FIXED_GSO;
	struct ipv6hdr outer = {
		.version = 6,
		.priority = p->tos >> 4,
		.flow_lbl = { p->tos << 4 },
		.payload_len = bpf_htons(p->l3_length),
		.nexthdr = protocol,
		.hop_limit = 64,
	};

	__builtin_memcpy(&outer.saddr, &way->source, sizeof(outer.saddr));
	__builtin_memcpy(&outer.daddr, &way->tunnel, sizeof(outer.daddr));
	return bpf_skb_adjust_room(skb, sizeof(outer), BPF_ADJ_ROOM_MAC, flags)
		       ?: bpf_skb_store_bytes(skb, p->l3, &outer, sizeof(outer),
					      BPF_F_INVALIDATE_HASH);
}

SEC("tcx/ingress")
int relay(struct __sk_buff *skb)
{
	const struct way *way;
	struct packet p;
	__u8 protocol;

	if (frame_parse(skb, &p) != PARSED_OK)
		return TCX_NEXT;
	way = bpf_map_lookup_elem(&ways, &p.destination);
	if (!way)
		return TCX_NEXT;
	protocol = p.ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_IPIP : IPPROTO_IPV6;
	if (address_is_v4(&way->tunnel) ? push4(skb, &p, way, protocol)
					: push6(skb, &p, way, protocol))
		return TCX_DROP;
	return bpf_redirect_neigh(way->interface, NULL, 0, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
