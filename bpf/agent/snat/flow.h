/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Workloads' own connections (Ananta 3.2.3): their rows in both tables, what is noted of them, and
 * what the ports' use is counted by.
 *
 * A row of snat_ports makes its five-tuple unique. snat_block_use says which ports are taken
 * towards a target: a connection that is over gives its bit back at once, while its rows stay for
 * what may still come, until the sweep, or until another connection takes the port over.
 */
#pragma once

#include "agent/snat/quota.h"
#include "agent/maps.h"
#include "net/packet.h"
#include "agent/session_proof.h"

/* last_seen is written at most once in so many ns, to leave the cache line shared. */
#define SNAT_SEEN_STEP (1ULL << 27)

static __always_inline struct snat_port_key snat_port_key(const struct session_key *key,
							  const struct address *vip, __be16 port)
{
	struct snat_port_key port_key = {
		.vip = *vip,
		.remote = key->client,
		.port = port,
		.remote_port = key->client_port,
		.protocol = key->protocol,
	};

	return port_key;
}

/* The connection of a row of snat_ports as its workload sees it. */
static __always_inline struct session_key snat_flow_key(const struct snat_port_key *port_key,
							const struct snat_port *port)
{
	struct session_key key = {
		.client = port_key->remote,
		.dip = port->dip,
		.client_port = port_key->remote_port,
		.dip_port = port->dip_port,
		.protocol = port_key->protocol,
	};

	return key;
}

static __always_inline struct snat_port *snat_port_of(const struct session_key *key,
						      const struct snat_flow *flow)
{
	struct address vip = flow->vip;
	struct snat_port_key port_key = snat_port_key(key, &vip, flow->vip_port);
	struct snat_port *port = bpf_map_lookup_elem(&snat_ports, &port_key);

	if (!port || port->dip_port != key->dip_port)
		return NULL;
	return port;
}

static __always_inline __u32 snat_events(const struct packet *p)
{
	__u32 events = SNAT_SPOKE;

	if (p->protocol != IPPROTO_TCP)
		return SNAT_SPOKE | SNAT_ACKED;
	if (p->tcp_flags & TCP_FLAG_RST)
		return SNAT_RESET;
	if (!(p->tcp_flags & TCP_FLAG_SYN))
		events |= SNAT_ACKED;
	if (p->tcp_flags & TCP_FLAG_FIN)
		events |= SNAT_FIN;
	return events;
}

/*
 * Has the connection ended, so that its port may begin another? A reset by the remote ends what was
 * not acknowledged yet; of an open connection it may be forged (RFC 5961), and the sweep waits.
 */
static __always_inline bool snat_is_over(__u32 workload, __u32 remote)
{
	if (workload & SNAT_RESET)
		return true;
	if (remote & SNAT_RESET && !(workload & SNAT_ACKED))
		return true;
	return workload & remote & SNAT_FIN;
}

static __always_inline void snat_seen(__u64 *last_seen)
{
	__u64 now = bpf_ktime_get_coarse_ns();

	if (now - *last_seen >= SNAT_SEEN_STEP)
		*last_seen = now;
}

static __always_inline struct snat_target_key snat_target_key(const struct session_key *key,
							      __u32 workload)
{
	struct snat_target_key target = {
		.remote = key->client,
		.workload = workload,
		.remote_port = key->client_port,
		.protocol = key->protocol,
	};

	return target;
}

/* The port may begin another connection to the target. */
__noinline int snat_give_back(const struct session_key *key __arg_nonnull, __u32 workload,
			      __u32 port)
{
	struct snat_used_key used_key = { .target = snat_target_key(key, workload) };
	__u64 bit = 1ULL << (port % SNAT_BLOCK_PORTS);
	__u32 block = port / SNAT_BLOCK_PORTS % SNAT_BLOCKS;
	struct snat_target *target;
	__u64 *used;

	used_key.block = block;
	used = bpf_map_lookup_elem(&snat_block_use, &used_key);
	if (!used || !(__sync_fetch_and_and(used, ~bit) & bit))
		return 0;
	target = bpf_map_lookup_elem(&snat_dests, &used_key.target);
	if (!target)
		return 0;
	__sync_fetch_and_add(&target->live, -1);
	target->used_at = bpf_ktime_get_ns();
	__sync_fetch_and_and(&target->full[block / 64 % SNAT_WORDS], ~(1ULL << (block % 64)));
	return 1;
}

/* Takes a port that was given back, for the same connection; 0: another has it. */
__noinline int snat_port_reclaim(const struct session_key *key __arg_nonnull, __u32 workload,
				 __u32 port)
{
	struct snat_used_key used_key = { .target = snat_target_key(key, workload) };
	__u64 bit = 1ULL << (port % SNAT_BLOCK_PORTS);
	struct snat_target *target;
	__u64 *used;

	used_key.block = port / SNAT_BLOCK_PORTS;
	used = bpf_map_lookup_elem(&snat_block_use, &used_key);
	if (!used || __sync_fetch_and_or(used, bit) & bit)
		return 0;
	target = bpf_map_lookup_elem(&snat_dests, &used_key.target);
	if (target)
		__sync_fetch_and_add(&target->live, 1);
	return 1;
}

/* Counts a flow that begins (1) or ends (-1) at the port. */
__noinline int snat_count(__u32 workload, __u32 port, __s32 by)
{
	struct snat_block_key owned_key = { .workload = workload,
					    .block = port / SNAT_BLOCK_PORTS };
	__u32 range = port / SNAT_RANGE_PORTS % SNAT_BLOCK_RANGES;
	struct snat_block *owned = bpf_map_lookup_elem(&snat_blocks, &owned_key);

	if (!owned)
		return 0;
	__sync_fetch_and_add(&owned->flows[range], by);
	owned->used_at[range] = bpf_ktime_get_ns();
	return 0;
}

/* Removes a row of snat_ports. */
__noinline int snat_drop_port(const struct snat_port_key *key __arg_nonnull, __u32 workload)
{
	if (bpf_map_delete_elem(&snat_ports, key)) /* another CPU did */
		return 0;
	return snat_count_rows(workload, SNAT_TABLE_PORTS, -1);
}

/* Removes both rows of a flow, and what they were counted by. */
__noinline int snat_end(const struct session_key *key __arg_nonnull)
{
	struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, key);
	struct snat_port_key port_key;
	struct address vip;
	__u32 workload, port;
	bool borrowed, open;

	if (!flow)
		return 0;
	vip = flow->vip;
	port = bpf_ntohs(flow->vip_port);
	workload = flow->workload;
	borrowed = flow->borrowed;
	open = flow->vip_port || address_is_set(&vip);
	port_key = snat_port_key(key, &vip, flow->vip_port);
	if (bpf_map_delete_elem(&snat_flows, key)) /* another CPU did */
		return 0;
	snat_count_rows(workload, SNAT_TABLE_FLOWS, -1);
	if (!open)
		return 1;
	snat_drop_port(&port_key, workload);
	if (!borrowed)
		snat_give_back(key, workload, port);
	snat_count(workload, port, -1);
	return 1;
}

/*
 * Records the sequence numbers of a workload's segment. False: it resets a forged answer to its
 * SYN, by the number that this acknowledged, and the connection goes on.
 */
static __always_inline bool snat_note_numbers(struct __sk_buff *skb, const struct packet *p,
					      struct snat_flow *flow)
{
	struct tcp_numbers numbers;

	if (!tcp_numbers_read(skb, p, &numbers))
		return true;
	if (p->tcp_flags & TCP_FLAG_RST)
		return p->tcp_flags & TCP_FLAG_ACK || flow->events & SNAT_ACKED ||
		       bpf_ntohl(numbers.seq) - flow->workload_seq <= SESSION_ACK_WINDOW;
	flow->workload_seq = bpf_ntohl(numbers.seq);
	flow->remote_next = bpf_ntohl(numbers.ack);
	if (flow->events & SNAT_REMOTE_RESET) /* the workload goes on: the reset was forged */
		__sync_fetch_and_and(&flow->events, ~SNAT_REMOTE_RESET);
	return true;
}

/* What is new of a workload's side; at the connection's end its port is given back. */
__noinline int snat_note_workload(const struct session_key *key __arg_nonnull,
				  struct snat_flow *flow __arg_nonnull, __u32 events)
{
	struct snat_port *port;

	__sync_fetch_and_or(&flow->events, events);
	if (!(events & (SNAT_FIN | SNAT_RESET)) || flow->borrowed)
		return 0;
	port = snat_port_of(key, flow);
	if (port && snat_is_over(flow->events, port->events))
		snat_give_back(key, flow->workload, bpf_ntohs(flow->vip_port));
	return 0;
}

/* Is the remote's FIN noted, and does the workload's segment acknowledge it? */
static __always_inline bool snat_takes_fin(struct __sk_buff *skb, const struct packet *p,
					   const struct snat_flow *flow)
{
	return flow->events & SNAT_REMOTE_FIN && tcp_acknowledges_fin(skb, p, flow->remote_fin);
}

/* Notes that the remote has finished; a connection that is over then gives its port back. */
__noinline int snat_note_end(const struct session_key *key __arg_nonnull,
			     struct snat_flow *flow __arg_nonnull)
{
	struct snat_port *port = snat_port_of(key, flow);

	__sync_fetch_and_and(&flow->events, ~SNAT_REMOTE_FIN);
	if (!port)
		return 0;
	__sync_fetch_and_or(&port->events, SNAT_FIN);
	if (!flow->borrowed && snat_is_over(flow->events, port->events))
		snat_give_back(key, flow->workload, bpf_ntohs(flow->vip_port));
	return 0;
}

/* Notes a workload's packet with which something is new, or which comes SNAT_SEEN_STEP after. */
__noinline int snat_note_sent(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
			      const struct session_key *key __arg_nonnull,
			      struct snat_flow *flow __arg_nonnull)
{
	__u32 events = snat_events(p);

	if (p->protocol == IPPROTO_TCP && !snat_note_numbers(skb, p, flow))
		return 0;
	if (events & ~flow->events)
		snat_note_workload(key, flow, events);
	if (snat_takes_fin(skb, p, flow))
		snat_note_end(key, flow);
	flow->last_seen = bpf_ktime_get_coarse_ns();
	return 0;
}

/*
 * Is a remote's reset right? One that refuses a SYN acknowledges it, any other has the number that
 * the workload expects (RFC 9293, section 3.10.7). The number that is noted may be old, so of
 * another user space asks the workload.
 */
static __always_inline bool snat_believes(struct __sk_buff *skb, const struct packet *p,
					  struct snat_flow *flow)
{
	struct tcp_numbers numbers;

	if (!tcp_numbers_read(skb, p, &numbers))
		return false;
	if (!(flow->events & SNAT_ACKED))
		return p->tcp_flags & TCP_FLAG_ACK &&
		       bpf_ntohl(numbers.ack) == flow->workload_seq + 1;
	if (bpf_ntohl(numbers.seq) == flow->remote_next)
		return true;
	__sync_fetch_and_or(&flow->events, SNAT_REMOTE_RESET);
	return false;
}

/* Notes a FIN of the remote, which counts once the workload acknowledges it. */
__noinline int snat_note_fin(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
			     struct snat_flow *flow __arg_nonnull)
{
	__u32 next = flow->remote_next, noted = next, fin = tcp_fin_read(skb, p);

	if (flow->events & SNAT_REMOTE_FIN)
		noted = flow->remote_fin;
	if (!fin || !tcp_fin_precedes(fin, noted, next))
		return 0;
	flow->remote_fin = fin;
	__sync_fetch_and_or(&flow->events, SNAT_REMOTE_FIN);
	return 0;
}

/* What is new of the remote's side. */
__noinline int snat_note_remote(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
				const struct snat_port_key *port_key __arg_nonnull,
				struct snat_port *port __arg_nonnull, __u32 events)
{
	struct session_key key = snat_flow_key(port_key, port);
	struct snat_flow *flow = NULL;

	if (events & (SNAT_FIN | SNAT_RESET))
		flow = bpf_map_lookup_elem(&snat_flows, &key);
	if (events & SNAT_RESET && !(flow && snat_believes(skb, p, flow)))
		return 0;
	if (events & SNAT_FIN && flow)
		snat_note_fin(skb, p, flow);
	events &= ~SNAT_FIN;
	__sync_fetch_and_or(&port->events, events);
	if (flow && !flow->borrowed && snat_is_over(flow->events, port->events))
		snat_give_back(&key, flow->workload, bpf_ntohs(port_key->port));
	return 0;
}

/* The idle time that ends a flow, by how far both sides have got. */
static __always_inline __u64 snat_bound(const struct snat_sweep_call *call, __u8 protocol,
					__u32 workload, __u32 remote)
{
	if (protocol == IPPROTO_UDP)
		return call->udp;
	if (protocol != IPPROTO_TCP)
		return call->icmp;
	if ((workload | remote) & SNAT_RESET)
		return call->reset;
	if (workload & remote & SNAT_FIN)
		return call->closing;
	if (!(workload & SNAT_ACKED && remote & SNAT_SPOKE))
		return call->syn;
	/* A workload that does not say whether it was reset. */
	if (workload & SNAT_REMOTE_RESET && call->closing < call->established)
		return call->closing;
	return call->established;
}

/* An inbound session is about to begin as key: what is over of the workload's own makes room. */
__noinline bool snat_makes_room(const struct session_key *key __arg_nonnull)
{
	const struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, key);
	const struct snat_port *port;

	if (!flow)
		return true;
	port = snat_port_of(key, flow);
	if (port && !snat_is_over(flow->events, port->events))
		return false;
	snat_end(key);
	return true;
}
