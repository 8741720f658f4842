/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"
#include "abi/mux/verdict.h"

/* What the program mux_trace looks at packets for. */
enum trace_mode {
	TRACE_CAPTURE = 0, /* forwards as mux does, and copies packets */
	TRACE_EXPLAIN = 1, /* is only run by test runs: writes no table that mux reads */
};

enum trace_size {
	TRACE_SNAP_MAX =
		2048, /* bytes that are copied of a packet on its way in, and out, at most */
};
ABI_ENUM(trace_size);

/* What is known of a packet in the end; in a capture the bytes in and out follow it. */
struct trace {
	__u64 time; /* CLOCK_MONOTONIC at its arrival, in ns */
	__u64 hash; /* that chose the bucket, or 0 */
	struct address source; /* all of these 0 where the packet has none that can be read */
	struct address destination;
	struct address tunnel; /* of the chosen backend, or 0 */
	struct address
		previous; /* tunnel of the backend that the packet names for chaining, or 0 */
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 pad[3];
	enum verdict verdict;
	enum verdict
		forward; /* what it would count as if it got out; says what chose the backend */
	__u32 action; /* enum xdp_action */
	__u32 length_in; /* of the whole frame */
	__u32 length_out; /* 0: it did not leave */
	__u32 pad2;
};

_Static_assert(sizeof(struct trace) == 112, "trace");

/* Which packets to copy: those that fit all that is not 0. */
struct trace_filter {
	struct address client; /* with its mask */
	struct address client_mask;
	struct address vip;
	__be16 client_port;
	__be16 port;
	__u8 protocols[2]; /* either */
	__u16 pad;
	__u64 verdicts[2]; /* a bit for each; all of them when none is named */
};

_Static_assert(sizeof(struct trace_filter) == 72, "trace_filter");
_Static_assert(VERDICT_COUNT <= 128, "a bit of trace_filter.verdicts for each verdict");
