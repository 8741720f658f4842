/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The state of one packet, which the steps fill one after the other. */
#pragma once

#include "abi/shared/gue.h"
#include "mux/maps.h"
#include "net/packet.h"

struct mux_ctx {
	struct packet packet;
	struct endpoint *endpoint;
	struct backend *backend; /* that the packet goes to */
	struct backend *other; /* that gue_weir names; NULL: none */
	__u32 slot; /* of backend */
	__u32 other_slot;
	__u64 slices; /* of the endpoint, loaded once */
	__u64 hash; /* of the five-tuple; 0: not computed yet */
	struct gue_weir weir; /* version 0: not sent */
	__be16 endpoint_port; /* of the endpoint's key: the packet's, or 0 */
	enum verdict forward; /* what the packet counts as when it gets out */
};
