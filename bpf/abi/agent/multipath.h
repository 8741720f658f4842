/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Multipath TCP (RFC 8684): which host has the connection that a further subflow belongs to. */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/* A connection of an endpoint, by the token that its further subflows bring. */
struct multipath_name {
	struct address vip;
	__be16 port; /* the endpoint's */
	__u8 protocol;
	__u8 pad;
	__be32 token;
};

/* Who has a connection: a tunnel of this host (mptcp_tokens), or of any (mptcp_names). */
struct multipath_holder {
	struct address tunnel;
	__u64 until; /* CLOCK_MONOTONIC in ns: the row counts until then */
	struct address client; /* of one of the connection's subflows, as is its port */
	__be16 client_port;
	__u8 pad[6];
};

/* Tokens fall into cells by the top bits of their product with MULTIPATH_CELL_FACTOR. */
enum multipath_cell {
	MULTIPATH_CELLS = 256,
	MULTIPATH_CELL_SHIFT = 24,
};
ABI_ENUM(multipath_cell);

#define MULTIPATH_CELL_FACTOR 0x9e3779b1U

struct multipath_home_key {
	struct address vip;
	__be16 port;
	__u8 protocol;
	__u8 cell;
};

/* The hosts that know who has a cell's tokens, each by a tunnel of the endpoint there. */
struct multipath_homes {
	struct address first;
	struct address next;
};

/* A subflow whose host is not the one that its segments without a cookie come to. */
struct multipath_flow {
	struct address client;
	struct address vip;
	__be16 client_port;
	__be16 vip_port;
};

struct multipath_joined {
	struct address tunnel; /* of the host that has it */
	__u64 last_seen; /* CLOCK_MONOTONIC in ns, up to 134 ms late */
	__u8 closing; /* the client has sent a FIN, says that host */
	__u8 pad[7];
};

/* The tables that others' packets fill. */
enum multipath_table {
	MULTIPATH_TOKENS = 0,
	MULTIPATH_NAMES = 1,
	MULTIPATH_JOINED = 2,
	MULTIPATH_JOINING = 3,
	MULTIPATH_TABLES = 4,
};
ABI_ENUM(multipath_table);

/* Rows that a VIP has made of each table, and how often there was no room. The programs write. */
struct multipath_usage {
	__u64 made[MULTIPATH_TABLES];
	__u64 refused[MULTIPATH_TABLES];
};

/* Up to where made may count until user space has counted the rows again. User space writes. */
struct multipath_quota {
	__u64 limit[MULTIPATH_TABLES];
};

_Static_assert(sizeof(struct multipath_name) == 24, "multipath_name");
_Static_assert(sizeof(struct multipath_holder) == 48, "multipath_holder");
_Static_assert(sizeof(struct multipath_home_key) == 20, "multipath_home_key");
_Static_assert(sizeof(struct multipath_flow) == 36, "multipath_flow");
_Static_assert(sizeof(struct multipath_joined) == 32, "multipath_joined");
