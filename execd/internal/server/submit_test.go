package server

import (
	"strings"
	"testing"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
)

// REQ-HOOK-23: fetched work does not come by the server, and is a request that it
// would take all the same.
func TestWorkIsARequest(t *testing.T) {
	wide := strings.Repeat("w", api.MaxVariable/4)
	for _, text := range []string{
		"Cmd = \"/bin/a\"\n",
		"Cmd = \"7 \xff:@\"\nIwd = \"/$a b\"\nIn = \"$:\"\nOut = \":\"\nArguments = \"'' 'it''s' \xfe\"\n",
		"Cmd = \"a\"\nEnvironment = \"A=1 'B= x' C==\"\nEnv = \"X\"\nAccountingGroup = \"a.b\"\nJobBatchName = \"x y\"\n",
		"Cmd = \"a\"\nEnv = \"A=1;;B='\"\nJobUniverse = 10\nArgs = \"M \\x\"\nJarFiles = \"a b,c\"\n",
		"Cmd = \"/" + strings.Repeat("d", api.MaxPath-1) + "\"\n",
		"W = \"" + wide + "\"\nCmd = \"/a\"\nArguments = strcat(W, W, W, substr(W, 1))\nEnvironment = strcat(\"A=\", W, W, W, substr(W, 3))\n",
	} {
		work, err := classad.ParseOld(text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ad.Request(work, ad.RequestOptions{})
		if err != nil {
			t.Errorf("%.100q: %v", text, err)
			continue
		}
		if err := check(r); err != nil {
			t.Errorf("%.100q becomes a request that is refused: %v", text, err)
		}
	}
}
