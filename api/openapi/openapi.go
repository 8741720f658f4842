// Package openapi holds the description of the manager's REST API, generated from api/v1.
package openapi

import _ "embed"

// Document is the OpenAPI 3.1 document, as JSON.
//
//go:embed v1/weir.openapi.json
var Document []byte
