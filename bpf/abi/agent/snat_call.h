/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/agent/session.h"
#include "abi/agent/snat_tenant.h"

/*
 * What user space asks of the programs that change tables which packets change too: argument and
 * result. Each of them may run beside packets on any CPU.
 */

/* snat_assign, snat_open, snat_close: one flow. */
struct snat_flow_call {
	struct session_key key;
	struct address vip; /* result of snat_assign */
	__be16 vip_port;
	__u16 queued; /* snat_close: 1: end it only while its packets are queued */
	__u32 seen; /* snat_open: packets of the flow that have been sent */
	__u32 result; /* 1: done */
};

enum snat_result {
	SNAT_GONE = 2, /* result of snat_assign: there is no such flow */
};
ABI_ENUM(snat_result);

/* snat_own: which ports of a block are for new connections. */
struct snat_own_call {
	__u32 workload;
	__u32 block;
	__u64 ports;
};

/* snat_dequeue: takes so many packets of a workload off its count of queued ones. snat_refuse: no
 * ports until then. */
struct snat_dequeue_call {
	__u64 until;
	__u32 workload;
	__u32 packets;
};

/* snat_list: whose a workload is. */
struct snat_list_call {
	__u32 workload;
	__u32 tenant;
	__u32 fresh; /* 1: its number was free, or of another workload */
};

/* snat_share: what a tenant may have of a table; of no tenant, what all may borrow. */
struct snat_share_call {
	__u32 tenant;
	__u32 table;
	__u32 guaranteed;
	__u32 limit;
	__s32 off; /* rows that its count lacks */
};

/* snat_reconcile: so many rows a workload's count lacks. */
struct snat_reconcile_call {
	__u32 workload;
	__u32 table;
	__s32 off;
};

enum snat_sweep_size {
	SNAT_PIECE = 1024, /* rows that one run of snat_sweep looks at, at most */
};
ABI_ENUM(snat_sweep_size);

/* snat_sweep: ends flows that were idle for longer, in ns, or all of a workload. */
struct snat_sweep_call {
	__u64 now;
	__u64 syn;
	__u64 established;
	__u64 closing;
	__u64 reset;
	__u64 udp;
	__u64 icmp;
	__u32 workload; /* 0: those that were idle; else all of this one */
	__u32 live; /* result: flows that are left */
	__u32 ended; /* result */
	__u32 doubtful; /* result: flows of which the workload is to be asked */
	enum snat_table table; /* whose keys are in swept_*; SNAT_TABLES: begin to count rows */
	__u32 keys; /* so many */
};

_Static_assert(sizeof(struct snat_flow_call) == 68, "snat_flow_call");
_Static_assert(sizeof(struct snat_own_call) == 16, "snat_own_call");
_Static_assert(sizeof(struct snat_sweep_call) == 80, "snat_sweep_call");
