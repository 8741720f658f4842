/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Quotas by the tenant of the client's network: sessions of its own, some that
 * it borrows, and of these so many half-open ones. User space counts down what
 * it frees.
 */
#pragma once

#include "net/ratelimit.h"
#include "overlay/maps.h"

/* Resets for segments of no session: so many ns each, and that worth at once.
 */
#define RESET_INTERVAL (1000ULL * 1000)
#define RESET_BURST    (100 * RESET_INTERVAL)

static __always_inline __s32 quota_excess(__s32 rows, __s32 own)
{
	return rows > own ? rows - own : 0;
}

/* Counts rows that a tenant gets, or loses. What it borrows follows, whoever
 * counts beside. */
__noinline int quota_count(__u32 number, __s32 rows, __s32 half_open)
{
	struct overlay_tenant *tenant = bpf_map_lookup_elem(&tenants, &number), *all;
	__u32 none = 0;
	__s32 was, lent;

	if (!number || !tenant)
		return 0;
	if (half_open)
		__sync_fetch_and_add(&tenant->half_open, half_open);
	if (!rows)
		return 0;
	was = __sync_fetch_and_add(&tenant->rows, rows);
	lent = quota_excess(was + rows, tenant->own) - quota_excess(was, tenant->own);
	all = bpf_map_lookup_elem(&tenants, &none);
	if (lent && all)
		__sync_fetch_and_add(&all->rows, lent);
	return 0;
}

/* May the tenant have one more session? */
__noinline int quota_check(__u32 number)
{
	struct overlay_tenant *tenant = bpf_map_lookup_elem(&tenants, &number);
	const struct overlay_tenant *all;
	__u32 none = 0;
	int verdict = VERDICT_DROP_QUOTA;

	all = bpf_map_lookup_elem(&tenants, &none);
	if (!number || !tenant || !all)
		return VERDICT_DROP_QUOTA;
	if (tenant->half_open >= (__s32)tenant->half_open_most)
		verdict = VERDICT_DROP_HALF_OPEN;
	else if (tenant->rows < (__s32)tenant->own ||
		 (tenant->rows < (__s32)tenant->most && all->rows < (__s32)all->own))
		return VERDICT_NONE;
	__sync_fetch_and_add(&tenant->refused, 1);
	return verdict;
}

/* May one more segment of no session be answered? */
__noinline int quota_reset(__u32 number)
{
	struct overlay_tenant *tenant = bpf_map_lookup_elem(&tenants, &number);
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 dry_run = 0;

	return tenant &&
	       ratelimit_take(&tenant->reset_tat, RESET_INTERVAL, RESET_BURST, now, &dry_run);
}
