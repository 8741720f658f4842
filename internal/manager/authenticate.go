package manager

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/connlimit"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// firstMessageKey is of the function that lifts the read deadline of a stream at its first message.
type firstMessageKey struct{}

// authenticate says who makes each request, and takes what it needs before its body is read.
func (m *Manager) authenticate(next http.Handler, procedureOf func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := m.identify(r)
		if !caller.Anonymous() {
			connlimit.Authenticated(r.Context())
		}
		c := audit.NewCall(caller)
		m.handed(r)
		ctx := audit.WithCall(trust.WithIdentity(r.Context(), caller), c)
		ctx = context.WithValue(ctx, firstMessageKey{}, func() {
			http.NewResponseController(w).SetReadDeadline(time.Time{}) //nolint:errcheck // not all writers have one
		})
		// What the request says of the caller has been read: nobody behind this reads it again.
		r = r.WithContext(ctx)
		answer := &watchedWriter{ResponseWriter: w, slow: m.slowReader}
		m.boundReading(w, r, caller)
		leave, err := m.entered(w, r, caller, procedureOf(r))
		if err != nil {
			c.Refuse(r.URL.Path, err)
			apierr.Write(answer, r, err)
		} else {
			func() {
				defer leave()
				next.ServeHTTP(answer, r)
			}()
		}
		m.audit.Record(c, r.URL.Path, answer.Header(), answer.code)
	})
}

// entered takes what a request needs, and returns what gives it back, or says why it is refused before its body is read.
func (m *Manager) entered(w http.ResponseWriter, r *http.Request, caller trust.Identity, procedure string) (leave func(), err error) {
	if err := admissible(r, caller); err != nil {
		return nil, err
	}
	if caller.Anonymous() { // before the first byte is waited for
		if leave, err = m.enterRequest(r, caller, procedure, r.ContentLength); err != nil {
			return nil, err
		}
	}
	size, err := oversized(w, r, caller, procedure)
	switch {
	case err != nil && leave != nil:
		leave()
		return nil, err
	case err != nil || leave != nil:
		return leave, err
	}
	return m.enterRequest(r, caller, procedure, size)
}

// boundReading bounds the time in which the body of a request must come. What streams has it for its first message, and
// goes on long after it.
func (m *Manager) boundReading(w http.ResponseWriter, r *http.Request, caller trust.Identity) {
	within := limits.Callers[limits.KindOf(caller)].Sending
	if caller.Anonymous() {
		within = m.unauthenticatedTime
		// The next request takes another handshake; and of HTTP/1, the server would wait for the rest of the body.
		w.Header().Set("Connection", "close")
	}
	if isWatch(r.URL.Path) { // it has no body, and HTTP/1 would take the end of its time for the end of the connection
		return
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)); err != nil {
		m.log.Debug("can't bound the time of a request", "err", err)
	}
}

// handed holds that only managers hand requests on.
func (m *Manager) handed(r *http.Request) {
	if r.Header.Get(trust.ForwardedByHeader) == "" || m.identity.Insecure() {
		return
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		trusted, _ := m.store.Trust.Watch()
		if peer, err := m.identity.ByCertificate(r.TLS.PeerCertificates[0], trusted, m.now()); err == nil && peer.Kind == trust.Manager {
			return
		}
	}
	r.Header.Del(trust.ForwardedByHeader)
}

// admissible says why a request is refused before its body is read.
func admissible(r *http.Request, caller trust.Identity) error {
	joins := r.URL.Path == weirv1connect.TrustServiceJoinProcedure
	switch {
	case caller.Anonymous() && !joins && !open(r.URL.Path):
		return apierr.Unauthenticated(caller)
	case caller.Anonymous() && r.ContentLength > limits.Unknown:
		return connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("the request has %d bytes, more than %d: send a token, a name and a request for a certificate alone", r.ContentLength, limits.Unknown))
	case joins && packed(r):
		return connect.NewError(connect.CodeUnimplemented, errors.New("a join may not be compressed"))
	}
	return nil
}

// oversized returns the size that a request tells, negative if it tells none, or says why it is refused by it, and bounds
// what a stranger may send beyond it.
// gRPC tells the size in the first bytes of the body, as package connect, which would refuse it too, reads them.
func oversized(w http.ResponseWriter, r *http.Request, caller trust.Identity, procedure string) (size int64, err error) {
	size = r.ContentLength
	if caller.Anonymous() {
		r.Body = http.MaxBytesReader(w, r.Body, limits.Unknown)
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") && !streams(r.URL.Path) {
		body := bufio.NewReaderSize(r.Body, limits.MessageHead)
		if head, err := body.Peek(limits.MessageHead); err == nil {
			size = int64(binary.BigEndian.Uint32(head[1:]))
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{body, r.Body}
	}
	if most := int64(limits.Of(procedure).Bytes); size > most && strings.HasPrefix(r.URL.Path, "/weir.v1.") { // REST has an answer of its own
		return size, apierr.TooLarge(size, most)
	}
	return size, nil
}

// open are the paths that anybody may read: they hold nothing of the installation.
func open(path string) bool { return path == "/healthz" || path == "/openapi.json" }

// identify is who makes a request, by what it shows.
func (m *Manager) identify(r *http.Request) trust.Identity {
	caller, err := m.shown(r)
	if err != nil {
		caller = trust.Identity{Reason: err.Error()}
	}
	if caller.From == "" {
		caller.From = r.RemoteAddr
	}
	return caller
}

func (m *Manager) shown(r *http.Request) (trust.Identity, error) {
	if m.identity.Insecure() {
		return trust.Identity{Kind: trust.User, Name: "anybody", Method: trust.Insecure}, nil
	}
	trusted, _ := m.store.Trust.Watch()
	caller, err := m.shownTo(r, trusted)
	if !errors.As(err, new(*pki.UnknownUserError)) {
		return caller, err
	}
	// Another manager may have made the user a moment ago. To ask costs a read of the store.
	if !m.strangers.askTrust(r.RemoteAddr, m.now()) {
		return trust.Identity{}, err
	}
	newest, failed := m.store.Trust.Newest(r.Context(), trusted)
	switch {
	case failed != nil:
		return trust.Identity{}, fmt.Errorf("%w; if it is new, try again: %w", err, failed)
	case newest == trusted:
		return trust.Identity{}, err
	}
	return m.shownTo(r, newest)
}

// shownTo is who makes a request, by what trusted says of what it shows.
func (m *Manager) shownTo(r *http.Request, trusted *truststore.Trust) (trust.Identity, error) {
	if bearer := r.Header.Get("Authorization"); bearer != "" {
		return userByToken(trusted, bearer)
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		if r.Header.Get(trust.OnBehalfHeader) != "" {
			return trust.Identity{}, errors.New("only a manager may call on behalf of others")
		}
		return trust.Identity{}, nil
	}
	caller, err := m.identity.ByCertificate(r.TLS.PeerCertificates[0], trusted, m.now())
	if err != nil {
		return trust.Identity{}, err
	}
	if encoded := r.Header.Get(trust.OnBehalfHeader); encoded != "" {
		if caller.Kind != trust.Manager {
			return trust.Identity{}, fmt.Errorf("%s may not call on behalf of others", caller)
		}
		return m.onBehalf(r.Context(), encoded, trusted)
	}
	return caller, nil
}

// userByToken finds the user whose bearer token the header holds.
func userByToken(trusted *truststore.Trust, header string) (trust.Identity, error) {
	scheme, text, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "bearer") {
		return trust.Identity{}, errors.New("the Authorization header must be Bearer and a user's token")
	}
	secret, err := trust.ParseUser(strings.TrimSpace(text))
	if err != nil {
		return trust.Identity{}, fmt.Errorf("the bearer token %w", err)
	}
	return pki.ByToken(secret, trusted)
}

// onBehalf is the caller that another manager names, if that caller's credential is in force by what this manager knows:
// the other may not have heard of a revocation.
func (m *Manager) onBehalf(ctx context.Context, encoded string, trusted *truststore.Trust) (trust.Identity, error) {
	named, err := trust.DecodeIdentity(encoded)
	if err != nil {
		return trust.Identity{}, err
	}
	caller, err := pki.InForce(named, trusted)
	if err != nil || sameBindings(caller, named) {
		return caller, err
	}
	// One of the two managers has not heard of a change of what the user may do.
	newest, err := m.store.Trust.Newest(ctx, trusted)
	if err != nil {
		return trust.Identity{}, err
	}
	return pki.InForce(named, newest)
}

// streams says whether a path is one of the calls that stream.
func streams(path string) bool {
	switch path {
	case weirv1connect.SyncServiceSyncMuxProcedure, weirv1connect.SyncServiceSyncHostProcedure, weirv1connect.SyncServiceAcknowledgeMuxProcedure,
		weirv1connect.WeirServiceCaptureProcedure, weirv1connect.WeirServiceWatchVIPsProcedure,
		weirv1connect.WeirServiceWatchEventsProcedure, weirv1connect.ClusterServiceBackupProcedure,
		weirv1connect.ClusterServiceFollowProgressProcedure:
		return true
	}
	return isWatch(path)
}

// isWatch says whether a path is a watch of REST.
func isWatch(path string) bool { return path == watchVIPsPath || path == watchEventsPath }
