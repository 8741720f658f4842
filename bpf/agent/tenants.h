/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tenants of VIPs, by number: what tenants share is counted by these. */
#pragma once

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include "abi/shared/address.h"

/*
 * By VIP its tenant's number, from 1. A VIP that names no tenant is one by itself. User space
 * writes; a number stays as long as the tenant has a VIP here, over restarts too.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 20480);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct address);
	__type(value, __u32);
} vip_tenants SEC(".maps");

/* The number of a VIP's tenant; 0: none is known. */
static __always_inline __u32 tenant_of(const struct address *vip)
{
	const __u32 *number = bpf_map_lookup_elem(&vip_tenants, vip);

	return number ? *number : 0;
}
