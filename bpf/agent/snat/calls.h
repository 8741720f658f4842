/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What user space does to the tables of source NAT, by programs that it runs: they change single
 * words of rows that packets change too, by the same code.
 */
#pragma once

#include "agent/snat/outbound.h"

/* Sets which ports of a block new connections may use. The use that is counted stays. */
static __noinline int snat_own_block(const struct snat_own_call *call)
{
	struct snat_block_key key = { .workload = call->workload, .block = call->block };
	struct snat_block fresh = { .ports = call->ports }, *owned;
	__u64 now = bpf_ktime_get_ns();

	for (int i = 0; i < SNAT_BLOCK_RANGES; i++)
		fresh.used_at[i] = now;
	if (!bpf_map_update_elem(&snat_blocks, &key, &fresh, BPF_NOEXIST))
		return 1;
	owned = bpf_map_lookup_elem(&snat_blocks, &key);
	if (!owned)
		return 0;
	for (int i = 0; i < SNAT_BLOCK_RANGES; i++)
		if (call->ports & ~owned->ports & 0xffULL << (i * SNAT_RANGE_PORTS))
			owned->used_at[i] = now;
	owned->ports = call->ports;
	return 1;
}

/* A port of the mapping that s's flow shares with others. False: as snat_take(). */
static __always_inline bool snat_borrow(struct snat_search *s, __u32 ifindex)
{
	int made = snat_map(s, ifindex);

	if (made == 1 && snat_permit(s, false)) {
		snat_count(s->used.target.workload, s->port, 1);
		return true;
	}
	s->full = made != 0;
	return false;
}

/* Gives a queued flow a port. Its packets are queued until those before them have been sent. */
static __noinline int snat_assign_port(struct snat_flow_call *call)
{
	struct snat_search s = { .key = call->key };
	struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, &s.key);
	const struct snat_workload *workload = bpf_map_lookup_elem(&snat_workloads, &s.key.dip);
	const struct snat_flow *now;
	bool borrows;

	if (!flow)
		return SNAT_GONE;
	if (!flow->vip_port) {
		borrows = workload && workload->flags & SNAT_ONE_MAPPING;
		s.used.target.workload = flow->workload;
		if (!(borrows ? snat_borrow(&s, flow->ifindex) : snat_take(&s))) {
			if (!s.full)
				return 0;
			snat_end(&s.key); /* no ports would help it */
			return SNAT_GONE;
		}
		flow->borrowed = borrows;
		flow->vip = s.vip;
		flow->vip_port = bpf_htons(s.port);
		now = bpf_map_lookup_elem(&snat_flows, &s.key);
		if (!now || now->vip_port != flow->vip_port) {
			snat_release_port(&s, borrows); /* ended meanwhile, without the port */
			return SNAT_GONE;
		}
	}
	call->vip = flow->vip;
	call->vip_port = flow->vip_port;
	return 1;
}

/*
 * Opens a flow whose queued packets have all been sent. It may be open already: a retransmitted
 * SYN begins a queued flow anew, and may find a port.
 */
static __noinline int snat_unblock_flow(const struct snat_flow_call *call)
{
	struct session_key key = call->key;
	struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, &key);
	__u32 queued;

	if (!flow)
		return 1;
	queued = __sync_val_compare_and_swap(&flow->queued, call->seen, SNAT_OPEN);
	return queued == call->seen || queued & SNAT_OPEN;
}

/* What is counted of a workload counts for its tenant. */
static __noinline int snat_list_workload(const struct snat_list_call *call)
{
	__u32 workload = call->workload, tenant = call->tenant, before;
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &workload);

	if (!state)
		return 0;
	if (call->fresh)
		state->low_notified = state->refused_until = state->begun = state->queued = 0;
	before = state->tenant;
	if (before == tenant)
		return 1;
	state->tenant = tenant;
	for (int i = 0; i < SNAT_TABLES; i++) {
		snat_count_tenant(before, i, -state->rows[i]);
		snat_count_tenant(tenant, i, state->rows[i]);
	}
	return 1;
}

/* Sets what a tenant may have of a table, and what it has borrowed by that. */
static __noinline int snat_set_share(const struct snat_share_call *call)
{
	__u32 number = call->tenant, none = 0;
	enum snat_table table = call->table;
	struct snat_tenant *tenant = bpf_map_lookup_elem(&snat_tenants, &number);
	struct snat_tenant *all = bpf_map_lookup_elem(&snat_tenants, &none);
	__s32 rows, guaranteed, lent;

	if (!tenant || !all || table >= SNAT_TABLES)
		return 0;
	rows = tenant->rows[table];
	guaranteed = tenant->guaranteed[table];
	tenant->guaranteed[table] = call->guaranteed;
	tenant->limit[table] = call->limit;
	if (!number) {
		__sync_fetch_and_add(&all->rows[table], call->off);
		return 1;
	}
	lent = snat_excess(rows, call->guaranteed) - snat_excess(rows, guaranteed);
	__sync_fetch_and_add(&all->rows[table], lent);
	snat_count_tenant(number, table, call->off);
	return 1;
}

SEC("syscall")
int snat_list(struct snat_list_call *call)
{
	struct snat_list_call own = *call;

	return snat_list_workload(&own);
}

SEC("syscall")
int snat_share(struct snat_share_call *call)
{
	struct snat_share_call own = *call;

	return snat_set_share(&own);
}

SEC("syscall")
int snat_reconcile(struct snat_reconcile_call *call)
{
	return snat_count_rows(call->workload, call->table, call->off);
}

SEC("syscall")
int snat_own(struct snat_own_call *call)
{
	struct snat_own_call own = *call;

	return snat_own_block(&own);
}

SEC("syscall")
int snat_assign(struct snat_flow_call *call)
{
	struct snat_flow_call own = *call;

	own.result = snat_assign_port(&own);
	*call = own;
	return 0;
}

SEC("syscall")
int snat_open(struct snat_flow_call *call)
{
	struct snat_flow_call own = *call;

	call->result = snat_unblock_flow(&own);
	return 0;
}

/* Ends one flow; 0: its packets are no longer queued, and it goes on. */
SEC("syscall")
int snat_close(struct snat_flow_call *call)
{
	struct session_key key = call->key;
	const struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, &key);

	call->result = !(call->queued && flow && flow->queued & SNAT_OPEN);
	if (call->result)
		snat_end(&key);
	return 0;
}

/* So many packets of a workload do not wait any more. */
SEC("syscall")
int snat_dequeue(struct snat_dequeue_call *call)
{
	__u32 workload = call->workload;
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &workload);

	if (!state)
		return 0;
	/* What an earlier process had queued is not counted twice. */
	if (state->queued < call->packets)
		state->queued = 0;
	else
		__sync_fetch_and_add(&state->queued, -(__s32)call->packets);
	return 0;
}

/* There are no ports to be had until then. */
SEC("syscall")
int snat_refuse(struct snat_dequeue_call *call)
{
	__u32 workload = call->workload;
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &workload);

	if (state)
		state->refused_until = call->until;
	return 0;
}
