/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * An answer that a server's host has sent to the muxes (NGLB, section II): on to the client's host,
 * in the frame that it came in, from the address that all muxes have. Nothing is remembered of the
 * connection, so any mux sends on any of its answers.
 *
 * The frame goes back to the router that it came from, as all that muxes send of themselves does.
 */
#pragma once

#include "mux/ctx.h"
#include "mux/overlay/maps.h"
#include "mux/overlay/push.h"
#include "net/answer.h"
#include "net/counter.h"
#include "net/xdp/encap.h"
#include "net/xdp/frame.h"

/* The headers of an answer, as the CPU loads them. */
struct answer_ctx {
	__u32 outer[10];
	__u32 front[8]; /* struct vxlan_front, and two bytes */
	__u32 ip[10]; /* inside */
	struct answer says;
	struct address to; /* the client's host */
	__u32 sender; /* number of the server's host */
	bool v4; /* outside */
	bool inner4;
	bool summed; /* the packet inside has a checksum */
};

/* Of the packet that this CPU handles: too much for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answer_ctx);
} answer_ctxs SEC(".maps");

/* Is what vxlan_outer() has read an answer? */
static __always_inline bool vxlan_routes_answer(const struct vxlan_ctx *v)
{
	return (v->routed & ~VXLAN_ANSWER_KEY) == VXLAN_ANSWER;
}

static __always_inline struct vxlan_front *answer_front(struct answer_ctx *a)
{
	return (void *)a->front;
}

/* The outer headers, of which vxlan_outer() has held the lengths. */
static __always_inline bool answer_load_outer(struct xdp_md *ctx, const struct packet *o,
					      struct answer_ctx *a)
{
	__u32 ip = o->l4 - o->l3;

	a->v4 = o->ethertype == bpf_htons(ETH_P_IP);
	if (ip != (a->v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)))
		return false;
	if (a->v4 ? bpf_xdp_load_bytes(ctx, o->l3, a->outer, sizeof(struct iphdr))
		  : bpf_xdp_load_bytes(ctx, o->l3, a->outer, sizeof(struct ipv6hdr)))
		return false;
	return !bpf_xdp_load_bytes(ctx, o->l4, a->front, sizeof(struct vxlan_front));
}

/* The IP header inside, of what has neither options nor extension headers, and is no fragment. */
static __always_inline __u32 answer_load_ip(struct xdp_md *ctx, __u32 l3, struct answer_ctx *a)
{
	const struct ipv6hdr *ip6 = (void *)a->ip;
	const struct iphdr *ip4 = (void *)a->ip;
	struct answer *says = &a->says;

	if (a->inner4) {
		if (bpf_xdp_load_bytes(ctx, l3, a->ip, sizeof(*ip4)) || *(__u8 *)ip4 != 0x45 ||
		    ip4->frag_off & bpf_htons(0xbfff))
			return 0;
		address_from_v4(&says->vip, ip4->saddr);
		address_from_v4(&says->client, ip4->daddr);
		says->protocol = ip4->protocol;
		return bpf_ntohs(ip4->tot_len);
	}
	if (bpf_xdp_load_bytes(ctx, l3, a->ip, sizeof(*ip6)) || *(__u8 *)ip6 >> 4 != 6)
		return 0;
	__builtin_memcpy(&says->vip, &ip6->saddr, sizeof(says->vip));
	__builtin_memcpy(&says->client, &ip6->daddr, sizeof(says->client));
	says->protocol = ip6->nexthdr;
	if (address_is_v4(&says->vip) || address_is_v4(&says->client))
		return 0;
	return bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
}

/* The packet inside: TCP or UDP as long as what holds it. */
static __always_inline bool answer_load_inner(struct xdp_md *ctx, __u32 l3, struct answer_ctx *a)
{
	const struct vxlan_front *front = answer_front(a);
	__u32 room = bpf_ntohs(front->udp.len) - sizeof(*front), length, least, header;
	struct udphdr head;

	a->inner4 = front->eth.h_proto == bpf_htons(ETH_P_IP);
	if (!a->inner4 && front->eth.h_proto != bpf_htons(ETH_P_IPV6))
		return false;
	header = a->inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	length = answer_load_ip(ctx, l3, a);
	if (a->says.protocol == IPPROTO_TCP)
		least = sizeof(struct tcphdr);
	else if (a->says.protocol == IPPROTO_UDP)
		least = sizeof(struct udphdr);
	else
		return false;
	if (length < header + least || length != room ||
	    bpf_xdp_load_bytes(ctx, l3 + header, &head, sizeof(head)))
		return false;
	a->says.vip_port = head.source;
	a->says.client_port = head.dest;
	a->summed = a->says.protocol == IPPROTO_TCP || head.check;
	return true;
}

/* Which host with servers is the sender, and has its key made the answer? */
static __always_inline enum verdict answer_check(const struct vxlan_ctx *v, struct answer_ctx *a)
{
	struct network_address source = { .address = v->outer.source };
	const struct overlay_vtep *vtep = bpf_map_lookup_elem(&vteps, &source);
	const struct vxlan_front *front = answer_front(a);
	const struct fbt_keys *keys;
	const struct fbt_key *key;
	__u8 mac[6];
	__u32 host;

	if (!vtep || !(vtep->roles & OVERLAY_SERVER))
		return VERDICT_DROP_NOT_A_VTEP;
	host = vtep->number;
	keys = bpf_map_lookup_elem(&host_keys, &host);
	if (!host || !keys)
		return VERDICT_DROP_NO_HOST_KEY;
	key = &keys->rows[v->routed & VXLAN_ANSWER_KEY & (FBT_KEYS - 1)];
	if (!key->id)
		return VERDICT_DROP_NO_HOST_KEY;
	a->says.vni = v->vni;
	a->says.host = vni_read(front->vxlan.reserved);
	__builtin_memcpy(a->says.mac, front->eth.h_dest, sizeof(a->says.mac));
	answer_mac(key, &a->says, mac);
	if (__builtin_memcmp(mac, front->eth.h_source, 4) ||
	    __builtin_memcmp(mac + 4, front->eth.h_source + 4, 2))
		return VERDICT_DROP_ANSWER_FORGED;
	return VERDICT_NONE;
}

/* The client's host, by the family that the answer came by. It has workloads of the network. */
static __always_inline enum verdict answer_host(const struct vxlan_ctx *v, struct answer_ctx *a)
{
	struct network_address at = { .vni = v->vni };
	const struct overlay_host *host;
	const struct overlay_vtep *vtep;
	__u32 number = a->says.host;

	host = bpf_map_lookup_elem(&overlay_hosts, &number);
	if (!number || !host)
		return VERDICT_DROP_ANSWER_HOST;
	at.address = a->v4 ? host->v4 : host->v6;
	if (!address_is_set(&at.address))
		return VERDICT_DROP_ANSWER_HOST;
	vtep = bpf_map_lookup_elem(&vteps, &at);
	if (!vtep || vtep->number != number || !(vtep->roles & (OVERLAY_CLIENT | OVERLAY_BARE)))
		return VERDICT_DROP_ANSWER_HOST;
	a->to = at.address;
	return VERDICT_NONE;
}

/* UDP's checksum over IPv6, which kernels ask for: of the headers, and of a right packet inside. */
static __always_inline __u16 answer_checksum(const struct answer_ctx *a, __be16 length)
{
	__u32 segment = bpf_ntohs(length) - sizeof(struct vxlan_front) - (a->inner4 ? 20 : 40);
	__u64 sum = (__u64)length + bpf_htons(IPPROTO_UDP) + (__u16)a->front[7];
	__u64 pseudo = (__u64)bpf_htons(segment) + bpf_htons(a->says.protocol);
	__u16 check;

#pragma unroll
	for (int i = 0; i < 7; i++)
		sum += a->front[i];
#pragma unroll
	for (int i = 2; i < 10; i++)
		sum += a->outer[i];
#pragma unroll
	for (int i = 0; i < 10; i++) {
		if (a->inner4 && i >= 5)
			continue;
		sum += a->ip[i];
		pseudo += i < (a->inner4 ? 3 : 2) ? 0 : a->ip[i];
	}
	check = checksum_fold(sum + checksum_fold(pseudo));
	return check ? check : 0xffff;
}

/* Writes the outer headers of what is sent on. */
static __always_inline bool answer_store(struct xdp_md *ctx, const struct packet *o,
					 struct answer_ctx *a)
{
	struct vxlan_front *front = answer_front(a);
	struct ipv6hdr *ip6 = (void *)a->outer;
	struct iphdr *ip4 = (void *)a->outer;
	__u64 sum = 0;

	front->udp.check = 0;
	if (a->v4) {
		ip4->ttl = OUTER_TTL;
		ip4->saddr = overlay.addresses[0].words[3];
		ip4->daddr = a->to.words[3];
		ip4->check = 0;
#pragma unroll
		for (int i = 0; i < 5; i++)
			sum += a->outer[i];
		ip4->check = checksum_fold(sum);
		if (bpf_xdp_store_bytes(ctx, o->l3, a->outer, sizeof(*ip4)))
			return false;
	} else {
		ip6->hop_limit = OUTER_TTL;
		__builtin_memcpy(&ip6->saddr, &overlay.addresses[1], sizeof(ip6->saddr));
		__builtin_memcpy(&ip6->daddr, &a->to, sizeof(ip6->daddr));
		if (a->summed)
			front->udp.check = answer_checksum(a, front->udp.len);
		if (bpf_xdp_store_bytes(ctx, o->l3, a->outer, sizeof(*ip6)))
			return false;
	}
	return !bpf_xdp_store_bytes(ctx, o->l4, a->front, sizeof(*front));
}

static __always_inline bool answer_turn(struct xdp_md *ctx, const struct packet *o)
{
	struct frame_head back;

	if (!frame_head_load(ctx, &back))
		return false;
	frame_head_turn(&back);
	return frame_head_store(ctx, o, &back);
}

/* What vxlan_outer() has found to be an answer. A function of its own, which the verifier walks
 * once. */
__noinline int answer_handle(struct xdp_md *ctx)
{
	__u32 row = 0, l3;
	struct vxlan_ctx *v = bpf_map_lookup_elem(&vxlan_ctxs, &row);
	struct answer_ctx *a = bpf_map_lookup_elem(&answer_ctxs, &row);
	struct network_address key = {};
	const struct attached_vip *vip;
	struct vxlan_front *front;
	enum verdict verdict;

	if (!v || !a)
		return VERDICT_DROP_VXLAN;
	front = answer_front(a);
	l3 = v->outer.l4 + sizeof(*front);
	if (!answer_load_outer(ctx, &v->outer, a) || !answer_load_inner(ctx, l3, a))
		return VERDICT_DROP_VXLAN;
	verdict = answer_check(v, a);
	if (verdict)
		return verdict;
	key.vni = v->vni;
	key.address = a->says.vip;
	vip = bpf_map_lookup_elem(&network_vips, &key);
	if (!vip)
		return VERDICT_DROP_NO_ATTACHMENT;
	verdict = answer_host(v, a);
	if (verdict)
		return verdict;
	if (v->outer.l3_length > settings.mtu)
		return VERDICT_DROP_MERGED;
	front->vxlan.route = 0;
	vni_write(front->vxlan.reserved, 0);
	__builtin_memcpy(front->eth.h_source, vip->gateway_mac, sizeof(vip->gateway_mac));
	if (!answer_store(ctx, &v->outer, a) || !answer_turn(ctx, &v->outer))
		return VERDICT_DROP_VXLAN;
	return VERDICT_RELAY_ANSWER;
}
