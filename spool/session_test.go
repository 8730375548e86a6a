package spool_test

import (
	"strings"
	"testing"

	"paddock/spool"
)

func TestSession(t *testing.T) {
	word := strings.Repeat("0af9", 16)
	good := spool.Session{Number: 2, Address: "node7:45001", Fingerprint: word, Token: strings.Repeat("1", 64)}
	for _, address := range []string{"node7:45001", "127.0.0.1:1", "[::1]:65535"} {
		s := good
		s.Address = address
		if got, err := spool.ParseSession(s.Append(nil)); err != nil || got != s {
			t.Errorf("%q is read as %v, %v", s.Append(nil), got, err)
		}
	}
	local := spool.Session{Number: 1, Address: "@paddock-qrsh-A7", Token: word}
	if got, err := spool.ParseSession(local.Append(nil)); err != nil || got != local {
		t.Errorf("%q is read as %v, %v", local.Append(nil), got, err)
	}
	for _, bad := range []func(*spool.Session){
		func(s *spool.Session) { s.Address = "@" },
		func(s *spool.Session) { s.Address = "@a b" },
		func(s *spool.Session) { s.Address = "@\x00" },
		func(s *spool.Session) { s.Address = "@" + strings.Repeat("a", 107) },
		func(s *spool.Session) { s.Fingerprint = word },
		func(s *spool.Session) { s.Token = "" },
	} {
		s := local
		if bad(&s); s.Check() == nil {
			t.Errorf("%v is one", s)
		}
	}
	for _, bad := range []func(*spool.Session){
		func(s *spool.Session) { s.Number = 0 },
		func(s *spool.Session) { s.Address = "node7" },
		func(s *spool.Session) { s.Address = ":5" },
		func(s *spool.Session) { s.Address = "node7:0" },
		func(s *spool.Session) { s.Address = "node7:65536" },
		func(s *spool.Session) { s.Address = "no de:5" },
		func(s *spool.Session) { s.Address = "::1:5x" },
		func(s *spool.Session) { s.Address = strings.Repeat("a", 300) + ":5" },
		func(s *spool.Session) { s.Fingerprint = word[1:] },
		func(s *spool.Session) { s.Fingerprint = "G" + word[1:] },
		func(s *spool.Session) { s.Token = "" },
	} {
		s := good
		bad(&s)
		if got, err := spool.ParseSession(s.Append(nil)); err == nil {
			t.Errorf("%q is read as %v", s.Append(nil), got)
		}
	}
}

func FuzzSession(f *testing.F) {
	f.Add([]byte("number=1\naddress=h:5\nfingerprint=" + strings.Repeat("a", 64) + "\ntoken=" + strings.Repeat("b", 64) + "\n"))
	f.Add([]byte("number=1\naddress=@a\ntoken=" + strings.Repeat("b", 64) + "\n"))
	f.Add([]byte("number=x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := spool.ParseSession(b)
		if err != nil {
			return
		}
		if again, err := spool.ParseSession(s.Append(nil)); err != nil || again != s {
			t.Errorf("%v is read as %v, %v", s, again, err)
		}
	})
}
