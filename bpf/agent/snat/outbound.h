/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A workload's own connections to the outside (Ananta 3.2.3, 3.4.2). */
#pragma once

#include "agent/fastpath.h"
#include "agent/fragment.h"
#include "agent/snat/echo.h"
#include "agent/snat/queue.h"
#include "agent/snat/port.h"
#include "agent/source_check.h"
#include "agent/mss.h"

/* Least time between two notifications that ports run low, in ns. */
#define SNAT_LOW_INTERVAL (20ULL * 1000 * 1000)

/* DIP and port become the flow's. */
static __always_inline enum verdict snat_translate(struct __sk_buff *skb, const struct packet *p,
						   const struct snat_flow *flow)
{
	struct address vip = flow->vip;
	__be16 port = flow->vip_port;
	int err;

	/* From here on the packet is touched: fail closed. */
	if (protocol_is_icmp(p->protocol))
		err = rewrite_echo(skb, p, SOURCE, &vip, port);
	else
		err = rewrite(skb, p, SOURCE, &vip, port) ?: mss_clamp(skb, p);
	if (err)
		return VERDICT_DROP_REWRITE;
	if (p->fragment_more)
		fragment_note(p, &vip, false);
	return flow->ifindex ? VERDICT_SNAT_UPLINK : VERDICT_SNAT_NATIVE;
}

/* A packet in an open flow, of which something may be new. */
__noinline enum verdict snat_send(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
				  const struct session_key *key __arg_nonnull,
				  struct snat_flow *flow __arg_nonnull)
{
	if (snat_events(p) & ~flow->events || flow->events & SNAT_REMOTE_RESET ||
	    snat_takes_fin(skb, p, flow) ||
	    bpf_ktime_get_coarse_ns() - flow->last_seen >= SNAT_SEEN_STEP)
		snat_note_sent(skb, p, key, flow);
	return snat_translate(skb, p, flow);
}

/*
 * A SYN in a connection that is over begins it anew, with the port that it had if that is still the
 * workload's to use and nobody else's; 0: the rows are gone, and it begins as any other.
 */
__noinline bool snat_renew(const struct session_key *key __arg_nonnull)
{
	struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, key);
	const struct snat_flow *now;
	struct snat_block_key owned_key = {};
	const struct snat_block *owned;
	struct snat_port *port;
	__u32 number;

	port = flow ? snat_port_of(key, flow) : NULL;
	if (!flow || (port && !snat_is_over(flow->events, port->events)))
		return true;
	number = bpf_ntohs(flow->vip_port);
	owned_key.workload = flow->workload;
	owned_key.block = number / SNAT_BLOCK_PORTS;
	owned = bpf_map_lookup_elem(&snat_blocks, &owned_key);
	if (!port || !owned || flow->borrowed ||
	    !(owned->ports >> (number % SNAT_BLOCK_PORTS) & 1) ||
	    !snat_port_reclaim(key, flow->workload, number)) {
		snat_end(key);
		return false;
	}
	now = bpf_map_lookup_elem(&snat_flows, key);
	if (!now || now->vip_port != bpf_htons(number)) { /* ended meanwhile, without the port */
		snat_give_back(key, owned_key.workload, number);
		return false;
	}
	flow->events = 0;
	port->events = 0;
	return true;
}

/* Does the packet come from where the workload with its source lives? */
static __always_inline bool snat_is_at_home(const struct packet *p, __u32 ifindex)
{
	struct address dip = p->source;
	const __u32 *home = bpf_map_lookup_elem(&workloads, &dip);

	return home && *home == ifindex;
}

static __always_inline bool snat_is_exempt(const struct packet *p, __u32 group)
{
	struct snat_exempt except = { .bits = 160, .group = group, .address = p->destination };

	return bpf_map_lookup_elem(&workloads, &except.address) ||
	       bpf_map_lookup_elem(&snat_exempts, &except);
}

/* Notifies user space when few ports are left, or are reused at once; at most once in a while. */
__noinline int snat_notify_if_low(const struct snat_workload *workload __arg_nonnull,
				  const struct snat_search *s __arg_nonnull)
{
	const struct snat_target *target;
	struct snat_stat *state;
	__u64 now = bpf_ktime_get_coarse_ns(), last;
	__u32 number = s->used.target.workload;

	if (!workload)
		return 0;
	target = bpf_map_lookup_elem(&snat_dests, &s->used.target);
	state = bpf_map_lookup_elem(&snat_stats, &number);
	if (!target || !state)
		return 0;
	if (!s->hurried && (__s32)(workload->ports - target->live) >= (__s32)workload->low)
		return 0;
	last = state->low_notified;
	if (now - last < SNAT_LOW_INTERVAL ||
	    __sync_val_compare_and_swap(&state->low_notified, last, now) != last)
		return 0;
	snat_notify_low(number);
	return 0;
}

/*
 * Begins a flow for s->key, at a port of its own or its mapping's. False: another CPU has, or there
 * is no room.
 */
__noinline bool snat_insert(const struct snat_search *s __arg_nonnull, __u32 ifindex, __u32 queued,
			    bool borrowed)
{
	struct snat_flow fresh = {
		.last_seen = bpf_ktime_get_ns(), /* user space's programs have no other clock */
		.queued = queued,
		.workload = s->used.target.workload,
		.ifindex = ifindex,
		.borrowed = borrowed,
	};

	if (queued == SNAT_OPEN) {
		fresh.vip = s->vip;
		fresh.vip_port = bpf_htons(s->port);
	}
	if (snat_has_room(fresh.workload, SNAT_TABLE_FLOWS) &&
	    !bpf_map_update_elem(&snat_flows, &s->key, &fresh, BPF_NOEXIST)) {
		snat_count_rows(fresh.workload, SNAT_TABLE_FLOWS, 1);
		return true;
	}
	if (!bpf_map_lookup_elem(&snat_flows, &s->key))
		snat_note_refused(fresh.workload, SNAT_TABLE_FLOWS);
	return false;
}

/* A port for the flow of s->key, and its rows: 1; 0: there is none; -1: no room for rows. */
__noinline int snat_open_flow(struct snat_search *s __arg_nonnull, __u32 ifindex)
{
	if (!snat_take(s))
		return s->full ? -1 : 0;
	if (snat_insert(s, ifindex, SNAT_OPEN, false))
		return 1;
	snat_release_port(s, false);
	return bpf_map_lookup_elem(&snat_flows, &s->key) ? 1 : -1;
}

/* A row of snat_ports for s->key at the port of its mapping; false: another has it. */
__noinline bool snat_permit(struct snat_search *s __arg_nonnull, bool address_alone)
{
	__u32 workload = s->used.target.workload;
	const struct snat_port *port;

	snat_fresh_port(s);
	s->port_key = snat_port_key(&s->key, &s->vip, bpf_htons(s->port));
	if (address_alone)
		s->port_key.remote_port = 0;
	if (snat_has_room(workload, SNAT_TABLE_PORTS) &&
	    !bpf_map_update_elem(&snat_ports, &s->port_key, &s->port_row, BPF_NOEXIST)) {
		snat_count_rows(workload, SNAT_TABLE_PORTS, 1);
		return true;
	}
	port = bpf_map_lookup_elem(&snat_ports, &s->port_key);
	if (!port)
		snat_note_refused(workload, SNAT_TABLE_PORTS);
	return port && port->workload == workload && port->dip_port == s->key.dip_port;
}

/* Both rows of a flow at the port of its mapping. False: there is no room, or no such port. */
__noinline bool snat_open_borrowed(struct snat_search *s __arg_nonnull, __u32 ifindex)
{
	if (!snat_permit(s, false))
		return false;
	if (snat_insert(s, ifindex, SNAT_OPEN, true)) {
		snat_count(s->used.target.workload, s->port, 1);
		return true;
	}
	if (bpf_map_lookup_elem(&snat_flows, &s->key))
		return true;
	snat_drop_port(&s->port_key, s->used.target.workload);
	return false;
}

/*
 * Where (DIP, port) has one mapping for all: finds that, or makes it, and lets s's remote answer.
 * As snat_open_flow().
 */
static __always_inline int snat_map(struct snat_search *s, __u32 ifindex)
{
	const struct snat_flow *mapping;
	struct address client = s->key.client;
	__be16 client_port = s->key.client_port;
	int made = 1;

	__builtin_memset(&s->key.client, 0, sizeof(s->key.client));
	s->key.client_port = 0;
	mapping = bpf_map_lookup_elem(&snat_flows, &s->key);
	if (!mapping) {
		made = snat_open_flow(s, ifindex);
		mapping = bpf_map_lookup_elem(&snat_flows, &s->key);
	}
	s->key.client = client;
	s->key.client_port = client_port;
	if (made != 1)
		return made;
	if (!mapping || mapping->queued != SNAT_OPEN)
		return -1;
	s->vip = mapping->vip;
	s->port = bpf_ntohs(mapping->vip_port);
	return snat_permit(s, true) ? 1 : -1;
}

/* A flow that borrows its mapping's port. As snat_open_flow(). */
__noinline int snat_open_mapped(struct snat_search *s __arg_nonnull, __u32 ifindex)
{
	int made = snat_map(s, ifindex);

	if (made != 1)
		return made;
	return snat_open_borrowed(s, ifindex) ? 1 : -1;
}

/* No port: the packet waits, unless it is known that waiting is in vain. */
__noinline enum verdict snat_without_port(struct __sk_buff *skb,
					  const struct packet *p __arg_nonnull,
					  struct snat_search *s __arg_nonnull, __u32 ifindex)
{
	__u32 number = s->used.target.workload;
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &number);

	if (!state)
		return VERDICT_DROP_FLOWS_FULL;
	if (state->refused_until > bpf_ktime_get_coarse_ns()) {
		snat_notify(skb, p, s, ifindex, SNAT_NOTICE_REFUSED);
		return VERDICT_DROP_PORTS_EXHAUSTED;
	}
	if (p->fragment_more) {
		fragment_note(p, &s->vip, true);
		snat_notify_low(number);
		return VERDICT_DROP_SNAT_QUEUE_FRAGMENT;
	}
	snat_insert(s, ifindex, 0, false);
	return snat_enqueue(skb, p, s, ifindex);
}

/* A connection is about to begin: has it a port? */
static __always_inline enum verdict snat_begin_as(struct __sk_buff *skb, const struct packet *p,
						  struct snat_search *s,
						  const struct snat_workload *workload,
						  __u32 ifindex)
{
	struct snat_flow *flow;
	int made;

	if (workload->flags & SNAT_ONE_MAPPING)
		made = snat_open_mapped(s, ifindex);
	else
		made = snat_open_flow(s, ifindex);
	if (made < 0)
		return VERDICT_DROP_FLOWS_FULL;
	if (made == 0)
		return snat_without_port(skb, p, s, ifindex);
	snat_notify_if_low(workload, s);
	flow = bpf_map_lookup_elem(&snat_flows, &s->key);
	if (flow && flow->queued & SNAT_OPEN)
		return VERDICT_NONE;
	return snat_enqueue(skb, p, s, ifindex);
}

/*
 * The first packet of a connection, unless it is none of a workload's own to the outside. NONE: its
 * flow is open.
 */
__noinline enum verdict snat_begin(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
				   const struct session_key *key __arg_nonnull, __u32 ifindex)
{
	const struct snat_workload *workload = bpf_map_lookup_elem(&snat_workloads, &key->dip);
	struct snat_search *s = snat_search_for(key);
	struct snat_stat *state;
	enum verdict verdict;

	if (!workload || !s)
		return VERDICT_PASS_NO_SESSION;
	if (!ifindex && source_is_agent(p))
		return VERDICT_PASS_OURS;
	if (source_is_no_workload(p, ifindex))
		return VERDICT_PASS_NO_SESSION;
	if (!snat_is_at_home(p, ifindex))
		return VERDICT_DROP_SPOOFED_SOURCE;
	if (snat_is_exempt(p, workload->group))
		return VERDICT_PASS_SNAT_EXEMPT;
	if (p->protocol == IPPROTO_TCP &&
	    (p->tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) != TCP_FLAG_SYN)
		return VERDICT_PASS_NO_FLOW;
	s->used.target.workload = workload->number;
	state = bpf_map_lookup_elem(&snat_stats, &s->used.target.workload);
	if (!state)
		return VERDICT_DROP_FLOWS_FULL;
	verdict = VERDICT_DROP_FLOWS_FULL;
	if ((__s32)state->rows[SNAT_TABLE_FLOWS] < (__s32)settings.snat_flows)
		verdict = snat_begin_as(skb, p, s, workload, ifindex);
	if (verdict == VERDICT_NONE)
		__sync_fetch_and_add(&state->begun, 1);
	if (verdict == VERDICT_DROP_FLOWS_FULL)
		snat_notify_full(skb, p, s, ifindex);
	return verdict;
}

/*
 * A packet in a flow that is not simply open, or that comes from elsewhere. NONE: the flow is open,
 * or has just ended.
 */
__noinline enum verdict snat_slow(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
				  const struct session_key *key __arg_nonnull, __u32 ifindex)
{
	struct snat_search *s = snat_search_for(key);
	struct snat_flow *flow;

	if (!s)
		return VERDICT_DROP_FLOWS_FULL;
	if (!snat_is_at_home(p, ifindex))
		return VERDICT_DROP_SPOOFED_SOURCE;
	if (p->tcp_flags & TCP_FLAG_SYN && !snat_renew(key))
		return VERDICT_NONE;
	flow = bpf_map_lookup_elem(&snat_flows, key);
	if (!flow)
		return VERDICT_NONE;
	if (flow->ifindex != ifindex)
		flow->ifindex = ifindex;
	if (flow->queued & SNAT_OPEN)
		return VERDICT_NONE;
	s->used.target.workload = flow->workload;
	return snat_enqueue(skb, p, s, ifindex);
}

/* Out by the uplink, or straight to the peer's host. */
static __always_inline enum verdict snat_xmit(struct __sk_buff *skb, const struct packet *p,
					      const struct session_key *key, struct snat_flow *flow)
{
	enum verdict verdict = snat_send(skb, p, key, flow);

	if (!flow->direct || (verdict != VERDICT_SNAT_NATIVE && verdict != VERDICT_SNAT_UPLINK))
		return verdict;
	return fastpath_send(skb, p) ?: verdict;
}

/*
 * A packet of a workload in a connection of its own. NONE: it is in no such connection, and may
 * belong to an inbound session; if it does not either, it may begin one.
 */
static __always_inline enum verdict snat_out(struct __sk_buff *skb, const struct packet *p,
					     const struct session_key *key, __u32 ifindex)
{
	struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, key);
	enum verdict verdict;

	if (!flow)
		return VERDICT_NONE;
	if (flow->queued != SNAT_OPEN || flow->ifindex != ifindex ||
	    (p->protocol == IPPROTO_TCP && p->tcp_flags & TCP_FLAG_SYN)) {
		verdict = snat_slow(skb, p, key, ifindex);
		if (verdict)
			return verdict;
		flow = bpf_map_lookup_elem(&snat_flows, key);
	}
	return flow ? snat_xmit(skb, p, key, flow) : VERDICT_NONE;
}

/* A packet in no connection that is known: of one that it begins, or of none of ours. */
static __always_inline enum verdict snat_new(struct __sk_buff *skb, const struct packet *p,
					     const struct session_key *key, __u32 ifindex)
{
	enum verdict verdict = snat_begin(skb, p, key, ifindex);
	struct snat_flow *flow;

	if (verdict)
		return verdict;
	flow = bpf_map_lookup_elem(&snat_flows, key);
	return flow ? snat_xmit(skb, p, key, flow) : VERDICT_DROP_FLOWS_FULL;
}
