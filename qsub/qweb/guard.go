package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// guard lets through the requests of the page that qweb itself has served, from the browser of
// who was given its address. Any program of this host can connect to a loopback address, and any
// page of any site can have a browser do so.
type guard struct {
	// hosts are the values of Host by which qweb may be addressed; nil: a web server in front
	// has looked. A page whose name is resolved to this host anew ("rebinding") has its own.
	hosts []string
	// token is what requests for data must bring; empty: the web server has asked who it is. It
	// stands behind the # of the address, which browsers do not send and do not tell others.
	token string
	next  http.Handler
}

// policy is what a page may do: load what qweb serves, and ask qweb.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case !g.addressed(r.Host):
		http.Error(w, "this is not the host that is meant", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet:
		h.Set("Allow", "GET")
		http.Error(w, "there is nothing to be changed here", http.StatusMethodNotAllowed)
	case foreign(r):
		http.Error(w, "denied: asked by a page of another origin", http.StatusForbidden)
	case strings.HasPrefix(r.URL.Path, "/api/") && !g.knows(r.Header.Get("Authorization")):
		http.Error(w, "denied: open the address that qweb has printed", http.StatusUnauthorized)
	default:
		g.next.ServeHTTP(w, r)
	}
}

func (g *guard) addressed(host string) bool {
	if g.hosts == nil {
		return true
	}
	for _, h := range g.hosts {
		if strings.EqualFold(h, host) {
			return true
		}
	}
	return false
}

// foreign reports whether a page of another origin asks, as far as its browser says. What is no
// browser says nothing.
func foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	for _, origin := range r.Header.Values("Origin") {
		if host, ok := strings.CutPrefix(origin, "http://"); ok && strings.EqualFold(host, r.Host) {
			continue
		}
		if host, ok := strings.CutPrefix(origin, "https://"); ok && strings.EqualFold(host, r.Host) {
			continue // a web server in front speaks TLS
		}
		return true
	}
	return false
}

// knows reports whether the token is brought, in a time that says nothing of it.
func (g *guard) knows(authorization string) bool {
	if g.token == "" {
		return true
	}
	given, ok := strings.CutPrefix(authorization, "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(g.token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok
}
