/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tracing: what the program mux_trace does besides what mux does. It is the same code on the same
 * tables, compiled once more, so that mux itself pays nothing for it.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/trace.h"
#include "net/packet.h"

/* Set at load. */
volatile const enum trace_mode cfg_trace = TRACE_CAPTURE;
volatile const __u32 cfg_snap_length = 256; /* up to TRACE_SNAP_MAX */

/* Which packets to copy; user space writes it. */
struct trace_filter trace_filter SEC(".data.trace");

/* The packet that this CPU handles. */
struct trace_scratch {
	struct trace trace;
	__u8 bytes[2 * TRACE_SNAP_MAX]; /* in, then out behind cfg_snap_length */
	struct packet packet;
	__u32 wanted; /* by what the filter says of addresses, ports and protocol */
	__u32 pad;
};

/* Written by packets, read back by them, and by the test run that explains. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct trace_scratch);
} trace_records SEC(".maps");

/* Copies of packets: struct trace and bytes. User space reads; full means that copies are lost. */
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
static __always_inline bool trace_only(void)
{
	return cfg_trace == TRACE_EXPLAIN;
}

static __always_inline struct trace_scratch *trace_scratch(void)
{
	__u32 row = 0;

	return bpf_map_lookup_elem(&trace_records, &row);
}

/* Bytes of a frame of the length that are copied. */
static __always_inline __u32 trace_snap(__u32 length)
{
	__u32 most = cfg_snap_length;

	if (most > TRACE_SNAP_MAX)
		most = TRACE_SNAP_MAX;
	return length < most ? length : most;
}

static __always_inline void trace_parse(struct xdp_md *ctx, struct trace_scratch *s)
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
	s->trace.source = p->source;
	s->trace.destination = p->destination;
	s->trace.source_port = p->source_port;
	s->trace.destination_port = p->destination_port;
	s->trace.protocol = p->protocol;
}

static __always_inline bool trace_address_matches(const struct address *a,
						  const struct address *want,
						  const struct address *mask)
{
	for (int i = 0; i < 4; i++)
		if ((a->words[i] ^ want->words[i]) & (mask ? mask->words[i] : ~0U))
			return false;
	return true;
}

/* Whether the filter wants the packet, as far as is known when it comes. */
static __always_inline bool trace_matches(const struct trace *l)
{
	const struct trace_filter *f = &trace_filter;

	if (!trace_address_matches(&l->source, &f->client, &f->client_mask))
		return false;
	if ((f->vip.words[0] | f->vip.words[1] | f->vip.words[2] | f->vip.words[3]) &&
	    !trace_address_matches(&l->destination, &f->vip, NULL))
		return false;
	if (f->client_port && l->source_port != f->client_port)
		return false;
	if (f->port && l->destination_port != f->port)
		return false;
	return !f->protocols[0] || l->protocol == f->protocols[0] || l->protocol == f->protocols[1];
}

static __always_inline bool trace_matches_verdict(enum verdict verdict)
{
	__u64 half = verdict & 64 ? trace_filter.verdicts[1] : trace_filter.verdicts[0];

	return !(trace_filter.verdicts[0] | trace_filter.verdicts[1]) || half >> (verdict & 63) & 1;
}

/* A packet came. These three are functions of their own: the verifier walks each once. */
__noinline int trace_begin(struct xdp_md *ctx)
{
	struct trace_scratch *s = trace_scratch();
	__u32 length, snap;

	if (!s)
		return 0;
	__builtin_memset(&s->trace, 0, sizeof(s->trace));
	s->trace.time = bpf_ktime_get_ns();
	length = bpf_xdp_get_buff_len(ctx);
	s->trace.length_in = length;
	trace_parse(ctx, s);
	s->wanted = trace_only() || trace_matches(&s->trace);
	snap = trace_snap(length);
	if (s->wanted && !trace_only() && snap)
		bpf_xdp_load_bytes(ctx, 0, s->bytes, snap);
	return 0;
}

/* A backend was chosen. */
static __always_inline void trace_selected(const struct address *tunnel,
					   const struct address *previous, __u64 hash,
					   enum verdict forward)
{
	struct trace_scratch *s = trace_scratch();

	if (!s)
		return;
	if (tunnel)
		s->trace.tunnel = *tunnel;
	if (previous)
		s->trace.previous = *previous;
	s->trace.hash = hash;
	s->trace.forward = forward;
}

/* It is decided what becomes of the packet. */
__noinline int trace_end(struct xdp_md *ctx, enum verdict verdict, __u32 action)
{
	struct trace_scratch *s = trace_scratch();
	__u32 row = 0, most = trace_snap(TRACE_SNAP_MAX), size = sizeof(struct trace) + most, snap;
	__u64 *losses;

	if (!s)
		return 0;
	s->trace.verdict = verdict;
	s->trace.action = action;
	if (action == XDP_TX || action == XDP_REDIRECT)
		s->trace.length_out = bpf_xdp_get_buff_len(ctx);
	if (trace_only() || !s->wanted || !trace_matches_verdict(verdict))
		return 0;
	snap = trace_snap(s->trace.length_out);
	if (snap) {
		bpf_xdp_load_bytes(ctx, 0, s->bytes + most, snap);
		size += most;
	}
	losses = bpf_map_lookup_elem(&lost, &row);
	if (bpf_ringbuf_output(&captured, s, size, 0) && losses)
		__sync_fetch_and_add(losses, 1);
	return 0;
}
