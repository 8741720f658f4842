// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The mux: takes packets for VIPs and sends each, encapsulated, to the host of a backend
 * (Ananta, section 3.3). docs/design/mux.md has the picture of the tables.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "mux/slowpath.h"
#include "mux/slowpath_progs.h"
#include "mux/select.h"
#include "mux/encapsulate.h"
#include "mux/endpoint.h"
#include "mux/finish.h"
#include "mux/police.h"
#include "mux/trace.h"
#include "mux/martian.h"
#include "mux/nat/maps.h"
#include "mux/redirect.h"
#include "mux/ctx.h"
#include "net/packet.h"

/*
 * What is known of a frame before it is parsed. The fast path is compiled for each of the first two
 * on its own: offsets are constants there, and of IPv4 most of the addresses.
 */
enum shape {
	SHAPE_V4, /* without tags and options */
	SHAPE_V6, /* without tags */
	SHAPE_ANY, /* parsed in full: tags, extension headers, frames in several buffers */
};

/* Each step returns VERDICT_NONE when the next one shall go on. */

/* Up to the IP header. */
static __always_inline enum parsed parse_link(void *data, void *end, struct packet *p,
					      const enum shape shape)
{
	const __u8 *ip = data + sizeof(struct ethhdr);

	if (shape == SHAPE_ANY)
		return parse_ethernet(data, end, p);
	p->l3 = sizeof(struct ethhdr);
	p->ethertype = shape == SHAPE_V4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	if (shape == SHAPE_V4 && ((void *)(ip + 1) > end || *ip != 0x45))
		return PARSED_MALFORMED;
	return PARSED_OK;
}

/*
 * Parses the frame. What is not of its shape counts as malformed or of another protocol, and the
 * slow path parses it again, as any.
 */
static __always_inline enum verdict parse(struct xdp_md *ctx, struct packet *p,
					  const enum shape shape)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const bool full = shape == SHAPE_ANY;
	enum parsed parsed = parse_link(data, end, p, shape);

	if (parsed == PARSED_OK) {
		parsed = parse_ip(data, end, p);
		if (parsed == PARSED_OTHER)
			return VERDICT_PASS_NOT_IP;
		if (parsed != PARSED_MALFORMED && !packet_is_whole(p)) {
			if (!full)
				return VERDICT_PASS_MALFORMED;
			p->limit = bpf_xdp_get_buff_len(ctx); /* a frame in several buffers */
			if (!packet_is_whole(p))
				return VERDICT_PASS_MALFORMED;
		}
		if (full && parsed == PARSED_EXTENSIONS)
			parsed = parse_extensions_full(ctx, p);
	}
	if (parsed == PARSED_OK)
		parsed = full ? parse_transport_full(data, end, p) : parse_transport(data, end, p);
	switch (parsed) {
	case PARSED_OK:
		return VERDICT_NONE;
	case PARSED_FRAGMENT:
		return VERDICT_PASS_FRAGMENT;
	case PARSED_MALFORMED:
		return VERDICT_PASS_MALFORMED;
	case PARSED_EXTENSIONS:
	case PARSED_OTHER:
		break;
	}
	if (p->protocol == IPPROTO_ICMP || p->protocol == IPPROTO_ICMPV6)
		return VERDICT_PASS_ICMP;
	return VERDICT_PASS_OTHER_PROTOCOL;
}

static __always_inline enum verdict classify(struct mux_ctx *w)
{
	w->endpoint_port = w->packet.destination_port;
	w->endpoint = endpoint_of(&w->packet.destination, w->packet.protocol, &w->endpoint_port);
	if (!w->endpoint)
		return VERDICT_PASS_NO_ENDPOINT;
	if (source_is_martian(&w->packet))
		return VERDICT_DROP_MARTIAN;
	w->slices = *(volatile __u64 *)&w->endpoint->slices;
	return police(w, false);
}

static __always_inline void trace_select(struct mux_ctx *w)
{
	struct address *tunnel = w->backend ? &w->backend->tunnel : NULL;
	struct address *previous = w->other ? &w->other->tunnel : NULL;
	bool cookie = w->forward == VERDICT_FORWARD_COOKIE;

	trace_selected(tunnel, previous, cookie ? 0 : bucket_hash(w), w->forward);
}

static __always_inline enum verdict handle(struct xdp_md *ctx, struct mux_ctx *w,
					   const enum shape shape, const bool tracing)
{
	enum verdict verdict = parse(ctx, &w->packet, shape);

	if (!verdict)
		verdict = classify(w);
	if (!verdict)
		verdict = choose(ctx, w);
	if (tracing && !verdict)
		trace_select(w);
	if (!tracing && !verdict && w->endpoint->flags & ENDPOINT_FASTPATH)
		redirect_observe(w);
	if (!verdict && w->endpoint->flags & ENDPOINT_SYN_COUNTED &&
	    w->packet.protocol == IPPROTO_TCP && w->forward != VERDICT_FORWARD_SYN)
		syn_follow(ctx, w, 0);
	if (!verdict)
		verdict = encapsulate(ctx, w);
	if (verdict)
		return verdict;
	count(&endpoint_counts, w->endpoint->id, w->packet.limit);
	return w->forward;
}

/* The step of the slow path that goes on with the packet, if any does. */
static __always_inline enum slowpath slowpath_of(const struct mux_ctx *w, enum verdict verdict,
						 const bool full)
{
	switch (verdict) {
	case VERDICT_PASS_OTHER_MAC:
	case VERDICT_PASS_NOT_IP:
		return neighbor_has_lease() ? SLOWPATH_NEIGHBOR : SLOWPATH_NONE;
	case VERDICT_PASS_MALFORMED:
		return full ? SLOWPATH_NONE : SLOWPATH_REPARSE;
	case VERDICT_PASS_OTHER_PROTOCOL:
		if (!full)
			return SLOWPATH_REPARSE;
		return nat_address_is_ours(&w->packet) ? SLOWPATH_NAT_REPLY : SLOWPATH_NONE;
	case VERDICT_PASS_ICMP:
		return nat_address_is_ours(&w->packet) ? SLOWPATH_NAT_REPLY : SLOWPATH_ICMP;
	case VERDICT_PASS_FRAGMENT:
		return nat_address_is_ours(&w->packet) ? SLOWPATH_NAT_REPLY : SLOWPATH_FRAGMENT;
	case VERDICT_PASS_NO_ENDPOINT:
		if (nat_address_is_ours(&w->packet))
			return SLOWPATH_NAT_REPLY;
		if (w->packet.destination_port == bpf_htons(VXLAN_PORT))
			return SLOWPATH_VXLAN;
		return w->packet.destination_port == bpf_htons(GUE_PORT) ? SLOWPATH_GUE
									 : SLOWPATH_NONE;
	case VERDICT_DROP_TOO_BIG:
		return w->backend->flags & BACKEND_V4 ? SLOWPATH_TOO_BIG_V4 : SLOWPATH_TOO_BIG_V6;
	case VERDICT_DROP_SYN:
		return SLOWPATH_SYN;
	default:
		return SLOWPATH_NONE;
	}
}

static __always_inline enum verdict fast_path(struct xdp_md *ctx, struct mux_ctx *w,
					      const bool full, const bool tracing)
{
	struct ethhdr *eth = (void *)(long)ctx->data;

	w->hash = 0;
	w->other = NULL;
	__builtin_memset(&w->weir, 0, sizeof(w->weir));
	w->packet.limit = ctx->data_end - ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return VERDICT_PASS_MALFORMED;
	if (!frame_is_ours(eth))
		return VERDICT_PASS_OTHER_MAC;
	if (full)
		return handle(ctx, w, SHAPE_ANY, tracing);
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return handle(ctx, w, SHAPE_V4, tracing);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return handle(ctx, w, SHAPE_V6, tracing);
	return ethertype_is_vlan(eth->h_proto) ? VERDICT_PASS_MALFORMED : VERDICT_PASS_NOT_IP;
}

/*
 * The fast path, and a tail call to the slow path where that goes on. The call does not return; if
 * its program is missing, the fast path's verdict stands.
 */
static __always_inline enum xdp_action mux_main(struct xdp_md *ctx, const bool full)
{
	enum verdict verdict;
	enum slowpath slowpath;
	struct mux_ctx w;

	verdict = fast_path(ctx, &w, full, false);
	slowpath = slowpath_of(&w, verdict, full);
	/* What comes most often: a tail call to a constant index is a direct jump. */
	if (slowpath == SLOWPATH_REPARSE)
		bpf_tail_call_static(ctx, &slowpath_progs, SLOWPATH_REPARSE);
	if (slowpath == SLOWPATH_SYN)
		bpf_tail_call_static(ctx, &slowpath_progs, SLOWPATH_SYN);
	if (slowpath)
		bpf_tail_call(ctx, &slowpath_progs, slowpath);
	return finish(verdict, w.packet.limit);
}

SEC("xdp.frags")
int mux(struct xdp_md *ctx)
{
	return mux_main(ctx, false);
}

SEC("xdp.frags")
int mux_full_parse(struct xdp_md *ctx)
{
	return mux_main(ctx, true);
}

/*
 * Returns verdict, step of the slow path and length in one word. A function of its own, so that the
 * slow path has its stack.
 */
static __noinline __u64 fast_path_trace(struct xdp_md *ctx)
{
	enum verdict verdict;
	struct mux_ctx w;

	verdict = fast_path(ctx, &w, true, true);
	return verdict | slowpath_of(&w, verdict, true) << 16 | (__u64)w.packet.limit << 32;
}

/* Fast and slow path in one program, to explain packets or to capture them: see mux/trace.h. */
SEC("xdp.frags")
int mux_trace(struct xdp_md *ctx)
{
	enum xdp_action action;
	enum verdict verdict;
	enum slowpath slowpath;
	__u64 done;

	trace_begin(ctx);
	done = fast_path_trace(ctx);
	verdict = done & 0xffff;
	slowpath = done >> 16 & 0xffff;
	if (slowpath)
		verdict = slowpath_step(ctx, slowpath);
	action = finish(verdict, done >> 32);
	trace_end(ctx, verdict, action);
	return action;
}

/* Gives user space the tick by which flows expire. */
SEC("syscall")
int flow_clock(void *ctx)
{
	(void)ctx;
	return flow_now();
}

char _license[] SEC("license") = "Dual BSD/GPL";
