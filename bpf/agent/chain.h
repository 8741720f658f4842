/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Daisy chaining (MPLB 3.3): a host that does not know a packet's connection forwards it to the
 * backend that had the bucket before. If that does not know it either, it sends it back. The chain
 * step (enum gue_chain) only grows, so there are no loops.
 *
 *   mux ── QUERY ──▶ backend ── FORWARDED ──▶ previous backend
 *                      ▲──────── FINAL ───────────┘
 */
#pragma once

#include "agent/rx_ctx.h"
#include "agent/socket.h"

/* Has the host's own stack a socket of this connection, other than a listening one? */
static __always_inline bool chain_knows_socket(struct __sk_buff *skb, const struct session_key *key)
{
	__u32 state = socket_state(skb, key);

	return state && state != BPF_TCP_LISTEN;
}

/* ns after its end for which a session still counts as knowing the connection. */
#define CHAIN_OVER (2ULL << 30)

/*
 * The connection ended, and has been silent since: a packet of the same ports may be of a newer
 * connection, at another backend.
 */
static __always_inline bool chain_is_ended(const struct session *session)
{
	return session_is_over(session) && long_since(session->last_seen, CHAIN_OVER);
}

/*
 * Does the workload behind rule know the connection of a client's packet? It does if there is a
 * session, for TCP one that the workload has answered in: others were made for stray packets. A
 * native workload also knows it by its socket, which outlives an evicted session. The first host
 * that is asked ignores connections that have ended: the packet comes back to it (FINAL) if the
 * other host does not know it.
 */
static __noinline bool chain_knows(struct __sk_buff *skb, const struct packet *p,
				   const struct nat_rule *rule, bool first)
{
	struct session_key key = {
		.client = p->source,
		.dip = rule->dip,
		.client_port = p->source_port,
		.dip_port = rule->port,
		.protocol = p->protocol,
	};
	const struct session *session = session_lookup(&key);
	const __u32 *workload;

	if (session) {
		if (session->vip_port != p->destination_port ||
		    !address_equal(&session->vip, &p->destination))
			return false;
		if (p->protocol != IPPROTO_TCP)
			return true;
		if (first && chain_is_ended(session))
			return false;
		if (session->events & SESSION_WORKLOAD_ANSWER)
			return true;
	}
	workload = bpf_map_lookup_elem(&workloads, &rule->dip);
	return workload && *workload == 0 && p->protocol == IPPROTO_TCP &&
	       chain_knows_socket(skb, &key);
}

/* Is it a SYN? It begins a connection, which the bucket's present backend gets. */
static __always_inline bool chain_begins(const struct packet *p)
{
	return (p->tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
}

/*
 * Changes the length of the outer headers by difference, and their family. The kernel changes the
 * family only when it shrinks a buffer: so it is shrunk first, then grown by as much.
 */
static __always_inline int chain_make_room(struct __sk_buff *skb, __be16 from, __be16 to,
					   __s32 difference)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	__s32 shrink = difference < 0 ? -difference : 4;
	int err;

	if (from != to) {
		err = bpf_skb_adjust_room(skb, -shrink, BPF_ADJ_ROOM_MAC, flags | decap_flag(to));
		err = err ?: frame_set_ethertype(skb, to);
		if (err)
			return err;
		difference += shrink;
	}
	return difference ? bpf_skb_adjust_room(skb, difference, BPF_ADJ_ROOM_MAC, flags) : 0;
}

static __noinline int chain_write_v4(struct __sk_buff *skb, const struct rx_ctx *a, __be32 source,
				     __u32 length)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = sizeof(ip) / 4,
		.tos = a->outer.tos,
		.tot_len = bpf_htons(sizeof(ip) + length),
		.frag_off = bpf_htons(0x4000), /* don't fragment */
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = source,
		.daddr = a->tunnel.other.words[3],
	};
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&ip, sizeof(ip), 0);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip.check = ~sum;
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip),
				   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
}

static __noinline int chain_write_v6(struct __sk_buff *skb, const struct rx_ctx *a,
				     const struct address *source, __u32 length)
{
	struct ipv6hdr ip = {
		.version = 6,
		.priority = a->outer.tos >> 4,
		.flow_lbl = { a->outer.tos << 4 },
		.payload_len = bpf_htons(length),
		.nexthdr = IPPROTO_UDP,
		.hop_limit = 64,
	};

	__builtin_memcpy(&ip.saddr, source, sizeof(ip.saddr));
	__builtin_memcpy(&ip.daddr, &a->tunnel.other, sizeof(ip.daddr));
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip),
				   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
}

/* UDP and all of GUE. */
struct gue_whole {
	struct gue_front front;
	struct gue_rest rest;
};

/* Writes UDP and GUE, with our own tunnel as the one to send the packet back to. */
static __noinline int chain_write_gue(struct __sk_buff *skb, const struct rx_ctx *a,
				      enum gue_chain step, __u32 at)
{
	const struct address *own = &a->outer.destination;
	struct gue_whole gue = {
		.front.udp.source = a->tunnel.entropy,
		.front.udp.dest = bpf_htons(GUE_PORT),
		.front.gue.protocol = a->tunnel.protocol,
		.rest.weir.version = GUE_WEIR_VERSION,
		.rest.weir.step = step,
		.rest.weir.kind = a->tunnel.kind,
		.rest.weir.source_port = a->tunnel.source_port,
		.rest.weir.destination_port = a->tunnel.destination_port,
	};
	__u32 bytes = sizeof(gue);

	gue.front.gue.head = GUE_OTHER_V6_WORDS;
	__builtin_memcpy(gue.rest.other, own, sizeof(gue.rest.other));
	if (address_is_v4(own)) {
		gue.front.gue.head = GUE_OTHER_V4_WORDS;
		gue.rest.other[0] = own->words[3];
		bytes -= 3 * sizeof(__u32);
	}
	gue.front.udp.len = bpf_htons(bytes + a->tunnel.payload);
	return bpf_skb_store_bytes(skb, at, &gue, bytes,
				   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
}

/* Forwards the packet to the other backend: with new outer headers, the inner packet unchanged. */
static __noinline enum verdict chain_forward(struct __sk_buff *skb, const struct rx_ctx *a,
					     enum gue_chain step)
{
	bool own_v4 = address_is_v4(&a->outer.destination), v4 = address_is_v4(&a->tunnel.other);
	__be16 family = v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__u32 ip = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	__u32 gue = sizeof(struct gue_whole) - (own_v4 ? 3 * sizeof(__u32) : 0);
	struct address source = a->outer.destination;
	int err;

	if (own_v4 != v4) {
		source = v4 ? settings.address4 : settings.address6;
		if (!address_is_set(&source))
			return VERDICT_DROP_CHAIN_FAMILY;
	}

	/* From here on the packet is touched: fail closed. */
	if (chain_make_room(skb, a->outer.ethertype, family, ip + gue - a->tunnel.header))
		return VERDICT_DROP_CHAIN;
	err = v4 ? chain_write_v4(skb, a, source.words[3], gue + a->tunnel.payload)
		 : chain_write_v6(skb, a, &source, gue + a->tunnel.payload);
	if (err || chain_write_gue(skb, a, step, sizeof(struct ethhdr) + ip))
		return VERDICT_DROP_CHAIN;
	return step == GUE_CHAIN_FORWARDED ? VERDICT_CHAIN_ON : VERDICT_CHAIN_BACK;
}

/* Are the outer source and the tunnel to send back to both chain peers of the rule? */
static __noinline bool chain_is_from_peer(const struct rx_ctx *a)
{
	struct chain_peer peer = { .rule = a->key, .source = a->outer.source };

	if (!bpf_map_lookup_elem(&chain_peers, &peer))
		return false;
	peer.source = a->tunnel.other;
	return bpf_map_lookup_elem(&chain_peers, &peer);
}

/*
 * Decides where a packet with a chain step goes. VERDICT_NONE: deliver it to the workload of
 * a->rule. If the other tunnel is on this host too, a->rule may become its rule, and nothing is
 * sent.
 */
static __noinline enum verdict chain(struct __sk_buff *skb, struct rx_ctx *a)
{
	struct nat_rule_key key = a->key;
	struct nat_rule other;

	if (a->tunnel.step == GUE_CHAIN_FINAL || chain_begins(&a->inner) ||
	    chain_knows(skb, &a->inner, &a->rule, a->tunnel.step == GUE_CHAIN_QUERY))
		return VERDICT_NONE;
	if (!bpf_map_lookup_elem(&tunnels, &a->tunnel.other))
		return chain_forward(skb, a, a->tunnel.step + 1);
	key.tunnel = a->tunnel.other;
	key.port = a->inner.destination_port;
	if (rule_find(&key, &other) &&
	    (a->tunnel.step == GUE_CHAIN_FORWARDED || chain_knows(skb, &a->inner, &other, false)))
		a->rule = other;
	return VERDICT_NONE;
}
