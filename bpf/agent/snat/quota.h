/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Quotas of source NAT's tables. A row counts for its workload and for the workload's tenant, from
 * when it is made until it is removed. Each tenant has a guaranteed share of each table; rows
 * beyond it count as borrowed, too, and all may borrow together what is in no share.
 */
#pragma once

#include "abi/agent/snat_tenant.h"
#include "agent/snat/maps.h"

/* By tenant's number; row 0: what all borrow. User space's programs write guaranteed and limit. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 20481);
	__type(key, __u32);
	__type(value, struct snat_tenant);
} snat_tenants SEC(".maps");

static __always_inline __s32 snat_excess(__s32 rows, __s32 guaranteed)
{
	return rows > guaranteed ? rows - guaranteed : 0;
}

/* Counts rows that a tenant gets, or loses. What it borrows follows, whoever counts beside. */
static __always_inline void snat_count_tenant(__u32 number, enum snat_table table, __s32 by)
{
	struct snat_tenant *tenant = bpf_map_lookup_elem(&snat_tenants, &number), *all;
	__u32 none = 0;
	__s32 was, guaranteed, lent;

	if (!number || !tenant || table >= SNAT_TABLES)
		return;
	guaranteed = tenant->guaranteed[table];
	was = __sync_fetch_and_add(&tenant->rows[table], by);
	lent = snat_excess(was + by, guaranteed) - snat_excess(was, guaranteed);
	if (!lent)
		return;
	all = bpf_map_lookup_elem(&snat_tenants, &none);
	if (all)
		__sync_fetch_and_add(&all->rows[table], lent);
}

/* Counts rows that were made for a workload (1), or removed (-1). */
__noinline int snat_count_rows(__u32 workload, enum snat_table table, __s32 by)
{
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &workload);

	if (!state || table >= SNAT_TABLES)
		return 0;
	__sync_fetch_and_add(&state->rows[table], by);
	snat_count_tenant(state->tenant, table, by);
	return 0;
}

/* May the workload have one more row? */
__noinline int snat_has_room(__u32 workload, enum snat_table table)
{
	const struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &workload);
	const struct snat_tenant *tenant, *all;
	__u32 number, none = 0;
	__s32 rows;

	if (!state || table >= SNAT_TABLES)
		return 0;
	number = state->tenant;
	if (!number) /* after an upgrade, until user space has written it */
		return 1;
	tenant = bpf_map_lookup_elem(&snat_tenants, &number);
	all = bpf_map_lookup_elem(&snat_tenants, &none);
	if (!tenant || !all)
		return 0;
	rows = tenant->rows[table];
	if (rows < (__s32)tenant->guaranteed[table])
		return 1;
	return rows < (__s32)tenant->limit[table] &&
	       (__s32)all->rows[table] < (__s32)all->guaranteed[table];
}

/* Notes that a workload did not get a row. */
__noinline int snat_note_refused(__u32 workload, enum snat_table table)
{
	struct snat_stat *state = bpf_map_lookup_elem(&snat_stats, &workload);
	struct snat_tenant *tenant;
	__u32 number;

	if (!state || table >= SNAT_TABLES)
		return 0;
	__sync_fetch_and_add(&state->refused, 1);
	number = state->tenant;
	tenant = bpf_map_lookup_elem(&snat_tenants, &number);
	if (number && tenant)
		__sync_fetch_and_add(&tenant->refused[table], 1);
	return 0;
}
