package daemon

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestWatched has the metrics read as a monitor does, and as a page of another site does that has
// its name resolved to this host.
func TestWatched(t *testing.T) {
	h := watched(func() []byte { return []byte("paddock_info 1\n") })
	for host, want := range map[string]int{
		"127.0.0.1:9100": http.StatusOK, "127.0.0.1": http.StatusOK, "127.8.0.1:1": http.StatusOK, "[::1]:9100": http.StatusOK, "[::1]": http.StatusOK,
		"localhost:9100": http.StatusOK, "LocalHost": http.StatusOK,
		"": http.StatusMisdirectedRequest, "evil.example:9100": http.StatusMisdirectedRequest, "localhost.evil.example": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example:9100": http.StatusMisdirectedRequest, "10.0.0.1:9100": http.StatusMisdirectedRequest, "0.0.0.0:9100": http.StatusMisdirectedRequest,
		"[::]:9100": http.StatusMisdirectedRequest, "[::ffff:10.0.0.1]:1": http.StatusMisdirectedRequest,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/metrics", http.NoBody)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || (w.Body.String() == "paddock_info 1\n") != (want == http.StatusOK) {
			t.Errorf("Host %q: %d %q; want %d", host, w.Code, w.Body, want)
		}
	}
}
