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
#include "mux/redirect.h"
#include "mux/ctx.h"
#include "net/packet.h"

/* Each step returns VERDICT_NONE when the next one shall go on. */

/*
 * What is rare, extension headers and frames in several buffers, is malformed or of another
 * protocol unless it is asked for.
 */
static __always_inline enum verdict parse(struct xdp_md *ctx, struct packet *p, const bool rare)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	enum parsed parsed;

	if (data + sizeof(struct ethhdr) > end)
		return VERDICT_PASS_MALFORMED;
	if (!frame_is_ours(data))
		return VERDICT_PASS_OTHER_MAC;
	parsed = parse_ethernet(data, end, p);
	if (parsed == PARSED_OK) {
		parsed = parse_ip(data, end, p);
		if (parsed == PARSED_OTHER)
			return VERDICT_PASS_NOT_IP;
		if (parsed != PARSED_MALFORMED && !packet_is_whole(p)) {
			if (!rare)
				return VERDICT_PASS_MALFORMED;
			p->limit = bpf_xdp_get_buff_len(ctx); /* a frame in several buffers */
			if (!packet_is_whole(p))
				return VERDICT_PASS_MALFORMED;
		}
		if (rare && parsed == PARSED_EXTENSIONS)
			parsed = parse_extensions_aside(ctx, p);
	}
	if (parsed == PARSED_OK)
		parsed = rare ? parse_transport_aside(data, end, p) : parse_transport(data, end, p);
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

static __always_inline enum verdict classify(struct work *w)
{
	w->endpoint_port = w->packet.destination_port;
	w->endpoint = endpoint_of(&w->packet.destination, w->packet.protocol, &w->endpoint_port);
	if (!w->endpoint)
		return VERDICT_PASS_NOT_FOR_US;
	if (source_is_martian(&w->packet))
		return VERDICT_DROP_MARTIAN;
	w->slices = *(volatile __u64 *)&w->endpoint->slices;
	return guard(w, false);
}

static __always_inline void note_choice(struct work *w)
{
	struct address *tunnel = w->backend ? &w->backend->tunnel : NULL;
	struct address *previous = w->other ? &w->other->tunnel : NULL;
	bool cookie = w->forward == VERDICT_FORWARD_COOKIE;

	look_chosen(tunnel, previous, cookie ? 0 : bucket_hash(w), w->forward);
}

static __always_inline enum verdict handle(struct xdp_md *ctx, struct work *w, const bool rare,
					   const bool looking)
{
	enum verdict verdict = parse(ctx, &w->packet, rare);

	if (!verdict)
		verdict = classify(w);
	if (!verdict)
		verdict = choose(ctx, w);
	if (looking && !verdict)
		note_choice(w);
	if (!looking && !verdict && w->endpoint->flags & ENDPOINT_FASTPATH)
		redirect_look(w);
	if (!verdict && w->endpoint->flags & ENDPOINT_WATCHED &&
	    w->packet.protocol == IPPROTO_TCP && w->forward != VERDICT_FORWARD_SYN)
		syn_follow(ctx, w);
	if (!verdict)
		verdict = encapsulate(ctx, w);
	if (verdict)
		return verdict;
	count(&endpoint_counters, w->endpoint->id, w->packet.limit);
	return w->forward;
}

/* Which step aside goes on with the packet, if any. */
static __always_inline enum aside aside_of(const struct work *w, enum verdict verdict,
					   const bool rare)
{
	switch (verdict) {
	case VERDICT_PASS_MALFORMED:
	case VERDICT_PASS_OTHER_PROTOCOL:
		return rare ? ASIDE_NONE : ASIDE_RARE;
	case VERDICT_PASS_ICMP:
		return ASIDE_ICMP;
	case VERDICT_PASS_FRAGMENT:
		return ASIDE_FRAGMENT;
	case VERDICT_PASS_NOT_FOR_US:
		return w->packet.destination_port == bpf_htons(GUE_PORT) ? ASIDE_GUE : ASIDE_NONE;
	case VERDICT_DROP_TOO_BIG:
		return w->backend->flags & BACKEND_V4 ? ASIDE_TOO_BIG_V4 : ASIDE_TOO_BIG_V6;
	case VERDICT_DROP_SYN:
		return ASIDE_SYN;
	default:
		return ASIDE_NONE;
	}
}

static __always_inline enum verdict fast_path(struct xdp_md *ctx, struct work *w, const bool rare,
					      const bool looking)
{
	w->hash = 0;
	w->other = NULL;
	__builtin_memset(&w->weir, 0, sizeof(w->weir));
	w->packet.limit = ctx->data_end - ctx->data;
	return handle(ctx, w, rare, looking);
}

/* A step aside does not come back. Where it is missing, the verdict so far is the last one. */
static __always_inline enum xdp_action mux_main(struct xdp_md *ctx, const bool rare)
{
	enum verdict verdict;
	enum aside aside;
	struct work w;

	verdict = fast_path(ctx, &w, rare, false);
	aside = aside_of(&w, verdict, rare);
	/* Of these come the most: to a constant the kernel jumps directly. */
	if (aside == ASIDE_SYN)
		bpf_tail_call_static(ctx, &asides, ASIDE_SYN);
	if (aside)
		bpf_tail_call(ctx, &asides, aside);
	return finish(verdict, w.packet.limit);
}

SEC("xdp.frags")
int mux(struct xdp_md *ctx)
{
	return mux_main(ctx, false);
}

SEC("xdp.frags")
int mux_rare(struct xdp_md *ctx)
{
	return mux_main(ctx, true);
}

/* Verdict, aside and bytes, in one word. A function of its own: its stack is free again then. */
static __noinline __u64 fast_path_look(struct xdp_md *ctx)
{
	enum verdict verdict;
	struct work w;

	verdict = fast_path(ctx, &w, true, true);
	return verdict | aside_of(&w, verdict, true) << 16 | (__u64)w.packet.limit << 32;
}

/* All of it in one program, to explain packets or to capture them: see mux/trace.h. */
SEC("xdp.frags")
int mux_look(struct xdp_md *ctx)
{
	enum xdp_action action;
	enum verdict verdict;
	enum aside aside;
	__u64 done;

	look_in(ctx);
	done = fast_path_look(ctx);
	verdict = done & 0xffff;
	aside = done >> 16 & 0xffff;
	if (aside)
		verdict = step_aside(ctx, aside);
	action = finish(verdict, done >> 32);
	look_out(ctx, verdict, action);
	return action;
}

/* Tells user space the tick by which flows expire. */
SEC("syscall")
int flow_clock(void *ctx)
{
	(void)ctx;
	return flow_now();
}

char _license[] SEC("license") = "Dual BSD/GPL";
