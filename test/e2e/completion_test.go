package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompletion has bash complete command lines as it would at their end.
func TestCompletion(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("../../packaging/completions/paddock.bash")
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t)
	pe := filepath.Join(d.dir, "smp")
	if err := os.WriteFile(pe, []byte("pe_name smp\nslots 4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.run("qconf", "-Ap", pe)
	d.run("qsub", "-h", "-b", "y", "true")
	d.run("qsub", "-h", "-b", "y", "true")
	complete := func(line ...string) []string {
		t.Helper()
		const script = `. "$0" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _paddock && printf '%s\n' "${COMPREPLY[@]}"`
		cmd := exec.Command("bash", append([]string{"-c", script, file}, line...)...)
		cmd.Dir, cmd.Env = d.dir, append(plainEnv(d.dir), "PATH="+bin+":/usr/bin:/bin")
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		return strings.Fields(string(out))
	}
	for _, tt := range []struct{ line, want string }{
		{"qsub -q ", "all.q"},
		{"qmod -d a", "all.q"},
		{"qmod -d x", ""},
		{"qconf -sq ", "all.q"},
		{"qacct -q ", "all.q"},
		{"qacct -q -js", "-json"},
		{"qsub -pe ", "smp"},
		{"qconf -sp s", "smp"},
		{"qstat -explain ", "a c A E"},
		{"qstat -s ", "p r s z h a"},
		{"qsub -w ", "e w n p v"},
		{"qsub -c ", "n s m x r"},
		{"qdel ", "1 2"},
		{"qalter ", "1 2"},
		{"qsub -hold_jid ", "1 2"},
		{"qsub -sync ", "y n"},
		{"execd -dr", "-drain"},
		{"execd -speed ", "graceful quick fast"},
	} {
		got := complete(strings.Split(tt.line, " ")...)
		if diff := cmp.Diff(strings.Fields(tt.want), got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.line, diff)
		}
	}

	// The options of execd are those that it knows.
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^   --?(\w+)`).FindAllStringSubmatch(d.run("execd", "-help"), -1) {
		want = append(want, "-"+m[1])
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, complete("execd", "-")); diff != "" {
		t.Errorf("execd (-want +got):\n%s", diff)
	}
}
