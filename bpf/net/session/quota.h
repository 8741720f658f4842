/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Quotas by the tenant of the client's network: sessions of its own, some that
 * it borrows, and of these so many half-open ones. A tenant's part of row 0 is
 * what it has beyond its own, so steps up and down add up in any order. User
 * space counts down what it frees.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/shared/tenant.h"
#include "net/ratelimit.h"

/* By number; row 0: what all borrow. Mapped by user space, which frees rows. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4097);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct overlay_tenant);
} tenants SEC(".maps");

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

/* Why a tenant may have no more sessions. */
enum quota_refusal {
	QUOTA_GRANTED = 0,
	QUOTA_SESSIONS,
	QUOTA_HALF_OPEN,
};

/*
 * Counts one more half-open session of a tenant, or says why it may have none: enum quota_refusal.
 * What comes to nothing is counted down by quota_count().
 */
__noinline int quota_reserve(__u32 number)
{
	struct overlay_tenant *tenant = bpf_map_lookup_elem(&tenants, &number), *all;
	__u32 none = 0;
	__s32 was;

	all = bpf_map_lookup_elem(&tenants, &none);
	if (!number || !tenant || !all)
		return QUOTA_SESSIONS;
	if (__sync_fetch_and_add(&tenant->half_open, 1) >= (__s32)tenant->half_open_most) {
		__sync_fetch_and_add(&tenant->half_open, -1);
		__sync_fetch_and_add(&tenant->refused, 1);
		return QUOTA_HALF_OPEN;
	}
	was = __sync_fetch_and_add(&tenant->rows, 1);
	if (was < (__s32)tenant->own)
		return QUOTA_GRANTED;
	if (__sync_fetch_and_add(&all->rows, 1) < (__s32)all->own && was < (__s32)tenant->most)
		return QUOTA_GRANTED;
	quota_count(number, -1, -1);
	__sync_fetch_and_add(&tenant->refused, 1);
	return QUOTA_SESSIONS;
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
