// Package oidc signs users in to the web page by a real provider of OpenID Connect, that of tools/oidc.
package oidc
