// Package origin says whose page makes a request, as browsers tell it by Sec-Fetch-Site and Origin. Scripts can write
// neither.
package origin

import (
	"net/http"
	"net/url"
)

// Own says whether a browser says that a page of this origin makes the request.
func Own(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	return originIsOurs(r)
}

// Foreign says whether a browser says that a page of another origin makes the request. Programs that are no browser say
// nothing.
func Foreign(r *http.Request) bool {
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
