/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Looking inside: what the program mux_look does beside what mux does. It is the same code with the
 * same tables, compiled once more, so that mux itself pays nothing for it.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/trace.h"
#include "net/packet.h"

/* Set at load. */
volatile const enum look_mode cfg_look = LOOK_CAPTURE;
volatile const __u32 cfg_snap_length = 256; /* up to LOOK_SNAP_MAX */

/* Which packets to copy; user space writes it. */
struct look_filter look_filter SEC(".data.look");

/* The packet that this CPU handles. */
struct look_scratch {
	struct look look;
	__u8 bytes[2 * LOOK_SNAP_MAX]; /* in, then out behind cfg_snap_length */
	struct packet packet;
	__u32 wanted; /* by what the filter says of addresses, ports and protocol */
	__u32 pad;
};

/* Written by packets, read back by them, and by the test run that explains. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct look_scratch);
} looks SEC(".maps");

/* Copies of packets: struct look and bytes. User space reads; full means that copies are lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} captured SEC(".maps");

/* How many copies were lost. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/* Nothing that mux reads may be written: the packet is only looked at. */
static __always_inline bool only_looking(void)
{
	return cfg_look == LOOK_EXPLAIN;
}

static __always_inline struct look_scratch *look_scratch(void)
{
	__u32 row = 0;

	return bpf_map_lookup_elem(&looks, &row);
}

/* Bytes of a frame of the length that are copied. */
static __always_inline __u32 look_snap(__u32 length)
{
	__u32 most = cfg_snap_length;

	if (most > LOOK_SNAP_MAX)
		most = LOOK_SNAP_MAX;
	return length < most ? length : most;
}

static __always_inline void look_parse(struct xdp_md *ctx, struct look_scratch *s)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet *p = &s->packet;
	enum parsed parsed;

	__builtin_memset(p, 0, sizeof(*p));
	parsed = parse_ethernet(data, end, p);
	if (parsed == PARSED_OK)
		parsed = parse_ip(data, end, p);
	if (parsed == PARSED_EXTENSIONS)
		parsed = parse_extensions(data, end, p);
	if (parsed == PARSED_OK)
		parse_transport(data, end, p);
	s->look.source = p->source;
	s->look.destination = p->destination;
	s->look.source_port = p->source_port;
	s->look.destination_port = p->destination_port;
	s->look.protocol = p->protocol;
}

static __always_inline bool look_address_fits(const struct address *a, const struct address *want,
					      const struct address *mask)
{
	for (int i = 0; i < 4; i++)
		if ((a->words[i] ^ want->words[i]) & (mask ? mask->words[i] : ~0U))
			return false;
	return true;
}

/* Whether the filter wants the packet, as far as is known when it comes. */
static __always_inline bool look_wants(const struct look *l)
{
	const struct look_filter *f = &look_filter;

	if (!look_address_fits(&l->source, &f->client, &f->client_mask))
		return false;
	if ((f->vip.words[0] | f->vip.words[1] | f->vip.words[2] | f->vip.words[3]) &&
	    !look_address_fits(&l->destination, &f->vip, NULL))
		return false;
	if (f->client_port && l->source_port != f->client_port)
		return false;
	if (f->port && l->destination_port != f->port)
		return false;
	return !f->protocols[0] || l->protocol == f->protocols[0] || l->protocol == f->protocols[1];
}

static __always_inline bool look_wants_verdict(enum verdict verdict)
{
	__u64 half = verdict & 64 ? look_filter.verdicts[1] : look_filter.verdicts[0];

	return !(look_filter.verdicts[0] | look_filter.verdicts[1]) || half >> (verdict & 63) & 1;
}

/* A packet came. These three are functions of their own: the verifier walks each once. */
__noinline int look_in(struct xdp_md *ctx)
{
	struct look_scratch *s = look_scratch();
	__u32 length, snap;

	if (!s)
		return 0;
	__builtin_memset(&s->look, 0, sizeof(s->look));
	s->look.time = bpf_ktime_get_ns();
	length = bpf_xdp_get_buff_len(ctx);
	s->look.length_in = length;
	look_parse(ctx, s);
	s->wanted = only_looking() || look_wants(&s->look);
	snap = look_snap(length);
	if (s->wanted && !only_looking() && snap)
		bpf_xdp_load_bytes(ctx, 0, s->bytes, snap);
	return 0;
}

/* A backend was chosen. */
static __always_inline void look_chosen(const struct address *tunnel,
					const struct address *previous, __u64 hash,
					enum verdict forward)
{
	struct look_scratch *s = look_scratch();

	if (!s)
		return;
	if (tunnel)
		s->look.tunnel = *tunnel;
	if (previous)
		s->look.previous = *previous;
	s->look.hash = hash;
	s->look.forward = forward;
}

/* It is decided what becomes of the packet. */
__noinline int look_out(struct xdp_md *ctx, enum verdict verdict, __u32 action)
{
	struct look_scratch *s = look_scratch();
	__u32 row = 0, most = look_snap(LOOK_SNAP_MAX), size = sizeof(struct look) + most, snap;
	__u64 *losses;

	if (!s)
		return 0;
	s->look.verdict = verdict;
	s->look.action = action;
	if (action == XDP_TX || action == XDP_REDIRECT)
		s->look.length_out = bpf_xdp_get_buff_len(ctx);
	if (only_looking() || !s->wanted || !look_wants_verdict(verdict))
		return 0;
	snap = look_snap(s->look.length_out);
	if (snap) {
		bpf_xdp_load_bytes(ctx, 0, s->bytes + most, snap);
		size += most;
	}
	losses = bpf_map_lookup_elem(&lost, &row);
	if (bpf_ringbuf_output(&captured, s, size, 0) && losses)
		__sync_fetch_and_add(losses, 1);
	return 0;
}
