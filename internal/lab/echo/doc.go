// Package echo is the workload of the lab: a server that answers with what it saw, over HTTP and UDP.
//
//	GET  /          Answer as JSON
//	GET  /bytes/N   N bytes, always the same
//	PUT  /upload    Received as JSON: size and SHA-256 of the body
//	GET  /healthz   200, or 503 after POST /health/fail, until POST /health/pass
//	GET  /stream    after an upgrade: as many bytes back as arrive, see StreamPath
//	UDP             "<backend> <client> <payload>", or as FlowAnswer says to what is a FlowRequest
package echo
