package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/api"
	"paddock/test/harness"
)

// nobody is a user that every host has.
const nobody = 65534

// newRootHolder has an execd of two slots in root mode with these knobs, and a
// directory u of the second user below its own.
func newRootHolder(t *testing.T, knobs string) *holder {
	t.Helper()
	if second == nil {
		t.Skip("claims of more than one user need root")
	}
	dir := place(t, "rootclaim")
	if err := os.MkdirAll(dir+"/etc/queues", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"queues/all.q": "qname all.q\nslots 2\n", "sge_conf": "min_uid 100\nmin_gid 0\n", "hooks.conf": knobs,
	} {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/u", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir+"/u", second.UID, second.GID); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	via, err := hookAccount[true]()
	if err != nil {
		t.Fatal(err)
	}
	return &holder{deskIn(t, dir, "-root", via...), ctx}
}

// as runs a function as another user.
func (h *holder) as(uid, gid int, f func()) {
	h.t.Helper()
	if err := harness.As(uid, gid, f); err != nil {
		h.t.Fatal(err)
	}
}

// second runs a function as the second user.
func (h *holder) second(f func()) { h.t.Helper(); h.as(second.UID, second.GID, f) }

// unknown fails the test unless an error says that an id opens nothing.
func (h *holder) unknown(what string, err error) {
	h.t.Helper()
	if got := api.RefusalOf(err); got != api.RefusedUnknown {
		h.t.Errorf("%s: %v (%d); want it refused with %d", what, err, got, api.RefusedUnknown)
	}
}

// useless fails the test unless all orders under an id are refused, as of one that
// nobody has.
func (h *holder) useless(whose string, id api.ClaimID) {
	h.t.Helper()
	c := h.Client.ClaimOf(id)
	_, err := c.Renew(h.ctx)
	h.unknown(whose+" renewal", err)
	_, err = c.Check(h.ctx)
	h.unknown(whose+" check", err)
	_, err = c.Suspend(h.ctx)
	h.unknown(whose+" suspension", err)
	_, err = c.Continue(h.ctx)
	h.unknown(whose+" continuation", err)
	_, err = c.Activate(h.ctx, api.ActivateRequest{Request: h.sh("touch stolen")})
	h.unknown(whose+" activation", err)
	_, err = c.Deactivate(h.ctx, api.Forcible)
	h.unknown(whose+" deactivation", err)
	h.unknown(whose+" release", c.Release(h.ctx))
	var state api.ClaimState
	h.unknown(whose+" wait", h.Client.Call(h.ctx, api.VerbRenew, &api.ClaimOrder{ID: id, Await: true}, &state))
	if err != nil && strings.Contains(err.Error(), string(id)) {
		h.t.Errorf("%s refusal has the secret: %v", whose, err)
	}
}

// codeOf returns the code of an error of execd's.
func codeOf(err error) api.Code {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code
	}
	return ""
}

// owner fails the test unless a file of the directory u becomes the user's.
func (h *holder) owner(name string, uid, gid int) {
	h.t.Helper()
	h.file("u/" + name)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(h.dir, "u", name), &st); err != nil || int(st.Uid) != uid || int(st.Gid) != gid {
		h.t.Errorf("%s: uid %d, gid %d, %v; want %d and %d", name, st.Uid, st.Gid, err, uid, gid)
	}
}

// withSecret replaces the secret of an id by another of the same length.
func withSecret(id api.ClaimID) api.ClaimID {
	public := strings.TrimSuffix(id.String(), "...")
	return api.ClaimID(public + strings.Repeat("0", len(id)-len(public)))
}

// CLAIM-ID, CLAIM-REQUEST, CLAIM-ACTIVATE, CLAIM-REFUSE: in root mode a user whom
// CLAIM_USERS names has a slot and runs jobs as himself. Nobody else uses his claim
// or learns its secret, also not after the death of execd, which he and his job
// survive.
func TestRootClaimIsItsUsers(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("claims of more than one user need root")
	}
	h := newRootHolder(t, "CLAIM_USERS = "+second.Name+" nobody\nRANK = TARGET.Prio\n")
	const unnamed = 1 // daemon, which every system has
	h.as(unnamed, unnamed, func() {
		_, err := h.Client.Claim(h.ctx, api.ClaimRequest{})
		if codeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "may not claim slots") {
			t.Errorf("a user whom CLAIM_USERS does not name: %v; want denied", err)
		}
	})
	var c *api.Claim
	var job int
	h.second(func() {
		var err error
		if _, err = h.Client.Claim(h.ctx, api.ClaimRequest{Priority: 1}); codeOf(err) != api.CodeDenied {
			t.Errorf("a priority above 0: %v; want denied", err)
		}
		if c, err = h.Client.Claim(h.ctx, api.ClaimRequest{Slot: "2"}); err != nil {
			t.Error(err)
			return
		}
		for _, text := range []string{"Owner = \"root\"\n", "Owner = \"nobody\"\n"} {
			if _, err := c.Activate(h.ctx, api.ActivateRequest{Ad: "Cmd = \"/bin/true\"\n" + text}); codeOf(err) != api.CodeDenied {
				t.Errorf("work of another, %s: %v; want denied", strings.TrimSpace(text), err)
			}
		}
		// His own name he may write down.
		_, err = c.Activate(h.ctx, api.ActivateRequest{Ad: fmt.Sprintf(
			"Cmd = \"/usr/bin/touch\"\nArguments = \"by-ad\"\nIwd = \"%s/u\"\nOwner = %q\n", h.dir, second.Name)})
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := c.Deactivate(h.ctx, api.JobDone); err != nil {
			t.Error(err)
		}
		r := h.sh("touch up; while test ! -e ../go; do sleep 0.4; done; id -u >done")
		r.Cwd += "/u"
		reply, err := c.Activate(h.ctx, api.ActivateRequest{Request: r})
		if err != nil {
			t.Error(err)
		}
		job = reply.Job
	})
	if t.Failed() {
		t.FailNow()
	}
	h.owner("by-ad", second.UID, second.GID)
	h.owner("up", second.UID, second.GID)

	id := c.Reply.ID
	others := func() {
		t.Helper()
		h.as(nobody, nobody, func() { h.useless("another user's", id); h.unseen(id) })
		h.as(nobody, nobody, func() { h.useless("another user's guessed", withSecret(id)) })
		h.second(func() { h.useless("the user's guessed", withSecret(id)) })
		h.useless("a manager's guessed", withSecret(id))
		h.until(2, fmt.Sprintf("Claimed/Busy %s %d.1", second.Name, job))
	}
	others()
	h.hidden(id)
	if _, err := os.Stat(filepath.Join(h.dir, "u/stolen")); err == nil {
		t.Error("a job ran under the claim of another")
	}

	h.Daemon.Kill()
	h.begin()
	h.until(2, fmt.Sprintf("Claimed/Busy %s %d.1", second.Name, job))
	others()
	h.hidden(id)
	h.second(func() {
		c := h.Client.ClaimOf(id)
		if state, err := c.Renew(h.ctx); err != nil || state.Job != job {
			t.Errorf("renewed after the restart: %+v, %v; want job %d", state, err, job)
		}
	})
	// A manager may use it: the id is enough for him.
	if state, err := h.Client.ClaimOf(id).Renew(h.ctx); err != nil || state.Job != job {
		t.Errorf("renewed by a manager: %+v, %v; want job %d", state, err, job)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h.second(func() {
		c := h.Client.ClaimOf(id)
		if _, err := c.Deactivate(h.ctx, api.JobDone); err != nil {
			t.Error(err)
		}
	})
	h.owner("done", second.UID, second.GID)
	if err := h.WaitJob(job); err != nil {
		t.Fatal(err)
	}
	h.second(func() {
		if err := h.Client.ClaimOf(id).Release(h.ctx); err != nil {
			t.Error(err)
		}
	})
	h.until(2, "Unclaimed/Idle")
}

// unseen fails the test if what a user wants to run may look at the secret of the claim
// that the slot has: neither an error nor whether he is refused is to tell of it.
func (h *holder) unseen(id api.ClaimID) {
	h.t.Helper()
	refusal := func(requirements string) string {
		_, err := h.Client.Claim(h.ctx, api.ClaimRequest{Slot: "2", Ad: "Cmd = \"/bin/true\"\nPrio = 1\nRequirements = " + requirements + "\n"})
		return fmt.Sprint(err)
	}
	secret := string(id[strings.LastIndexByte(string(id), '#')+1:])
	for _, look := range []string{
		`TARGET.ClaimId`, `TARGET["ClaimId"]`, `({TARGET})[0].ClaimId`, `[a = TARGET.ClaimId].a`, `ClaimId`, `eval("TARGET.ClaimId")`, `unparse(TARGET)`,
		`unparse(TARGET.ClaimId)`, `join(evalInEachContext(ClaimId, {TARGET}))`, `TARGET.MY.ClaimId`, `TARGET.ChildClaimIds`, `strcat(TARGET, "")`,
	} {
		if got := refusal(fmt.Sprintf(`regexp(strcat("(", %s), "x")`, look)); strings.Contains(got, secret[:8]) {
			h.t.Errorf("Requirements with %s: %s", look, got)
		}
		guess := func(digits string) string {
			return refusal(fmt.Sprintf(`ifThenElse(regexp("%s", %s), 1 / 0, false)`, digits, look))
		}
		if right, wrong := guess(secret[:8]), guess("xxxxxxxx"); right != wrong || strings.Contains(right, "cannot read") {
			h.t.Errorf("%s: of the first digits: %s; of wrong ones: %s", look, right, wrong)
		}
	}
	// So would it look if he could.
	if got := refusal(fmt.Sprintf(`ifThenElse(TARGET.PublicClaimId == %q, 1 / 0, false)`, id.String())); !strings.Contains(got, "division by zero") {
		h.t.Errorf("Requirements with the public id: %s", got)
	}
}

// hidden fails the test if the secret of a claim can be learnt by a user who has not
// claimed: from execd, from a file, from a process.
func (h *holder) hidden(id api.ClaimID) {
	h.t.Helper()
	secret := string(id[strings.LastIndexByte(string(id), '#')+1:])
	if len(secret) < 64 {
		h.t.Fatalf("the secret has %d digits; want 64 at least", len(secret))
	}
	for _, args := range [][]string{
		{"qhost", "-slots"},
		{"qhost", "-slotad"},
		{"qhost", "-slotad", "2"},
		{"qstat", "-u", "*", "-ext"},
		{"qstat", "-j", "*"},
		{"qstat", "-xml", "-j", "*"},
		{"qstat", "-json", "-j", "*"},
		{"qstat", "-json", "-u", "*", "-ext"},
		{"qhost", "-json", "-slots"},
		{"qhost", "-json", "-slotad"},
		{"execd", "-status", "-json", "-dev", "."},
		{"qtop", "-json"},
		{"curl", "-sS", "--unix-socket", "execd.sock", "http://execd/metrics"},
	} {
		out, err := h.commandAs("nobody", "", args...)
		if err != nil || strings.Contains(out, secret) {
			h.t.Errorf("%q as nobody: %v\n%s", args, err, out)
		}
	}
	if log := h.Log(); strings.Contains(log, secret) || !strings.Contains(log, " D slot ") {
		h.t.Errorf("the secret is in the log, or not all is:\n%s", log)
	}
	// With root's rights it is found, once.
	// The search itself must not have it where it looks.
	const search = `read -r s; printf %s "$s" | grep -rlF -f - . 2>/dev/null; printf %s "$s" | grep -alF -f - /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; true`
	for user, want := range map[string]string{"nobody": "", second.Name: "", "root": "./spool/claims/"} {
		out, err := h.commandAs(user, secret, "sh", "-c", search)
		if out = strings.TrimSpace(out); err != nil || strings.Contains(out, "\n") || (out == "") != (want == "") || !strings.HasPrefix(out, want) {
			h.t.Errorf("the secret as %s: %v\n%s\nwant it below %q only", user, err, out, want)
		}
	}
}

// commandAs runs a command as another user, in execd's directory, with something on
// standard input.
func (h *holder) commandAs(user, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(h.ctx, "setpriv", append([]string{"--reuid", user, "--regid", fmt.Sprint(gidOf(user)), "--clear-groups"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin = h.dir, plainEnv(h.dir), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func gidOf(user string) int {
	switch user {
	case "root":
		return 0
	case "nobody":
		return nobody
	}
	return second.GID
}

// CLAIM-ACTIVATE, CLAIM-REFUSE: a manager has work run as the Owner of its ad, if
// FETCH_OWNERS names him and he may have jobs at all; root never is anybody's Owner
// but his own.
func TestRootClaimOfManager(t *testing.T) {
	parallel(t)
	if second == nil {
		t.Skip("claims of more than one user need root")
	}
	h := newRootHolder(t, "FETCH_OWNERS = "+second.Name+", root, toor, paddock, daemon, nosuchuser\n")
	c := h.claim(api.ClaimRequest{Slot: "1"})
	try := func(c *api.Claim, owner string) (api.ActivateReply, error) {
		return c.Activate(h.ctx, api.ActivateRequest{Ad: fmt.Sprintf(
			"Cmd = \"/bin/sh\"\nArguments = \"-c 'id -u >as-%s'\"\nIwd = \"%s/u\"\nOwner = %q\n", owner, h.dir, owner)})
	}
	for owner, want := range map[string]string{
		"nobody":     `its Owner "nobody" is none of FETCH_OWNERS`,
		"toor":       "is root, and work that another brings never is",
		"paddock":    "is the account of hooks, and work that another brings never is",
		"daemon":     `the uid of its Owner "daemon" is 1, and at least 100 is needed`,
		"nosuchuser": `user "nosuchuser" is not known on this host`,
		"1":          `its Owner "1" is none of FETCH_OWNERS`,
	} {
		if _, err := try(c, owner); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("work of %s: %v; want an error with %q", owner, err, want)
		}
	}
	reply, err := try(c, second.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Deactivate(h.ctx, api.JobDone); err != nil {
		t.Fatal(err)
	}
	if err := h.WaitJob(reply.Job); err != nil {
		t.Fatal(err)
	}
	h.owner("as-"+second.Name, second.UID, second.GID)
	if out, err := h.command("qacct", "-j", fmt.Sprint(reply.Job)); err != nil || !strings.Contains(out, second.Name) {
		t.Errorf("qacct: %v\n%s\nwant owner %s", err, out, second.Name)
	}
	if err := c.Release(h.ctx); err != nil {
		t.Fatal(err)
	}

	// A manager who is not root gets nothing of root's.
	if out, err := h.command("qconf", "-am", second.Name); err != nil {
		t.Fatalf("qconf -am: %v\n%s", err, out)
	}
	h.second(func() {
		c, err := h.Client.Claim(h.ctx, api.ClaimRequest{Slot: "2"})
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := try(c, "root"); codeOf(err) != api.CodeDenied {
			t.Errorf("root's work by a manager: %v; want denied", err)
		}
		if err := c.Release(h.ctx); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(filepath.Join(h.dir, "u/as-root")); err == nil {
		t.Error("a job ran as root for another")
	}
}
