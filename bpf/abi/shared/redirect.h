/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/*
 * Fastpath messages between muxes and hosts: control messages of GUE, which internal/fastpath seals
 * and opens. docs/design/fastpath.md has their meaning.
 */
enum gue_control_format {
	GUE_CONTROL = 0x20, /* of the first byte: a control message, whose type is the protocol */
	GUE_CONTROL_FASTPATH = 0xf5, /* one of the types that anybody may use (128 to 255) */
	FASTPATH_MESSAGE = 112, /* bytes of a message, its MAC included */
};
ABI_ENUM(gue_control_format);

/* A connection as it is on the wire between two VIPs. */
struct connection {
	struct address client;
	struct address server;
	__be16 client_port;
	__be16 server_port;
	__u8 protocol;
	__u8 pad[3];
};

/* The mux has seen a connection that is established and may leave the muxes. */
struct redirect {
	struct connection connection;
	struct address client; /* tunnels at both ends */
	struct address server;
};

_Static_assert(sizeof(struct connection) == 40, "connection");
_Static_assert(sizeof(struct redirect) == 72, "redirect");
