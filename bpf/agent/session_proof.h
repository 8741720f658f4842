/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a TCP segment proves by its numbers. Anybody can forge a client's segment, but not guess the
 * numbers that the workload uses. They are noted from the workload's segments at most once in
 * SESSION_SEEN_STEP: never ahead of the connection, and seldom exact.
 */
#pragma once

#include "agent/maps.h"
#include "agent/tcp_cookie.h"
#include "net/packet.h"

/* How far beyond a SYN/ACK the first acknowledgement may be: data that went with it (RFC 7413). */
#define SESSION_ACK_WINDOW 65536

struct tcp_numbers {
	__be32 seq;
	__be32 ack;
};

static __always_inline bool tcp_numbers_read(struct __sk_buff *skb, const struct packet *p,
					     struct tcp_numbers *numbers)
{
	return !p->fragment_offset && !bpf_skb_load_bytes(skb, p->l4 + offsetof(struct tcphdr, seq),
							  numbers, sizeof(*numbers));
}

/* The number that acknowledges the FIN of a segment; 0 if it can't be read. */
static __always_inline __u32 tcp_fin_read(struct __sk_buff *skb, const struct packet *p)
{
	const __u32 at = offsetof(struct tcphdr, window) - 2; /* of what has the data offset */
	__u32 length = p->l3 + p->l3_length - p->l4;
	__be32 word;

	if (p->fragment_offset || bpf_skb_load_bytes(skb, p->l4 + at, &word, sizeof(word)))
		return 0;
	length -= bpf_ntohl(word) >> 28 << 2;
	if (bpf_skb_load_bytes(skb, p->l4 + offsetof(struct tcphdr, seq), &word, sizeof(word)))
		return 0;
	return bpf_ntohl(word) + length + 1;
}

/*
 * Is fin a likelier number for the FIN than the noted one? The receiver has acknowledged all before
 * next, so the first one behind next is. noted is next itself if there is none.
 */
static __always_inline bool tcp_fin_precedes(__u32 fin, __u32 noted, __u32 next)
{
	return fin - next - 1 < noted - next - 1;
}

/* Does the segment acknowledge the FIN, and nothing beyond it? */
static __noinline bool tcp_acknowledges_fin(struct __sk_buff *skb, const struct packet *p,
					    __u32 fin)
{
	const __u8 others = TCP_FLAG_SYN | TCP_FLAG_RST;
	struct tcp_numbers numbers;

	return (p->tcp_flags & (TCP_FLAG_ACK | others)) == TCP_FLAG_ACK &&
	       tcp_numbers_read(skb, p, &numbers) && bpf_ntohl(numbers.ack) == fin;
}

/*
 * Notes events, and returns the row that has them. session_of_client() may move the session on
 * another CPU: the copy has what was noted before SESSION_MOVED, and gets the rest here.
 */
static __always_inline struct session *session_note(const struct session_key *key,
						    struct session *session, __u32 events)
{
	struct session *moved;

	if (!(__sync_fetch_and_or(&session->events, events) & SESSION_MOVED))
		return session;
	moved = bpf_map_lookup_elem(&sessions, key);
	if (!moved)
		return session;
	__sync_fetch_and_or(&moved->events, events);
	return moved;
}

/*
 * Does the client's segment prove that the client is there? In a connection that began by a SYN it
 * must acknowledge the SYN/ACK. Of one that is found in its middle the workload's answer is enough:
 * a workload resets what it does not know.
 */
static __noinline bool session_acknowledges(struct __sk_buff *skb, const struct packet *p,
					    const struct session *session)
{
	struct tcp_numbers numbers;

	if (session->events & SESSION_CLIENT_ACK || !(session->events & SESSION_CLIENT_SYN))
		return true;
	if (!(session->events & SESSION_WORKLOAD_ANSWER) || !(p->tcp_flags & TCP_FLAG_ACK) ||
	    !tcp_numbers_read(skb, p, &numbers))
		return false;
	return bpf_ntohl(numbers.ack) - session->workload_seq <= SESSION_ACK_WINDOW;
}

/* Has the client's reset the very number that the workload expects (RFC 5961, section 3.2)? */
static __always_inline bool session_expects(struct __sk_buff *skb, const struct packet *p,
					    const struct session *session)
{
	struct tcp_numbers numbers;

	return session->last_sent && tcp_numbers_read(skb, p, &numbers) &&
	       bpf_ntohl(numbers.seq) == session->client_next;
}

/* Notes a FIN of the client, which counts once the workload acknowledges it. */
static __noinline int session_note_fin(struct __sk_buff *skb, const struct packet *p,
				       const struct session_key *key, struct session *session)
{
	__u32 next = session->client_next, noted = next, fin = tcp_fin_read(skb, p);

	if (session->events & SESSION_FIN_NOTED)
		noted = session->client_fin;
	if (!fin || !tcp_fin_precedes(fin, noted, next))
		return 0;
	/* Before the event: a session that moves takes the number with it by that. */
	session->client_fin = fin;
	session_note(key, session, SESSION_FIN_NOTED)->client_fin = fin;
	return 0;
}

/* Does the workload's segment acknowledge a FIN that is noted and does not count yet? */
static __always_inline bool session_takes_fin(struct __sk_buff *skb, const struct packet *p,
					      const struct session *session)
{
	const __u32 both = SESSION_FIN_NOTED | SESSION_CLIENT_FIN;

	return (session->events & both) == SESSION_FIN_NOTED &&
	       tcp_acknowledges_fin(skb, p, session->client_fin);
}

/* Notes what is new of the client in a segment that is no SYN. */
static __noinline int session_note_client(struct __sk_buff *skb, const struct packet *p,
					  const struct session_key *key, struct session *session,
					  __u32 events)
{
	if (events & SESSION_RESET && !session_expects(skb, p, session))
		events = SESSION_CLIENT_RESET;
	else if (!(events & SESSION_RESET) && p->protocol == IPPROTO_TCP &&
		 !session_acknowledges(skb, p, session))
		return 0;
	if (events & SESSION_CLIENT_FIN)
		session_note_fin(skb, p, key, session);
	events &= ~SESSION_CLIENT_FIN;
	if (events & ~session->events)
		session_note(key, session, events);
	return 0;
}

/*
 * The workload has taken a SYN: what was noted of another connection of the same ports is past.
 * Which host its segments come by was noted with the SYN, or forgotten by multipath_learn().
 */
static __always_inline void session_renew(struct session *session)
{
	const __u32 begun = SESSION_CLIENT_SYN | SESSION_WORKLOAD_ANSWER | SESSION_JOINED;

	if (!(session->events & ~begun))
		return;
	__sync_fetch_and_and(&session->events, begun);
	__sync_fetch_and_or(&session->events, SESSION_CLIENT_SYN);
	session->direct = 0;
	session->isn = 0;
}

/*
 * Is it a reset that answers a forged segment? In a handshake the workload resets who acknowledges
 * another number than its own, by that number, and the handshake goes on.
 */
static __always_inline bool session_resets_another(const struct packet *p,
						   const struct session *session,
						   const struct tcp_numbers *numbers)
{
	const __u32 shaken = SESSION_CLIENT_SYN | SESSION_WORKLOAD_ANSWER | SESSION_CLIENT_ACK;

	return p->tcp_flags & TCP_FLAG_RST && !(p->tcp_flags & TCP_FLAG_ACK) &&
	       (session->events & shaken) == (shaken & ~SESSION_CLIENT_ACK) &&
	       bpf_ntohl(numbers->seq) - session->workload_seq > SESSION_ACK_WINDOW;
}

/*
 * Notes what is new of the workload, and its numbers. A workload that goes on says that a reset was
 * forged: TCP has ignored it (RFC 5961).
 */
static __noinline int session_note_workload(struct __sk_buff *skb, const struct packet *p,
					    const struct session_key *key, struct session *session,
					    __u32 events)
{
	struct tcp_numbers numbers;

	if (!tcp_numbers_read(skb, p, &numbers))
		return 0;
	if (session_resets_another(p, session, &numbers))
		return 0;
	if (is_syn_ack(p) && !(session->events & SESSION_PROXIED))
		session_renew(session);
	if (events & SESSION_WORKLOAD_ANSWER &&
	    session->events & (SESSION_RESET | SESSION_CLIENT_RESET))
		__sync_fetch_and_and(&session->events, ~(SESSION_RESET | SESSION_CLIENT_RESET));
	if (events & ~session->events)
		session = session_note(key, session, events);
	if (p->tcp_flags & TCP_FLAG_RST || !(p->tcp_flags & TCP_FLAG_ACK))
		return 0;
	session->workload_seq = bpf_ntohl(numbers.seq);
	session->client_next = bpf_ntohl(numbers.ack);
	session->last_sent = bpf_ktime_get_coarse_ns();
	return 0;
}
