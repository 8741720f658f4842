/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* The tables that workloads' own connections fill: what tenants have of each is counted. */
enum snat_table {
	SNAT_TABLE_FLOWS = 0,
	SNAT_TABLE_PORTS = 1,
	SNAT_TABLE_TARGETS = 2,
	SNAT_TABLE_USED = 3,
	SNAT_TABLES = 4,
};

/*
 * What a tenant has of each, and may have. Of no tenant: what all have beyond their own, and may
 * have so.
 */
struct snat_tenant {
	__u32 rows[SNAT_TABLES];
	__u32 own[SNAT_TABLES]; /* in any case; user space writes, as it does most */
	__u32 most[SNAT_TABLES]; /* while others leave room */
	__u32 refused[SNAT_TABLES]; /* how often there was no room */
};

_Static_assert(sizeof(struct snat_tenant) == 64, "snat_tenant");
