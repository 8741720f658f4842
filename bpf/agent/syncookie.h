/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections whose SYN a mux has answered by a cookie. The first that the host sees of them is an
 * acknowledgement without a SYN before it. If its cookie is right, the host's own stack makes a
 * socket of it; where that can't be, the workload gets a handshake by proxy (handshake_proxy.h).
 *
 * Only segments of no open connection are checked, and those of one that has begun so.
 */
#pragma once

#include "agent/handshake_proxy.h"
#include "agent/snat/flow.h"
#include "agent/maps.h"
#include "agent/chain.h"
#include "agent/session.h"
#include "net/syncookie.h"

/* What makes cookies right; the programs read, user space writes. */
struct syn_secrets syn_secrets SEC(".data.secrets");

/*
 * Endpoints by rule, and when a right cookie came last (CLOCK_MONOTONIC in ns). The programs write
 * and read. Full: the one that is least recently asked of is forgotten.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct nat_rule_key);
	__type(value, __u64);
} syncookies_seen SEC(".maps");

/* For so many ns after a right cookie, what brings none and is in no connection is dropped. */
#define SYNCOOKIE_RECENT      (60ULL * 1000000000)
#define SYNCOOKIE_RECENT_STEP (1ULL << 30)

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk,
				   struct bpf_tcp_req_attrs *attrs, int attrs__sz) __ksym __weak;

/*
 * Have both ends spoken, and does the session go on? Then there is nothing to ask. That the
 * workload has answered is not enough: a SYN that was forwarded may have been sent again, and
 * answered by a mux, before the client got the answer. The first segment of the client says which
 * one it took. A client that has reset the connection may have begun another one from the same
 * port.
 */
static __always_inline bool session_is_open(const struct session *session)
{
	const __u32 both = SESSION_CLIENT_ACK | SESSION_WORKLOAD_ANSWER;

	return (session->events & (both | SESSION_CLIENT_RESET)) == both &&
	       !session_is_over(session) && !session_is_early(session);
}

/* May the client's packet have a cookie? session is the one of its ports, or NULL. */
static __always_inline bool syncookie_is_applicable(const struct rx_ctx *a, const struct packet *p,
						    const struct session *session)
{
	const __u8 flags = TCP_FLAG_SYN | TCP_FLAG_RST | TCP_FLAG_ACK;

	if (session && session_is_open(session))
		return false;
	return a->rule.flags & NAT_RULE_SYN_COOKIES && p->protocol == IPPROTO_TCP &&
	       (p->tcp_flags & flags) == TCP_FLAG_ACK && !a->past_muxes &&
	       a->tunnel.kind != GUE_KIND_FRAGMENT;
}

/* Have muxes answered SYNs of the endpoint lately? */
static __noinline bool syncookie_is_recent(const struct rx_ctx *a)
{
	const __u64 *last;

	if (a->rule.flags & NAT_RULE_SYN_ALWAYS)
		return true;
	last = bpf_map_lookup_elem(&syncookies_seen, &a->key);
	return last && !long_since(*last, SYNCOOKIE_RECENT);
}

static __noinline int syncookie_note(const struct rx_ctx *a)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	__u64 *last = bpf_map_lookup_elem(&syncookies_seen, &a->key);

	if (!last)
		return bpf_map_update_elem(&syncookies_seen, &a->key, &now, BPF_ANY);
	if (now - *last > SYNCOOKIE_RECENT_STEP)
		*last = now;
	return 0;
}

/* Reads what the segment says of the handshake, and checks its cookie: the MSS or a refusal. */
static __noinline __s32 syncookie_read(struct __sk_buff *skb, struct rx_ctx *a,
				       const struct timestamps *ts)
{
	struct handshake *h = &a->handshake;
	struct syn_flow flow = {
		.client = a->inner.source,
		.vip = a->inner.destination,
		.client_port = a->inner.source_port,
		.vip_port = a->inner.destination_port,
	};
	__u64 now = bpf_ktime_get_ns() + syn_secrets.clock;
	struct syn_secret secret;
	struct tcphdr tcp;

	if (!syn_secrets.clock || bpf_skb_load_bytes(skb, a->inner.l4, &tcp, sizeof(tcp)))
		return SYN_REFUSED_OLD;
	h->seq = bpf_ntohl(tcp.seq);
	h->cookie = bpf_ntohl(tcp.ack_seq) - 1;
	h->window = bpf_ntohs(tcp.window);
	h->ts = *ts;
	h->options = ts->at ? syn_options(ts->tsecr) : 0;
	flow.isn = bpf_htonl(h->seq - 1);
	secret = syn_secrets.rows[syn_cookie_row(h->cookie)];
	return syn_cookie_check(&secret, &flow, h->cookie, h->options, now);
}

/* A wrong cookie, or none: of a connection that we know nothing of. */
static __noinline enum verdict syncookie_refuse(struct __sk_buff *skb, const struct rx_ctx *a,
						const struct session_key *key, __s32 refusal)
{
	const __u32 *workload = bpf_map_lookup_elem(&workloads, &a->rule.dip);

	if (workload && *workload == 0 && chain_knows_socket(skb, key))
		return VERDICT_NONE;
	if (!syncookie_is_recent(a))
		return VERDICT_NONE;
	return refusal == SYN_REFUSED_OLD ? VERDICT_DROP_SYNCOOKIE_EXPIRED
					  : VERDICT_DROP_SYNCOOKIE_INVALID;
}

/* Was the host's stack to make a socket of it, and has the workload not spoken yet? */
static __always_inline bool session_is_assigned(const struct session *session)
{
	const __u32 others = SESSION_PROXIED | SESSION_WORKLOAD_ANSWER | SESSION_RESET;

	return session->isn && !(session->events & others);
}

/*
 * Of a session that the cookie began: does the workload still have to be asked? Not if it has
 * answered; but what it answers while the agent's SYN is under way may be of a connection before.
 */
static __always_inline bool session_is_retried(const struct session *session)
{
	if (!(session->events & SESSION_WORKLOAD_ANSWER))
		return true;
	return session_is_early(session) && !session_is_over(session);
}

/* What skb->tc_index says of a segment that has waited. */
#define SYN_WAITED 1

/* Sends the segment to the end of the line; false if it comes from there. */
static __always_inline bool syncookie_requeue(struct __sk_buff *skb)
{
	if (skb->tc_index == SYN_WAITED)
		return false;
	skb->tc_index = SYN_WAITED;
	return true;
}

/*
 * A segment behind the one that a socket is to be made of. The kernel takes a batch of packets
 * through us before the stack sees the first one, so the segment goes to the end of the line, once.
 * If there is no socket then, the listener had no room, and would reset what it does not know.
 * NONE: the stack has the socket, or the segment has a cookie too, whose MSS is given.
 */
static __noinline enum verdict syncookie_wait(struct __sk_buff *skb, const struct session_key *key,
					      __s32 mss)
{
	if (chain_knows_socket(skb, key))
		return VERDICT_NONE;
	if (syncookie_requeue(skb))
		return VERDICT_SYNCOOKIE_REQUEUE;
	return mss < 0 ? VERDICT_DROP_SYNCOOKIE_PENDING : VERDICT_NONE;
}

/*
 * Does the client's segment begin a connection? NONE: it does not, and goes on as ever; or it is to
 * be taken over, and a->handshake.mss is set. session is the one of its ports, or NULL.
 */
static __noinline enum verdict syncookie_verify(struct __sk_buff *skb, struct rx_ctx *a,
						const struct session_key *key,
						const struct session *session,
						const struct timestamps *ts)
{
	enum verdict verdict;
	const __u32 *workload;
	__u32 state;
	__s32 mss;

	a->handshake.mss = 0;
	if (session && !session_is_of(session, &a->inner)) {
		if (!session_is_over(session))
			return VERDICT_NONE; /* session_open() refuses it */
		session = NULL;
	}
	mss = syncookie_read(skb, a, ts);
	if (session && session_is_assigned(session)) {
		verdict = syncookie_wait(skb, key, mss);
		if (verdict)
			return verdict;
		session = session_lookup(key); /* of another kind by now, maybe */
	}
	if (mss < 0 && session)
		return session_is_early(session) ? VERDICT_DROP_SYNCOOKIE_PENDING : VERDICT_NONE;
	if (mss < 0)
		return syncookie_refuse(skb, a, key, mss);
	syncookie_note(a);
	if (session && session->isn == a->handshake.cookie && !session_is_retried(session))
		return session->events & SESSION_RESET ? VERDICT_DROP_SYNCOOKIE_REPLAYED
						       : VERDICT_NONE;
	workload = bpf_map_lookup_elem(&workloads, &a->rule.dip);
	if (!workload)
		return VERDICT_DROP_NO_WORKLOAD;
	state = *workload ? 0 : socket_state(skb, key);
	/* Another CPU answers our SYN this moment: until we see the answer we can't translate. */
	if (state == BPF_TCP_NEW_SYN_RECV && session && session_is_early(session) &&
	    syncookie_requeue(skb))
		return VERDICT_SYNCOOKIE_REQUEUE;
	/* A new SYN may end what waits for its last segments, and has an answer sent again. */
	if (state && state != BPF_TCP_LISTEN && state != BPF_TCP_TIME_WAIT &&
	    state != BPF_TCP_NEW_SYN_RECV)
		return VERDICT_NONE;
	if (settings.snat && !snat_makes_room(key))
		return VERDICT_DROP_SESSION_TAKEN;
	a->handshake.listens = state == BPF_TCP_LISTEN;
	a->handshake.native = *workload == 0;
	a->handshake.ifindex = *workload;
	a->handshake.mss = mss;
	return VERDICT_NONE;
}

/*
 * The session that another segment of the same handshake has begun, maybe on another CPU this
 * moment; NULL if there is none.
 */
static __noinline struct session *syncookie_shared(const struct session_key *key, __u32 cookie)
{
	struct session *session = session_lookup(key);

	return session && session->isn == cookie && !session_is_over(session) ? session : NULL;
}

static __always_inline bool session_is_proxied(const struct session *session)
{
	return session->events & SESSION_PROXIED;
}

/*
 * A session of the host's stack becomes one of a handshake, in its place: a row that replaced it
 * would forget what another CPU may have learnt.
 */
static __always_inline void syncookie_turn(struct session *session, const struct session *fresh)
{
	if (!session->cookie && fresh->cookie)
		*session = *fresh;
	__sync_fetch_and_or(&session->events, fresh->events);
}

/*
 * The session of a connection that begins by a cookie. The client knows TSval as the mux chose it,
 * so the workload's begins there. Muxes go by the slot in it only if the endpoint has cookies; what
 * is led through a handshake has its clock translated anyhow. Where no session was, another CPU may
 * have made one by now of another segment with the cookie: that one goes on.
 */
static __noinline struct session *syncookie_session(const struct session_key *key, struct rx_ctx *a,
						    bool proxied)
{
	const struct handshake *h = &a->handshake;
	bool cookies = a->rule.flags & NAT_RULE_COOKIES;
	struct session *shared;
	struct session *fresh = &a->fresh;

	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->vip = a->inner.destination;
	fresh->vip_port = a->inner.destination_port;
	fresh->events = SESSION_CLIENT_ACK | (proxied ? SESSION_PROXIED : 0);
	fresh->last_seen = bpf_ktime_get_coarse_ns();
	fresh->idle_timeout = a->rule.idle_timeout;
	fresh->client_tsval = h->ts.tsval;
	fresh->client_next = h->seq;
	fresh->workload_seq = h->cookie + 1;
	fresh->isn = h->cookie;
	fresh->window = h->window;
	fresh->tag = session_tag(key, &a->inner.destination, a->inner.destination_port);
	if (h->ts.at && (cookies || proxied)) {
		fresh->cookie = (h->ts.tsecr & COOKIE_MASK) ?: 1;
		fresh->offer = fresh->cookie;
		fresh->cookie_scale = settings.cookie_scale;
		/* Up, where a tick is shorter than a unit of the workload's clock. */
		fresh->tsval = (h->ts.tsecr & ~COOKIE_MASK) + (1U << fresh->cookie_scale) - 1;
		fresh->tsval >>= fresh->cookie_scale;
		fresh->last_sent = fresh->last_seen;
		*cookie_tick(fresh, fresh->tsval) = fresh->tsval;
		if (!cookies)
			fresh->events |= SESSION_OWN_TICKS;
	}
	if ((h->options & SYN_OPTION_WSCALE) != SYN_OPTION_WSCALE && h->ts.at)
		fresh->window_shift = -SYN_COOKIE_WSCALE;
	shared = syncookie_shared(key, h->cookie);
	if (!shared) { /* what may be there is past */
		bpf_map_delete_elem(&sessions, key);
		if (!bpf_map_update_elem(&new_sessions, key, fresh, BPF_NOEXIST))
			return bpf_map_lookup_elem(&new_sessions, key);
		shared = syncookie_shared(key, h->cookie);
	}
	if (shared) {
		if (proxied && !session_is_proxied(shared))
			syncookie_turn(shared, fresh);
		return shared;
	}
	if (bpf_map_update_elem(&new_sessions, key, fresh, BPF_ANY))
		return NULL;
	return bpf_map_lookup_elem(&new_sessions, key);
}

/*
 * Has the host's stack make a socket when it gets the segment, which is as the socket will see it.
 * False if it refuses: the listener is one of MPTCP, or an option is switched off, or it has gone.
 */
static __noinline bool syncookie_assign(struct __sk_buff *skb, const struct session_key *key,
					const struct rx_ctx *a, const struct session *session)
{
	const struct handshake *h = &a->handshake;
	struct bpf_tcp_req_attrs attrs = {
		.rcv_tsval = h->ts.tsval,
		.rcv_tsecr = session->cookie ? session->tsval : h->ts.tsecr,
		.mss = h->mss,
		.sack_ok = !!(h->options & SYN_OPTION_SACK),
		.tstamp_ok = h->ts.at != 0,
	};
	struct bpf_sock *socket;
	struct sock *listener;
	int err = -1;

	if (!bpf_sk_assign_tcp_reqsk)
		return false;
	if (h->ts.at && (h->options & SYN_OPTION_WSCALE) != SYN_OPTION_WSCALE) {
		attrs.wscale_ok = 1;
		attrs.snd_wscale = h->options & SYN_OPTION_WSCALE;
		attrs.rcv_wscale = SYN_COOKIE_WSCALE;
	}
	socket = socket_find(skb, key);
	if (!socket)
		return false;
	if (socket->state == BPF_TCP_LISTEN) {
		listener = (struct sock *)bpf_skc_to_tcp_sock(socket);
		if (listener)
			err = bpf_sk_assign_tcp_reqsk(skb, listener, &attrs, sizeof(attrs));
	}
	bpf_sk_release(socket);
	return err == 0;
}

/* Takes over what syncookie_verify() has found. Sets ifindex where the verdict redirects. */
static __noinline enum verdict syncookie_accept(struct __sk_buff *skb, struct rx_ctx *a,
						const struct session_key *key, __u32 *ifindex)
{
	struct packet *p = &a->inner;
	struct handshake *h = &a->handshake;
	bool assign = h->native && h->listens && settings.take_over;
	struct session *session = syncookie_shared(key, h->cookie);
	__u32 difference = 0, place = 0;

	if (!session)
		place = quota_new(key, &p->destination);
	/* A workload that is slow to answer is asked again, in the same session. */
	if (!session || (!assign && !session_is_proxied(session)))
		session = syncookie_session(key, a, !assign);
	if (!session)
		return VERDICT_DROP_SESSION_FULL;
	if (place)
		session->overflow = place;
	if (session_is_proxied(session))
		assign = false;

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, p))
		return VERDICT_DROP_DECAPSULATE;
	if (rewrite_begin(skb, p, DESTINATION, &a->rule.dip, a->rule.port, &difference) ||
	    cookie_restore(skb, p, session, &h->ts, &difference) || rewrite_end(skb, p, difference))
		return VERDICT_DROP_REWRITE;
	if (assign && syncookie_assign(skb, key, a, session))
		return VERDICT_SYNCOOKIE_SOCKET;
	if (assign) {
		/* Another segment became the socket, or this one can't. */
		bool known = chain_knows_socket(skb, key);

		session = syncookie_shared(key, h->cookie);
		if (known && session && !session_is_proxied(session))
			return VERDICT_DELIVER_NATIVE;
		session = syncookie_session(key, a, true);
	}
	if (!session || proxy_syn(skb, a))
		return VERDICT_DROP_SYNCOOKIE_REWRITE;
	*ifindex = h->ifindex;
	return h->native ? VERDICT_SYNCOOKIE_NATIVE : VERDICT_SYNCOOKIE_INTERFACE;
}
