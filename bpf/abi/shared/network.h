/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Virtual networks as muxes and hosts know them. */
#pragma once

#include "abi/shared/address.h"

/* An address of a virtual network. */
struct network_address {
	__u32 vni;
	struct address address;
};

/* What an address of the underlay may send. */
enum overlay_role {
	OVERLAY_MUX = 0x1,
	OVERLAY_SERVER = 0x2,
	OVERLAY_CLIENT = 0x4, /* an agent runs there */
	OVERLAY_BARE = 0x8, /* none does */
};

/* Of an address: a mux, or a host. */
struct overlay_vtep {
	__u32 number;
	enum overlay_role roles; /* bits of it */
};

/* A host by its number. */
struct overlay_host {
	struct address v4; /* its tunnel addresses; not set: none of the family */
	struct address v6;
};

_Static_assert(sizeof(struct overlay_host) == 32, "overlay_host");
_Static_assert(sizeof(struct network_address) == 20, "network_address");
_Static_assert(sizeof(struct overlay_vtep) == 8, "overlay_vtep");
