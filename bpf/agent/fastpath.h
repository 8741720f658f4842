/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections that have left the muxes (Ananta 3.2.4): what the workload sends goes to the peer's
 * tunnel, in IP alone, and what comes from there is taken. User space decides which these are, by
 * messages that it alone can verify; here they are handed to it.
 */
#pragma once

#include "abi/agent/fastpath.h"
#include "agent/snat/maps.h"
#include "agent/maps.h"
#include "agent/chain.h"
#include "net/skb/decap.h"
#include "agent/session.h"

/*
 * Connections by what the workload sees. User space has the rows made by fastpath_set; the programs
 * write when packets passed. Full: others stay with the muxes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct session_key);
	__type(value, struct fastpath);
} fastpath SEC(".maps");

enum {
	CONTROLS_BYTES = 1 << 18,
	CONTROLS_OF_OTHERS =
		CONTROLS_BYTES / 2, /* that only muxes may go beyond: anybody may send */
	TCP_HEADER_WORDS_AT = 12, /* the byte whose upper half has the header's length */
};

/* Messages for user space, as struct control. Full: they are lost, and will be sent again. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, CONTROLS_BYTES);
} controls SEC(".maps");

static __always_inline bool address_is_mux(const struct address *source)
{
	struct prefix mux = { .bits = 8 * sizeof(mux.address), .address = *source };

	return bpf_map_lookup_elem(&muxes, &mux);
}

/* Begins a record, about a packet with these outer addresses. */
static __noinline void control_begin(struct control *control, const struct packet *outer,
				     enum control_kind kind)
{
	__builtin_memset(control, 0, sizeof(*control));
	control->source = outer->source;
	control->destination = outer->destination;
	control->kind = kind;
}

/* Hands a control message to one of our tunnels to user space. */
static __noinline enum verdict control_take(struct __sk_buff *skb, const struct rx_ctx *a)
{
	const struct packet *outer = &a->outer;
	__u32 room = outer->l3 + outer->l3_length - outer->l4;
	bool from_mux = address_is_mux(&outer->source);
	struct gue_front front = {};
	struct control *control;

	if (bpf_skb_load_bytes(skb, outer->l4, &front, sizeof(front)))
		return VERDICT_DROP_GUE_MALFORMED;
	if (front.gue.head != GUE_CONTROL || front.gue.flags ||
	    front.gue.protocol != GUE_CONTROL_FASTPATH)
		return VERDICT_DROP_GUE_UNKNOWN;
	if (bpf_ntohs(front.udp.len) != sizeof(front) + FASTPATH_MESSAGE ||
	    room < sizeof(front) + FASTPATH_MESSAGE)
		return VERDICT_DROP_GUE_MALFORMED;
	if (!from_mux && bpf_ringbuf_query(&controls, BPF_RB_AVAIL_DATA) > CONTROLS_OF_OTHERS)
		return VERDICT_DROP_CONTROL;
	control = bpf_ringbuf_reserve(&controls, sizeof(*control), 0);
	if (!control)
		return VERDICT_DROP_CONTROL;
	control_begin(control, outer, CONTROL_MESSAGE);
	control->from_mux = from_mux;
	if (bpf_skb_load_bytes(skb, outer->l4 + sizeof(front), control->message,
			       FASTPATH_MESSAGE)) {
		bpf_ringbuf_discard(control, 0);
		return VERDICT_DROP_GUE_MALFORMED;
	}
	bpf_ringbuf_submit(control, 0);
	return VERDICT_PUNT_CONTROL;
}

/* Notifies user space of a packet past the muxes without a Fastpath row, at a bounded rate. */
static __noinline void control_stray(const struct rx_ctx *a)
{
	const struct packet *p = &a->inner;
	struct control *control;

	if (bpf_ringbuf_query(&controls, BPF_RB_AVAIL_DATA) > CONTROLS_BYTES / 4)
		return;
	control = bpf_ringbuf_reserve(&controls, sizeof(*control), 0);
	if (!control)
		return;
	control_begin(control, &a->outer, CONTROL_STRAY);
	control->stray.client = p->source;
	control->stray.server = p->destination;
	control->stray.client_port = p->source_port;
	control->stray.server_port = p->destination_port;
	control->stray.protocol = p->protocol;
	bpf_ringbuf_submit(control, 0);
}

/* May the packet have come past the muxes, in the connection of key? */
static __always_inline enum verdict fastpath_admit(const struct rx_ctx *a,
						   const struct session_key *key)
{
	struct fastpath *row = bpf_map_lookup_elem(&fastpath, key);
	struct address peer, own;
	__u64 now;

	if (row) {
		peer = row->peer;
		own = row->own;
		if (address_equal(&peer, &a->outer.source) &&
		    address_equal(&own, &a->outer.destination)) {
			now = bpf_ktime_get_coarse_ns();
			if (now - row->heard >= SESSION_SEEN_STEP)
				row->heard = now;
			return VERDICT_NONE;
		}
	}
	control_stray(a);
	return VERDICT_DROP_NOT_A_MUX;
}

/* Bytes of the packet's transport header; 0: it can't be read. */
static __always_inline __u32 fastpath_header(const struct __sk_buff *skb, const struct packet *p)
{
	__u8 words = 0;

	if (p->protocol != IPPROTO_TCP)
		return sizeof(struct udphdr);
	if (bpf_skb_load_bytes(skb, p->l4 + TCP_HEADER_WORDS_AT, &words, sizeof(words)))
		return 0;
	return (words >> 4) * sizeof(__u32);
}

/* Does the packet, or each one that the buffer will be, fit the way to the peer in its tunnel? */
static __always_inline bool fastpath_fits(const struct __sk_buff *skb, const struct packet *p,
					  __u32 outer)
{
	__u32 length = p->l3_length;

	if (skb->gso_size)
		length = p->l4 - p->l3 + fastpath_header(skb, p) + skb->gso_size;
	return !settings.mtu || length + outer <= settings.mtu;
}

static __always_inline int fastpath_write_v4(struct __sk_buff *skb, const struct packet *p,
					     __be32 from, __be32 to)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = sizeof(ip) / 4,
		.tos = p->tos,
		.tot_len = bpf_htons(sizeof(ip) + p->l3_length),
		.frag_off = bpf_htons(0x4000), /* don't fragment */
		.ttl = 64,
		.protocol = p->ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_IPIP : IPPROTO_IPV6,
		.saddr = from,
		.daddr = to,
	};
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&ip, sizeof(ip), 0);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip.check = ~sum;
	return bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip),
				   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
}

static __always_inline int fastpath_write_v6(struct __sk_buff *skb, const struct packet *p,
					     const struct address *from, const struct address *to)
{
	struct ipv6hdr ip = {
		.version = 6,
		.priority = p->tos >> 4,
		.flow_lbl = { p->tos << 4 },
		.payload_len = bpf_htons(p->l3_length),
		.nexthdr = p->ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_IPIP : IPPROTO_IPV6,
		.hop_limit = 64,
	};

	__builtin_memcpy(&ip.saddr, from, sizeof(ip.saddr));
	__builtin_memcpy(&ip.daddr, to, sizeof(ip.daddr));
	return bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip),
				   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
}

/*
 * Encapsulates what the workload sends, which is as it would leave for the muxes already. NONE: it
 * goes there, as what is too large for the way or in fragments does. p is as the workload sent it.
 */
static __noinline enum verdict fastpath_send(struct __sk_buff *skb, const struct packet *p)
{
	struct session_key key = {
		.client = p->destination,
		.dip = p->source,
		.client_port = p->destination_port,
		.dip_port = p->source_port,
		.protocol = p->protocol,
	};
	struct fastpath *row = bpf_map_lookup_elem(&fastpath, &key);
	struct address peer, own;
	__be16 family;
	__u64 flags, now;
	__u32 outer;
	bool v4;
	int err;

	if (!row || row->state != FASTPATH_SEND || p->fragment_more)
		return VERDICT_NONE;
	peer = row->peer;
	own = row->own;
	v4 = address_is_v4(&peer);
	outer = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	family = v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	if (!fastpath_fits(skb, p, outer))
		return VERDICT_NONE;
	now = bpf_ktime_get_coarse_ns();
	if (now - row->sent >= SESSION_SEEN_STEP)
		row->sent = now;

	/* From here on the packet is touched: fail closed. */
	flags = BPF_F_ADJ_ROOM_FIXED_GSO |
		(v4 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
	if (bpf_skb_adjust_room(skb, outer, BPF_ADJ_ROOM_MAC, flags))
		return VERDICT_DROP_DIRECT;
	err = v4 ? fastpath_write_v4(skb, p, own.words[3], peer.words[3])
		 : fastpath_write_v6(skb, p, &own, &peer);
	if (!err && family != p->ethertype)
		err = frame_set_ethertype(skb, family);
	return err ? VERDICT_DROP_DIRECT : VERDICT_REPLY_DIRECT;
}

/* The workload's side of a connection that a client opened, if it is established. */
static __always_inline enum fastpath_answer
fastpath_served(const struct fastpath_command *c, struct session_key *key, struct session **session)
{
	struct nat_rule_key rule_key = {
		.vip = c->connection.server,
		.tunnel = c->own,
		.port = c->connection.server_port,
		.protocol = c->connection.protocol,
	};
	const __u32 open = SESSION_CLIENT_ACK | SESSION_WORKLOAD_ANSWER;
	struct nat_rule rule = {};
	struct session *found;

	if (!rule_find(&rule_key, &rule))
		return FASTPATH_UNKNOWN;
	if (!(rule.flags & NAT_RULE_FASTPATH))
		return FASTPATH_FORBIDDEN;
	key->client = c->connection.client;
	key->dip = rule.dip;
	key->client_port = c->connection.client_port;
	key->dip_port = rule.port;
	key->protocol = c->connection.protocol;
	found = session_lookup(key);
	if (!found || found->vip_port != c->connection.server_port ||
	    !address_equal(&found->vip, &c->connection.server))
		return FASTPATH_UNKNOWN;
	if (session_is_over(found) || !(found->events & SESSION_WORKLOAD_ANSWER))
		return FASTPATH_UNKNOWN;
	if (key->protocol == IPPROTO_TCP && (found->events & open) != open)
		return FASTPATH_UNKNOWN;
	*session = found;
	return FASTPATH_SET;
}

/* The workload's side of a connection that it has opened itself, from a VIP. */
static __always_inline enum fastpath_answer
fastpath_opened(const struct fastpath_command *c, struct session_key *key, struct snat_flow **flow)
{
	struct snat_port_key port_key = {
		.vip = c->connection.client,
		.remote = c->connection.server,
		.port = c->connection.client_port,
		.remote_port = c->connection.server_port,
		.protocol = c->connection.protocol,
	};
	const struct snat_port *port = bpf_map_lookup_elem(&snat_ports, &port_key);
	struct snat_flow *found;

	if (!port)
		return FASTPATH_UNKNOWN;
	key->client = c->connection.server;
	key->dip = port->dip;
	key->client_port = c->connection.server_port;
	key->dip_port = port->dip_port;
	key->protocol = c->connection.protocol;
	found = bpf_map_lookup_elem(&snat_flows, key);
	if (!found || found->vip_port != c->connection.client_port)
		return FASTPATH_UNKNOWN;
	if (!(port->events & SNAT_SPOKE) || (port->events | found->events) & SNAT_RESET ||
	    port->events & found->events & SNAT_FIN || !(found->events & SNAT_ACKED))
		return FASTPATH_UNKNOWN;
	*flow = found;
	return FASTPATH_SET;
}

/*
 * Makes the row what the command says. It never takes back what the peer has said already. Only a
 * redirect, which asks for ACCEPT, names the peer: no host brings a connection to itself.
 */
static __always_inline enum fastpath_answer fastpath_put(struct fastpath_command *c,
							 const struct session_key *key)
{
	struct fastpath *row = bpf_map_lookup_elem(&fastpath, key);
	__u64 now = c->time;
	struct fastpath fresh = {
		.peer = c->peer,
		.own = c->own,
		.vip = c->client ? c->connection.client : c->connection.server,
		.sent = now,
		.heard = now,
		.vip_port = c->client ? c->connection.client_port : c->connection.server_port,
		.client = c->client,
		.state = c->state,
	};
	struct address peer, own;

	if (row) {
		peer = row->peer;
		own = row->own;
		if (address_equal(&peer, &c->peer) && address_equal(&own, &c->own)) {
			c->now = row->state;
			if (c->state <= row->state)
				return FASTPATH_SAME;
			row->sent = row->heard = now;
			c->now = row->state = c->state;
			return FASTPATH_SET;
		}
	}
	if (c->state != FASTPATH_ACCEPT)
		return FASTPATH_UNNAMED;
	if (bpf_map_update_elem(&fastpath, key, &fresh, BPF_ANY))
		return FASTPATH_FULL;
	c->now = c->state;
	return FASTPATH_SET;
}
