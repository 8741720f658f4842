package webui

import (
	"net/http"
	"net/url"
)

// FromOwnPage says whether a browser says that a page of this origin makes the request. Scripts can't write either header.
func FromOwnPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	return originIsOurs(r)
}

// FromForeignPage says whether a browser says that a page of another origin makes the request. Programs that are no browser
// say nothing.
func FromForeignPage(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none": // none: an address that the user typed, or a bookmark
		return false
	case "":
		return r.Header.Get("Origin") != "" && !originIsOurs(r)
	}
	return true
}

func originIsOurs(r *http.Request) bool {
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && origin.Host == r.Host
}
