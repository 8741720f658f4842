/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections with full NAT in the mux: its clients and backends, who answer what the mux sends
 * them in the same frame. Included by bench.bpf.c. Segments have no data, but requests count as a
 * byte of it. TCP's checksums are wrong; the mux does not look at them.
 */
#pragma once

#include "net/tcp.h"

__u32 requests; /* of a connection, each with an answer, after its handshake; 0: it acknowledges */

enum {
	BACKEND_ISN = 1000,
	FLAGS_AT = 13, /* of TCP's header: the byte with the flags */
	FLAG_SYN = 0x02,
	FLAG_PSH = 0x08, /* of requests and their answers */
	FLAG_ACK = 0x10,
	FLOW_MASK = 0x3fffffff, /* of the client's address */
};

/* The Ethernet header of a frame to the mux. */
static __always_inline void ethernet_to_mux(void *data, const bool v6)
{
	*(__u64 *)data = 0x0a02020000000002ULL; /* to 02:00:00:00:00:02 */
	*(__u32 *)(data + 8) = 0x0a0a0a0a;
	*(__be16 *)(data + 12) = v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
}

/*
 * The backend's answer in place of a SYN or a request that has left VXLAN. False: the frame is
 * neither.
 */
static __always_inline bool answer_as_backend(struct xdp_md *ctx, const bool v6)
{
	const __u32 l4 = sizeof(struct ethhdr) + (v6 ? 40 : 20), words = v6 ? 4 : 1;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 *from = data + sizeof(struct ethhdr) + (v6 ? 8 : 12), *tcp = data + l4;
	__u8 *flags = data + l4 + FLAGS_AT;
	__u32 seq;
	bool syn;

	if (data + l4 + sizeof(struct tcphdr) > end)
		return false;
	syn = *flags == FLAG_SYN;
	if (*(__u8 *)(data + sizeof(struct ethhdr) + (v6 ? 6 : 9)) != IPPROTO_TCP ||
	    (!syn && !(*flags & FLAG_PSH)))
		return false;
	ethernet_to_mux(data, v6);
#pragma unroll
	for (__u32 i = 0; i < words; i++) {
		__u32 was = from[i];

		from[i] = from[words + i];
		from[words + i] = was;
	}
	seq = tcp[1];
	tcp[0] = tcp[0] << 16 | tcp[0] >> 16;
	tcp[1] = syn ? bpf_htonl(BACKEND_ISN) : tcp[2];
	tcp[2] = bpf_htonl(bpf_ntohl(seq) + 1);
	*flags |= FLAG_ACK;
	return true;
}

/* A backend's answer to a client, in VXLAN of IPv4. */
struct backend_answer {
	__u32 flow;
	__u32 seq;
	__u32 ack;
	__u32 flags;
};

/* Reads it. False: the frame is none. What is bypassed, a SYN, is none. */
static __always_inline bool read_backend_answer(struct xdp_md *ctx, struct backend_answer *a)
{
	const __u32 ip = 14 + 20 + 30, l4 = ip + 20;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 *tcp = data + l4;

	if (data + l4 + sizeof(struct tcphdr) > end || *(__u8 *)(data + 14 + 9) != IPPROTO_UDP)
		return false;
	a->flow = bpf_ntohl(*(__u32 *)(data + ip + 16)) & FLOW_MASK;
	a->seq = bpf_ntohl(tcp[1]);
	a->ack = bpf_ntohl(tcp[2]);
	a->flags = *(__u8 *)(data + l4 + FLAGS_AT);
	return a->flags & FLAG_ACK;
}

/* The client's next segment in place of its SYN, which the frame was restored to. */
static __always_inline bool send_as_client(struct xdp_md *ctx, __u32 seq, __u32 ack, __u8 flags,
					   const bool v6)
{
	const __u32 l4 = v6 ? 14 + 40 + 30 + 40 : 14 + 20 + 30 + 20;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 *tcp = data + l4;

	if (data + l4 + sizeof(struct tcphdr) > end)
		return false;
	tcp[1] = bpf_htonl(seq);
	tcp[2] = bpf_htonl(ack);
	*(__u8 *)(data + l4 + FLAGS_AT) = flags;
	return true;
}
