package audit

import (
	"net/http"
	"strconv"

	"connectrpc.com/connect"
)

// audited are the codes of refusals that tell of strangers; others are noted only of what would have
// changed something.
var audited = map[string]bool{
	connect.CodeUnauthenticated.String():   true,
	connect.CodePermissionDenied.String():  true,
	connect.CodeResourceExhausted.String(): true,
	malformed:                              true,
}

// malformed is the result of what was no call at all.
const malformed = "malformed"

// refusedByProtocol is the code of a request that was refused before it became a call.
func refusedByProtocol(header http.Header, status int) (code, reason string) {
	if text := grpcStatus(header); text != "" {
		if n, err := strconv.Atoi(text); err == nil && n != 0 {
			return protocolCode(connect.Code(n)), "refused before it was a call"
		}
		return "", ""
	}
	switch status {
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests:
		return connect.CodeResourceExhausted.String(), "the request is too large"
	case http.StatusBadRequest, http.StatusUnsupportedMediaType:
		return malformed, "the request could not be read"
	}
	return "", ""
}

func protocolCode(code connect.Code) string {
	switch code {
	case connect.CodeInvalidArgument, connect.CodeInternal, connect.CodeUnknown:
		return malformed
	}
	return code.String()
}

// grpcStatus is the code in the trailers of an answer, or empty.
func grpcStatus(h http.Header) string {
	for _, name := range []string{"Grpc-Status", http.TrailerPrefix + "Grpc-Status"} {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}
