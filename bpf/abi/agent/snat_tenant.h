/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* The tables that workloads' own connections fill: what tenants have of each is counted. */
enum snat_table {
	SNAT_TABLE_FLOWS = 0,
	SNAT_TABLE_PORTS = 1,
	SNAT_TABLE_DESTS = 2,
	SNAT_TABLE_BLOCK_USE = 3,
	SNAT_TABLES = 4,
};

/*
 * Rows that a tenant has of each table, and its bounds. Of no tenant: rows that all have borrowed,
 * and may borrow.
 */
struct snat_tenant {
	__u32 rows[SNAT_TABLES];
	__u32 guaranteed[SNAT_TABLES]; /* user space writes this and limit */
	__u32 limit[SNAT_TABLES]; /* with what it borrows, while others leave room */
	__u32 refused[SNAT_TABLES]; /* how often there was no room */
};

_Static_assert(sizeof(struct snat_tenant) == 64, "snat_tenant");
