/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers to workloads' own connections: to VIPs and ports that no endpoint has. */
#pragma once

#include "agent/snat/echo.h"
#include "agent/snat/outbound.h"

static __always_inline struct snat_port_key snat_answer_key(const struct packet *p)
{
	struct snat_port_key key = {
		.vip = p->destination,
		.remote = p->source,
		.port = p->destination_port,
		.remote_port = p->source_port,
		.protocol = p->protocol,
	};

	return key;
}

/* Has the tenant less than half of what is its own? */
static __always_inline bool snat_halves(const struct snat_tenant *tenant, enum snat_table table)
{
	return (__s32)tenant->rows[table] < (__s32)(tenant->guaranteed[table] / 2);
}

/*
 * May a remote begin a flow? Anybody can forge one, so remotes have no more than half of what the
 * workload may have, nor of what is its tenant's own: the rest is for flows that workloads begin.
 */
__noinline bool snat_admits_more(__u32 workload)
{
	const struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &workload);
	const struct snat_tenant *tenant;
	__u32 number;

	if (!state || (__s32)state->rows[SNAT_TABLE_FLOWS] >= (__s32)(settings.snat_flows / 2))
		return false;
	number = state->tenant;
	if (!number) /* after an upgrade, until user space has written it */
		return true;
	tenant = bpf_map_lookup_elem(&snat_tenants, &number);
	return tenant && snat_halves(tenant, SNAT_TABLE_FLOWS) &&
	       snat_halves(tenant, SNAT_TABLE_PORTS);
}

/*
 * By whom the workload has not sent to: where (DIP, port) has one mapping, the workload's filtering
 * decides (RFC 4787, section 5). What is let in becomes a flow of its own.
 */
__noinline enum verdict snat_admit(const struct packet *p __arg_nonnull,
				   struct snat_port_key *key __arg_nonnull)
{
	struct session_key flow_key = { .client = key->remote,
					.client_port = key->remote_port,
					.protocol = key->protocol };
	struct snat_search *s = snat_search_for(&flow_key);
	const struct snat_workload *workload;
	const struct snat_port *mapping;
	const __u32 *home;

	key->remote_port = 0;
	__builtin_memset(&key->remote, 0, sizeof(key->remote));
	mapping = bpf_map_lookup_elem(&snat_ports, key);
	key->remote = flow_key.client;
	if (!mapping || !s)
		return VERDICT_DROP_NO_RULE;
	s->key.dip = mapping->dip;
	s->key.dip_port = mapping->dip_port;
	workload = bpf_map_lookup_elem(&snat_workloads, &s->key.dip);
	if (!workload || (workload->flags & SNAT_FILTER_ADDRESS &&
			  (!flow_key.client_port || !bpf_map_lookup_elem(&snat_ports, key))))
		return VERDICT_DROP_FILTERED;
	key->remote_port = flow_key.client_port;
	/* In the middle of a connection there is nothing to begin. */
	if (p->protocol == IPPROTO_TCP && !(p->tcp_flags & TCP_FLAG_SYN))
		return VERDICT_DROP_FILTERED;
	s->vip = key->vip;
	s->port = bpf_ntohs(key->port);
	s->used.target.workload = workload->number;
	home = bpf_map_lookup_elem(&workloads, &s->key.dip);
	if (!home)
		return VERDICT_DROP_NO_WORKLOAD;
	if (!snat_admits_more(s->used.target.workload))
		return VERDICT_DROP_UNSOLICITED_FULL;
	if (!snat_open_borrowed(s, *home))
		return VERDICT_DROP_FLOWS_FULL;
	return VERDICT_NONE;
}

/* Updates the TCP state of the connection by the remote's packet. */
static __always_inline void snat_note_answer(struct __sk_buff *skb, const struct snat_port_key *key,
					     struct snat_port *port, const struct packet *p)
{
	__u32 events = snat_events(p);

	/* The remote goes on: the reset was a forged one. */
	if (events & SNAT_SPOKE && port->events & SNAT_RESET)
		__sync_fetch_and_and(&port->events, ~SNAT_RESET);
	if (events & ~port->events)
		snat_note_remote(skb, p, key, port, events);
	snat_seen(&port->last_seen);
}

/* VIP and port become DIP and port. */
static __always_inline int snat_rewrite_answer(struct __sk_buff *skb, const struct packet *p,
					       const struct address *dip, __be16 port)
{
	if (p->fragment_offset)
		return rewrite_fragment(skb, p, DESTINATION, dip);
	if (protocol_is_icmp(p->protocol))
		return rewrite_echo(skb, p, DESTINATION, dip, port);
	return rewrite(skb, p, DESTINATION, dip, port);
}

/* Whose connection a packet answers: DIP and port in a->rule. */
__noinline enum verdict snat_find_answer(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	struct snat_port_key key = snat_answer_key(&a->inner);
	struct snat_port *port = bpf_map_lookup_elem(&snat_ports, &key);

	if (!port) {
		enum verdict verdict = snat_admit(&a->inner, &key);

		if (verdict)
			return verdict;
		port = bpf_map_lookup_elem(&snat_ports, &key);
	}
	if (!port)
		return VERDICT_DROP_NO_RULE;
	a->rule.dip = port->dip;
	a->rule.port = port->dip_port;
	if (!a->inner.fragment_offset)
		snat_note_answer(skb, &key, port, &a->inner);
	return VERDICT_NONE;
}

/* To that workload. Sets ifindex as inbound(). */
static __noinline enum verdict snat_deliver(struct __sk_buff *skb, struct rx_ctx *a, __u32 *ifindex)
{
	const __u32 *home = bpf_map_lookup_elem(&workloads, &a->rule.dip);
	struct packet inner = a->inner;
	struct address dip = a->rule.dip;

	if (!home)
		return VERDICT_DROP_NO_WORKLOAD;

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, &inner))
		return VERDICT_DROP_DECAPSULATE;
	if (snat_rewrite_answer(skb, &inner, &dip, a->rule.port))
		return VERDICT_DROP_REWRITE;
	*ifindex = *home;
	return *home ? VERDICT_DELIVER_INTERFACE : VERDICT_DELIVER_NATIVE;
}

/* An answer to a workload's own connection. */
static __always_inline enum verdict snat_answer(struct __sk_buff *skb, struct rx_ctx *a,
						__u32 *ifindex)
{
	enum verdict verdict = snat_find_answer(skb, a);

	return verdict ?: snat_deliver(skb, a, ifindex);
}
