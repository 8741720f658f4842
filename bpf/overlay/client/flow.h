/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Bypass flows: to which server's host a client's connection goes (NGLB, section IV-B).
 *
 *             SYN                    SYN-ACK of its number, from a server's host
 *   (none) ─────────▶ HALF_OPEN ──────────────────────────────────────────────▶ DIRECT
 *      │                  │ from a mux ──▶ BY_MUX ─┐                             │  ▲
 *      │ another segment  │ another segment        │ an answer to what was just  │  │
 *      └─────────────▶ LOST ◀──── 2.5 s in vain ───┼──────────── sent ───────────┘  │
 *                         └────────────────────────┴────────────────────────────────┘
 *
 * The source address of what comes by the underlay proves nothing: what proves is the client's own
 * sequence number, which only its server, and who is on the path, has seen.
 */
#pragma once

#include "overlay/maps.h"

enum {
	BYPASS_ACK_WINDOW =
		1 << 16, /* what an answer in mid-connection may differ from what was sent */
	BYPASS_SEQ_WINDOW = 1 << 22, /* and its own number from what the client expects */
};

_Static_assert(offsetof(struct overlay_key, hash) == sizeof(struct bypass_flow_key),
	       "bypass_flow_key");

static __always_inline struct bypass_flow *flow_find(const struct overlay_ctx *a)
{
	return bpf_map_lookup_elem(&bypass_flows, &a->key);
}

static __always_inline struct bypass_traffic *flow_traffic(const struct overlay_ctx *a)
{
	__u32 number = a->key.attachment;

	return bpf_map_lookup_elem(&bypass_traffic, &number);
}

/* The tick; never 0, which is no time. */
static __always_inline __u32 flow_now(void)
{
	return overlay_now() ?: 1;
}

/* Is a number at most so far before or behind another one? */
static __always_inline bool number_is_near(__u32 number, __u32 of, __u32 window)
{
	return number - of + window <= 2 * window;
}

/* The number that follows the client's segment. */
static __always_inline __u32 flow_segment_end(const struct overlay_ctx *a)
{
	const struct packet *p = &a->inner;
	const struct tcphdr *tcp = &a->head.tcp;
	__u32 length = p->l3 + p->l3_length - p->l4 - tcp->doff * 4;

	return bpf_ntohl(tcp->seq) + length + tcp->syn + tcp->fin;
}

/* Begins the flow of a port, unless that has too many. */
static __noinline int flow_begin(struct overlay_ctx *a, const struct bypass_flow *fresh)
{
	__u32 ifindex = a->ifindex;
	struct overlay_port *port = bpf_map_lookup_elem(&ports, &ifindex);

	if (!port || __sync_fetch_and_add(&port->flows, 1) >= port->most)
		return 0;
	return bpf_map_update_elem(&bypass_flows, &a->key, fresh, BPF_NOEXIST);
}

/* Begins the flow of a segment in mid-connection. */
static __noinline int flow_begin_lost(struct overlay_ctx *a)
{
	struct bypass_flow fresh = {
		.client_next = flow_segment_end(a),
		.server_next = bpf_ntohl(a->head.tcp.ack_seq),
		.seen = flow_now(),
		.state = BYPASS_LOST,
	};

	return flow_begin(a, &fresh);
}

/* A SYN begins its flow anew, but for one that was sent again when its answer was on its way. */
static __noinline int flow_note_syn(struct overlay_ctx *a, struct bypass_flow *f)
{
	__u32 next = bpf_ntohl(a->head.tcp.seq) + 1;
	struct bypass_traffic *t = flow_traffic(a);
	struct bypass_flow fresh = {
		.client_next = next,
		.server_next = flow_segment_end(a),
		.seen = flow_now(),
		.state = BYPASS_HALF_OPEN,
	};
	bool again = f && f->client_next == next && f->state != BYPASS_LOST;

	if (t && again)
		t->repeated++;
	else if (t)
		t->begun++;
	if (again)
		return 0;
	if (f)
		return bpf_map_update_elem(&bypass_flows, &a->key, &fresh, BPF_EXIST);
	return flow_begin(a, &fresh);
}

/* Notes what a mid-connection segment says, so that its answer can be told from a forged one. */
static __always_inline void flow_note_numbers(const struct overlay_ctx *a, struct bypass_flow *f)
{
	__u32 end = flow_segment_end(a);

	if (f->state == BYPASS_DIRECT || f->state == BYPASS_HALF_OPEN ||
	    (__s32)(end - f->client_next) > 0)
		f->client_next = end;
	if (a->head.tcp.ack)
		f->server_next = bpf_ntohl(a->head.tcp.ack_seq);
}

/* Does the segment want an answer, and has there been none for too long? */
static __always_inline bool flow_is_vain(const struct overlay_ctx *a, struct bypass_flow *f)
{
	__u32 now = f->seen, since = f->waiting;

	if (a->head.tcp.rst)
		return false;
	if (since)
		return (__s32)(now - since) > BYPASS_VAIN_TICKS;
	if (flow_segment_end(a) != bpf_ntohl(a->head.tcp.seq))
		f->waiting = now;
	return false;
}

/* Notes a client's segment. True: it goes to a->path.to, a server's host; else to the muxes. */
static __noinline bool flow_note_client(struct overlay_ctx *a)
{
	const struct tcphdr *tcp = &a->head.tcp;
	struct bypass_flow *f = flow_find(a);
	struct bypass_traffic *t;
	__u32 now = flow_now();

	if (tcp->syn && !tcp->ack) {
		flow_note_syn(a, f);
		return false;
	}
	if (!f) {
		if (!tcp->rst)
			flow_begin_lost(a);
		return false;
	}
	if (f->seen != now)
		f->seen = now;
	if (tcp->rst)
		f->events |= OVERLAY_RESET;
	else if (tcp->fin)
		f->events |= OVERLAY_CLIENT_FIN;
	if (f->state == BYPASS_DIRECT && !flow_is_vain(a, f)) {
		a->path.to = f->host;
		return true;
	}
	flow_note_numbers(a, f);
	if (f->state == BYPASS_DIRECT) {
		t = flow_traffic(a);
		if (t)
			t->lost++;
	}
	if (f->state != BYPASS_BY_MUX)
		f->state = BYPASS_LOST;
	return false;
}

/* The segment's sender is the server's host. */
static __noinline int flow_learn(struct overlay_ctx *a, const struct bypass_flow *f)
{
	struct bypass_flow learnt = {
		.host = a->outer.source,
		.client_next = f->client_next,
		.server_next = f->server_next,
		.seen = f->seen,
		.state = BYPASS_DIRECT,
		.events = f->events,
	};
	struct bypass_traffic *t = flow_traffic(a);
	bool first = f->state == BYPASS_HALF_OPEN;

	if (bpf_map_update_elem(&bypass_flows, &a->key, &learnt, BPF_EXIST))
		return -1;
	if (t && first)
		t->learnt++;
	else if (t)
		t->relearnt++;
	return 0;
}

/* Does a SYN-ACK acknowledge the client's SYN, and of its data (RFC 7413) some or none? */
static __always_inline bool flow_syn_is_acked(const struct overlay_ctx *a,
					      const struct bypass_flow *f)
{
	__u32 ack = bpf_ntohl(a->head.tcp.ack_seq);

	return ack - f->client_next <= f->server_next - f->client_next;
}

/* Does a segment answer what the client has just sent? */
static __always_inline bool flow_is_answered(const struct overlay_ctx *a,
					     const struct bypass_flow *f)
{
	const struct tcphdr *tcp = &a->head.tcp;

	return tcp->ack && !tcp->rst &&
	       number_is_near(bpf_ntohl(tcp->ack_seq), f->client_next, BYPASS_ACK_WINDOW) &&
	       number_is_near(bpf_ntohl(tcp->seq), f->server_next, BYPASS_SEQ_WINDOW);
}

/* Notes a segment that a server's host has sent for a client. Learnt: f is no row any more. */
static __noinline enum verdict flow_note_server(struct overlay_ctx *a, struct bypass_flow *f,
						bool *learnt)
{
	const struct tcphdr *tcp = &a->head.tcp;

	switch (f->state) {
	case BYPASS_NONE:
		return VERDICT_NONE;
	case BYPASS_HALF_OPEN:
		if (!tcp->syn || !tcp->ack)
			return VERDICT_NONE;
		if (!flow_syn_is_acked(a, f))
			return VERDICT_DROP_NOT_ACKED;
		*learnt = !flow_learn(a, f);
		return VERDICT_NONE;
	case BYPASS_BY_MUX:
	case BYPASS_LOST:
		if (flow_is_answered(a, f))
			*learnt = !flow_learn(a, f);
		return VERDICT_NONE;
	case BYPASS_DIRECT:
		if (!address_equal(&f->host, &a->outer.source))
			return VERDICT_DROP_OTHER_HOST;
		if (f->waiting)
			f->waiting = 0;
	}
	return VERDICT_NONE;
}

/* Notes a segment for a client. A connection that is not known is the client's TCP's business. */
static __noinline enum verdict flow_note_answer(struct overlay_ctx *a)
{
	const struct tcphdr *tcp = &a->head.tcp;
	struct bypass_flow *f = flow_find(a);
	enum verdict verdict = VERDICT_NONE;
	__u32 now = flow_now();
	bool learnt = false;

	if (!f)
		return VERDICT_NONE;
	if (!a->from_mux)
		verdict = flow_note_server(a, f, &learnt);
	else if (f->state == BYPASS_HALF_OPEN && tcp->syn && tcp->ack && flow_syn_is_acked(a, f))
		f->state = BYPASS_BY_MUX;
	if (learnt)
		f = flow_find(a);
	if (verdict || !f)
		return verdict;
	if (f->seen != now)
		f->seen = now;
	if (tcp->rst)
		f->events |= OVERLAY_RESET;
	else if (tcp->fin)
		f->events |= OVERLAY_SERVER_FIN;
	return VERDICT_NONE;
}
