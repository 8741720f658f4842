// Package apierr makes the errors of the API: the Connect code, the path of the field that is wrong, and what the
// caller can do. ToConnect maps the errors of the store and of the model; Write answers a request that no handler
// took, in the protocol of the request (gRPC, gRPC-Web, Connect or REST).
package apierr
