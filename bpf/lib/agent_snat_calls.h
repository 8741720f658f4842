/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What user space does to the tables of source NAT, by programs that it runs: they change single
 * words of rows that packets change too, by the same code.
 */
#pragma once

#include "lib/agent_snat_out.h"

/* Sets which ports of a block new connections may use. The use that is counted stays. */
static __noinline int snat_own_block(const struct snat_own_call *call)
{
	struct snat_owned_key key = { .workload = call->workload, .block = call->block };
	struct snat_owned fresh = { .ports = call->ports }, *owned;
	__u64 now = bpf_ktime_get_ns();

	for (int i = 0; i < SNAT_BLOCK_RANGES; i++)
		fresh.used_at[i] = now;
	if (!bpf_map_update_elem(&snat_owned, &key, &fresh, BPF_NOEXIST))
		return 1;
	owned = bpf_map_lookup_elem(&snat_owned, &key);
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

/* Gives a held flow a port. It stays held until what waits in it has been sent. */
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
			snat_leave_port(&s, borrows); /* ended meanwhile, without the port */
			return SNAT_GONE;
		}
	}
	call->vip = flow->vip;
	call->vip_port = flow->vip_port;
	return 1;
}

/* Opens a held flow in which nothing waits but what was sent. */
static __noinline int snat_open_gate(const struct snat_flow_call *call)
{
	struct session_key key = call->key;
	struct snat_flow *flow = bpf_map_lookup_elem(&snat_flows, &key);

	if (!flow)
		return 1;
	return __sync_val_compare_and_swap(&flow->gate, call->seen, SNAT_OPEN) == call->seen;
}

/* Keeps the mapping of a borrowed port alive. */
static __noinline int snat_touch_mapping(const struct session_key *key, __u64 seen)
{
	struct session_key mapping_key = { .dip = key->dip,
					   .dip_port = key->dip_port,
					   .protocol = key->protocol };
	struct snat_flow *mapping = bpf_map_lookup_elem(&snat_flows, &mapping_key);

	if (mapping && mapping->last_seen < seen)
		mapping->last_seen = seen;
	return 0;
}

/* A row that stays. */
static __always_inline void snat_found(__u32 workload, enum snat_table table)
{
	struct snat_state *state = bpf_map_lookup_elem(&snat_states, &workload);

	if (state)
		state->found[table]++;
}

static long snat_forget_found(void *map, __u32 *workload, struct snat_state *state,
			      struct snat_sweep_call *call)
{
	__builtin_memset(state->found, 0, sizeof(state->found));
	return 0;
}

static long snat_sweep_flow(void *map, struct session_key *key, struct snat_flow *flow,
			    struct snat_sweep_call *call)
{
	struct session_key own = *key;
	const struct snat_port *port;
	__u64 seen = flow->last_seen;
	__u32 remote = 0;

	if (call->workload) {
		if (flow->workload == call->workload)
			call->ended += snat_end(&own);
		return 0;
	}
	port = flow->vip_port ? snat_port_of(&own, flow) : NULL;
	if (port) {
		remote = port->events;
		/* A mapping for all is kept by what the workload sends alone. */
		if (port->last_seen > seen && (!flow->borrowed || own.protocol == IPPROTO_TCP))
			seen = port->last_seen;
	}
	if (call->now > seen &&
	    call->now - seen > snat_bound(call, own.protocol, flow->events, remote)) {
		call->ended += snat_end(&own);
		return 0;
	}
	call->live++;
	if (flow->events & SNAT_REMOTE_RESET && call->now - seen >= call->reset)
		call->doubtful++;
	snat_found(flow->workload, SNAT_TABLE_FLOWS);
	if (flow->borrowed)
		snat_touch_mapping(&own, call->now);
	return 0;
}

/* Is it a permission of a mapping that has gone? */
static __always_inline bool snat_permits_nothing(const struct snat_port_key *key,
						 const struct snat_port *port)
{
	struct session_key flow_key = {
		.dip = port->dip,
		.dip_port = port->dip_port,
		.protocol = key->protocol,
	};

	if (key->remote_port || !address_is_set(&key->remote) || key->protocol == IPPROTO_ICMP ||
	    key->protocol == IPPROTO_ICMPV6)
		return false;
	return !bpf_map_lookup_elem(&snat_flows, &flow_key);
}

/* Rows of snat_ports without a flow: permissions of mappings that have gone, and all of who goes.
 */
static long snat_sweep_port(void *map, struct snat_port_key *key, struct snat_port *port,
			    struct snat_sweep_call *call)
{
	struct snat_port_key own = *key;
	__u32 workload = port->workload;

	if (call->workload ? workload == call->workload : snat_permits_nothing(&own, port))
		snat_drop_port(&own, workload);
	else
		snat_found(workload, SNAT_TABLE_PORTS);
	return 0;
}

/*
 * Hints of targets that have had no connection for the time of an idle one of UDP. Of one that
 * begins this moment the next hint does not know: it has one less than none when that has ended.
 */
static long snat_sweep_target(void *map, struct snat_target_key *key, struct snat_target *target,
			      struct snat_sweep_call *call)
{
	struct snat_target_key own = *key;
	bool idle = (__s32)target->live <= 0 && call->now > target->used_at &&
		    call->now - target->used_at > call->udp;

	if (call->workload ? own.workload != call->workload : !idle)
		snat_found(own.workload, SNAT_TABLE_TARGETS);
	else if (!bpf_map_delete_elem(&snat_targets, &own))
		snat_count_rows(own.workload, SNAT_TABLE_TARGETS, -1);
	return 0;
}

/* A row has gone. A connection may have begun this moment, and taken its bit before: a row again.
 */
static __noinline int snat_unused(const struct snat_used_key *key, __u64 used)
{
	if (!used || bpf_map_update_elem(&snat_used, key, &used, BPF_NOEXIST))
		snat_count_rows(key->target.workload, SNAT_TABLE_USED, -1);
	return 0;
}

static long snat_sweep_used(void *map, struct snat_used_key *key, __u64 *used,
			    struct snat_sweep_call *call)
{
	struct snat_used_key own = *key;
	bool idle = !*used && !bpf_map_lookup_elem(&snat_targets, &own.target);

	if (call->workload ? own.target.workload != call->workload : !idle)
		snat_found(own.target.workload, SNAT_TABLE_USED);
	else if (!bpf_map_delete_elem(&snat_used, &own))
		snat_unused(&own, *used);
	return 0;
}

/* Is there anything to be found? */
static __always_inline bool snat_sweeps(const struct snat_sweep_call *call, enum snat_table table)
{
	__u32 workload = call->workload;
	const struct snat_state *state = bpf_map_lookup_elem(&snat_states, &workload);

	return !workload || !state || state->rows[table];
}

/* What is counted of a workload counts for its tenant. */
static __noinline int snat_list_workload(const struct snat_list_call *call)
{
	__u32 workload = call->workload, tenant = call->tenant, before;
	struct snat_state *state = bpf_map_lookup_elem(&snat_states, &workload);

	if (!state)
		return 0;
	if (call->fresh)
		state->asked = state->refused_until = state->begun = state->held = 0;
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
	__s32 rows, own, lent;

	if (!tenant || !all || table >= SNAT_TABLES)
		return 0;
	rows = tenant->rows[table];
	own = tenant->own[table];
	tenant->own[table] = call->own;
	tenant->most[table] = call->most;
	if (!number) {
		__sync_fetch_and_add(&all->rows[table], call->off);
		return 1;
	}
	lent = snat_excess(rows, call->own) - snat_excess(rows, own);
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
int snat_mend(struct snat_mend_call *call)
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

	call->result = snat_open_gate(&own);
	return 0;
}

/* Ends one flow. */
SEC("syscall")
int snat_close(struct snat_flow_call *call)
{
	struct session_key key = call->key;

	call->result = snat_end(&key);
	return 0;
}

/* So many packets of a workload do not wait any more. */
SEC("syscall")
int snat_unhold(struct snat_unhold_call *call)
{
	__u32 workload = call->workload;
	struct snat_state *state = bpf_map_lookup_elem(&snat_states, &workload);

	if (!state)
		return 0;
	/* What an earlier process held is not counted twice. */
	if (state->held < call->packets)
		state->held = 0;
	else
		__sync_fetch_and_add(&state->held, -(__s32)call->packets);
	return 0;
}

/* There are no ports to be had until then. */
SEC("syscall")
int snat_refuse(struct snat_unhold_call *call)
{
	__u32 workload = call->workload;
	struct snat_state *state = bpf_map_lookup_elem(&snat_states, &workload);

	if (state)
		state->refused_until = call->until;
	return 0;
}

SEC("syscall")
int snat_sweep(struct snat_sweep_call *call)
{
	struct snat_sweep_call own = *call;

	bpf_for_each_map_elem(&snat_states, snat_forget_found, &own, 0);
	if (snat_sweeps(&own, SNAT_TABLE_FLOWS))
		bpf_for_each_map_elem(&snat_flows, snat_sweep_flow, &own, 0);
	if (snat_sweeps(&own, SNAT_TABLE_PORTS))
		bpf_for_each_map_elem(&snat_ports, snat_sweep_port, &own, 0);
	if (snat_sweeps(&own, SNAT_TABLE_TARGETS))
		bpf_for_each_map_elem(&snat_targets, snat_sweep_target, &own, 0);
	if (snat_sweeps(&own, SNAT_TABLE_USED))
		bpf_for_each_map_elem(&snat_used, snat_sweep_used, &own, 0);
	*call = own;
	return 0;
}
