// Package webui serves the web page of a manager below /ui/, and holds the sessions of its users.
//
//	GET  /ui/, /ui/assets/...    the page: files built from web/ and embedded, which hold nothing of the installation
//	POST /ui/session             exchanges a user's token for a session, known by a cookie
//	DELETE /ui/session           ends it
//	GET  /ui/sessions            the caller's sessions
//	DELETE /ui/sessions/{id}     ends one of them
//
// The page reads the API as any client does: a session is one more way to say who calls, and adds no right.
//
// Invariants:
//   - a token never comes to scripts: the cookie is HttpOnly, and sent to this origin alone;
//   - a cookie counts only for a request that a browser says comes from a page of this origin;
//   - a session ends with the credential that it was made by, wherever that is revoked.
package webui
