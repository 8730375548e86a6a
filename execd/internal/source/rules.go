package source

import (
	"context"
	"path"
	"slices"
	"time"

	"paddock/classad"
	"paddock/execd/api"
	"paddock/execd/internal/ad"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/user"
)

// The lease of a claim, unless it is configured.
const (
	aliveInterval = 300 * time.Second
	maxMissed     = 6
)

// Lease returns for how long a claim lasts that nobody renews.
func Lease(k *knob.Set) time.Duration {
	return k.Duration("ALIVE_INTERVAL", aliveInterval) * time.Duration(max(k.Int("MAX_CLAIM_ALIVES_MISSED", maxMissed), 1))
}

// Names reports whether a knob that has names of users, or patterns, names one.
func Names(k *knob.Set, list, name string) bool {
	return slices.ContainsFunc(k.Words(list), func(pattern string) bool {
		match, err := path.Match(pattern, name)
		return match && err == nil
	})
}

// Owner returns the user whom an ad names as its Owner, as whom work may run that
// another brings: one of those of FETCH_OWNERS (names or patterns of them, none by
// default), see asWhom.
func Owner(ctx context.Context, users asuser.Users, name string, k *knob.Set, minUID int) (*user.User, error) {
	if !Names(k, "FETCH_OWNERS", name) { // the name services are not asked for anything else
		return nil, denied("its Owner %.60q is none of FETCH_OWNERS", name)
	}
	return asWhom(ctx, users, "its Owner", name, minUID)
}

// firstUser is the lowest uid that systems give to people. Those below are of services.
const firstUser = 1000

// RemoteOwner returns the user as whom work of another host's user may run, by his name
// here: one of those of REMOTE_OWNERS, by default everybody but services, see
// asWhom.
func RemoteOwner(ctx context.Context, users asuser.Users, name string, k *knob.Set, minUID int) (*user.User, error) {
	if err := MayRemote(name, k); err != nil {
		return nil, err
	}
	u, err := asWhom(ctx, users, "user", name, minUID)
	if _, set := k.Lookup("REMOTE_OWNERS"); err == nil && !set && u.UID < firstUser {
		return nil, denied("user %.60q has the uid of a service, %d, and is not among REMOTE_OWNERS", name, u.UID)
	}
	return u, err
}

// MayRemote refuses users here that are none of REMOTE_OWNERS.
func MayRemote(name string, k *knob.Set) error {
	if _, set := k.Lookup("REMOTE_OWNERS"); set && !Names(k, "REMOTE_OWNERS", name) {
		return denied("user %.60q is none of REMOTE_OWNERS", name)
	}
	return nil
}

func denied(format string, args ...any) error { return api.Errorf(api.CodeDenied, format, args...) }

// asWhom returns the user as whom work may run that another brings. He has at least the
// smallest uid. Root, and the account of hooks, are refused whatever is configured.
func asWhom(ctx context.Context, users asuser.Users, what, name string, minUID int) (*user.User, error) {
	u, err := users.ByName(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case u.UID == 0 || u.Name == "root":
		return nil, denied("%s %.60q is root, and work that another brings never is", what, name)
	case u.Name == asuser.Account:
		// Its job would see what the hooks are told, and could speak for them.
		return nil, denied("%s %.60q is the account of hooks, and work that another brings never is", what, name)
	case u.UID < minUID:
		return nil, denied("the uid of %s %.60q is %d, and at least %d is needed", what, name, u.UID, minUID)
	case u.Name != name:
		return nil, denied("%s %.60q is user %s", what, name, u.Name)
	}
	return u, nil
}

// Owned returns the ad of work with its owner on this host, whatever it says of one: else
// START and RANK would take one user for another.
func Owned(work *classad.Ad, owner, host string) *classad.Ad {
	return work.With(
		classad.Attr{Name: "Owner", Expr: classad.String(owner).Expr()},
		classad.Attr{Name: "User", Expr: classad.String(owner + "@" + host).Expr()},
	)
}

// Request completes the ad of work, see ad.Complete, and makes the request for a job of
// it. The whole ad is there also if it describes no job.
func Request(work *classad.Ad, keyword string, partitionable bool, o ad.RequestOptions) (whole *classad.Ad, r *api.SubmitRequest, err error) {
	if whole, err = ad.Complete(work, keyword, partitionable); err != nil {
		return nil, nil, err
	}
	if r, err = ad.Request(whole, o); err == nil {
		_, err = ad.ExtrasOf(whole, o) // once it is accepted nobody would hear of it
	}
	return whole, r, err
}
