// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What a mux does, on TCX instead of XDP, for tests: buffers keep their offloads on the way, so
 * a tunnelled packet of 64 KiB with a partial checksum reaches the agent.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include "abi/shared/address.h"
#include "abi/agent/verdict.h"
#include "net/skb/decap.h"

enum { VERIFIED_MAX = 2 };

struct way {
	struct address source; /* of the outer header */
	struct address tunnel; /* of the same family */
	struct address other; /* backend to ask after, in GUE; not set: none */
	__u32 interface;
	__u32 gue; /* instead of IP-in-IP */
	__u32 silent; /* to SYNs: somebody else answers them */
	__u32 verified; /* checksums from the outermost on, as by the NIC of the host */
	__u32 bare; /* the outer header is taken off again: the packet goes on as it came, and has
		       cost as much */
};

/* VIP to where its packets go; user space writes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct address);
	__type(value, struct way);
} ways SEC(".maps");

/* What stands between the outer IP header and the packet: nothing, or UDP and GUE. */
struct middle {
	struct gue_front front;
	struct gue_rest rest;
	__u32 bytes;
};

static __always_inline void middle_make(struct middle *m, const struct packet *p,
					const struct way *way, __u8 protocol)
{
	__u32 words = 0;

	if (!way->gue)
		return;
	if (address_is_set(&way->other)) {
		words = GUE_OTHER_V6_WORDS;
		m->rest.weir.version = GUE_WEIR_VERSION;
		m->rest.weir.step = GUE_CHAIN_QUERY;
		__builtin_memcpy(m->rest.other, &way->other, sizeof(m->rest.other));
		if (address_is_v4(&way->other)) {
			words = GUE_OTHER_V4_WORDS;
			m->rest.other[0] = way->other.words[3];
		}
	}
	m->bytes = sizeof(m->front) + words * sizeof(__u32);
	m->front.udp.source = bpf_htons(50000);
	m->front.udp.dest = bpf_htons(GUE_PORT);
	m->front.udp.len = bpf_htons(m->bytes + p->l3_length);
	m->front.gue.head = words;
	m->front.gue.protocol = protocol;
}

static __always_inline int push(struct __sk_buff *skb, const struct packet *p, void *ip, __u32 size,
				struct middle *m, __u64 flags)
{
	bool same = (size == sizeof(struct iphdr)) == (p->ethertype == bpf_htons(ETH_P_IP));
	int err;

	flags |= BPF_F_ADJ_ROOM_FIXED_GSO | (m->bytes ? BPF_F_ADJ_ROOM_ENCAP_L4_UDP : 0);
	if (same && !skb->gso_size) /* as a packet comes from a wire: it is no tunnel to offloads */
		flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	err = bpf_skb_adjust_room(skb, size + m->bytes, BPF_ADJ_ROOM_MAC, flags);
	err = err ?: bpf_skb_store_bytes(skb, p->l3, ip, size, BPF_F_INVALIDATE_HASH);
	if (err || !m->bytes)
		return err;
	if (m->bytes == sizeof(m->front))
		return bpf_skb_store_bytes(skb, p->l3 + size, m, sizeof(m->front), 0);
	if (m->bytes == sizeof(m->front) + GUE_OTHER_V4_WORDS * sizeof(__u32))
		return bpf_skb_store_bytes(skb, p->l3 + size, m,
					   sizeof(m->front) + GUE_OTHER_V4_WORDS * sizeof(__u32),
					   0);
	return bpf_skb_store_bytes(skb, p->l3 + size, m, sizeof(m->front) + sizeof(m->rest), 0);
}

static __always_inline int push4(struct __sk_buff *skb, const struct packet *p,
				 const struct way *way, __u8 protocol, struct middle *m)
{
	struct iphdr outer = {
		.version = 4,
		.ihl = 5,
		.tos = p->tos,
		.tot_len = bpf_htons(p->l3_length + m->bytes + sizeof(outer)),
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
	return push(skb, p, &outer, sizeof(outer), m, BPF_F_ADJ_ROOM_ENCAP_L3_IPV4);
}

static __always_inline int push6(struct __sk_buff *skb, const struct packet *p,
				 const struct way *way, __u8 protocol, struct middle *m)
{
	struct ipv6hdr outer = {
		.version = 6,
		.priority = p->tos >> 4,
		.flow_lbl = { p->tos << 4 },
		.payload_len = bpf_htons(p->l3_length + m->bytes),
		.nexthdr = protocol,
		.hop_limit = 64,
	};

	__builtin_memcpy(&outer.saddr, &way->source, sizeof(outer.saddr));
	__builtin_memcpy(&outer.daddr, &way->tunnel, sizeof(outer.daddr));
	return push(skb, p, &outer, sizeof(outer), m, BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
}

static __always_inline int pull(struct __sk_buff *skb, const struct packet *p,
				const struct way *way, const struct middle *m)
{
	__s32 size = address_is_v4(&way->tunnel) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	return bpf_skb_adjust_room(skb, -(size + (__s32)m->bytes), BPF_ADJ_ROOM_MAC,
				   BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET |
					   decap_flag(p->ethertype));
}

static __always_inline bool begins(struct __sk_buff *skb, const struct packet *p)
{
	__u8 flags;

	if (p->protocol != IPPROTO_TCP || bpf_skb_load_bytes(skb, p->l4 + 13, &flags, 1))
		return false;
	return (flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
}

SEC("tcx/ingress")
int relay(struct __sk_buff *skb)
{
	const struct way *way;
	struct middle m = {};
	struct packet p;
	__u8 protocol;

	if (frame_parse(skb, &p) != PARSED_OK)
		return TCX_NEXT;
	way = bpf_map_lookup_elem(&ways, &p.destination);
	if (!way)
		return TCX_NEXT;
	if (way->silent && begins(skb, &p))
		return TCX_DROP;
	protocol = p.ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_IPIP : IPPROTO_IPV6;
	middle_make(&m, &p, way, protocol);
	if (m.bytes)
		protocol = IPPROTO_UDP;
	if (address_is_v4(&way->tunnel) ? push4(skb, &p, way, protocol, &m)
					: push6(skb, &p, way, protocol, &m))
		return TCX_DROP;
	if (way->bare && pull(skb, &p, way, &m))
		return TCX_DROP;
	for (__u32 i = 0; i < VERIFIED_MAX && i < way->verified; i++)
		bpf_csum_level(skb, BPF_CSUM_LEVEL_INC);
	return bpf_redirect_neigh(way->interface, NULL, 0, 0);
}

/*
 * What comes over a veth is a clone of what its sender keeps, until that is acknowledged; what
 * comes from a NIC is none. Who takes a header off a clone copies the headers first: it is done
 * here, for those who come later.
 */
SEC("tcx/ingress")
int unclone(struct __sk_buff *skb)
{
	return bpf_skb_change_head(skb, 0, 0) ? TCX_DROP : TCX_NEXT;
}

/* Loses one in fifty of the buffers that hold data. */
SEC("tcx/ingress")
int lose(struct __sk_buff *skb)
{
	return skb->len > 1000 && bpf_get_prandom_u32() % 50 == 0 ? TCX_DROP : TCX_NEXT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
