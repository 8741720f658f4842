/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Notifies user space of connections that may leave the muxes (Fastpath, Ananta 3.2.4): from a
 * workload with source NAT to an endpoint with ENDPOINT_FASTPATH, from the client's first segment
 * on that is no SYN. It is notified again every REDIRECT_AGAIN while segments come here, for then a
 * host has not heard of it.
 */
#pragma once

#include "abi/shared/redirect.h"
#include "net/flowhash.h"
#include "mux/ratelimit.h"
#include "mux/snat.h"
#include "mux/ctx.h"

enum { REDIRECT_MEMORY = 4096 }; /* flows; a power of two */

#define REDIRECT_AGAIN (200ULL * 1000 * 1000) /* ns */

struct redirect_memory {
	__u64 flow; /* hash */
	__u64 notified; /* when user space was last notified; 0: never */
	__u64 packets;
};

/* Flows that were noted lately. One that shares a row with another is noted again too soon. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REDIRECT_MEMORY);
	__type(key, __u32);
	__type(value, struct redirect_memory);
} redirect_memory SEC(".maps");

/* For user space, as struct redirect. Full means that the connection leaves later. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} redirects SEC(".maps");

/* Is user space to be notified of the flow? UDP needs that many packets first. */
static __always_inline bool redirect_is_due(__u64 flow, __u32 packets)
{
	__u32 index = flow & (REDIRECT_MEMORY - 1);
	struct redirect_memory *memory = bpf_map_lookup_elem(&redirect_memory, &index);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (!memory)
		return false;
	if (memory->flow != flow) {
		memory->flow = flow;
		memory->notified = 0;
		memory->packets = 0;
	}
	if (++memory->packets < packets ||
	    (memory->notified && now - memory->notified < REDIRECT_AGAIN))
		return false;
	memory->notified = now;
	return true;
}

/* A client's packet that is about to be sent to a backend. */
struct redirect_ask {
	struct redirect redirect; /* without the client's tunnel */
	__u32 udp_packets; /* of the endpoint */
	__u32 pad;
};

/* The connection's hash. */
static __always_inline __u64 redirect_hash(const struct connection *c)
{
	struct packet p;

	p.source = c->client;
	p.destination = c->server;
	p.protocol = c->protocol;
	p.source_port = c->client_port;
	p.destination_port = c->server_port;
	return flowhash(&p, &settings.hash_key);
}

/* A function of its own that gives back a number: the verifier walks it once. */
__noinline int redirect_note(struct redirect_ask *ask)
{
	struct redirect *redirect;
	struct endpoint *vip;
	struct backend *owner;
	__u64 slices;

	if (!ask || !redirect_is_due(redirect_hash(&ask->redirect.connection), ask->udp_packets))
		return 0;
	vip = endpoint_at(&ask->redirect.connection.client, 0, 0);
	if (!vip || !(vip->flags & ENDPOINT_SNAT))
		return 0;
	slices = *(volatile __u64 *)&vip->slices;
	owner = snat_owner(slices, ask->redirect.connection.client_port);
	if (!owner || !ratelimit(LIMIT_REDIRECT, &ask->redirect.connection.server))
		return 0;
	redirect = bpf_ringbuf_reserve(&redirects, sizeof(*redirect), 0);
	if (!redirect)
		return 0;
	*redirect = ask->redirect;
	redirect->client = owner->tunnel;
	bpf_ringbuf_submit(redirect, 0);
	return 1;
}

/* May the packet be of a connection that leaves? */
static __always_inline void redirect_observe(const struct mux_ctx *w)
{
	const __u8 ends = TCP_FLAG_SYN | TCP_FLAG_FIN | TCP_FLAG_RST;
	const struct packet *p = &w->packet;
	struct redirect_ask ask = {
		.redirect.connection.client = p->source,
		.redirect.connection.server = p->destination,
		.redirect.connection.client_port = p->source_port,
		.redirect.connection.server_port = p->destination_port,
		.redirect.connection.protocol = p->protocol,
		.redirect.server = w->backend->tunnel,
		.udp_packets = w->endpoint->udp_packets,
	};

	if (p->protocol == IPPROTO_TCP) {
		if (p->tcp_flags & ends)
			return;
		ask.udp_packets = 0;
	} else if (!ask.udp_packets) {
		return;
	}
	redirect_note(&ask);
}
