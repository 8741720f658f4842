/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"
#include "abi/agent/snat_tenant.h"

/* Ports come in ranges of 8, and are searched in blocks of 64. */
enum snat_block_layout {
	SNAT_RANGE_PORTS = 8,
	SNAT_BLOCK_PORTS = 64,
	SNAT_BLOCK_RANGES = 8,
	SNAT_BLOCKS = 1024, /* of all 65536 ports */
	SNAT_WORDS = 16, /* of 64 bits each, with a bit for each block */
};
ABI_ENUM(snat_block_layout);

enum snat_workload_flag {
	SNAT_ONE_MAPPING = 0x1, /* (DIP, port) keeps one external port (RFC 4787, section 4.1) */
	SNAT_FILTER_ADDRESS =
		0x2, /* of the mapping: answers come from addresses that were sent to */
	SNAT_REJECT = 0x4, /* reply to the workload with an ICMP error when there is no port */
};

/* A DIP whose own connections leave as a VIP. User space writes it. */
struct snat_workload {
	struct address vip;
	__u32 number; /* of this row in other tables, from 1 */
	__u32 group; /* whose exceptions hold */
	enum snat_workload_flag flags; /* bits of it */
	__u32 ports; /* that new connections may use */
	__u32 epoch; /* grows with each change of ports */
	__u32 low; /* ask for more when so few are left towards one destination */
	__u64 blocks[SNAT_WORDS]; /* those that hold any of the ports */
	__u64 written; /* generation of the ports: a restarted agent takes no older list of them */
	__u64 cluster; /* that counts the generations */
};

/* What the programs note of a workload, by its number. */
struct snat_stat {
	__u32 rows[SNAT_TABLES]; /* that it has of each table */
	__u32 found[SNAT_TABLES]; /* by the sweep */
	__u32 tenant; /* number of whose it is; 0: not known. User space's programs write */
	__u32 queued; /* packets queued in user space, or about to be */
	__u32 refused; /* rows that it did not get */
	__u32 pad;
	__u64 low_notified; /* when user space was last notified that ports run low */
	__u64 refused_until; /* user space: there are no more ports to be had */
	__u64 begun; /* flows that found a port at once */
	__u64 full_notified; /* when user space was last notified that there is no room */
};

struct snat_block_key {
	__u32 workload;
	__u32 block;
};

/* A workload's ports within one block, and their use by range. */
struct snat_block {
	__u64 ports; /* for new connections; user space's programs write it */
	__u64 used_at[SNAT_BLOCK_RANGES]; /* when a flow began or ended last */
	__u32 flows[SNAT_BLOCK_RANGES];
};

/* Destinations that a group of workloads reaches as itself. */
struct snat_exempt {
	__u32 bits; /* of group and address: 32 and the prefix's */
	__u32 group;
	struct address address;
};

/* A destination of a workload's connections; without an address all of them, of one mapping. */
struct snat_target_key {
	struct address remote;
	__u32 workload;
	__be16 remote_port;
	__u8 protocol;
	__u8 pad;
};

struct snat_target {
	__u32 live; /* connections */
	__u32 cursor; /* port that was given last: the search goes on behind it */
	__u32 epoch; /* of the workload when full was begun */
	__u32 pad;
	__u64 used_at;
	__u64 full[SNAT_WORDS]; /* blocks that were found to have no port left */
};

/* The ports of a block that are in use towards a target. */
struct snat_used_key {
	struct snat_target_key target;
	__u32 block;
};

_Static_assert(sizeof(struct snat_workload) == 184, "snat_workload");
_Static_assert(sizeof(struct snat_stat) == 80, "snat_stat");
_Static_assert(sizeof(struct snat_block) == 104, "snat_block");
_Static_assert(sizeof(struct snat_exempt) == 24, "snat_exempt");
_Static_assert(sizeof(struct snat_target_key) == 24, "snat_target_key");
_Static_assert(sizeof(struct snat_target) == 152, "snat_target");
_Static_assert(sizeof(struct snat_used_key) == 28, "snat_used_key");
