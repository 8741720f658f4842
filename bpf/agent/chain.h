/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Chaining (MPLB 3.3): a packet of a connection that its bucket's backend does not know is handed
 * to the backend that had the bucket before, and back if that does not know it either. The step
 * only grows, so no packet goes round.
 *
 *   mux ── ASK ──▶ backend ── CHAINED ──▶ previous backend
 *                     ▲────── FINAL ─────────┘
 */
#pragma once

#include "agent/maps.h"
#include "net/skb/decap.h"
#include "agent/session.h"

/* What a client's segment says of its handshake with a mux, once its cookie is right. */
struct handshake {
	__u32 cookie; /* the mux's first number */
	__u32 seq; /* of the client's first byte */
	__u32 options; /* enum syn_option */
	__u32 mss; /* that the client announced, or less; 0: there was none */
	struct timestamps ts;
	__u32 ifindex; /* of the workload's interface */
	__u16 window;
	bool native;
	bool listens; /* the host's own stack does, for it */
};

/* What is inside a packet for us: what its sender may say depends on that. */
enum content {
	CONTENT_REFUSED = 0, /* nothing that any workload gets */
	CONTENT_ENDPOINT, /* to an endpoint, by a rule of this host */
	CONTENT_ANSWER, /* to no endpoint: an answer to a workload's own connection, or lost */
	CONTENT_ECHO, /* likewise, to a ping */
	CONTENT_ERROR, /* an ICMP error */
};

/* What is known of a packet for us: too much for the stack of every function that asks. */
struct rx_ctx {
	struct packet outer;
	struct packet inner;
	struct tunnel tunnel;
	struct nat_rule_key key; /* that rule was found by */
	struct nat_rule rule;
	struct handshake handshake;
	struct session fresh; /* scratch: what begins by a SYN cookie */
	enum content content;
	bool past_muxes; /* from the far end of a connection that has left them */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rx_ctx);
} rx_ctxs SEC(".maps");

/*
 * The rule of a packet to the VIP, behind the tunnel of key: that of its port, or that of all
 * ports, which keeps the port.
 */
static __always_inline bool rule_find(struct nat_rule_key *key, struct nat_rule *rule)
{
	const struct nat_rule *found = bpf_map_lookup_elem(&nat_rules, key);
	__be16 port = key->port;

	if (!found) {
		key->port = 0;
		found = bpf_map_lookup_elem(&nat_rules, key);
	}
	if (!found)
		return false;
	*rule = *found;
	if (!rule->port)
		rule->port = port;
	return true;
}

/* The socket of the host's own stack that would get the client's packet; to be released. */
static __always_inline struct bpf_sock *socket_find(struct __sk_buff *skb,
						    const struct session_key *key)
{
	bool v4 = address_is_v4(&key->client);
	struct bpf_sock_tuple tuple = {};

	if (v4) {
		tuple.ipv4.saddr = key->client.words[3];
		tuple.ipv4.daddr = key->dip.words[3];
		tuple.ipv4.sport = key->client_port;
		tuple.ipv4.dport = key->dip_port;
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, &key->client, sizeof(key->client));
		__builtin_memcpy(tuple.ipv6.daddr, &key->dip, sizeof(key->dip));
		tuple.ipv6.sport = key->client_port;
		tuple.ipv6.dport = key->dip_port;
	}
	return bpf_skc_lookup_tcp(skb, &tuple, v4 ? sizeof(tuple.ipv4) : sizeof(tuple.ipv6),
				  BPF_F_CURRENT_NETNS, 0);
}

/* The state of that socket; 0: there is none. */
static __noinline __u32 socket_state(struct __sk_buff *skb, const struct session_key *key)
{
	struct bpf_sock *socket = socket_find(skb, key);
	__u32 state;

	if (!socket)
		return 0;
	state = socket->state;
	bpf_sk_release(socket);
	return state;
}

/* Has the host's own stack a connection there, other than one that may yet begin? */
static __always_inline bool chain_knows_socket(struct __sk_buff *skb, const struct session_key *key)
{
	__u32 state = socket_state(skb, key);

	return state && state != BPF_TCP_LISTEN;
}

/* For how many ns after its end a session still counts where others may know the connection. */
#define CHAIN_OVER (2ULL << 30)

/* Over, and silent since: what comes now may be another connection of the same ports, elsewhere. */
static __always_inline bool chain_is_past(const struct session *session)
{
	return session_is_over(session) && long_since(session->last_seen, CHAIN_OVER);
}

/*
 * Does the workload behind rule know the connection of a client's packet? A TCP session that it
 * has never answered in was made for a stray packet; of UDP nothing better can be said. The
 * sockets of a native workload outlive a session that was evicted. Who is asked first leaves out
 * what is past: it gets the packet in the end if nobody knows better.
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
		if (first && chain_is_past(session))
			return false;
		if (session->events & SESSION_WORKLOAD_ANSWER)
			return true;
	}
	workload = bpf_map_lookup_elem(&workloads, &rule->dip);
	return workload && *workload == 0 && p->protocol == IPPROTO_TCP &&
	       chain_knows_socket(skb, &key);
}

/* A SYN is the beginning of a connection, which the bucket's backend is to have. */
static __always_inline bool chain_begins(const struct packet *p)
{
	return (p->tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
}

/*
 * Makes the buffer's head longer or shorter, and of another family. The kernel changes the family
 * only of a buffer that shrinks: what it loses for that it gets back.
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

/* UDP and GUE with our own tunnel as the other one. */
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

/* Hands the packet to the other backend: headers anew, what is inside as it is. */
static __noinline enum verdict chain_hand(struct __sk_buff *skb, const struct rx_ctx *a,
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

/* Both must be the endpoint's: who sends, and whom it would be handed back to. */
static __noinline bool chain_is_from_peer(const struct rx_ctx *a)
{
	struct peer peer = { .rule = a->key, .source = a->outer.source };

	if (!bpf_map_lookup_elem(&peers, &peer))
		return false;
	peer.source = a->tunnel.other;
	return bpf_map_lookup_elem(&peers, &peer);
}

/*
 * Where a packet with a step goes. NONE: to the workload of a->rule, which may have become that
 * of the other tunnel, if that is ours too: then nothing need be sent.
 */
static __noinline enum verdict chain(struct __sk_buff *skb, struct rx_ctx *a)
{
	struct nat_rule_key key = a->key;
	struct nat_rule other;

	if (a->tunnel.step == GUE_CHAIN_FINAL || chain_begins(&a->inner) ||
	    chain_knows(skb, &a->inner, &a->rule, a->tunnel.step == GUE_CHAIN_QUERY))
		return VERDICT_NONE;
	if (!bpf_map_lookup_elem(&tunnels, &a->tunnel.other))
		return chain_hand(skb, a, a->tunnel.step + 1);
	key.tunnel = a->tunnel.other;
	key.port = a->inner.destination_port;
	if (rule_find(&key, &other) &&
	    (a->tunnel.step == GUE_CHAIN_FORWARDED || chain_knows(skb, &a->inner, &other, false)))
		a->rule = other;
	return VERDICT_NONE;
}
