/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Flows of datagrams. They begin by the muxes, with a nonce, and go straight once an answer has
 * brought that back, with the ticket: see overlay/ticket.h.
 *
 *   (none) ─────▶ HALF_OPEN ─── an answer with the nonce ───▶ DIRECT
 *                                                             │  ▲
 *                 LOST ◀── 2.5 s in vain, or silent for 30 s ─┘  │
 *                   └───────── an answer with the nonce ─────────┘
 *
 * A row has the ticket where those of TCP have numbers, and the tick of its last change of state,
 * that the nonce is of, where they have events.
 */
#pragma once

#include "overlay/client/flow.h"
#include "overlay/ticket.h"

enum {
	BYPASS_TICKET_TICKS = 3577, /* 60 s: then a new one is asked for */
	BYPASS_SILENT_TICKS = 1788, /* 30 s */
};

/* The key of the flow; false: the datagram has no ports. */
static __noinline bool datagram_flow(struct __sk_buff *skb, struct overlay_ctx *a, bool outbound)
{
	struct packet p = a->inner;

	if (frame_parse_transport(skb, &p) != PARSED_OK)
		return false;
	a->flow.client = a->key.client;
	a->flow.attachment = a->key.attachment | BYPASS_FLOW_UDP;
	a->flow.client_port = outbound ? p.source_port : p.destination_port;
	a->flow.vip_port = outbound ? p.destination_port : p.source_port;
	return true;
}

/* Begins a flow, unless the port has many: those of TCP have the other half. */
static __noinline int datagram_begin(struct overlay_ctx *a, __u32 now)
{
	struct bypass_flow fresh = { .seen = now, .state = BYPASS_HALF_OPEN, .events = now };
	__u32 ifindex = a->ifindex;
	struct overlay_port *port = bpf_map_lookup_elem(&ports, &ifindex);

	if (!port || port->flows >= port->most / 2)
		return -1;
	__sync_fetch_and_add(&port->flows, 1);
	return bpf_map_update_elem(&bypass_flows, &a->flow, &fresh, BPF_NOEXIST);
}

/* Is it to go by the muxes, after it went straight? */
static __always_inline bool datagram_is_lost(const struct bypass_flow *f, __u32 now)
{
	return (__s32)(now - f->seen) > BYPASS_SILENT_TICKS ||
	       (f->waiting && (__s32)(now - f->waiting) > BYPASS_VAIN_TICKS);
}

static __always_inline void datagram_lose(struct overlay_ctx *a, struct bypass_flow *f, __u32 now)
{
	struct bypass_traffic *t = flow_traffic(a);

	f->state = BYPASS_LOST;
	f->events = now;
	f->waiting = 0;
	if (t)
		t->lost++;
}

/*
 * Notes a client's datagram. True: it goes to a->path.to, a server's host, with a ticket; else to
 * the muxes. Either way it may ask for a ticket.
 */
static __noinline bool datagram_note_client(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct bypass_flow *f;
	__u32 now = flow_now();
	bool direct = false;

	if (!datagram_flow(skb, a, true))
		return false;
	f = bpf_map_lookup_elem(&bypass_flows, &a->flow);
	if (!f) {
		a->asks = !datagram_begin(a, now);
		a->epoch = now;
		return false;
	}
	if (f->state == BYPASS_DIRECT) {
		if (datagram_is_lost(f, now))
			datagram_lose(a, f, now);
		else
			direct = true;
	}
	f->seen = now;
	a->epoch = f->events;
	a->asks = !direct || (__s32)(now - f->events) > BYPASS_TICKET_TICKS;
	if (!direct)
		return false;
	if (!f->waiting)
		f->waiting = now;
	a->path.to = f->host;
	a->ticket = VXLAN_TICKET | (f->server_next >> 16 & VXLAN_TICKET_KEY);
	__builtin_memcpy(a->inner_to, &f->client_next, 4);
	__builtin_memcpy(a->inner_to + 4, &f->server_next, 2);
	return true;
}

/* Writes the ticket and the nonce into the frame inside. */
static __always_inline void datagram_mark(struct overlay_ctx *a, bool direct)
{
	__u8 nonce[6];

	if (direct) {
		a->path.ticket = a->ticket;
		__builtin_memcpy(a->path.to_mac, a->inner_to, sizeof(a->path.to_mac));
	}
	if (!a->asks)
		return;
	nonce_make(&a->flow, a->epoch, nonce);
	__builtin_memcpy(direct ? a->path.from_mac : a->path.to_mac, nonce, sizeof(nonce));
}

/* The sender of an answer that has the flow's nonce is the server's host. */
static __noinline int datagram_learn(struct overlay_ctx *a, const struct bypass_flow *f, __u32 now)
{
	struct bypass_flow learnt = {
		.host = a->outer.source,
		.seen = now,
		.state = BYPASS_DIRECT,
		.events = f->events == now ? now + 1 : now,
	};
	struct bypass_traffic *t = flow_traffic(a);

	__builtin_memcpy(&learnt.client_next, a->client_mac, 4);
	learnt.server_next = a->client_mac[4] | (__u32)a->client_mac[5] << 8 |
			     (__u32)(a->ticket & VXLAN_TICKET_KEY) << 16;
	if (t && f->state == BYPASS_HALF_OPEN)
		t->learnt++;
	else if (t)
		t->relearnt++;
	return bpf_map_update_elem(&bypass_flows, &a->flow, &learnt, BPF_EXIST);
}

/* Notes a datagram that a server's host has sent straight. */
static __noinline int datagram_note_answer(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct bypass_flow *f;
	__u32 now = flow_now();
	__u8 nonce[6];

	if (!datagram_flow(skb, a, false))
		return 0;
	f = bpf_map_lookup_elem(&bypass_flows, &a->flow);
	if (!f)
		return 0;
	f->seen = now;
	if (f->state == BYPASS_DIRECT && f->waiting && address_equal(&f->host, &a->outer.source))
		f->waiting = 0;
	if (!a->ticket)
		return 0;
	nonce_make(&a->flow, f->events, nonce);
	return mac_equal(nonce, a->inner_to) ? datagram_learn(a, f, now) : 0;
}
