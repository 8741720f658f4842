// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The harness that makes the kernel's repeated test run measure the mux: before each call it
 * restores the Ethernet header and writes the next flow's source address and cookie, after it it
 * undoes the growth of the head. What the mux is measured against runs in the same harness.
 *
 * For live frames there are a generator, which does what the harness does before a call, a sink,
 * and the programs alone.
 */
#include "mux/mux.bpf.c"

#include "connections.h"
#include "floor.h"

volatile const __u32 cfg_flows = 1; /* how many flows come in turn */
volatile const bool cfg_v6; /* family of the packets, and of their outer header */
volatile const bool cfg_keep; /* leave the packet as the program left it, to trace at it */

__u32 flow; /* the next one */
__u32 repeats = 1; /* packets that a flow sends in a row */
__u32 repeated; /* those that the next flow has sent of them */
__u32 cookie_at; /* offset of the byte that names the backend in the packets of the class */
__u64 sunk; /* frames that came back */
__u8 syn_template[96]; /* the whole frame of a SYN: an answer is written over it */
__u8 vxlan_template[144]; /* all that is written anew of a segment in VXLAN */

enum {
	COOKIE_AT_MAX = 127,
	RESTORED_MAX = 64, /* bytes that anything else is restored of */
	COOKIE_SLOTS = 64, /* of those of the endpoint: a power of two */
};

/* The flow of a packet. */
static __always_inline __u32 next_flow(void)
{
	__u32 number = flow;

	if (++repeated >= repeats) {
		repeated = 0;
		flow = number + 1 < cfg_flows ? number + 1 : 0;
	}
	return number;
}

static __always_inline bool restore_behind(struct xdp_md *ctx, const bool tag)
{
	const __u32 l3 = sizeof(struct ethhdr) + (tag ? sizeof(struct vlan_header) : 0);
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	/* The low word of the source; its upper byte tells the classes apart. */
	__u32 *source = data + l3 + (cfg_v6 ? 20 : 12);
	__u8 *cookie = data + (cookie_at & COOKIE_AT_MAX);
	__u32 number;

	barrier_var(cookie);
	if (data + RESTORED_MAX > end || (void *)(cookie + 1) > end)
		return false;
	*(__u64 *)data = 0x0a02020000000002ULL; /* to 02:00:00:00:00:02 */
	*(__u32 *)(data + 8) = 0x0a0a0a0a;
	if (tag)
		*(__u32 *)(data + 12) = bpf_htonl(ETH_P_8021Q << 16 | 7);
	*(__be16 *)(data + l3 - 2) = cfg_v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	number = next_flow();
	*source = (*source & bpf_htonl(0xff000000)) | bpf_htonl(number);
	*cookie = (number & (COOKIE_SLOTS - 1)) + 1;
	return true;
}

static __always_inline bool restore(struct xdp_md *ctx)
{
	return restore_behind(ctx, false);
}

/* A SYN of the next flow, with its right checksum: all of the frame was written over. */
static __always_inline bool restore_syn(struct xdp_md *ctx, const bool v6)
{
	const __u32 l4 = sizeof(struct ethhdr) + (v6 ? 40 : 20), bytes = l4 + 40;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 word, sum;
	__u16 *check = data + l4 + offsetof(struct tcphdr, check);

	if (data + bytes > end)
		return false;
	word = bpf_htonl(next_flow());
#pragma unroll
	for (__u32 at = 0; at + 8 <= bytes; at += 8)
		*(__u64 *)(data + at) = *(__u64 *)(syn_template + at);
	*(__u64 *)(data + bytes - 8) = *(__u64 *)(syn_template + bytes - 8);
	*(__u32 *)(data + l4 - (v6 ? 20 : 8)) |= word;
	sum = (__u16) ~*check + (word & 0xffff) + (word >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*check = ~((sum & 0xffff) + (sum >> 16));
	return true;
}

/*
 * A segment of a flow in VXLAN, of IPv4 in IPv4 or IPv6 in IPv6, up to its TCP options: all
 * of that was written over. Its checksums are those of flow 0.
 */
static __always_inline bool restore_vxlan_of(struct xdp_md *ctx, __u32 number, const bool v6)
{
	const __u32 bytes = v6 ? 144 : 104, source = v6 ? 14 + 40 + 30 + 20 : 14 + 20 + 30 + 12;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + bytes > end)
		return false;
#pragma unroll
	for (__u32 at = 0; at < bytes; at += 8)
		*(__u64 *)(data + at) = *(__u64 *)(vxlan_template + at);
	*(__u32 *)(data + source) |= bpf_htonl(number);
	return true;
}

/* Likewise of the next flow. */
static __always_inline bool restore_vxlan(struct xdp_md *ctx, const bool v6)
{
	return restore_vxlan_of(ctx, next_flow(), v6);
}

static __always_inline long length(const struct xdp_md *ctx)
{
	return (long)ctx->data_end - (long)ctx->data;
}

/* Takes off what the program put before the packet. */
static __always_inline int undo(struct xdp_md *ctx, int action, long before)
{
	long after = length(ctx);

	barrier_var(after); /* else the pointers are subtracted as 32-bit numbers */
	if (action == XDP_TX && !cfg_keep && bpf_xdp_adjust_head(ctx, after - before))
		return XDP_ABORTED;
	return action;
}

__noinline int run_mux(struct xdp_md *ctx)
{
	return mux_main(ctx, false);
}

__noinline int run_floor(struct xdp_md *ctx)
{
	return cfg_v6 ? floor_v6(ctx, IPPROTO_TCP, 80) : floor_v4(ctx, IPPROTO_TCP, 80);
}

__noinline int run_floor_udp(struct xdp_md *ctx)
{
	return cfg_v6 ? floor_v6(ctx, IPPROTO_UDP, VXLAN_PORT)
		      : floor_v4(ctx, IPPROTO_UDP, VXLAN_PORT);
}

__noinline int run_pass(struct xdp_md *ctx)
{
	return floor_pass(ctx);
}

SEC("xdp.frags")
int bench_mux(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore(ctx) ? undo(ctx, run_mux(ctx), before) : XDP_ABORTED;
}

/* The same of frames with a VLAN tag. */
SEC("xdp.frags")
int bench_tagged(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore_behind(ctx, true) ? undo(ctx, run_mux(ctx), before) : XDP_ABORTED;
}

static __always_inline bool restore_any_vxlan(struct xdp_md *ctx)
{
	return cfg_v6 ? restore_vxlan(ctx, true) : restore_vxlan(ctx, false);
}

SEC("xdp.frags")
int bench_vxlan(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore_any_vxlan(ctx) ? undo(ctx, run_mux(ctx), before) : XDP_ABORTED;
}

/* The ISN of the client whose SYN is the template. */
static __always_inline __u32 client_isn(const bool v6)
{
	const __u32 at = v6 ? 14 + 40 + 30 + 40 + 4 : 14 + 20 + 30 + 20 + 4;

	return bpf_ntohl(*(__u32 *)(vxlan_template + at));
}

/* The handshake of the next flow with full NAT: three packets. Its result is that of the last. */
static __always_inline int handshake(struct xdp_md *ctx, const bool v6)
{
	__u32 number = flow;
	int action;

	if (!restore_vxlan(ctx, v6))
		return XDP_ABORTED;
	action = run_mux(ctx);
	if (action != XDP_TX)
		return action;
	if (!answer_as_backend(ctx, v6))
		return XDP_ABORTED;
	action = run_mux(ctx);
	if (action != XDP_TX)
		return action;
	if (!restore_vxlan_of(ctx, number, v6) ||
	    !send_as_client(ctx, client_isn(v6) + 1, BACKEND_ISN + 1, FLAG_ACK, v6))
		return XDP_ABORTED;
	return run_mux(ctx);
}

SEC("xdp.frags")
int bench_handshake(struct xdp_md *ctx)
{
	long before = length(ctx);

	return undo(ctx, cfg_v6 ? handshake(ctx, true) : handshake(ctx, false), before);
}

/* As bench_syn_floor. */
SEC("xdp.frags")
int vxlan_floor(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore_any_vxlan(ctx) ? undo(ctx, run_floor_udp(ctx), before) : XDP_ABORTED;
}

static __always_inline bool restore_any_syn(struct xdp_md *ctx)
{
	return cfg_v6 ? restore_syn(ctx, true) : restore_syn(ctx, false);
}

SEC("xdp.frags")
int bench_syn(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore_any_syn(ctx) ? undo(ctx, run_mux(ctx), before) : XDP_ABORTED;
}

/* The floor where the whole frame was just written: the first loads wait for the stores. */
SEC("xdp.frags")
int bench_syn_floor(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore_any_syn(ctx) ? undo(ctx, run_floor(ctx), before) : XDP_ABORTED;
}

SEC("xdp.frags")
int bench_floor(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore(ctx) ? undo(ctx, run_floor(ctx), before) : XDP_ABORTED;
}

SEC("xdp.frags")
int bench_pass(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore(ctx) ? undo(ctx, run_pass(ctx), before) : XDP_ABORTED;
}

/* The harness alone, to tell its own cost. */
SEC("xdp.frags")
int bench_empty(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore(ctx) ? undo(ctx, XDP_PASS, before) : XDP_ABORTED;
}

SEC("xdp.frags")
int bench_syn_empty(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore_any_syn(ctx) ? undo(ctx, XDP_PASS, before) : XDP_ABORTED;
}

SEC("xdp.frags")
int vxlan_empty(struct xdp_md *ctx)
{
	long before = length(ctx);

	return restore_any_vxlan(ctx) ? undo(ctx, XDP_PASS, before) : XDP_ABORTED;
}

/* Live frames: XDP_TX of the test run sends the frame out of the interface it runs for. */
SEC("xdp.frags")
int live_generate(struct xdp_md *ctx)
{
	return restore(ctx) ? XDP_TX : XDP_ABORTED;
}

SEC("xdp.frags")
int live_generate_vxlan(struct xdp_md *ctx)
{
	return restore_vxlan(ctx, false) ? XDP_TX : XDP_ABORTED;
}

/* The client has got an answer. False: it has no more to send. */
static __always_inline bool go_on_as_client(struct xdp_md *ctx, const struct backend_answer *a)
{
	__u8 flags = FLAG_ACK;

	if (requests)
		flags |= FLAG_PSH;
	if (a->ack - client_isn(false) > requests && !(a->flags & FLAG_SYN && !requests))
		return false;
	return restore_vxlan_of(ctx, a->flow, false) &&
	       send_as_client(ctx, a->ack, a->seq + 1, flags, false);
}

/* Clients and backends of connections by IPv4. What nobody answers has come to its end. */
SEC("xdp.frags")
int live_ends(struct xdp_md *ctx)
{
	struct backend_answer a;

	if (read_backend_answer(ctx, &a) ? go_on_as_client(ctx, &a) : answer_as_backend(ctx, false))
		return XDP_TX;
	sunk++;
	return XDP_DROP;
}

SEC("xdp.frags")
int live_sink(struct xdp_md *ctx)
{
	sunk += ctx->data < ctx->data_end;
	return XDP_DROP;
}

/* Sends every frame back as it came. */
SEC("xdp.frags")
int live_reflect(struct xdp_md *ctx)
{
	return ctx->data < ctx->data_end ? XDP_TX : XDP_ABORTED;
}

SEC("xdp.frags")
int live_floor(struct xdp_md *ctx)
{
	return cfg_v6 ? floor_v6(ctx, IPPROTO_TCP, 80) : floor_v4(ctx, IPPROTO_TCP, 80);
}
