package fetch

import (
	"context"
	"fmt"
	"path"
	"slices"

	"paddock/classad"
	"paddock/execd/internal/asuser"
	"paddock/execd/internal/conf/knob"
	"paddock/execd/internal/user"
)

// Owners decide as whom fetched work runs.
type Owners struct {
	// Users are asked who a name is.
	Users interface {
		ByName(ctx context.Context, name string) (*user.User, error)
		ByID(ctx context.Context, uid int) (*user.User, error)
	}
	// Self is the uid that alone may run anything, in user mode; -1 in root mode.
	Self int
	// MinUID is the smallest uid that may have jobs, in root mode.
	MinUID func() int
}

// of returns the user that an ad's Owner is. In root mode he must be named, be
// one of those of FETCH_OWNERS (names or patterns of them, none by default), and
// have at least the smallest uid; root, and the account of hooks, are refused whatever
// they say. In user mode there is one user, whomever the ad names, as in HTCondor.
func (o *Owners) of(ctx context.Context, ad *classad.Ad, knobs *knob.Set) (*user.User, error) {
	if o.Self >= 0 {
		return o.Users.ByID(ctx, o.Self)
	}
	name, ok := text(ad, attrOwner)
	if _, there := ad.Lookup(attrOwner); there && !ok {
		return nil, fmt.Errorf("its %s is no string", attrOwner)
	}
	if !ok {
		return nil, fmt.Errorf("it has no %s", attrOwner)
	}
	allowed := slices.ContainsFunc(knobs.Words("FETCH_OWNERS"), func(pattern string) bool {
		match, err := path.Match(pattern, name)
		return err == nil && match
	})
	if !allowed {
		return nil, fmt.Errorf("its %s %q is none of FETCH_OWNERS", attrOwner, short(name))
	}
	u, err := o.Users.ByName(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case u.UID == 0 || u.Name == "root":
		return nil, fmt.Errorf("its %s %q is root, and fetched work never is", attrOwner, short(name))
	case u.Name == asuser.Account:
		// Its job would see what the hooks are told, and could speak for them.
		return nil, fmt.Errorf("its %s %q is the account of hooks, and fetched work never is", attrOwner, short(name))
	case u.UID < o.MinUID():
		return nil, fmt.Errorf("the uid of its %s %q is %d, and at least %d is needed", attrOwner, short(name), u.UID, o.MinUID())
	case u.Name != name:
		return nil, fmt.Errorf("its %s %q is user %s", attrOwner, short(name), u.Name)
	}
	return u, nil
}
