/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Full NAT: connections of virtual networks' clients with backends that see the mux as the client.
 * A row of the session table (abi/shared/session.h) is a connection's NAT address and port.
 */
#pragma once

#include "kernel.h"

#include "abi/enum.h"
#include "abi/shared/address.h"

enum nat_layout {
	NAT_PORT = 0x8000, /* of all NAT ports; the other bits are the upper ones of the row's
			      number */
	NAT_PORT_BITS = 15,
	NAT_HOST_V6 =
		0x4000, /* beside enum overlay_event: the client's host is reached over IPv6 */
};
ABI_ENUM(nat_layout);

/* The NAT addresses of a family. */
struct nat_prefix {
	struct address address;
	__u32 mask; /* of its last word, as the CPU loads it; 0: there are none */
	__u32 bits; /* of a row's number that the address has */
};

struct mux_nat {
	struct nat_prefix prefixes[2]; /* of IPv4 and IPv6 */
	__u32 any; /* 0: there are none, and that is all that a packet for nobody looks at */
	__u32 pad;
};

/* An attachment by its number. It stays while a session has it. */
struct nat_attachment {
	struct address vip; /* in its network */
	__u32 vni;
	__u32 tenant; /* of the network */
	__u8 gateway_mac[6]; /* from where the network's frames come */
	__u8 pad[2];
};

/* A backend of an endpoint. */
struct nat_slot {
	struct address service;
	__be16 port; /* of the endpoint's key */
	__u8 protocol;
	__u8 pad;
	__u32 slot;
};

/* A backend by its number, which sessions have. It stays while one has it. */
struct nat_backend {
	struct address address;
	__u32 next_hop; /* index of next_hops; 0: not resolved */
	__be16 port; /* 0: the VIP's */
	__u16 pad;
};

/* A host of clients by its number. */
struct nat_host {
	struct address v4, v6; /* not set: none of the family */
	__u32 next_hop4, next_hop6; /* as in nat_backend */
};

_Static_assert(sizeof(struct nat_prefix) == 24, "nat_prefix");
_Static_assert(sizeof(struct mux_nat) == 56, "mux_nat");
_Static_assert(sizeof(struct nat_attachment) == 32, "nat_attachment");
_Static_assert(sizeof(struct nat_slot) == 24, "nat_slot");
_Static_assert(sizeof(struct nat_backend) == 24, "nat_backend");
_Static_assert(sizeof(struct nat_host) == 40, "nat_host");
