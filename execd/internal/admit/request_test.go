package admit

import (
	"fmt"
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
		if err := Check(r); err != nil {
			t.Errorf("%.100q becomes a request that is refused: %v", text, err)
		}
	}
}

func TestMayBeContext(t *testing.T) {
	many := make([]string, api.MaxWords+1)
	for i := range many {
		many[i] = fmt.Sprintf("v%d", i)
	}
	for _, tt := range []struct {
		context []string
		ok      bool
	}{
		{nil, true},
		{[]string{"a", "b=", "c=x=y", "d e=f g"}, true},
		{[]string{"=x"}, false},
		{[]string{""}, false},
		{[]string{"a", "a=1"}, false},
		{[]string{"a=\n"}, false},
		{[]string{"a=\xff"}, false},
		{many[1:], true},
		{many, false},
		{[]string{"a=" + strings.Repeat("x", api.MaxContext)}, false},
	} {
		if err := mayBeContext(tt.context); (err == nil) != tt.ok {
			t.Errorf("mayBeContext(%.60q) = %v; want accepted %t", tt.context, err, tt.ok)
		}
	}
}
