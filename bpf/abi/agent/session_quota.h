/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/*
 * Sessions are counted by VIP where they are made, and by user space, which sees them end: it sets
 * quotas in numbers that the programs' counts may reach until it has counted again.
 */
enum session_table {
	SESSIONS_CONFIRMED = 0, /* both ends have spoken */
	SESSIONS_NEW = 1,
	SESSION_TABLES = 2,
};
ABI_ENUM(session_table);

/* Counts by VIP; the row of no address is for what VIPs borrow. The programs write. */
struct session_usage {
	__u64 made[SESSION_TABLES];
	__u64 refused[SESSION_TABLES]; /* how often there was no room; of no address: to any */
};

/* Bounds on these counts, by VIP. User space writes. */
struct session_quota {
	/* Made up to here: guaranteed. Of no address: up to here all VIPs together may borrow. */
	__u64 guaranteed[SESSION_TABLES];
	/* From there up to here: borrowed. Of no address: new sessions that may be beyond quotas.
	 */
	__u64 limit[SESSION_TABLES];
};

_Static_assert(sizeof(struct session_usage) == 32, "session_usage");
_Static_assert(sizeof(struct session_quota) == 32, "session_quota");
